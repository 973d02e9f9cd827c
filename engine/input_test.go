package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/tutti-go/tutti/engine"
	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
)

// TestBadInput: each is an ArgumentError on the rank that brings it, at once
// and alone, and the job goes on.
func TestBadInput(t *testing.T) {
	const n, f32 = 3, mem.F32
	b, far := mem.Bytes(make([]uint64, 100)), mem.Bytes(make([]uint64, 100))
	none := mem.DType(99)
	type do = func(c *engine.Comm, ctx context.Context) error
	four, twelve := b[:4], b[:12]
	cases := map[string]do{
		"broadcast root high":   func(c *engine.Comm, ctx context.Context) error { return c.Broadcast(ctx, b, b, f32, n) },
		"broadcast root low":    func(c *engine.Comm, ctx context.Context) error { return c.Broadcast(ctx, b, b, f32, -1) },
		"broadcast overlap":     func(c *engine.Comm, ctx context.Context) error { return c.Broadcast(ctx, b[:16], b[4:20], f32, 0) },
		"broadcast sizes":       func(c *engine.Comm, ctx context.Context) error { return c.Broadcast(ctx, b[:16], far[:20], f32, 0) },
		"broadcast type":        func(c *engine.Comm, ctx context.Context) error { return c.Broadcast(ctx, b, b, none, 0) },
		"reduce root high":      func(c *engine.Comm, ctx context.Context) error { return c.Reduce(ctx, b, b, f32, mem.Sum, n) },
		"reduce bits of floats": func(c *engine.Comm, ctx context.Context) error { return c.Reduce(ctx, b, b, f32, mem.Band, 0) },
		"reduce operator":       func(c *engine.Comm, ctx context.Context) error { return c.Reduce(ctx, b, b, f32, mem.Op(99), 0) },
		"reduce overlap": func(c *engine.Comm, ctx context.Context) error {
			return c.Reduce(ctx, b[:16], b[4:20], f32, mem.Sum, 0)
		},
		"gather root high": func(c *engine.Comm, ctx context.Context) error {
			return c.Gather(ctx, four, far[:12], f32, math.MaxInt)
		},
		"gather unequal":       func(c *engine.Comm, ctx context.Context) error { return c.Gather(ctx, four, far[:16], f32, 0) },
		"gather size":          func(c *engine.Comm, ctx context.Context) error { return c.Gather(ctx, b[:8], far[:12], f32, 0) },
		"gather not own block": func(c *engine.Comm, ctx context.Context) error { return c.Gather(ctx, b[4:8], twelve, f32, 0) },
		"allgather unequal":    func(c *engine.Comm, ctx context.Context) error { return c.AllGather(ctx, four, far[:16], f32) },
		"allgather not own":    func(c *engine.Comm, ctx context.Context) error { return c.AllGather(ctx, b[4:8], twelve, f32) },
		"allgather not whole":  func(c *engine.Comm, ctx context.Context) error { return c.AllGather(ctx, b[:3], far[:9], f32) },
		"scatter root low": func(c *engine.Comm, ctx context.Context) error {
			return c.Scatter(ctx, twelve, far[:4], f32, math.MinInt)
		},
		"scatter unequal":       func(c *engine.Comm, ctx context.Context) error { return c.Scatter(ctx, b[:16], far[:4], f32, 0) },
		"scatter not own block": func(c *engine.Comm, ctx context.Context) error { return c.Scatter(ctx, twelve, b[8:12], f32, 0) },
		"reduce_scatter unequal": func(c *engine.Comm, ctx context.Context) error {
			return c.ReduceScatter(ctx, b[:16], far[:4], f32, mem.Sum)
		},
		"reduce_scatter not own": func(c *engine.Comm, ctx context.Context) error {
			return c.ReduceScatter(ctx, twelve, b[4:8], f32, mem.Sum)
		},
		"reduce_scatter floats": func(c *engine.Comm, ctx context.Context) error {
			return c.ReduceScatter(ctx, twelve, far[:4], f32, mem.Bor)
		},
		"alltoall in place": func(c *engine.Comm, ctx context.Context) error { return c.AllToAll(ctx, twelve, twelve, f32) },
		"alltoall unequal":  func(c *engine.Comm, ctx context.Context) error { return c.AllToAll(ctx, b[:16], far[:16], f32) },
		"alltoall sizes":    func(c *engine.Comm, ctx context.Context) error { return c.AllToAll(ctx, twelve, far[:24], f32) },
		"wire unknown": func(c *engine.Comm, ctx context.Context) error {
			return c.AllReduceOver(ctx, engine.Wire(9), b, b, mem.Sum)
		},
		"wire and maximum": func(c *engine.Comm, ctx context.Context) error {
			return c.AllReduceOver(ctx, engine.WireF16, b, b, mem.Max)
		},

		"gatherv no counts": func(c *engine.Comm, ctx context.Context) error { return c.GatherV(ctx, four, far[:12], nil, f32, 0) },
		"gatherv negative": func(c *engine.Comm, ctx context.Context) error {
			return c.GatherV(ctx, four, far[:12], []int{1, 3, -1}, f32, 0)
		},
		"gatherv sum": func(c *engine.Comm, ctx context.Context) error {
			return c.GatherV(ctx, four, far[:12], []int{1, 1, 2}, f32, 0)
		},
		"gatherv own block": func(c *engine.Comm, ctx context.Context) error {
			return c.GatherV(ctx, four, far[:12], []int{0, 1, 2}, f32, 0)
		},
		"gatherv overflow": func(c *engine.Comm, ctx context.Context) error {
			return c.GatherV(ctx, four, far[:12], []int{1, math.MaxInt, math.MaxInt}, f32, 0)
		},
		"allgatherv too many": func(c *engine.Comm, ctx context.Context) error {
			return c.AllGatherV(ctx, four, far[:12], []int{1, 1, 1, 0}, f32)
		},
		"allgatherv not own": func(c *engine.Comm, ctx context.Context) error {
			return c.AllGatherV(ctx, b[4:8], twelve, []int{1, 1, 1}, f32)
		},
		"scatterv few": func(c *engine.Comm, ctx context.Context) error {
			return c.ScatterV(ctx, twelve, []int{1, 2}, far[:4], f32, 0)
		},
		"scatterv own block": func(c *engine.Comm, ctx context.Context) error {
			return c.ScatterV(ctx, twelve, []int{1, 1, 1}, far[:8], f32, 0)
		},
		"reduce_scatterv sum": func(c *engine.Comm, ctx context.Context) error {
			return c.ReduceScatterV(ctx, twelve, far[:4], []int{1, 1, 0}, f32, mem.Sum)
		},
		"reduce_scatterv overlap": func(c *engine.Comm, ctx context.Context) error {
			return c.ReduceScatterV(ctx, twelve, b[8:12], []int{1, 1, 1}, f32, mem.Sum)
		},
		"alltoallv own": func(c *engine.Comm, ctx context.Context) error {
			return c.AllToAllV(ctx, twelve, []int{1, 1, 1}, far[:12], []int{0, 1, 2}, f32)
		},
		"alltoallv huge": func(c *engine.Comm, ctx context.Context) error {
			return c.AllToAllV(ctx, twelve, []int{math.MaxInt / 4, 1, 1}, far[:12], []int{1, 1, 1}, f32)
		},
		"alltoallv in place": func(c *engine.Comm, ctx context.Context) error {
			return c.AllToAllV(ctx, twelve, []int{1, 1, 1}, twelve, []int{1, 1, 1}, f32)
		},
	}
	for _, m := range media[1:3] {
		j := open(t, m, n, "", nil, 1)
		for name, call := range cases {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			var arg *engine.ArgumentError
			if err := call(j[0], ctx); !errors.As(err, &arg) {
				t.Fatalf("%s: %s: %v, want an ArgumentError", m.name, name, err)
			}
			cancel()
		}
		j.checkSum(t, 64, false, true, false)
	}
}

// TestClosedComm: every call says so.
func TestClosedComm(t *testing.T) {
	j := open(t, media[1], 2, "", nil, 1)
	in, out, counts := make([]byte, 16), make([]byte, 16), []int{2, 2}
	if err := j[0].Close(); err != nil {
		t.Fatal(err)
	}
	for _, s := range everyCall() {
		var call *engine.CallError
		if err := s.call(j[0], in, out, counts); !errors.Is(err, link.ErrClosed) || !errors.As(err, &call) {
			t.Errorf("%s: %v", s.name, err)
		}
	}
	if _, err := j[0].Split(t.Context(), 0, 0); !errors.Is(err, link.ErrClosed) {
		t.Errorf("split: %v", err)
	}
	if _, err := j[0].Alloc(8); !errors.Is(err, link.ErrClosed) {
		t.Errorf("alloc: %v", err)
	}
}

// TestDisagreement: where the last of three ranks calls something else, every
// rank that waits for somebody else's word learns who called what.
func TestDisagreement(t *testing.T) {
	const n = 3
	type do func(c *engine.Comm, ctx context.Context, b, o []byte) error
	sum := func(k mem.DType, op mem.Op) do {
		return func(c *engine.Comm, ctx context.Context, b, _ []byte) error { return c.AllReduce(ctx, b, b, k, op) }
	}
	broadcast := func(root int) do {
		return func(c *engine.Comm, ctx context.Context, b, _ []byte) error {
			return c.Broadcast(ctx, b, b, mem.F32, root)
		}
	}
	gather := func(root int) do {
		return func(c *engine.Comm, ctx context.Context, b, o []byte) error {
			return c.Gather(ctx, b[:len(b)/n], o, mem.F32, root)
		}
	}
	shorter := func(f do) do {
		return func(c *engine.Comm, ctx context.Context, b, o []byte) error {
			return f(c, ctx, b[:len(b)-len(b)/4], o[:len(o)-len(o)/4])
		}
	}
	over := func(w engine.Wire) do {
		return func(c *engine.Comm, ctx context.Context, b, _ []byte) error {
			return c.AllReduceOver(ctx, w, b, b, mem.Sum)
		}
	}
	gatherv := func(c *engine.Comm, ctx context.Context, b, o []byte) error {
		e := len(b) / 4 / n
		return c.AllGatherV(ctx, b[:len(b)/n], o, []int{e, e, e}, mem.F32)
	}
	alltoallv := func(c *engine.Comm, ctx context.Context, b, o []byte) error {
		e := len(b) / 4 / n
		return c.AllToAllV(ctx, b, []int{e, e, e}, o, []int{e, e, e}, mem.F32)
	}
	for name, calls := range map[string][2]do{
		"collective": {sum(mem.F32, mem.Sum), broadcast(0)},
		"type":       {sum(mem.F32, mem.Sum), sum(mem.I32, mem.Sum)},
		"operator":   {sum(mem.F32, mem.Sum), sum(mem.F32, mem.Min)},
		"size":       {sum(mem.F32, mem.Sum), shorter(sum(mem.F32, mem.Sum))},
		"root":       {broadcast(0), broadcast(1)},
		"root two":   {gather(0), gather(1)},
		"wire":       {over(engine.WireF16), over(engine.WireBF16)},
		"wire full":  {over(engine.WireFull), over(engine.WireF16)},
		"v forms":    {gatherv, alltoallv},
	} {
		for _, size := range []int{96, 1 << 20 / 96 * 96} {
			if size < 4096 && name == "wire full" {
				continue // one of them asks the others and the other does not
			}
			for _, m := range media[:2] {
				t.Run(fmt.Sprintf("%s/%d/%s", name, size, m.name), func(t *testing.T) {
					j := open(t, m, n, "", nil, 1)
					in, out := j.buffers(t, size, true), j.buffers(t, size, true)
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					defer cancel()
					told := 0
					for r, err := range errorsOf(n, func(r int) error { return calls[r/2](j[r], ctx, in[r], out[r]) }) {
						var mismatch *engine.MismatchError
						if err == nil && size < 4096 {
							continue // it waits for nobody who disagrees
						}
						if !errors.As(err, &mismatch) || mismatch.Rank/2 == r/2 || mismatch.Mine == mismatch.Theirs {
							t.Errorf("rank %d: %v, want a MismatchError", r, err)
							continue
						}
						told++
					}
					if told == 0 {
						t.Error("nobody is told")
					}
				})
			}
		}
	}
}

// TestCountsThatDisagree are told to every rank, on every medium, also to those
// between whom they do not travel; but in rooted forms where memory is mapped, to
// the receiver.
func TestCountsThatDisagree(t *testing.T) {
	const n = 3
	even := []int{10, 10, 10}
	type do func(c *engine.Comm, ctx context.Context, in, out []byte) error
	for name, tt := range map[string]struct {
		calls [n]do
		want  engine.CountError
	}{
		"gatherv": {[n]do{
			func(c *engine.Comm, ctx context.Context, in, out []byte) error {
				return c.GatherV(ctx, in[:40], nil, nil, mem.F32, 1)
			},
			func(c *engine.Comm, ctx context.Context, in, out []byte) error {
				return c.GatherV(ctx, in[:40], out[:120], even, mem.F32, 1)
			},
			func(c *engine.Comm, ctx context.Context, in, out []byte) error {
				return c.GatherV(ctx, in[:44], nil, nil, mem.F32, 1)
			},
		}, engine.CountError{Call: "gatherv", From: 2, To: 1, Sent: 44, Expected: 40}},
		"scatterv": {[n]do{
			func(c *engine.Comm, ctx context.Context, in, out []byte) error {
				return c.ScatterV(ctx, in[:120], even, out[:40], mem.F32, 0)
			},
			func(c *engine.Comm, ctx context.Context, in, out []byte) error {
				return c.ScatterV(ctx, nil, nil, out[:0], mem.F32, 0)
			},
			func(c *engine.Comm, ctx context.Context, in, out []byte) error {
				return c.ScatterV(ctx, nil, nil, out[:40], mem.F32, 0)
			},
		}, engine.CountError{Call: "scatterv", From: 0, To: 1, Sent: 40, Expected: 0}},
		"allgatherv": {[n]do{
			func(c *engine.Comm, ctx context.Context, in, out []byte) error {
				return c.AllGatherV(ctx, in[:40], out[:120], even, mem.F32)
			},
			func(c *engine.Comm, ctx context.Context, in, out []byte) error {
				return c.AllGatherV(ctx, in[:40], out[:120], even, mem.F32)
			},
			func(c *engine.Comm, ctx context.Context, in, out []byte) error {
				return c.AllGatherV(ctx, in[:40], out[:116], []int{10, 9, 10}, mem.F32)
			},
		}, engine.CountError{Call: "allgatherv", From: 1, To: 2, Sent: 40, Expected: 36}},
		"reduce_scatterv": {[n]do{
			func(c *engine.Comm, ctx context.Context, in, out []byte) error {
				return c.ReduceScatterV(ctx, in[:120], out[:40], even, mem.F32, mem.Sum)
			},
			func(c *engine.Comm, ctx context.Context, in, out []byte) error {
				return c.ReduceScatterV(ctx, in[:120], out[:40], even, mem.F32, mem.Sum)
			},
			func(c *engine.Comm, ctx context.Context, in, out []byte) error {
				return c.ReduceScatterV(ctx, in[:124], out[:44], []int{10, 10, 11}, mem.F32, mem.Sum)
			},
		}, engine.CountError{Call: "reduce_scatterv", From: 0, To: 2, Sent: 40, Expected: 44}},
		"alltoallv": {[n]do{
			func(c *engine.Comm, ctx context.Context, in, out []byte) error {
				return c.AllToAllV(ctx, in[:120], even, out[:120], even, mem.F32)
			},
			func(c *engine.Comm, ctx context.Context, in, out []byte) error {
				return c.AllToAllV(ctx, in[:120], even, out[:120], even, mem.F32)
			},
			func(c *engine.Comm, ctx context.Context, in, out []byte) error {
				return c.AllToAllV(ctx, in[:120], even, out[:120], []int{9, 11, 10}, mem.F32)
			},
		}, engine.CountError{Call: "alltoallv", From: 0, To: 2, Sent: 40, Expected: 36}},
	} {
		for _, m := range media {
			t.Run(name+"/"+m.name, func(t *testing.T) {
				j := open(t, m, n, "", nil, 1)
				in, out := j.buffers(t, 128, true), j.buffers(t, 128, false)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				for r, err := range errorsOf(n, func(r int) error { return tt.calls[r](j[r], ctx, in[r], out[r]) }) {
					var counts *engine.CountError
					if m.mapped && (name == "gatherv" || name == "scatterv") && r != tt.want.To {
						if err != nil {
							t.Errorf("rank %d: %v", r, err)
						}
						continue
					}
					if !errors.As(err, &counts) || *counts != tt.want {
						t.Errorf("rank %d: %v, want %v", r, err, &tt.want)
					}
				}
			})
		}
	}
}

// TestLongBlocksThatDisagree: where blocks of a v form are messages, the sender
// is told as well if it has to wait.
func TestLongBlocksThatDisagree(t *testing.T) {
	const block = 1 << 20
	half := []int{block / 4, block / 4}
	for name, tt := range map[string]struct {
		root, other func(c *engine.Comm, ctx context.Context, b []byte) error
		want        *engine.CountError // or a MismatchError
	}{
		"scatterv counts": {
			func(c *engine.Comm, ctx context.Context, b []byte) error {
				return c.ScatterV(ctx, b, half, b[:block], mem.F32, 0)
			},
			func(c *engine.Comm, ctx context.Context, b []byte) error {
				return c.ScatterV(ctx, nil, nil, b[:block-4], mem.F32, 0)
			},
			&engine.CountError{Call: "scatterv", From: 0, To: 1, Sent: block, Expected: block - 4},
		},
		"scatterv types": {
			func(c *engine.Comm, ctx context.Context, b []byte) error {
				return c.ScatterV(ctx, b, half, b[:block], mem.F32, 0)
			},
			func(c *engine.Comm, ctx context.Context, b []byte) error {
				return c.ScatterV(ctx, nil, nil, b[:block], mem.I32, 0)
			},
			nil,
		},
		"gatherv counts": {
			func(c *engine.Comm, ctx context.Context, b []byte) error {
				return c.GatherV(ctx, b[:block], b, half, mem.F32, 0)
			},
			func(c *engine.Comm, ctx context.Context, b []byte) error {
				return c.GatherV(ctx, b[:block-4], nil, nil, mem.F32, 0)
			},
			&engine.CountError{Call: "gatherv", From: 1, To: 0, Sent: block - 4, Expected: block},
		},
		"gatherv counts, a short one expected": {
			func(c *engine.Comm, ctx context.Context, b []byte) error {
				return c.GatherV(ctx, b[:block], b[:block+4], []int{block / 4, 1}, mem.F32, 0)
			},
			func(c *engine.Comm, ctx context.Context, b []byte) error {
				return c.GatherV(ctx, b[:block], nil, nil, mem.F32, 0)
			},
			&engine.CountError{Call: "gatherv", From: 1, To: 0, Sent: block, Expected: 4},
		},
		"gatherv types": {
			func(c *engine.Comm, ctx context.Context, b []byte) error {
				return c.GatherV(ctx, b[:block], b, half, mem.F32, 0)
			},
			func(c *engine.Comm, ctx context.Context, b []byte) error {
				return c.GatherV(ctx, b[:block], nil, nil, mem.I32, 0)
			},
			nil,
		},
	} {
		for _, m := range media[:2] {
			j := open(t, m, 2, "", nil, 1)
			bufs := j.buffers(t, 2*block, true)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			errs := errorsOf(2, func(r int) error {
				if r == 0 {
					return tt.root(j[0], ctx, bufs[0])
				}
				return tt.other(j[1], ctx, bufs[1])
			})
			for r, err := range errs {
				var counts *engine.CountError
				var mismatch *engine.MismatchError
				switch {
				case tt.want == nil && errors.As(err, &mismatch):
				case tt.want != nil && errors.As(err, &counts) && *counts == *tt.want:
				default:
					t.Errorf("%s, %s: rank %d: %v, want %v", name, m.name, r, err, tt.want)
				}
			}
		}
	}
}
