package engine

import (
	"context"
	"fmt"

	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/plan"
	"github.com/tutti-go/tutti/reduce"
	"github.com/tutti-go/tutti/tune"
)

const oneShot = "allreduce/oneshot"

// AllReduce combines the send buffers of all ranks element by element and
// leaves the result in every rank's recv, bitwise the same everywhere and from
// run to run.
//
// send and recv are len(send)/t.Size() elements of type t; lengths, t and op
// must be the same on all ranks. In place means that send and recv are the
// same slice; otherwise they must not overlap, and send is left as it was.
// Buffers from Alloc are used where they are. Other memory works as well and
// is staged through shared memory; in a call where one rank brings such
// memory, all are treated so.
//
// It blocks until the result is there and no peer touches the buffers any
// more, and allocates nothing once a call of the same kind has been made.
// Errors: *ArgumentError and ErrBusy leave the communicator in order, anything
// else is a *CallError and final. When ctx ends, the call returns its cause
// inside a CallError. Ranks that do not agree get a *MismatchError; only where
// one of them brings so few bytes that it need not ask the others, and another
// one more, do they wait for each other until a ctx ends.
func (c *Comm) AllReduce(ctx context.Context, send, recv []byte, t mem.DType, op mem.Op) error {
	if r := &c.repeat; r.matches(send, recv, t, op) {
		if err := c.enter("allreduce"); err != nil {
			return err
		}
		return c.exit("allreduce", c.door.allReduce(ctx, c.waiters, send, recv, r.stamp, r.kernel, r.count, r.divisor))
	}
	count, err := c.checkAllReduce(send, recv, t, op)
	if err != nil {
		return err
	}
	kernel, err := reduce.Lookup(op, t)
	if err != nil {
		return err
	}
	if err := c.enter("allreduce"); err != nil {
		return err
	}
	if count == 0 {
		return c.exit("allreduce", nil)
	}
	if c.size == 1 {
		copy(recv, send)
		return c.exit("allreduce", nil)
	}
	divisor := 1
	if op == mem.Avg {
		divisor = c.size
	}
	req := tune.Request{
		Collective: plan.AllReduce, Bytes: len(send), Ranks: c.size, Cores: c.cores,
		MappedScratch: c.board,
	}
	if c.board {
		req.Blind = true
		if c.choose(req).Algo == oneShot {
			c.repeat = repeat{len(send), t, op, stampOf(len(send), t, op), kernel, count, divisor}
			return c.exit("allreduce", c.door.allReduce(ctx, c.waiters, send, recv, c.repeat.stamp, kernel, count, divisor))
		}
		req.Blind = false
	}
	k := call{
		collective: plan.AllReduce, dtype: t, op: op,
		in: send, out: recv, count: count, kernel: kernel, divisor: divisor, request: req,
	}
	return c.exit("allreduce", c.run(ctx, &k))
}

// repeat remembers what was found out about the last call that took the door,
// for the next one of its kind: checks, kernel and choice would weigh in the
// smallest allreduce.
type repeat struct {
	bytes          int
	dtype          mem.DType
	op             mem.Op
	stamp          stamp
	kernel         reduce.Func // nil: no call yet
	count, divisor int
}

func (r *repeat) matches(send, recv []byte, t mem.DType, op mem.Op) bool {
	return r.kernel != nil && len(send) == r.bytes && len(recv) == r.bytes &&
		t == r.dtype && op == r.op && !overlap(send, recv)
}

// overlap reports whether two slices of the same length share memory without
// being the same.
func overlap(a, b []byte) bool {
	apart := address(a) - address(b)
	return apart != 0 && (apart < uintptr(len(a)) || -apart < uintptr(len(a)))
}

func (c *Comm) checkAllReduce(send, recv []byte, t mem.DType, op mem.Op) (count int, err error) {
	bad := func(format string, args ...any) (int, error) {
		return 0, &ArgumentError{"allreduce", fmt.Sprintf(format, args...)}
	}
	switch {
	case !op.Supports(t):
		return bad("%v is not defined on %v", op, t)
	case len(send) != len(recv):
		return bad("%d bytes to send, %d to receive", len(send), len(recv))
	case len(send)%t.Size() != 0:
		return bad("%d bytes are not a whole number of %v elements of %d bytes", len(send), t, t.Size())
	case len(send) == 0:
		return 0, nil
	}
	if overlap(send, recv) {
		return bad("send and recv overlap in part; they must be the same or apart")
	}
	return len(send) / t.Size(), nil
}

// Barrier returns when every rank has called it. Errors are those of
// AllReduce.
func (c *Comm) Barrier(ctx context.Context) error {
	if err := c.enter("barrier"); err != nil {
		return err
	}
	if c.size == 1 {
		return c.exit("barrier", nil)
	}
	k := call{collective: plan.Barrier, request: tune.Request{
		Collective: plan.Barrier, Ranks: c.size, Cores: c.cores, MappedScratch: c.board,
	}}
	return c.exit("barrier", c.run(ctx, &k))
}

// Describe tells which medium and algorithm a call would take: an allreduce of
// the given size in bytes, on buffers from Alloc (registered) or others; or a
// barrier.
func (c *Comm) Describe(collective plan.Collective, bytes int, registered bool) (path, algo string) {
	if c.size == 1 {
		return "local", "copy"
	}
	choice := c.choose(tune.Request{
		Collective: collective, Bytes: bytes, Ranks: c.size, Cores: c.cores,
		MappedScratch: c.board, MappedData: c.board && registered,
	})
	return c.fabric.Medium(), choice.Algo
}
