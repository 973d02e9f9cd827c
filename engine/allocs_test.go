package engine_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/tutti-go/tutti/engine"
	"github.com/tutti-go/tutti/mem"
)

// steady is a call of a rank that is made over and over with the same buffers.
type steady struct {
	name string
	call func(c *engine.Comm, in, out []byte, counts []int) error
}

// everyCall takes in and out of a block for each rank.
func everyCall() []steady {
	ctx := context.Background()
	block := func(c *engine.Comm, b []byte) []byte { return b[:len(b)/c.Size()] }
	return []steady{
		{"allreduce", func(c *engine.Comm, in, out []byte, _ []int) error {
			return c.AllReduce(ctx, in, out, mem.F32, mem.Max)
		}},
		{"broadcast", func(c *engine.Comm, in, out []byte, _ []int) error {
			return c.Broadcast(ctx, in, out, mem.F32, 1)
		}},
		{"reduce", func(c *engine.Comm, in, out []byte, _ []int) error {
			return c.Reduce(ctx, in, out, mem.F32, mem.Sum, 1)
		}},
		{"gather", func(c *engine.Comm, in, out []byte, _ []int) error {
			return c.Gather(ctx, block(c, in), out, mem.F32, 1)
		}},
		{"allgather", func(c *engine.Comm, in, out []byte, _ []int) error {
			return c.AllGather(ctx, block(c, in), out, mem.F32)
		}},
		{"scatter", func(c *engine.Comm, in, out []byte, _ []int) error {
			return c.Scatter(ctx, in, block(c, out), mem.F32, 1)
		}},
		{"reduce_scatter", func(c *engine.Comm, in, out []byte, _ []int) error {
			return c.ReduceScatter(ctx, in, block(c, out), mem.F32, mem.Sum)
		}},
		{"alltoall", func(c *engine.Comm, in, out []byte, _ []int) error {
			return c.AllToAll(ctx, in, out, mem.F32)
		}},
		{"barrier", func(c *engine.Comm, _, _ []byte, _ []int) error { return c.Barrier(ctx) }},
		{"gatherv", func(c *engine.Comm, in, out []byte, counts []int) error {
			return c.GatherV(ctx, block(c, in), out, counts, mem.F32, 1)
		}},
		{"gatherv of another root", func(c *engine.Comm, in, out []byte, counts []int) error {
			for root := range c.Size() {
				if err := c.GatherV(ctx, block(c, in), out, counts, mem.F32, root); err != nil {
					return err
				}
			}
			return nil
		}},
		{"allgatherv", func(c *engine.Comm, in, out []byte, counts []int) error {
			return c.AllGatherV(ctx, block(c, in), out, counts, mem.F32)
		}},
		{"scatterv", func(c *engine.Comm, in, out []byte, counts []int) error {
			return c.ScatterV(ctx, in, counts, block(c, out), mem.F32, 1)
		}},
		{"reduce_scatterv", func(c *engine.Comm, in, out []byte, counts []int) error {
			return c.ReduceScatterV(ctx, in, block(c, out), counts, mem.F32, mem.Sum)
		}},
		{"alltoallv", func(c *engine.Comm, in, out []byte, counts []int) error {
			return c.AllToAllV(ctx, in, counts, out, counts, mem.F32)
		}},
		{"sendrecv", func(c *engine.Comm, in, out []byte, _ []int) error {
			return c.SendRecv(ctx, in, 1-c.Rank(), out, 1-c.Rank(), mem.F32)
		}},
		{"send and recv", func(c *engine.Comm, in, out []byte, _ []int) error {
			if c.Rank() == 0 {
				return c.Send(ctx, in, mem.F32, 1)
			}
			return c.Recv(ctx, out, mem.F32, 0)
		}},
		{"allreduce, asynchronously", func(c *engine.Comm, in, out []byte, _ []int) error {
			return waited(c.AllReduceAsync(ctx, in, out, mem.F32, mem.Sum))
		}},
		{"alltoallv, asynchronously", func(c *engine.Comm, in, out []byte, counts []int) error {
			return waited(c.AllToAllVAsync(ctx, in, counts, out, counts, mem.F32))
		}},
		{"barrier, asynchronously", func(c *engine.Comm, _, _ []byte, _ []int) error {
			return waited(c.BarrierAsync(ctx))
		}},
	}
}

func waited(w engine.Work, err error) error {
	if err != nil {
		return err
	}
	return w.Wait(context.Background())
}

// TestNoCallAllocates: no call on any medium and memory, of any size, allocates
// once it has been made.
func TestNoCallAllocates(t *testing.T) {
	const runs = 30
	for _, m := range media {
		if m.name == "late" || m.name == "span" {
			continue // the medium of the test allocates
		}
		for _, size := range []int{16, 4096, 1 << 18} {
			for _, registered := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%d/%v", m.name, size, registered), func(t *testing.T) {
					j := open(t, m, 2, "", nil, 1)
					in, out := j.buffers(t, size, registered), j.buffers(t, size, registered)
					counts := []int{size / 8, size / 8}
					exchanges := []*engine.Exchange{j[0].NewExchange(), j[1].NewExchange()}
					calls := append(everyCall(), steady{"exchange", func(c *engine.Comm, in, out []byte, _ []int) error {
						x := exchanges[c.Rank()]
						for q := range 2 {
							x.Send(in[:len(in)/2], mem.F32, q)
							x.Recv(out[len(out)/2*q:][:len(out)/2], mem.F32, q)
						}
						return x.Run(context.Background())
					}})
					for _, s := range calls {
						call := func(r int) error { return s.call(j[r], in[r], out[r], counts) }
						for range 3 {
							onEveryRank(t, 2, call)
						}
						peer := make(chan error, 1)
						go func() {
							for range runs + 1 { // AllocsPerRun warms up once
								if err := call(1); err != nil {
									peer <- err
									return
								}
							}
							peer <- nil
						}()
						if n := testing.AllocsPerRun(runs, func() {
							if err := call(0); err != nil {
								t.Error(err)
							}
						}); n != 0 {
							t.Errorf("%s: %v allocations a call", s.name, n)
						}
						if err := <-peer; err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
	}
}
