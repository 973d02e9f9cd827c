package engine

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/tutti-go/tutti/link"
)

// Work is an asynchronous call that has been issued. It is a small value; the
// buffers of the call belong to it until it is done. The zero Work is done.
type Work struct {
	worker *worker
	seq    uint64
}

// Wait returns when the work is done, with its error, or when ctx ends with
// ctx's cause: the work then goes on, and one may wait for it again.
func (w Work) Wait(ctx context.Context) error {
	if w.worker == nil {
		return nil
	}
	if err := w.worker.waiter.Wait(ctx, &w.worker.done, w.seq); err != nil {
		return err
	}
	return w.worker.errorOf(w.seq)
}

// Done reports whether the work is done. It does not block.
func (w Work) Done() bool { return w.worker == nil || w.worker.done.Load() >= w.seq }

// Err returns the error of work that is done, and nil before. It does not
// block.
func (w Work) Err() error {
	if w.worker == nil || !w.Done() {
		return nil
	}
	return w.worker.errorOf(w.seq)
}

// inFlight is how many asynchronous calls of a communicator may be issued
// ahead; who issues more waits until the first of them is done.
const inFlight = 256

// worker runs the asynchronous calls of a communicator, one after the other in
// the order in which they were issued, on one goroutine.
//
// Who issues writes a job into the ring and raises issued; the worker reads it
// after it saw the count, and raises done when the call is over. A place in the
// ring is written again when the call that had it is done.
type worker struct {
	comm         *Comm
	jobs         [inFlight]pending
	issuing      sync.Mutex
	last         uint64 // the number of the last job that was issued
	issued, done link.Counter
	waiter       link.Waiter
	fault        link.Fault // ends the worker's wait for more
	never        link.Fault
	running      sync.WaitGroup

	mu     sync.Mutex
	failed map[uint64]error
}

// pending is an asynchronous call: a collective, or an exchange.
type pending struct {
	ctx      context.Context
	call     call
	exchange *Exchange
}

// workerPatience: between two jobs the worker looks about for a moment, but
// must not take a core from the computation that it runs beside.
var workerPatience = link.Patience{Polls: 2000, Yields: 50, Nap: time.Minute}

// beside is the patience of an asynchronous call that has no core of its own:
// what it would spend on looking and yielding, the computation has, and a peer
// that raises the count wakes it.
var beside = link.Patience{Polls: 200, Yields: 0, Nap: 5 * time.Millisecond}

func newWorker(c *Comm) *worker {
	w := &worker{comm: c, failed: map[uint64]error{}}
	w.waiter = link.Waiter{Patience: link.Patience{Polls: 2000, Yields: 200, Nap: 5 * time.Millisecond}, Fault: &w.never}
	w.running.Go(w.serve)
	return w
}

// serve runs jobs until the worker is stopped.
func (w *worker) serve() {
	idle := link.Waiter{Patience: workerPatience, Fault: &w.fault}
	for next := uint64(1); ; next++ {
		if idle.Wait(context.Background(), &w.issued, next) != nil || w.fault.Err() != nil {
			return
		}
		j := &w.jobs[next%inFlight]
		w.comm.await(w.comm.besides)
		var err error
		if j.exchange != nil {
			err = j.exchange.run(j.ctx)
		} else {
			err = w.comm.do(j.ctx, &j.call)
		}
		w.comm.await(w.comm.patience)
		*j = pending{} // the caller's buffers are the caller's again
		if err != nil {
			w.mu.Lock()
			w.failed[next] = err
			w.mu.Unlock()
		}
		w.done.Raise(next)
	}
}

// await sets how the waits of the next call are spent.
func (c *Comm) await(p link.Patience) {
	if c.waiters[0].Patience == p {
		return
	}
	for rank := range c.waiters {
		c.waiters[rank].Patience = p
	}
}

// issue puts a job at the end of the queue.
func (w *worker) issue(j pending) (Work, error) {
	w.issuing.Lock()
	defer w.issuing.Unlock()
	seq := w.last + 1
	if seq > inFlight {
		if err := w.waiter.Wait(j.ctx, &w.done, seq-inFlight); err != nil {
			return Work{}, err
		}
	}
	w.jobs[seq%inFlight] = j
	w.last = seq
	w.issued.Raise(seq)
	return Work{w, seq}, nil
}

// settle waits until everything that was issued is done, or ctx ends.
func (w *worker) settle(ctx context.Context) error {
	w.issuing.Lock()
	last := w.last
	w.issuing.Unlock()
	return w.waiter.Wait(ctx, &w.done, last)
}

// drain is settle for as long as it takes.
func (w *worker) drain() {
	// Background and a fault that nobody sets: the wait cannot fail.
	_ = w.settle(context.Background())
}

// stop ends the worker. What was issued and has not run ends with
// link.ErrClosed: the communicator has that fault already.
func (w *worker) stop() {
	w.drain()
	w.fault.Fail(link.ErrClosed)
	w.issued.Raise(math.MaxUint64)
	w.running.Wait()
}

func (w *worker) errorOf(seq uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed[seq]
}

// issue starts a collective that is to run after those issued before it. Wrong
// arguments are reported here and now.
func (c *Comm) issue(ctx context.Context, k call) (Work, error) {
	if _, err := c.check(&k); err != nil {
		return Work{}, err
	}
	k.async = true
	return c.enqueue(k.name(), pending{ctx: ctx, call: k})
}

// enqueue issues a job. Where there is no room before its ctx ends, the
// communicator has failed: other ranks may have issued it.
func (c *Comm) enqueue(call string, j pending) (Work, error) {
	if err := c.failures.comm.Err(); err != nil {
		if c.worker != nil {
			c.worker.drain() // it counts calls, which errors name
		}
		return Work{}, c.explain(call, err)
	}
	if c.worker == nil {
		c.worker = newWorker(c)
	}
	w, err := c.worker.issue(j)
	if err != nil {
		return Work{}, c.giveUp(call, err)
	}
	return w, nil
}
