package span

import (
	"slices"
	"testing"

	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/link/linktest"
)

// open joins ranks on the given nodes by two media that live in this process.
func open(nodes []int) func(t *testing.T, n int) []link.Fabric {
	return func(t *testing.T, n int) []link.Fabric {
		inside := linktest.Memory(n, linktest.Options{Mapped: true})
		across := linktest.Memory(n, linktest.Options{Late: true})
		out := make([]link.Fabric, n)
		for rank := range out {
			f, err := Join(rank, nodes[:n], inside[rank], across[rank])
			if err != nil {
				t.Fatal(err)
			}
			out[rank] = f
		}
		return out
	}
}

func TestSameNode(t *testing.T)   { linktest.Run(t, open([]int{0, 0})) }
func TestOtherNodes(t *testing.T) { linktest.Run(t, open([]int{0, 1})) }

// mourning is a medium that remembers what it is to pass on, and loses a peer
// when the test says so.
type mourning struct {
	link.Fabric
	mourned *link.PeerLostError
	lose    func(peer int, err error)
}

func (m *mourning) Mourn(lost *link.PeerLostError) { m.mourned = lost }

func (m *mourning) Lost(f func(peer int, err error)) func() {
	m.lose = f
	return func() {}
}

// TestLossIsPassedOn: a loss on one medium is what the other one's peers are to
// hear of, and both together tell of a peer once.
func TestLossIsPassedOn(t *testing.T) {
	inside := &mourning{Fabric: linktest.Memory(3, linktest.Options{Mapped: true})[0]}
	across := &mourning{Fabric: linktest.Memory(3, linktest.Options{})[0]}
	f, err := Join(0, []int{0, 0, 1}, inside, exposing{across, across.Fabric.(link.Exposer)})
	if err != nil {
		t.Fatal(err)
	}
	var heard []int
	f.Lost(func(peer int, _ error) { heard = append(heard, peer) })
	across.lose(2, &link.PeerLostError{Rank: 2})
	inside.lose(2, &link.PeerLostError{Rank: 2}) // as rank 1 says that it goes because of 2
	inside.lose(1, link.ErrClosed)
	if inside.mourned == nil || inside.mourned.Rank != 2 {
		t.Errorf("peers inside would hear of %v", inside.mourned)
	}
	if !slices.Equal(heard, []int{2, 1}) {
		t.Errorf("told of %v", heard)
	}
}

type exposing struct {
	*mourning
	link.Exposer
}

// TestMapsInsideOnly: who is mapped is what the engine chooses plans by.
func TestMapsInsideOnly(t *testing.T) {
	nodes := []int{0, 1, 0, 1}
	fabrics := open(nodes)(t, len(nodes))
	for rank, f := range fabrics {
		for peer := range fabrics {
			if peer == rank {
				continue
			}
			l, err := f.Connect(t.Context(), peer)
			if err != nil {
				t.Fatal(err)
			}
			if _, mapped := l.(link.Mapper); mapped != (nodes[rank] == nodes[peer]) {
				t.Errorf("rank %d on node %d and rank %d on node %d: mapped is %v", rank, nodes[rank], peer, nodes[peer], mapped)
			}
		}
	}
	for _, f := range fabrics {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}
