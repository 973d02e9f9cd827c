package engine

import (
	"context"
	"unsafe"

	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/reduce"
)

// door runs allreduce/oneshot over mapped memory without the executor: the
// only way to a few hundred nanoseconds. It computes what that plan states.
//
// Each rank has two slots, for even and odd calls of the door. A slot starts
// with a counter; up to 48 bytes of payload ride in the counter's own cache
// line, more follow in the lines behind it. To call, a rank copies its input
// into its slot and raises the slot's counter to the number of the call; it
// then waits for everybody's counter and reduces all slots, in rank order,
// into its output. There is no second synchronisation:
//
//   - A slot is written by its owner alone, before it raises the counter, and
//     read by peers after they saw the count.
//   - The owner overwrites it two calls later. By then it has completed the
//     call between, for which every peer had raised its counter, and a peer
//     raises that only after it completed the call before, reads included.
//   - A rank that dies leaves the others waiting; the waiter sees the fault.
type door struct {
	calls uint64
	slots [2][]slot           // by half and rank
	small [2][]unsafe.Pointer // payloads of the slots, inline
	large [2][]unsafe.Pointer // payloads of the slots, behind the line
	dst   [1]unsafe.Pointer
}

type slot struct {
	counter *link.Counter
	payload []byte // behind the counter's line
}

func newDoor(controls [][]byte) door {
	var d door
	for half := range d.slots {
		for _, control := range controls {
			b := slotIn(control, half)
			s := slot{link.CounterAt(b), b[link.LineBytes:]}
			d.slots[half] = append(d.slots[half], s)
			d.small[half] = append(d.small[half], unsafe.Pointer(&s.counter.Data[0]))
			d.large[half] = append(d.large[half], unsafe.Pointer(&s.payload[0]))
		}
	}
	return d
}

// allReduceOneShot reduces count elements; send and recv are at most
// tune.OneShotBytes long and may be the same memory.
func (c *Comm) allReduceOneShot(ctx context.Context, send, recv []byte, kernel reduce.Func, count, divisor int) error {
	d := &c.door
	d.calls++
	half := d.calls & 1
	slots, srcs := d.slots[half], d.small[half]
	mine := &slots[c.rank]
	if len(send) <= len(mine.counter.Data) {
		copy(mine.counter.Data[:], send)
	} else {
		copy(mine.payload, send)
		srcs = d.large[half]
	}
	mine.counter.Raise(d.calls)
	for rank := range slots {
		if rank == c.rank {
			continue
		}
		if err := c.waiter.Wait(ctx, slots[rank].counter, d.calls); err != nil {
			return err
		}
	}
	d.dst[0] = unsafe.Pointer(unsafe.SliceData(recv))
	kernel(d.dst[:], srcs, count, divisor)
	return nil
}
