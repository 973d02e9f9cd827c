package rc

import (
	"context"
	"errors"
	"time"

	"github.com/tutti-go/tutti/verbs"
)

// leaveAlone is for how long a rail's goroutine leaves the completion queues to
// the callers of Progress before it looks whether there still are any.
const leaveAlone = time.Millisecond

// attend takes in what arrives while nobody calls Progress, as when a rank
// computes, or sleeps. As long as somebody does, it asks for no events, so that
// what arrives wakes nobody.
func (r *rail) attend(ctx context.Context) {
	f := r.fabric
	select {
	case <-r.begin:
	case <-ctx.Done():
	}
	for ctx.Err() == nil {
		if f.looked.Swap(false) {
			time.Sleep(leaveAlone)
			continue
		}
		if r.sweep(true) {
			continue // there may be more
		}
		_, err := r.channel.Wait(ctx)
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, verbs.ErrClosed) {
				f.log.Error("completion events of a device cannot be read", "rank", f.rank, "device", r.device.Name(), "cause", err)
			}
			return
		}
		r.sweep(false)
	}
}

// sweep polls the rail's queues, having asked for an event each if arm, and
// reports whether anything has completed.
func (r *rail) sweep(arm bool) (moved bool) {
	for _, q := range *r.fabric.queues.Load() {
		if q.rail != r {
			continue
		}
		q.mu.Lock()
		if arm && !q.closed {
			if err := q.cq.Arm(false); err != nil {
				r.fabric.log.Error("a completion queue cannot be armed", "rank", r.fabric.rank, "cause", err)
			}
		}
		moved = q.poll() > 0 || moved
		q.mu.Unlock()
	}
	return moved
}
