package engine

import (
	"context"

	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/plan"
)

// The collectives. What holds for all of them:
//
// Buffers are bytes that hold elements of type t; below, n is the number of
// ranks and a block is the share of one rank. All ranks must make the same
// call with the same t, operator, root and size of blocks, and make their
// calls in the same order.
//
// In place means that the send and the receive buffer are the same memory; or,
// where one of them has n blocks and the other one, that the latter is the
// rank's own block of the former. Otherwise they must not overlap, and the
// send buffer is left as it was. AllToAll is never in place.
//
// A rank may bring buffers from Alloc or registered ones, which are used where
// they are, or any other memory, which is reached through the kernel or copied
// through shared memory; in a call where one rank brings such memory, all are
// treated so. Results are bitwise the same on every rank and from run to run.
//
// A call blocks until its result is there and no peer touches its buffers any
// more. It allocates nothing once a call of its kind has been made. Zero
// elements are legal, and so is one rank.
//
// Errors: *ArgumentError and ErrBusy leave the communicator in order and
// nothing has moved; anything else is a *CallError and final. When ctx ends,
// the call returns its cause inside a CallError. Ranks that do not agree get a
// *MismatchError or *CountError, on every rank that can know. In a rooted call
// of up to 64 KiB, and in a rooted v form, only those can know who need the
// other's bytes; a rank that calls something else meanwhile may wait for the
// others until its ctx ends. Where nothing is mapped, ranks compare the v forms
// only: in other calls, ranks that do not agree get anything.

// AllReduce combines the send buffers of all ranks element by element and
// leaves the result in every rank's recv.
func (c *Comm) AllReduce(ctx context.Context, send, recv []byte, t mem.DType, op mem.Op) error {
	if n := &c.knocks[plan.AllReduce]; n.matches(send, recv, t, op, 0) {
		return c.again(ctx, n, send, recv)
	}
	return c.call(ctx, call{collective: plan.AllReduce, in: send, out: recv, dtype: t, op: op})
}

// AllReduceOver is AllReduce of F32 by sum or avg, with the elements in fewer
// bits on their way. Each contribution is coded once, added up in 32 bits, and
// the sum coded once more; package reduce/codec states the error of each form.
func (c *Comm) AllReduceOver(ctx context.Context, w Wire, send, recv []byte, op mem.Op) error {
	return c.call(ctx, call{collective: plan.AllReduce, in: send, out: recv, dtype: mem.F32, op: op, wire: w})
}

// Broadcast copies the root's send to every rank's recv. Other ranks' send is
// ignored.
func (c *Comm) Broadcast(ctx context.Context, send, recv []byte, t mem.DType, root int) error {
	if c.rank != root {
		send = nil
	}
	if n := &c.knocks[plan.Broadcast]; n.matches(send, recv, t, 0, root) {
		return c.again(ctx, n, send, recv)
	}
	return c.call(ctx, call{collective: plan.Broadcast, in: send, out: recv, dtype: t, root: root})
}

// Reduce combines the send buffers of all ranks element by element and leaves
// the result in the root's recv. Other ranks' recv is ignored.
func (c *Comm) Reduce(ctx context.Context, send, recv []byte, t mem.DType, op mem.Op, root int) error {
	if c.rank != root {
		recv = nil
	}
	if n := &c.knocks[plan.Reduction]; n.matches(send, recv, t, op, root) {
		return c.again(ctx, n, send, recv)
	}
	return c.call(ctx, call{collective: plan.Reduction, in: send, out: recv, dtype: t, op: op, root: root})
}

// Gather copies every rank's send, in rank order, to the n blocks of the
// root's recv. Other ranks' recv is ignored.
func (c *Comm) Gather(ctx context.Context, send, recv []byte, t mem.DType, root int) error {
	if c.rank != root {
		recv = nil
	}
	if n := &c.knocks[plan.Gather]; n.matches(send, recv, t, 0, root) {
		return c.again(ctx, n, send, recv)
	}
	return c.call(ctx, call{collective: plan.Gather, in: send, out: recv, dtype: t, root: root})
}

// AllGather copies every rank's send, in rank order, to the n blocks of every
// rank's recv.
func (c *Comm) AllGather(ctx context.Context, send, recv []byte, t mem.DType) error {
	if n := &c.knocks[plan.AllGather]; n.matches(send, recv, t, 0, 0) {
		return c.again(ctx, n, send, recv)
	}
	return c.call(ctx, call{collective: plan.AllGather, in: send, out: recv, dtype: t})
}

// Scatter copies block r of the root's send to the recv of rank r. Other
// ranks' send is ignored.
func (c *Comm) Scatter(ctx context.Context, send, recv []byte, t mem.DType, root int) error {
	if c.rank != root {
		send = nil
	}
	if n := &c.knocks[plan.Scatter]; n.matches(send, recv, t, 0, root) {
		return c.again(ctx, n, send, recv)
	}
	return c.call(ctx, call{collective: plan.Scatter, in: send, out: recv, dtype: t, root: root})
}

// ReduceScatter combines the send buffers of all ranks, of n blocks each,
// element by element and leaves block r of the result in the recv of rank r.
func (c *Comm) ReduceScatter(ctx context.Context, send, recv []byte, t mem.DType, op mem.Op) error {
	if n := &c.knocks[plan.ReduceScatter]; n.matches(send, recv, t, op, 0) {
		return c.again(ctx, n, send, recv)
	}
	return c.call(ctx, call{collective: plan.ReduceScatter, in: send, out: recv, dtype: t, op: op})
}

// AllToAll copies block q of rank r's send to block r of rank q's recv, for
// all r and q.
func (c *Comm) AllToAll(ctx context.Context, send, recv []byte, t mem.DType) error {
	if n := &c.knocks[plan.AllToAll]; n.matches(send, recv, t, 0, 0) {
		return c.again(ctx, n, send, recv)
	}
	return c.call(ctx, call{collective: plan.AllToAll, in: send, out: recv, dtype: t})
}

// GatherV is Gather with blocks of different sizes. counts are the elements of
// each rank's block, in rank order and without gaps in recv; only the root
// gives them.
func (c *Comm) GatherV(ctx context.Context, send, recv []byte, counts []int, t mem.DType, root int) error {
	if c.rank != root {
		recv, counts = nil, nil
	}
	if v := &c.vectors[plan.Gather]; v.matches(send, recv, nil, counts, t, 0, root) {
		return c.vectorAgain(ctx, v, send, recv)
	}
	return c.call(ctx, call{collective: plan.Gather, vector: true, in: send, out: recv, outCounts: given(counts), dtype: t, root: root})
}

// AllGatherV is AllGather with blocks of different sizes. counts are the
// elements of each rank's block, without gaps in recv, the same on all ranks.
func (c *Comm) AllGatherV(ctx context.Context, send, recv []byte, counts []int, t mem.DType) error {
	if v := &c.vectors[plan.AllGather]; v.matches(send, recv, nil, counts, t, 0, 0) {
		return c.vectorAgain(ctx, v, send, recv)
	}
	return c.call(ctx, call{collective: plan.AllGather, vector: true, in: send, out: recv, outCounts: given(counts), dtype: t})
}

// ScatterV is Scatter with blocks of different sizes. counts are the elements
// of each rank's block, without gaps in send; only the root gives them.
func (c *Comm) ScatterV(ctx context.Context, send []byte, counts []int, recv []byte, t mem.DType, root int) error {
	if c.rank != root {
		send, counts = nil, nil
	}
	if v := &c.vectors[plan.Scatter]; v.matches(send, recv, counts, nil, t, 0, root) {
		return c.vectorAgain(ctx, v, send, recv)
	}
	return c.call(ctx, call{collective: plan.Scatter, vector: true, in: send, inCounts: given(counts), out: recv, dtype: t, root: root})
}

// ReduceScatterV is ReduceScatter with blocks of different sizes. counts are
// the elements of each rank's block, without gaps in send, the same on all
// ranks.
func (c *Comm) ReduceScatterV(ctx context.Context, send, recv []byte, counts []int, t mem.DType, op mem.Op) error {
	if v := &c.vectors[plan.ReduceScatter]; v.matches(send, recv, counts, nil, t, op, 0) {
		return c.vectorAgain(ctx, v, send, recv)
	}
	return c.call(ctx, call{collective: plan.ReduceScatter, vector: true, in: send, inCounts: given(counts), out: recv, dtype: t, op: op})
}

// AllToAllV is AllToAll with blocks of different sizes: sendCounts are the
// elements for each rank, without gaps in send, and recvCounts those from each
// rank, without gaps in recv.
func (c *Comm) AllToAllV(ctx context.Context, send []byte, sendCounts []int, recv []byte, recvCounts []int, t mem.DType) error {
	if v := &c.vectors[plan.AllToAll]; v.matches(send, recv, sendCounts, recvCounts, t, 0, 0) {
		return c.vectorAgain(ctx, v, send, recv)
	}
	return c.call(ctx, call{
		collective: plan.AllToAll, vector: true,
		in: send, inCounts: given(sendCounts), out: recv, outCounts: given(recvCounts), dtype: t,
	})
}

// Barrier returns when every rank has called it.
func (c *Comm) Barrier(ctx context.Context) error {
	if n := &c.knocks[plan.Barrier]; n.made() {
		return c.again(ctx, n, nil, nil)
	}
	return c.call(ctx, call{collective: plan.Barrier})
}

// given is counts, but never nil: a caller who gives none gets an error.
func given(counts []int) []int {
	if counts == nil {
		return []int{}
	}
	return counts
}

// call runs a collective when those before it are done.
func (c *Comm) call(ctx context.Context, k call) error {
	if c.worker != nil {
		if err := c.settle(ctx, k.name()); err != nil {
			return err
		}
	}
	return c.do(ctx, &k)
}

// again makes a small call of which the last of its kind has left everything
// but the buffers.
func (c *Comm) again(ctx context.Context, n *knock, send, recv []byte) error {
	if c.worker != nil {
		if err := c.settle(ctx, n.name); err != nil {
			return err
		}
	}
	if err := c.begin(n.name); err != nil {
		return err
	}
	return c.exit(n.name, c.door.call(ctx, c.waiters, n, send, recv))
}

// Describe tells which medium and algorithm a call would take whose blocks
// have the given size in bytes, on buffers from Alloc (registered) or others.
func (c *Comm) Describe(collective plan.Collective, bytes int, registered bool) (path, algo string) {
	if c.size == 1 {
		return "local", "copy"
	}
	k := call{collective: collective, block: bytes}
	r := c.request(&k)
	r.Blind = true
	if choice := c.choose(&k, r); choice.Algo != "" {
		return c.family.fabric.Medium(), choice.Algo
	}
	r.Blind, r.MappedData = false, registered
	return c.family.fabric.Medium(), c.choose(&k, r).Algo
}
