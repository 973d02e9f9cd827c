package rc

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/verbs"
)

// receiver is what a link takes in: counts and records of lane 0, in their
// order. All but the atomics is under the link's rx.
type receiver struct {
	mapped  []byte
	slots   []byte // of it, where records come in; a ring
	slotsMR *verbs.MR
	serial  uint64        // of the record that comes next
	taken   atomic.Uint64 // counts and records; their receives are the peer's again
	names   [maxCounters]named
	waiting []uint32 // numbers that have come and must wait for other lanes; a ring
	first   uint64   // of those that wait, and
	behind  uint64   // behind the last
	stalled atomic.Bool
	record  record
}

// named is a counter that the peer has given a number.
type named struct {
	counter *link.Counter
	region  *region
	last    uint64 // to what it was raised, or would have been
}

// open makes room for records.
func (r *receiver) open(rail *rail, credits int) (err error) {
	r.waiting = make([]uint32, credits+spareReceives)
	if r.mapped, err = mapMemory(credits * recordSlot); err != nil {
		return err
	}
	r.slots = r.mapped[:credits*recordSlot]
	r.slotsMR, err = rail.pd.RegisterMemory(r.slots, reachable)
	return err
}

func (r *receiver) close() error {
	var errs []error
	if r.slotsMR != nil {
		errs = append(errs, r.slotsMR.Close())
	}
	if r.mapped != nil {
		errs = append(errs, unmapMemory(r.mapped))
	}
	return errors.Join(errs...)
}

// arrived takes a number that has come in on a lane, by who polls its queue.
func (l *rcLink) arrived(ln *lane, number uint32) {
	kind := number >> numberKind << numberKind
	if (ln.index == 0) == (kind == numberMark) {
		l.fail(ln, &ProtocolError{l.rank, fmt.Sprintf("the number %#x on lane %d", number, ln.index)})
		return
	}
	switch kind {
	case numberMark:
		ln.arrived.Add(1)
		if l.received.stalled.Load() {
			l.rx.Lock()
			l.resume()
			l.rx.Unlock()
		}
	case numberCredit:
		before := l.credited.Load()
		l.credited.Store(before + uint64(number-uint32(before))&numberBody)
		return
	default:
		l.rx.Lock()
		r := &l.received
		if r.first != r.behind || !l.takeIn(number) {
			if r.behind-r.first == uint64(len(r.waiting)) {
				l.fail(ln, &ProtocolError{l.rank, "more notifications than it had credits"})
				l.rx.Unlock()
				return
			}
			r.waiting[r.behind%uint64(len(r.waiting))] = number
			r.behind++
			r.stalled.Store(true)
			l.resume() // a mark may have come since we looked
		}
		l.rx.Unlock()
	}
	if l.received.taken.Load()-l.paid.Load() >= uint64(l.granted/2) {
		l.owes.Store(true)
		l.tryPay()
	}
}

// resume takes what waited for other lanes, as far as they have come.
func (l *rcLink) resume() {
	r := &l.received
	for r.first != r.behind && l.takeIn(r.waiting[r.first%uint64(len(r.waiting))]) {
		r.first++
	}
	r.stalled.Store(r.first != r.behind)
}

// takeIn raises the counter that a number is about, unless it must wait.
func (l *rcLink) takeIn(number uint32) bool {
	r := &l.received
	if number>>numberKind<<numberKind == numberRecord {
		return l.takeRecord(number & numberBody)
	}
	id := number >> countBits & (maxCounters - 1)
	n := &r.names[id]
	if n.counter == nil {
		l.fail(l.lanes[0], &ProtocolError{l.rank, fmt.Sprintf("counter %d, which it has not named", id)})
		return true
	}
	n.last += uint64(number-uint32(n.last)) & countMask
	n.raise()
	r.taken.Add(1)
	return true
}

func (n *named) raise() {
	if !n.region.freed.Load() {
		n.counter.Raise(n.last)
	}
}

func (l *rcLink) takeRecord(serial uint32) bool {
	r := &l.received
	in := &r.record
	at := r.serial % uint64(len(r.slots)/recordSlot) * recordSlot
	if serial != uint32(r.serial&numberBody) || !in.decode(r.slots[at:][:recordSlot]) || int(in.marks) >= len(l.lanes) {
		l.fail(l.lanes[0], &ProtocolError{l.rank, "a record that is none"})
		return true
	}
	for i, m := range in.mark[:in.marks] {
		if int32(l.lanes[i+1].arrived.Load()-m) < 0 {
			return false
		}
	}
	r.serial++
	r.taken.Add(1)
	var n named
	if to := (*l.fabric.regions.Load())[in.region]; to != nil && !to.freed.Load() {
		counter, err := link.CounterIn(to.memory, int(min(in.offset, 1<<62)))
		if err != nil {
			l.fail(l.lanes[0], &ProtocolError{l.rank, fmt.Sprintf("in region %d %v", in.region, err)})
			return true
		}
		n = named{counter, to, in.count}
	} else { // it was freed meanwhile
		n = named{new(link.Counter), nowhere, in.count}
	}
	n.raise()
	if in.counter != noCounter {
		r.names[in.counter] = n
	}
	return true
}

// nowhere stands for regions that are gone.
var nowhere = func() *region {
	r := new(region)
	r.freed.Store(true)
	return r
}()
