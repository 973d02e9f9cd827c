package tcp

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// directly is up to how many connections Progress reads without asking
	// first which have something: up to there, asking costs more.
	directly = 3
	// leaveAlone is for how long the fabric's goroutine leaves the sockets to
	// the callers of Progress before it looks whether there still are any.
	leaveAlone = time.Millisecond
	// lookAgain and lookSeldom are, in milliseconds, how long it sleeps at most
	// while nothing arrives: what a Put has held back goes out then.
	lookAgain  = 5
	lookSeldom = 100
)

// Progress implements link.Progresser. It reads each connection at most once.
func (f *Fabric) Progress() { f.progress() }

// Await is Progress for who has looked often enough: it sleeps until something
// has arrived, and takes that in, or for timeout at most. The thread that waits is woken by the
// kernel itself, not by another thread that was woken before; and unlike one that
// polls and yields, which has used up its share by the time that something
// arrives, it gets a core at once where there are more threads than cores.
//
// What another goroutine has taken in meanwhile does not end the sleep, so where
// several may wait at a time, timeout bounds how late they are.
func (f *Fabric) Await(timeout time.Duration) {
	if f.progress() || f.isClosed() {
		return
	}
	f.awaiting.Add(1)
	defer f.awaiting.Add(-1)
	// Not epoll_wait, which wakes only one of several. What the call is given it
	// also changes, and it may not lie on a stack.
	nap := naps.Get().(*unix.Timespec)
	*nap = unix.NsecToTimespec(int64(timeout))
	_, _, _ = unix.Syscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&f.readable)), 1, uintptr(unsafe.Pointer(nap)), 0, 0, 0)
	naps.Put(nap)
	f.progress()
}

var naps = sync.Pool{New: func() any { return new(unix.Timespec) }}

// progress reports whether anything has arrived.
func (f *Fabric) progress() (moved bool) {
	if !f.looked.Load() {
		f.looked.Store(true)
	}
	if conns := *f.conns.Load(); len(conns) <= directly {
		for _, c := range conns {
			moved = c.poll() || moved
		}
	} else {
		moved = f.sweep(conns)
	}
	if f.held.Load() {
		f.flushHeld()
	}
	return moved
}

// sweep reads the connections that have something.
func (f *Fabric) sweep(conns []*conn) (moved bool) {
	if !f.sweeping.TryLock() {
		return false
	}
	defer f.sweeping.Unlock()
	if f.epoll < 0 {
		return false
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(f.epoll),
		uintptr(unsafe.Pointer(&f.events[0])), uintptr(len(f.events)), 0, 0, 0)
	if errno != 0 {
		return false
	}
	for i := range int(n) {
		if at := int(f.events[i].Fd); at >= 0 && at < len(conns) {
			moved = conns[at].poll() || moved
		}
	}
	return moved
}

// flushHeld sends what was held back, as far as sockets take it.
func (f *Fabric) flushHeld() {
	f.held.Store(false)
	for _, c := range *f.conns.Load() {
		if c.stripe == 0 && c.link.pending.Load() {
			c.link.tryFlush()
			if c.link.pending.Load() {
				f.held.Store(true)
			}
		}
	}
}

// attend is the fabric's goroutine: it takes in what arrives while nobody calls
// Progress, as when a rank computes, or sleeps. As long as somebody does it
// stays away from epoll, so that what arrives wakes nobody.
func (f *Fabric) attend() {
	events := make([]unix.EpollEvent, 64)
	for quiet := 0; !f.isClosed(); {
		if f.looked.Swap(false) || f.awaiting.Load() > 0 {
			quiet = 0
			time.Sleep(leaveAlone)
			continue
		}
		timeout := lookAgain
		if quiet > 100 {
			timeout = lookSeldom
		}
		if f.held.Load() {
			timeout = 1
		}
		n, err := unix.EpollWait(f.epoll, events, timeout)
		if err != nil || f.looked.Load() {
			continue
		}
		quiet++
		conns, moved := *f.conns.Load(), false
		for _, e := range events[:n] {
			if at := int(e.Fd); at >= 0 && at < len(conns) {
				moved = conns[at].poll() || moved
			}
		}
		if f.held.Load() {
			f.flushHeld()
		}
		switch {
		case moved:
			quiet = 0
		case n > 0: // a frame waits for another stripe, or somebody else reads or writes
			time.Sleep(20 * time.Microsecond)
		}
	}
}

// bellRings is the bell's place in events, which no connection has.
const bellRings = -1

func (f *Fabric) openEpoll() (err error) {
	if f.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("%w: epoll: %w", ErrUnavailable, err)
	}
	if f.bell, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("%w: eventfd: %w", ErrUnavailable, err)
	}
	f.readable = unix.PollFd{Fd: int32(f.epoll), Events: unix.POLLIN}
	return f.listenTo(f.bell, bellRings)
}

// listenTo lets epoll say when fd can be read, by the number at.
func (f *Fabric) listenTo(fd, at int) error {
	e := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(at)}
	if err := unix.EpollCtl(f.epoll, unix.EPOLL_CTL_ADD, fd, &e); err != nil {
		return fmt.Errorf("tcp: epoll: %w", err)
	}
	return nil
}

// ring wakes the fabric's goroutine.
func (f *Fabric) ring() {
	_, _ = unix.Write(f.bell, binary.NativeEndian.AppendUint64(nil, 1))
}

// closeEpoll is for when nobody writes or attends any more.
func (f *Fabric) closeEpoll() error {
	f.sweeping.Lock()
	defer f.sweeping.Unlock()
	var err error
	for _, fd := range []*int{&f.epoll, &f.bell} {
		if *fd >= 0 {
			if e := unix.Close(*fd); e != nil {
				err = e
			}
			*fd = -1
		}
	}
	return err
}
