package tutti

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/internal/cpu"
	"github.com/tutti-go/tutti/plan"
	"github.com/tutti-go/tutti/shm"
)

// EnvHost makes ranks that could share memory take each other for ranks of
// different nodes, unless they have the same value. It is for trying out on one
// machine what happens between several.
const EnvHost = "TUTTI_HOST"

// machines is what ranks learn of each other before there is any medium.
type machines struct {
	nodes plan.Nodes // by who can share memory
	// On the machine where ranks have the fewest cores each; several nodes may
	// be containers of one machine.
	cores   int // that they may use
	sharers int // how many ranks they are
}

// meetMachines lets all ranks tell each other where they run, and holds them to
// the same path.
func meetMachines(ctx context.Context, ex bootstrap.Exchanger, path string) (machines, error) {
	mine, err := ownWhereabouts(path)
	if err != nil {
		return machines{}, err
	}
	blobs, err := ex.AllGather(ctx, mine.encode())
	if err != nil {
		return machines{}, err
	}
	all := make([]whereabouts, len(blobs))
	domains, hosts := make([]string, len(blobs)), make([]string, len(blobs))
	for rank, blob := range blobs {
		if all[rank], err = decodeWhereabouts(blob); err != nil {
			return machines{}, fmt.Errorf("rank %d: %w", rank, err)
		}
		if theirs := all[rank].path; theirs != path {
			return machines{}, &PathError{Path: path, Rank: ex.Rank(),
				Reason: fmt.Sprintf("rank %d asks for %q: all ranks must be given the same", rank, theirs)}
		}
		if hosts[rank] = all[rank].machine; hosts[rank] == "" {
			hosts[rank] = fmt.Sprint("rank ", rank)
		}
		// Where shared memory cannot be had, every rank is alone.
		if domains[rank] = all[rank].domain; domains[rank] == "" {
			domains[rank] = fmt.Sprint("rank ", rank)
		}
	}
	m := machines{nodes: plan.NodesOf(domains)}
	for _, ranks := range plan.NodesOf(hosts).Members() {
		cores := coresOf(all, ranks)
		if m.sharers == 0 || cores*m.sharers < m.cores*len(ranks) {
			m.cores, m.sharers = cores, len(ranks)
		}
	}
	return m, nil
}

// coresOf counts the cores that the ranks of a machine may use in all. A rank
// that is pinned sees its own only, so they put together what each one sees, and
// heed the tightest limit that a cgroup sets to one of them.
func coresOf(all []whereabouts, ranks []int) int {
	seen, limit := map[uint32]bool{}, math.MaxInt
	for _, rank := range ranks {
		limit = min(limit, all[rank].limit)
		for _, core := range all[rank].cores {
			seen[core] = true
		}
	}
	return min(len(seen), limit)
}

// whereabouts is what a rank tells of where it runs.
type whereabouts struct {
	path    string   // of Config
	machine string   // the running kernel
	domain  string   // of shared memory, or "" where there is none
	limit   int      // on cores, of a cgroup
	cores   []uint32 // that it may use
}

func ownWhereabouts(path string) (whereabouts, error) {
	w := whereabouts{path: path, machine: cpu.Machine(), limit: cpu.Limited(math.MaxInt32)}
	usable, err := cpu.Usable()
	if err != nil {
		return w, err
	}
	for _, core := range usable {
		w.cores = append(w.cores, uint32(core))
	}
	if w.domain, err = shm.Domain(); err != nil {
		if !errors.Is(err, shm.ErrUnavailable) {
			return w, err
		}
		return w, nil
	}
	if host := os.Getenv(EnvHost); strings.Contains(host, "\n") {
		return w, &ConfigError{EnvHost, host, []string{"one line"}}
	} else if host != "" {
		w.domain += " " + host
	}
	return w, nil
}

const whereaboutsVersion = 1

var errForeignWhereabouts = errors.New("it tells of its machine in another way: are all ranks the same build?")

func (w whereabouts) encode() []byte {
	b := binary.LittleEndian.AppendUint32(nil, whereaboutsVersion)
	b = binary.LittleEndian.AppendUint32(b, uint32(w.limit))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(w.cores)))
	for _, core := range w.cores {
		b = binary.LittleEndian.AppendUint32(b, core)
	}
	return append(b, w.path+"\n"+w.machine+"\n"+w.domain...)
}

func decodeWhereabouts(b []byte) (whereabouts, error) {
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }
	if len(b) < 12 || word(0) != whereaboutsVersion || int(word(2)) > len(b)/4-3 {
		return whereabouts{}, errForeignWhereabouts
	}
	w := whereabouts{limit: int(word(1)), cores: make([]uint32, word(2))}
	for i := range w.cores {
		w.cores[i] = word(3 + i)
	}
	texts := strings.Split(string(b[4*(3+len(w.cores)):]), "\n")
	if len(texts) != 3 {
		return whereabouts{}, errForeignWhereabouts
	}
	w.path, w.machine, w.domain = texts[0], texts[1], texts[2]
	return w, nil
}
