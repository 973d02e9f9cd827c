package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti/algo"
	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/engine"
	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/plan"
	"github.com/tutti-go/tutti/reduce"
	"github.com/tutti-go/tutti/tune"
)

// randomFloats fills b with numbers whose sums depend on their order.
func randomFloats(b []byte, t mem.DType, rng *rand.Rand) {
	for i := 0; i < len(b); i += t.Size() {
		f := float32(rng.NormFloat64() * float64(int(1)<<rng.IntN(6)))
		switch t {
		case mem.F32:
			*(*float32)(unsafe.Pointer(&b[i])) = f
		case mem.BF16:
			*(*uint16)(unsafe.Pointer(&b[i])) = uint16(*(*uint32)(unsafe.Pointer(&f)) >> 16)
		case mem.F16: // any finite bits: sign, exponent up to 2^5, fraction
			*(*uint16)(unsafe.Pointer(&b[i])) = uint16(rng.IntN(2)<<15 | (8+rng.IntN(12))<<10 | rng.IntN(1<<10))
		}
	}
}

// TestFixedOrder: the bits are those of one pass over the contributions in rank
// order, with every algorithm on every medium; and algorithms that combine
// otherwise are refused.
func TestFixedOrder(t *testing.T) {
	const n, elements = 5, 3001
	refusals, results := 0, 0
	for _, m := range media {
		for _, collective := range []plan.Collective{plan.AllReduce, plan.Reduction, plan.ReduceScatter} {
			for _, name := range append(algo.Names(collective), "") {
				if testing.Short() && m.name == "late" {
					continue
				}
				var p *plan.Plan
				if name != "" {
					root, runs := 0, false
					if collective.Rooted() {
						root = 1
					}
					if p, _, runs = m.planOf(name, n, root); !runs {
						continue
					}
				}
				t.Run(m.name+"/"+collective.String()+"/"+name, func(t *testing.T) {
					j := openOrdered(t, m, n, collective, name)
					for _, dtype := range []mem.DType{mem.F16, mem.BF16, mem.F32} {
						for _, op := range []mem.Op{mem.Sum, mem.Avg} {
							refused, err := j.checkOrder(t, collective, dtype, op, elements)
							if err != nil {
								t.Fatalf("%v of %v: %v", op, dtype, err)
							}
							if refused && (p == nil || p.RankOrder()) {
								t.Fatalf("%v of %v: refused", op, dtype)
							}
							if refused {
								refusals++
							} else {
								results++
							}
						}
					}
				})
			}
		}
	}
	if refusals == 0 || results < 50 {
		t.Errorf("%d results and %d refusals", results, refusals)
	}
}

func openOrdered(t *testing.T, m medium, n int, collective plan.Collective, name string) job {
	ex := bootstrap.Memory(n)
	fabrics := m.open(t, ex)
	j := make(job, n)
	onEveryRank(t, n, func(r int) error {
		c, err := engine.New(t.Context(), engine.Config{
			Rank: r, Size: n, Nodes: m.grouping(n), Exchanger: ex[r], Fabric: fabrics[r], Plan: algo.NewOver, FixedOrder: true,
			Cores: runtime.GOMAXPROCS(0), Threads: 1,
			Choose: func(r tune.Request) tune.Choice {
				choice := tune.Choose(r)
				if name != "" && r.Collective == collective {
					choice = tune.For(name, r)
				}
				choice.TileBytes = min(choice.TileBytes, 2048)
				return choice
			},
		})
		j[r] = c
		return err
	})
	t.Cleanup(func() {
		for _, c := range j {
			c.Close()
		}
	})
	return j
}

// checkOrder makes a call of random numbers and compares its bits.
func (j job) checkOrder(t *testing.T, collective plan.Collective, dtype mem.DType, op mem.Op, elements int) (refused bool, err error) {
	n, size := len(j), dtype.Size()
	blocks := 1
	if collective == plan.ReduceScatter {
		blocks = n
	}
	ins, outs := j.buffers(t, blocks*elements*size, true), j.buffers(t, elements*size, true)
	var srcs []unsafe.Pointer
	for r, b := range ins {
		randomFloats(b, dtype, rand.New(rand.NewPCG(uint64(r), 99)))
		srcs = append(srcs, unsafe.Pointer(&b[0]))
	}
	want := make([]byte, len(ins[0]))
	kernel, err := reduce.Lookup(op, dtype)
	if err != nil {
		return false, err
	}
	divisor := 1
	if op == mem.Avg {
		divisor = n
	}
	kernel([]unsafe.Pointer{unsafe.Pointer(&want[0])}, srcs, blocks*elements, divisor)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for r, err := range errorsOf(n, func(r int) error {
		switch collective {
		case plan.AllReduce:
			return j[r].AllReduce(ctx, ins[r], outs[r], dtype, op)
		case plan.Reduction:
			return j[r].Reduce(ctx, ins[r], outs[r], dtype, op, 1)
		}
		return j[r].ReduceScatter(ctx, ins[r], outs[r], dtype, op)
	}) {
		var arg *engine.ArgumentError
		if errors.As(err, &arg) && strings.Contains(arg.Reason, "rank order") {
			refused = true
			continue
		}
		if err != nil || refused {
			return false, fmt.Errorf("rank %d: refused %v, %w", r, refused, err)
		}
	}
	for r, got := range outs {
		switch {
		case refused, collective == plan.Reduction && r != 1:
		case !bytes.Equal(got, want[r%blocks*len(got):][:len(got)]):
			return false, fmt.Errorf("rank %d has other bits", r)
		}
	}
	return refused, nil
}
