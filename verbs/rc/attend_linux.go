package rc

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"golang.org/x/sys/unix"
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
		if err := r.awaitEvent(); err != nil {
			f.log.Error("completion events of a device cannot be read", "rank", f.rank, "device", r.device.Name(), "cause", err)
			return
		}
	}
}

// awaitEvent returns when a completion queue has had an event since it was
// armed, or the bell rings. It keeps a thread while it waits: where ranks poll on
// all cores, the runtime's poller is not looked at for milliseconds, but a thread
// that comes back from the system is let in.
func (r *rail) awaitEvent() error {
	r.fds = [2]unix.PollFd{{Fd: int32(r.channel.Fd()), Events: unix.POLLIN}, {Fd: int32(r.fabric.bell), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(r.fds[:], -1)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	for {
		if cq, err := r.channel.TryWait(); cq == nil || err != nil {
			return err
		}
	}
}

// ring wakes the rails' goroutines, for good.
func (f *Fabric) ring() {
	_, _ = unix.Write(f.bell, binary.NativeEndian.AppendUint64(nil, 1))
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
