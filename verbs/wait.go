package verbs

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// waiter waits for a descriptor of the library to become readable, in the
// runtime's poller: no thread is kept meanwhile.
type waiter struct {
	file *os.File // a copy of the descriptor
	raw  syscall.RawConn
	turn chan struct{} // holds one: who waits takes it
	shut atomic.Bool
}

// newWaiter makes fd non-blocking and watches a copy of it.
func newWaiter(fd int, name string) (*waiter, error) {
	file, err := sysWatch(fd, name)
	if err != nil {
		return nil, err
	}
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, err
	}
	w := &waiter{file: file, raw: raw, turn: make(chan struct{}, 1)}
	w.turn <- struct{}{}
	return w, nil
}

// close wakes whoever waits. When it returns, try does not run any more.
func (w *waiter) close() {
	w.shut.Store(true)
	w.file.Close()
	<-w.turn // who had it is out
	w.turn <- struct{}{}
}

// await calls try until it says that it is done, and between its calls waits
// until the descriptor is readable. It returns ctx's error when that ends
// first, and ErrClosed when the waiter is closed.
func (w *waiter) await(ctx context.Context, try func() bool) error {
	select {
	case <-w.turn:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { w.turn <- struct{}{} }()
	if w.shut.Load() {
		return ErrClosed
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	err := w.file.SetReadDeadline(time.Time{})
	if err == nil {
		over := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			defer close(over)
			_ = w.file.SetReadDeadline(time.Unix(1, 0)) // fails on a closed file only, which ends the read too
		})
		err = w.raw.Read(func(uintptr) bool { return try() })
		if !stop() {
			<-over // or it would end the next one's wait
		}
	}
	switch {
	case err != nil && w.shut.Load():
		return ErrClosed
	case errors.Is(err, os.ErrDeadlineExceeded):
		return context.Cause(ctx)
	}
	return err
}
