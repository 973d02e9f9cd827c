package rc

import (
	"errors"
	"fmt"
	"sync"

	"github.com/tutti-go/tutti/internal/spin"
	"github.com/tutti-go/tutti/verbs"
)

const (
	// maxQueue is the most entries of a completion queue that is asked for: 32
	// bytes to 128 bytes each.
	maxQueue = 1 << 15
	// takeAtOnce is how many completions are taken by one call of C.
	takeAtOnce = 32
	// yieldEach is how many looks in vain come between two offers of the core.
	yieldEach = 4
)

// queue is a completion queue that several lanes of a rail share.
type queue struct {
	rail *rail
	cq   *verbs.CompletionQueue
	room int // entries that no lane has; under the fabric's mu

	mu     sync.Mutex // who has it polls
	done   [takeAtOnce]verbs.Completion
	closed bool
}

// queueFor returns a completion queue of a rail with room for n more entries,
// and takes it.
func (f *Fabric) queueFor(r *rail, n int) (*queue, error) {
	f.mu.Lock()
	for _, q := range *f.queues.Load() {
		if q.rail == r && q.room >= n {
			q.room -= n
			f.mu.Unlock()
			return q, nil
		}
	}
	f.mu.Unlock()
	lanes := (len(f.peers) - 1) * f.cfg.QueuePairs
	entries := max(n, min(n*lanes, maxQueue, r.attr.MaxCQEntries))
	cq, err := r.device.CreateCQ(verbs.CQOptions{Entries: entries, Channel: r.channel, Vector: len(*f.queues.Load()) % max(1, r.device.CompletionVectors())})
	if err != nil {
		return nil, err
	}
	if err := cq.Arm(false); err != nil { // the rail's goroutine may be waiting already
		return nil, errors.Join(err, cq.Close())
	}
	q := &queue{rail: r, cq: cq, room: cq.Entries() - n}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, errors.Join(&ClosedError{f.rank, "connect"}, cq.Close())
	}
	before := *f.queues.Load()
	all := append(before[:len(before):len(before)], q)
	f.queues.Store(&all)
	r.begun.Do(func() { close(r.begin) })
	return q, nil
}

// giveBack returns the room of a lane that is gone.
func (q *queue) giveBack(n int) {
	f := q.rail.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	q.room += n
}

func (q *queue) close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	return q.cq.Close()
}

// Progress implements link.Progresser. It polls each completion queue once.
func (f *Fabric) Progress() {
	f.attended()
	if !f.progress() && f.yieldful {
		// The kernel receives packets between two processes, not beneath one that
		// keeps its core, once there are many.
		if f.empty.Add(1)%yieldEach == 0 {
			spin.Yield()
		}
	}
}

// attended keeps the rails' goroutines away for a while.
func (f *Fabric) attended() {
	if !f.looked.Load() {
		f.looked.Store(true)
	}
}

// progress reports whether anything has completed.
func (f *Fabric) progress() (moved bool) {
	for _, q := range *f.queues.Load() {
		if q.mu.TryLock() {
			moved = q.poll() > 0 || moved
			q.mu.Unlock()
		}
	}
	return moved
}

// exhaust takes everything that has completed, for who must know that nothing
// was left behind.
func (f *Fabric) exhaust() {
	for _, q := range *f.queues.Load() {
		q.mu.Lock()
		for q.poll() == takeAtOnce {
			continue
		}
		q.mu.Unlock()
	}
}

// poll takes what has completed, up to takeAtOnce. mu is held.
func (q *queue) poll() int {
	if q.closed {
		return 0
	}
	n, err := q.cq.Poll(q.done[:])
	if err != nil {
		q.closed = true // there is nothing more to be had; cq is closed with the fabric
		f := q.rail.fabric
		f.start(func() { f.loseLanes(err, func(l *lane) bool { return l.queue == q }) })
		return 0
	}
	lanes := *q.rail.fabric.lanes.Load()
	for i := range q.done[:n] {
		c := &q.done[i]
		at := int(c.ID >> idLane & (1<<idLaneBits - 1))
		if at >= len(lanes) {
			continue // of a lane that never came to be a link's
		}
		lanes[at].completed(c)
	}
	return n
}

// loseLanes ends the links of those lanes that the function names.
func (f *Fabric) loseLanes(cause error, of func(*lane) bool) {
	for _, l := range *f.lanes.Load() {
		if of(l) {
			l.link.fail(l, cause)
		}
	}
}

// links returns all links.
func (f *Fabric) links() (all []*rcLink) {
	for _, l := range *f.lanes.Load() {
		if l.index == 0 {
			all = append(all, l.link)
		}
	}
	return all
}

// addLanes gives lanes their numbers.
func (f *Fabric) addLanes(added []*lane) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := *f.lanes.Load()
	switch {
	case f.closed:
		return &ClosedError{f.rank, "connect"}
	case len(before)+len(added) > 1<<idLaneBits:
		return fmt.Errorf("%d queue pairs are too many", len(before)+len(added))
	}
	all := append(before[:len(before):len(before)], added...)
	for i, l := range added {
		l.id = uint64(len(before)+i) << idLane
	}
	f.lanes.Store(&all)
	return nil
}
