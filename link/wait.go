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
// the core is offered at once. Offering it is cheap where nobody takes it.
func PatienceFor(ranks, cores int) Patience {
	if ranks <= cores {
		return Patience{Polls: 2000, Yields: 2000, Nap: 5 * time.Millisecond}
	}
	return Patience{Polls: 20, Yields: 2000, Nap: 5 * time.Millisecond}
}

// Waiter waits for counters on behalf of one communicator. It may be shared
// by several goroutines.
type Waiter struct {
	Patience
	Fault *Fault
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
	for i := 0; i < w.Polls; i++ {
		if c.value.Load() >= v {
			return nil
		}
		// Dense looks at first: a pause takes about as long as a line's way
		// between two cores, and a rank that is late by one pause makes the
		// others late in turn.
		if i > 1000 {
			spin.Pause(1)
		}
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
	}
	for c.value.Load() < v {
		if err := w.interrupted(ctx, c, v); err != nil {
			return err
		}
		c.sleep(v, w.Nap)
	}
	return nil
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
