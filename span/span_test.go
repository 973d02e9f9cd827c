package span

import (
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
