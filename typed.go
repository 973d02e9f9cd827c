package tutti

import (
	"context"

	"github.com/tutti-go/tutti/mem"
)

// The collectives of [Comm] for slices of Go's own types. Each is the method of
// the same name, on the memory of the slices, without a copy; what holds for
// all of them:
//
//   - n is the number of ranks, a block the share of one rank. Below, [k] is a
//     slice of k elements, [n·k] one of n blocks of k, in rank order. k is the
//     same on all ranks, and zero is legal.
//   - All ranks make the same call with the same T, k, op and root, in the same
//     order. Slices that a rank has no use for are ignored and may be nil.
//   - In place means that send and recv are the same slice where both have the
//     same shape, and else that the one of [k] is the rank's own block of the
//     one of [n·k]. Otherwise they must not overlap, and send is left as it was.
//   - A call blocks until its result is there and no peer touches its slices
//     any more. It allocates nothing once a call of its kind has been made.
//   - Slices in memory from [Comm.Alloc] are used where they are; all other
//     memory costs a copy.
//   - Errors: a wrong call is an *engine.ArgumentError and has moved nothing;
//     all else is an *engine.CallError, and final for the Comm.
//
// In the v forms block r has counts[r] elements, and blocks lie one behind the
// other. Written [Σcounts].

// AllReduce combines every rank's send [k] element by element into every
// rank's recv [k]. In place: send and recv are the same.
func AllReduce[T mem.Element](ctx context.Context, c *Comm, send, recv []T, op mem.Op) error {
	return c.AllReduce(ctx, mem.Bytes(send), mem.Bytes(recv), mem.TypeOf[T](), op)
}

// Broadcast copies the root's send [k] to every rank's recv [k]. Only the root
// has a send. In place: the root's send is its recv.
func Broadcast[T mem.Element](ctx context.Context, c *Comm, send, recv []T, root int) error {
	return c.Broadcast(ctx, mem.Bytes(send), mem.Bytes(recv), mem.TypeOf[T](), root)
}

// Reduce combines every rank's send [k] element by element into the root's
// recv [k]. Only the root has a recv. In place: the root's recv is its send.
func Reduce[T mem.Element](ctx context.Context, c *Comm, send, recv []T, op mem.Op, root int) error {
	return c.Reduce(ctx, mem.Bytes(send), mem.Bytes(recv), mem.TypeOf[T](), op, root)
}

// Gather copies every rank's send [k] to block r of the root's recv [n·k].
// Only the root has a recv. In place: the root's send is its block of recv.
func Gather[T mem.Element](ctx context.Context, c *Comm, send, recv []T, root int) error {
	return c.Gather(ctx, mem.Bytes(send), mem.Bytes(recv), mem.TypeOf[T](), root)
}

// AllGather copies every rank's send [k] to block r of every rank's recv
// [n·k]. In place: send is the rank's block of recv.
func AllGather[T mem.Element](ctx context.Context, c *Comm, send, recv []T) error {
	return c.AllGather(ctx, mem.Bytes(send), mem.Bytes(recv), mem.TypeOf[T]())
}

// Scatter copies block r of the root's send [n·k] to rank r's recv [k]. Only
// the root has a send. In place: the root's recv is its block of send.
func Scatter[T mem.Element](ctx context.Context, c *Comm, send, recv []T, root int) error {
	return c.Scatter(ctx, mem.Bytes(send), mem.Bytes(recv), mem.TypeOf[T](), root)
}

// ReduceScatter combines every rank's send [n·k] element by element and leaves
// block r of the result in rank r's recv [k]. In place: recv is the rank's
// block of send.
func ReduceScatter[T mem.Element](ctx context.Context, c *Comm, send, recv []T, op mem.Op) error {
	return c.ReduceScatter(ctx, mem.Bytes(send), mem.Bytes(recv), mem.TypeOf[T](), op)
}

// AllToAll copies block q of rank r's send [n·k] to block r of rank q's recv
// [n·k]. Never in place.
func AllToAll[T mem.Element](ctx context.Context, c *Comm, send, recv []T) error {
	return c.AllToAll(ctx, mem.Bytes(send), mem.Bytes(recv), mem.TypeOf[T]())
}

// GatherV is Gather of sends [counts[r]] to the root's recv [Σcounts]. Only
// the root gives counts.
func GatherV[T mem.Element](ctx context.Context, c *Comm, send, recv []T, counts []int, root int) error {
	return c.GatherV(ctx, mem.Bytes(send), mem.Bytes(recv), counts, mem.TypeOf[T](), root)
}

// AllGatherV is AllGather of sends [counts[r]] to every rank's recv [Σcounts].
// All ranks give the same counts.
func AllGatherV[T mem.Element](ctx context.Context, c *Comm, send, recv []T, counts []int) error {
	return c.AllGatherV(ctx, mem.Bytes(send), mem.Bytes(recv), counts, mem.TypeOf[T]())
}

// ScatterV is Scatter of the root's send [Σcounts] to recvs [counts[r]]. Only
// the root gives counts.
func ScatterV[T mem.Element](ctx context.Context, c *Comm, send []T, counts []int, recv []T, root int) error {
	return c.ScatterV(ctx, mem.Bytes(send), counts, mem.Bytes(recv), mem.TypeOf[T](), root)
}

// ReduceScatterV is ReduceScatter of sends [Σcounts] to recvs [counts[r]]. All
// ranks give the same counts.
func ReduceScatterV[T mem.Element](ctx context.Context, c *Comm, send, recv []T, counts []int, op mem.Op) error {
	return c.ReduceScatterV(ctx, mem.Bytes(send), mem.Bytes(recv), counts, mem.TypeOf[T](), op)
}

// AllToAllV is AllToAll of sends [ΣsendCounts] to recvs [ΣrecvCounts]:
// sendCounts[q] on rank r is recvCounts[r] on rank q. Never in place.
func AllToAllV[T mem.Element](ctx context.Context, c *Comm, send []T, sendCounts []int, recv []T, recvCounts []int) error {
	return c.AllToAllV(ctx, mem.Bytes(send), sendCounts, mem.Bytes(recv), recvCounts, mem.TypeOf[T]())
}

// Send sends buf [k] to rank to, which must Recv a slice of the same k and T.
// It may block until the receiver has it: two ranks that both send before they
// receive may deadlock, where SendRecv cannot.
func Send[T mem.Element](ctx context.Context, c *Comm, buf []T, to int) error {
	return c.Send(ctx, mem.Bytes(buf), mem.TypeOf[T](), to)
}

// Recv fills buf [k] with the next message from rank from.
func Recv[T mem.Element](ctx context.Context, c *Comm, buf []T, from int) error {
	return c.Recv(ctx, mem.Bytes(buf), mem.TypeOf[T](), from)
}

// SendRecv sends one slice to rank to and fills another with the next message
// from rank from, at once; the two may be of different sizes and must not
// overlap. For more messages at once there is [Comm.NewExchange].
func SendRecv[T mem.Element](ctx context.Context, c *Comm, send []T, to int, recv []T, from int) error {
	return c.SendRecv(ctx, mem.Bytes(send), to, mem.Bytes(recv), from, mem.TypeOf[T]())
}
