package engine

import (
	"context"
	"unsafe"

	"github.com/tutti-go/tutti/internal/move"
	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/plan"
	"github.com/tutti-go/tutti/reduce"
)

// door runs allreduce/oneshot over mapped memory without the executor: the
// only way to a few hundred nanoseconds. It computes what that plan states.
//
// Each rank has eight lines, each that of a counter, with 56 bytes behind the
// count, and two slots for payloads that are too large for those. To call, a
// rank copies its input into a line or slot, its stamp into the line, and
// raises the counter there to the number of the call; a small payload thus
// arrives with the count, in one cache line. It then waits for everybody's
// counter and reduces all payloads, in rank order, into its output; its own it
// takes from the caller. There is no second synchronisation:
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
	lines [doorLines]line
	slots [2]payloads
	dst   [1]unsafe.Pointer
}

// line is what all ranks use for one call of the door, by rank.
type line struct {
	counters []*link.Counter
	payloads
}

// payloads are places for the inputs of a call, by rank.
type payloads struct {
	at   []unsafe.Pointer // ours is the caller's buffer, and nil between calls
	mine []byte           // our own
}

// stamp is what all ranks of a call of the door must agree in: the bytes of a
// buffer, the element type and the operator.
type stamp uint64

const stampBytes = int(unsafe.Sizeof(stamp(0)))

func stampOf(bytes int, t mem.DType, op mem.Op) stamp {
	return stamp(bytes)<<16 | stamp(t)<<8 | stamp(op)
}

func (s stamp) signature() Signature {
	return Signature{Call: plan.AllReduce.String(), Bytes: int(s >> 16), Type: mem.DType(s >> 8 & 0xff), Op: mem.Op(s & 0xff)}
}

// stampIn is the stamp that travels with a counter.
func stampIn(c *link.Counter) *stamp { return (*stamp)(unsafe.Pointer(&c.Data[0])) }

func newDoor(controls [][]byte, own int) door {
	d := door{own: own}
	for i := range d.lines {
		l := &d.lines[i]
		for rank, control := range controls {
			c := lineIn(control, i)
			l.counters = append(l.counters, c)
			l.add(c.Data[stampBytes:], rank == own)
		}
	}
	for i := range d.slots {
		for rank, control := range controls {
			d.slots[i].add(slotIn(control, i), rank == own)
		}
	}
	return d
}

func (p *payloads) add(payload []byte, mine bool) {
	if mine {
		p.at, p.mine = append(p.at, nil), payload
		return
	}
	p.at = append(p.at, pointer(payload))
}

// allReduce reduces count elements; send and recv are at most
// tune.OneShotBytes long and may be the same memory. waiters are by rank.
func (d *door) allReduce(ctx context.Context, waiters []link.Waiter, send, recv []byte, s stamp, kernel reduce.Func, count, divisor int) error {
	d.calls++
	l := &d.lines[d.calls%doorLines]
	p := &l.payloads
	if len(send) > len(p.mine) {
		p = &d.slots[d.calls%2]
	}
	move.Bytes(p.mine, send)
	own := l.counters[d.own]
	*stampIn(own) = s
	own.Raise(d.calls)
	// A write that means nothing fetches the next call's line for writing while
	// this call waits: its readers were done with it calls ago.
	*stampIn(d.lines[(d.calls+1)%doorLines].counters[d.own]) = 0
	for rank, c := range l.counters {
		if rank == d.own {
			continue
		}
		if err := waiters[rank].Wait(ctx, c, d.calls); err != nil {
			return err
		}
		if theirs := *stampIn(c); theirs != s {
			return &MismatchError{Rank: rank, Mine: s.signature(), Theirs: theirs.signature()}
		}
	}
	// Our own input is read where it came from: the copy is on its way to the
	// peers, and to read it would call it back.
	p.at[d.own], d.dst[0] = pointer(send), pointer(recv)
	kernel(d.dst[:], p.at, count, divisor)
	p.at[d.own], d.dst[0] = nil, nil
	return nil
}
