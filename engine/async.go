package engine

import (
	"context"

	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/plan"
)

// The collectives once more, asynchronously. Each returns as soon as the call
// is issued, with an error only where it can never run. Calls run in the order
// in which they were issued, beside the caller; a call that blocks waits for
// those issued before it. Up to 256 may be in flight. Buffers belong to the
// call until its Work is done. One goroutine at a time may issue.

// AllReduceAsync is AllReduce, asynchronously.
func (c *Comm) AllReduceAsync(ctx context.Context, send, recv []byte, t mem.DType, op mem.Op) (Work, error) {
	return c.issue(ctx, call{collective: plan.AllReduce, in: send, out: recv, dtype: t, op: op})
}

// AllReduceOverAsync is AllReduceOver, asynchronously.
func (c *Comm) AllReduceOverAsync(ctx context.Context, w Wire, send, recv []byte, op mem.Op) (Work, error) {
	return c.issue(ctx, call{collective: plan.AllReduce, in: send, out: recv, dtype: mem.F32, op: op, wire: w})
}

// BroadcastAsync is Broadcast, asynchronously.
func (c *Comm) BroadcastAsync(ctx context.Context, send, recv []byte, t mem.DType, root int) (Work, error) {
	return c.issue(ctx, call{collective: plan.Broadcast, in: send, out: recv, dtype: t, root: root})
}

// ReduceAsync is Reduce, asynchronously.
func (c *Comm) ReduceAsync(ctx context.Context, send, recv []byte, t mem.DType, op mem.Op, root int) (Work, error) {
	return c.issue(ctx, call{collective: plan.Reduction, in: send, out: recv, dtype: t, op: op, root: root})
}

// GatherAsync is Gather, asynchronously.
func (c *Comm) GatherAsync(ctx context.Context, send, recv []byte, t mem.DType, root int) (Work, error) {
	return c.issue(ctx, call{collective: plan.Gather, in: send, out: recv, dtype: t, root: root})
}

// AllGatherAsync is AllGather, asynchronously.
func (c *Comm) AllGatherAsync(ctx context.Context, send, recv []byte, t mem.DType) (Work, error) {
	return c.issue(ctx, call{collective: plan.AllGather, in: send, out: recv, dtype: t})
}

// ScatterAsync is Scatter, asynchronously.
func (c *Comm) ScatterAsync(ctx context.Context, send, recv []byte, t mem.DType, root int) (Work, error) {
	return c.issue(ctx, call{collective: plan.Scatter, in: send, out: recv, dtype: t, root: root})
}

// ReduceScatterAsync is ReduceScatter, asynchronously.
func (c *Comm) ReduceScatterAsync(ctx context.Context, send, recv []byte, t mem.DType, op mem.Op) (Work, error) {
	return c.issue(ctx, call{collective: plan.ReduceScatter, in: send, out: recv, dtype: t, op: op})
}

// AllToAllAsync is AllToAll, asynchronously.
func (c *Comm) AllToAllAsync(ctx context.Context, send, recv []byte, t mem.DType) (Work, error) {
	return c.issue(ctx, call{collective: plan.AllToAll, in: send, out: recv, dtype: t})
}

// GatherVAsync is GatherV, asynchronously. counts must not change before the
// work is done; that holds for all v forms.
func (c *Comm) GatherVAsync(ctx context.Context, send, recv []byte, counts []int, t mem.DType, root int) (Work, error) {
	return c.issue(ctx, call{collective: plan.Gather, vector: true, in: send, out: recv, outCounts: given(counts), dtype: t, root: root})
}

// AllGatherVAsync is AllGatherV, asynchronously.
func (c *Comm) AllGatherVAsync(ctx context.Context, send, recv []byte, counts []int, t mem.DType) (Work, error) {
	return c.issue(ctx, call{collective: plan.AllGather, vector: true, in: send, out: recv, outCounts: given(counts), dtype: t})
}

// ScatterVAsync is ScatterV, asynchronously.
func (c *Comm) ScatterVAsync(ctx context.Context, send []byte, counts []int, recv []byte, t mem.DType, root int) (Work, error) {
	return c.issue(ctx, call{collective: plan.Scatter, vector: true, in: send, inCounts: given(counts), out: recv, dtype: t, root: root})
}

// ReduceScatterVAsync is ReduceScatterV, asynchronously.
func (c *Comm) ReduceScatterVAsync(ctx context.Context, send, recv []byte, counts []int, t mem.DType, op mem.Op) (Work, error) {
	return c.issue(ctx, call{collective: plan.ReduceScatter, vector: true, in: send, inCounts: given(counts), out: recv, dtype: t, op: op})
}

// AllToAllVAsync is AllToAllV, asynchronously.
func (c *Comm) AllToAllVAsync(ctx context.Context, send []byte, sendCounts []int, recv []byte, recvCounts []int, t mem.DType) (Work, error) {
	return c.issue(ctx, call{
		collective: plan.AllToAll, vector: true,
		in: send, inCounts: given(sendCounts), out: recv, outCounts: given(recvCounts), dtype: t,
	})
}

// BarrierAsync is Barrier, asynchronously: its Work is done when every rank
// has come to it.
func (c *Comm) BarrierAsync(ctx context.Context) (Work, error) {
	return c.issue(ctx, call{collective: plan.Barrier})
}
