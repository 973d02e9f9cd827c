package engine

import (
	"context"
	"unsafe"

	"github.com/tutti-go/tutti/internal/move"
	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/reduce"
)

// door runs allreduce/oneshot over mapped memory without the executor: the
// only way to a few hundred nanoseconds. It computes what that plan states.
//
// Each rank has eight lines for payloads of up to 48 bytes and two slots for
// larger ones. Both start with a counter, and the payload of a line rides in
// the counter's own cache line, so that it arrives with the count. To call, a
// rank copies its input into its line or slot and raises the counter there to
// the number of the call; it then waits for everybody's counter and reduces
// all payloads, in rank order, into its output. There is no second
// synchronisation:
//
//   - A line or slot is written by its owner alone, before it raises the
//     counter, and read by peers after they saw the count.
//   - The owner overwrites it two calls later at the earliest. By then it has
//     completed the call between, for which every peer had raised its counter,
//     and a peer raises that only after it completed the call before, reads
//     included.
//   - A rank that dies leaves the others waiting; the waiter sees the fault.
type door struct {
	calls uint64
	own   int // our rank
	lines [doorLines]exchange
	slots [2]exchange
	dst   [1]unsafe.Pointer
}

// exchange is what all ranks use for one call of the door: by rank, the
// counter and the payload.
type exchange struct {
	counters []*link.Counter
	payloads []unsafe.Pointer
	mine     []byte // our payload
}

func newDoor(controls [][]byte, own int) door {
	d := door{own: own}
	for i := range d.lines {
		for rank, control := range controls {
			c := link.CounterAt(lineIn(control, i))
			d.lines[i].add(c, c.Data[:], rank == own)
		}
	}
	for i := range d.slots {
		for rank, control := range controls {
			b := slotIn(control, i)
			d.slots[i].add(link.CounterAt(b), b[link.LineBytes:], rank == own)
		}
	}
	return d
}

func (x *exchange) add(c *link.Counter, payload []byte, mine bool) {
	x.counters = append(x.counters, c)
	x.payloads = append(x.payloads, unsafe.Pointer(unsafe.SliceData(payload)))
	if mine {
		x.mine = payload
	}
}

// allReduce reduces count elements; send and recv are at most
// tune.OneShotBytes long and may be the same memory.
func (d *door) allReduce(ctx context.Context, w *link.Waiter, send, recv []byte, kernel reduce.Func, count, divisor int) error {
	d.calls++
	x := &d.lines[d.calls%doorLines]
	if len(send) > len(x.mine) {
		x = &d.slots[d.calls%2]
	}
	move.Bytes(x.mine, send)
	x.counters[d.own].Raise(d.calls)
	// A write that means nothing fetches the next call's line for writing while
	// this call waits: its readers were done with it calls ago.
	next := d.lines[(d.calls+1)%doorLines].mine
	next[len(next)-1] = 0
	for rank, c := range x.counters {
		if rank == d.own {
			continue
		}
		if err := w.Wait(ctx, c, d.calls); err != nil {
			return err
		}
	}
	d.dst[0] = unsafe.Pointer(unsafe.SliceData(recv))
	kernel(d.dst[:], x.payloads, count, divisor)
	return nil
}
