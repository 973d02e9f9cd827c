package link

import (
	"context"
	"runtime"
	"time"

	"github.com/tutti-go/tutti/internal/spin"
)

// Patience says how long a wait polls before it gives the core away, and how
// often it offers the core before it sleeps.
type Patience struct {
	Polls  int           // looks at the counter with nothing but a pause between
	Yields int           // looks with a sched_yield between
	Nap    time.Duration // longest sleep before looking for faults and deadlines again
}

// PatienceFor chooses by the number of ranks that run on this machine and the
// number of cores they may use. With a core for everybody, polling for some
// tens of microseconds is the fastest and costs nobody anything; but nothing
// promises that the ranks are pinned, so the core is offered after that. With
// fewer cores, each poll is stolen from the very rank that is waited for, and
// the core is offered at once, unless a Crowd knows better. Offering it is
// cheap where nobody takes it.
func PatienceFor(ranks, cores int) Patience {
	if ranks <= cores {
		return Patience{Polls: 2000, Yields: 2000, Nap: 5 * time.Millisecond}
	}
	return Patience{Polls: 20, Yields: 2000, Nap: 5 * time.Millisecond}
}

// crowdPolls is how often a rank of a Crowd looks before it gives away a core
// that nobody is known to need: about as long as it takes to change between
// two processes, so that it never loses more than twice what the better choice
// would have cost.
const crowdPolls = 1000

// densePolls is how many looks come without a pause between: a pause takes
// about as long as a line's way between two cores, and a rank that is late by
// one pause makes the others late in turn.
const densePolls = 1001

// Waiter waits for counters on behalf of one communicator. It may be shared
// by several goroutines if it has no Crowd.
type Waiter struct {
	Patience
	Fault *Fault
	Crowd *Crowd // nil where every rank has a core, or it is not known who shares one

	// Progress is called between looks where the medium wants that; else nil.
	Progress Progresser
}

// Wait returns when c has reached v. It returns early with the first fault,
// or when ctx ends with context.Cause(ctx); a count that has been reached wins
// over both. It does not allocate.
func (w *Waiter) Wait(ctx context.Context, c *Counter, v uint64) error {
	if c.value.Load() >= v {
		return nil
	}
	return w.wait(ctx, c, v)
}

func (w *Waiter) wait(ctx context.Context, c *Counter, v uint64) error {
	if w.poll(c, v) {
		return nil
	}
	for i := 0; i < w.Yields; i++ {
		if err := w.interrupted(ctx, c, v); err != nil || c.value.Load() >= v {
			return err
		}
		// The core goes to another process; now and then the thread goes to
		// another goroutine of this one.
		if i%8 == 7 {
			runtime.Gosched()
		} else {
			spin.Yield()
		}
		if w.Progress != nil {
			w.Progress.Progress()
		}
		if w.Crowd != nil && w.poll(c, v) {
			return nil
		}
	}
	c.lieDown()
	defer c.getUp()
	for c.value.Load() < v {
		if err := w.interrupted(ctx, c, v); err != nil {
			return err
		}
		c.nap(v, w.Nap)
	}
	return nil
}

// poll looks at a counter for as long as the core is better kept than given
// away, and reports whether it has reached v.
func (w *Waiter) poll(c *Counter, v uint64) bool {
	polls := w.Polls
	if w.Crowd != nil {
		if polls = crowdPolls; w.Crowd.neighbourBehind() {
			polls = 1
		}
	}
	for i := range polls {
		if c.value.Load() >= v {
			return true
		}
		if w.Progress != nil {
			w.Progress.Progress()
		} else if i >= densePolls {
			spin.Pause(1)
		}
	}
	return false
}

// interrupted returns why the wait must end without its count, if it must. It
// looks at the count last: what a peer finished before it went away counts.
func (w *Waiter) interrupted(ctx context.Context, c *Counter, v uint64) error {
	err := w.Fault.Err()
	if err == nil {
		select {
		case <-ctx.Done():
			err = context.Cause(ctx)
		default:
			return nil
		}
	}
	if c.value.Load() >= v {
		return nil
	}
	return err
}
