package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/internal/spin"
	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
)

const (
	// outBytes is how much a link holds back at most, or could not send yet.
	outBytes = holdBytes + sendAbove + 16<<10
	// holdBytes is the largest put that is copied and held back, so that it
	// goes with the notification behind it in one system call. The copy stays
	// in the cache; another call, and a second waking of the receiver, cost
	// more.
	holdBytes = 64 << 10
	// sendAbove is how much is held back before it is sent when something
	// else comes than a notification.
	sendAbove = 16 << 10
	// stripeAbove is the smallest put that is spread over stripes.
	stripeAbove = 256 << 10
	// mostAnswers is how many bytes of answers may wait for a peer that asks
	// and does not read.
	mostAnswers = 1 << 20
)

// tcpLink implements link.Link: the writing side of the connections to a peer.
//
// Whoever has the lock writes. out ends with a whole frame whenever the lock is
// free; what has been sent of it may end anywhere. Readers never wait for the
// lock: their answers go to a queue, and whoever gives the lock back looks
// there after, as does the reader, if it gets the lock.
type tcpLink struct {
	fabric *Fabric
	rank   int     // the peer
	conns  []*conn // by stripe

	mu     sync.Mutex
	out    []byte // frames for stripe 0, of which sent bytes have been written
	sent   int
	puts   [MaxStripes]uint64 // that were sent by each stripe but the first
	marked bool               // all of them have been told of in marks
	broken bool               // a write has failed, so nothing can be said any more
	full   bool               // epoll is to say when the socket takes more of out
	jobs   [MaxStripes]job
	polls  [MaxStripes + 1]unix.PollFd

	pending atomic.Bool                          // out is not empty
	sizes   atomic.Pointer[map[mem.RegionID]int] // of the peer's regions; -1: freed. Written by the reader of stripe 0
	none    atomic.Uint64                        // the last answer that there is no such region: its number, plus 1<<32 for each

	queueing sync.Mutex
	queue    []byte // answers that are not in out yet
	queued   atomic.Bool

	arrived [MaxStripes]atomic.Uint64 // puts that have come by each stripe but the first
	byes    atomic.Int32              // stripes that have said goodbye
	gone    atomic.Pointer[error]     // why there is nobody there any more
	errno   atomic.Uint32             // of the first write that failed; the kernel says it only once
}

// job is what is to be written to one stripe.
type job struct {
	header  [headerBytes]byte
	head    []byte
	body    []byte
	vector  [2]unix.Iovec
	message unix.Msghdr
}

var _ link.Link = (*tcpLink)(nil)

// Put implements link.Link. It blocks while the kernel's buffer is full, and
// takes in meanwhile what the peer puts; the first for a region also until the
// peer has said how large that is. It does not allocate.
func (l *tcpLink) Put(dst mem.Remote, src []byte) error {
	size, err := l.size("put", dst.Region)
	if err != nil {
		return err
	}
	if dst.Offset < 0 || dst.Offset > size || len(src) > size-dst.Offset {
		return fmt.Errorf("tcp: put of %d bytes at %d of region %d (%d bytes) of rank %d: %w",
			len(src), dst.Offset, dst.Region, size, l.rank, link.ErrRange)
	}
	if len(src) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.unlock()
	f := frame{kind: kindPut, region: dst.Region, offset: uint64(dst.Offset), value: uint64(len(src))}
	if len(src) > holdBytes {
		return l.putNow(&f, src)
	}
	if len(l.out)-l.sent >= sendAbove {
		if err := l.sendOut(); err != nil {
			return err
		}
	}
	if err := l.room(headerBytes + len(src)); err != nil {
		return err
	}
	l.out = append(f.append(l.out), src...)
	l.hold()
	return nil
}

// Notify implements link.Link. It blocks only where tens of kilobytes of what
// was said before could not be sent yet, because the peer does not read; and the
// first for a region as Put does. It does not allocate.
func (l *tcpLink) Notify(dst mem.Remote, v uint64) error {
	size, err := l.size("notify", dst.Region)
	if err != nil {
		return err
	}
	if dst.Offset < 0 || dst.Offset > size-link.CounterBytes || dst.Offset%8 != 0 {
		return fmt.Errorf("tcp: notify: a counter at %d of region %d (%d bytes) of rank %d: %w",
			dst.Offset, dst.Region, size, l.rank, link.ErrRange)
	}
	l.mu.Lock()
	defer l.unlock()
	if err := l.room(maxFrame); err != nil {
		return err
	}
	l.say(frame{kind: kindNotify, region: dst.Region, offset: uint64(dst.Offset), value: v})
	return l.sendOut()
}

// size returns how large one of the peer's regions is, for what op names.
func (l *tcpLink) size(op string, region mem.RegionID) (int, error) {
	if l.fabric.isClosed() {
		return 0, &ClosedError{l.fabric.rank, op}
	}
	if gone := l.gone.Load(); gone != nil {
		return 0, *gone
	}
	size, known := (*l.sizes.Load())[region]
	if !known {
		var err error
		if size, err = l.ask(op, region); err != nil {
			return 0, err
		}
	}
	if size <= 0 {
		return 0, fmt.Errorf("tcp: %s: rank %d has no region %d: %w", op, l.rank, region, link.ErrRange)
	}
	return size, nil
}

// ask asks the peer for a region. Its answer is taken in by whoever reads.
func (l *tcpLink) ask(op string, region mem.RegionID) (int, error) {
	l.mu.Lock()
	defer l.unlock()
	before := l.none.Load()
	if err := l.room(headerBytes); err != nil {
		return 0, err
	}
	l.say(frame{kind: kindWant, region: region})
	for looks := 0; ; looks++ {
		if err := l.sendOut(); err != nil {
			return 0, err
		}
		l.fabric.progress()
		if size, known := (*l.sizes.Load())[region]; known {
			return size, nil
		}
		if none := l.none.Load(); none != before && mem.RegionID(none) == region {
			return 0, nil
		}
		if err := l.over(op); err != nil {
			return 0, err
		}
		if looks > 20 {
			l.fabric.Await(time.Millisecond)
		}
	}
}

// over returns why there is no use in waiting any more.
func (l *tcpLink) over(op string) error {
	if gone := l.gone.Load(); gone != nil {
		return *gone
	}
	if l.fabric.outOfTime() {
		return &ClosedError{l.fabric.rank, op}
	}
	return nil
}

// learn takes the answer to ask. Only the reader of stripe 0 calls it.
func (l *tcpLink) learn(f *frame) error {
	if f.value == 0 {
		l.none.Store((l.none.Load()>>32+1)<<32 | uint64(f.region))
		return nil
	}
	if f.value > 1<<62 {
		return fmt.Errorf("it has a region of %d bytes", f.value)
	}
	l.setSize(f.region, int(f.value))
	return nil
}

func (l *tcpLink) setSize(region mem.RegionID, size int) {
	sizes := maps.Clone(*l.sizes.Load())
	if sizes == nil {
		sizes = map[mem.RegionID]int{}
	}
	sizes[region] = size
	l.sizes.Store(&sizes)
}

// unlearn takes the notice that a region was freed. The answer promises that
// nothing more comes for it, so it is written only by who has the lock, when
// the size is no longer there.
func (l *tcpLink) unlearn(region mem.RegionID) error {
	l.setSize(region, -1)
	return l.answer(frame{kind: kindForgot, region: region})
}

// answer sends a frame on behalf of a reader, or somebody who frees a region.
// It does not block.
func (l *tcpLink) answer(f frame) error {
	l.queueing.Lock()
	full := len(l.queue) > mostAnswers
	if !full {
		l.queue = f.append(l.queue)
		l.queued.Store(true)
	}
	l.queueing.Unlock()
	if full {
		return errors.New("it is one of thousands that were not waited for")
	}
	l.tryFlush()
	return nil
}

// tryFlush sends what is held back or queued, if nobody else is writing. It does
// not block, and may be called by a reader.
func (l *tcpLink) tryFlush() {
	if l.mu.TryLock() { // else who writes looks at the queue after
		l.flush()
		l.unlock()
	}
}

// unlock gives the lock back, and looks at what was queued meanwhile.
func (l *tcpLink) unlock() {
	for {
		full := outBytes-len(l.out) < maxFrame // then it is for the next one who writes
		l.mu.Unlock()
		if full || !l.queued.Load() || !l.mu.TryLock() {
			return
		}
		l.flush()
	}
}

// say appends a frame to out. It has marks if it is of a kind that comes after
// puts, and there are puts that no marks have told of. There is room.
func (l *tcpLink) say(f frame) {
	if (f.kind == kindNotify || f.kind == kindForgot) && !l.marked {
		f.marks = uint8(len(l.conns) - 1)
		l.marked = true
	}
	l.out = f.append(l.out)
	for stripe := range int(f.marks) {
		l.out = binary.LittleEndian.AppendUint64(l.out, l.puts[stripe+1])
	}
}

// room makes room for n bytes in out. It blocks if it must.
func (l *tcpLink) room(n int) error {
	if outBytes-len(l.out) >= n {
		return nil
	}
	l.out = l.out[:copy(l.out, l.out[l.sent:])]
	l.sent = 0
	if outBytes-len(l.out) >= n {
		return nil
	}
	return l.write(1)
}

// hold leaves what is in out to the next notification, or to Progress.
func (l *tcpLink) hold() {
	l.pending.Store(true)
	if !l.fabric.held.Load() {
		l.fabric.held.Store(true)
	}
}

// fetchAnswers moves queued answers to out, as far as there is room. It is for
// who has the lock, between frames.
func (l *tcpLink) fetchAnswers() {
	l.queueing.Lock()
	defer l.queueing.Unlock()
	for len(l.queue) > 0 && outBytes-len(l.out) >= maxFrame {
		f, _ := decodeHeader((*[headerBytes]byte)(l.queue))
		l.say(f)
		l.queue = l.queue[headerBytes:]
	}
	l.queued.Store(len(l.queue) > 0)
}

// flush sends as much of out as the socket takes.
func (l *tcpLink) flush() {
	if l.queued.Load() {
		l.fetchAnswers()
	}
	if l.broken || l.gone.Load() != nil {
		l.out, l.sent = l.out[:0], 0
	}
	if l.sent < len(l.out) {
		n, errno := send(l.conns[0].fd, l.out[l.sent:])
		switch errno {
		case 0:
			l.sent += n
		case unix.EAGAIN:
		default:
			l.breaks(errno)
			l.sent = len(l.out)
		}
	}
	if l.sent < len(l.out) {
		l.hold()
		l.setFull(true)
		return
	}
	l.emptied()
}

// emptied is for when all of out has been sent, or never will be.
func (l *tcpLink) emptied() {
	l.out, l.sent = l.out[:0], 0
	if l.pending.Load() {
		l.pending.Store(false)
	}
	l.setFull(false)
}

// setFull lets epoll wake the fabric's goroutine, or who awaits, when there is
// room in a socket that was full, or no longer.
func (l *tcpLink) setFull(full bool) {
	if l.full == full {
		return
	}
	l.full = full
	first := l.conns[0]
	e := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(first.at)}
	if full {
		e.Events |= unix.EPOLLOUT
	}
	// It fails when the connection is over, which is reason enough to wake up.
	_ = unix.EpollCtl(l.fabric.epoll, unix.EPOLL_CTL_MOD, first.fd, &e)
}

// sendOut is flush for those who are to know what became of it.
func (l *tcpLink) sendOut() error {
	l.flush()
	if l.broken {
		return l.failed(0)
	}
	if gone := l.gone.Load(); gone != nil {
		return *gone
	}
	return nil
}

// breaks records that a write has failed. Why the peer is gone, the reader finds
// out: most often the error is only the echo of something that can be read.
func (l *tcpLink) breaks(errno unix.Errno) {
	l.broken = true
	l.errno.CompareAndSwap(0, uint32(errno))
}

// failed is what becomes of a write that has failed.
func (l *tcpLink) failed(stripe int) error {
	l.conns[stripe].drain()
	if gone := l.gone.Load(); gone != nil {
		return *gone
	}
	// The peer said goodbye here, and will on the other stripes.
	return fmt.Errorf("rank %d is closing its communicator: %w", l.rank, link.ErrClosed)
}

// putNow writes a put without a copy, on one stripe or all.
func (l *tcpLink) putNow(f *frame, src []byte) error {
	if err := l.room(headerBytes); err != nil {
		return err
	}
	stripes := 1
	if len(src) >= stripeAbove {
		stripes = len(l.conns)
	}
	if stripes > 1 {
		l.marked = false
	}
	each := (len(src)/stripes + link.LineBytes - 1) &^ (link.LineBytes - 1)
	for stripe := range stripes {
		part := src
		if stripe < stripes-1 {
			part = src[:each]
		}
		src = src[len(part):]
		f.value = uint64(len(part))
		j := &l.jobs[stripe]
		if j.body = part; stripe == 0 {
			l.out = f.append(l.out)
		} else {
			j.head = f.append(j.header[:0])
			l.puts[stripe]++
		}
		f.offset += f.value
	}
	return l.write(stripes)
}

// write writes out, and the jobs of the first stripes, to the end.
func (l *tcpLink) write(stripes int) error {
	l.jobs[0].head = l.out[l.sent:]
	var err error
	if l.broken {
		err = l.failed(0)
	}
	for idle := 0; err == nil; {
		var left, moved bool
		for stripe := range stripes {
			j := &l.jobs[stripe]
			if len(j.head)+len(j.body) == 0 {
				continue
			}
			errno := j.write(l.conns[stripe].fd, stripe == 0 && len(j.body) > 0)
			if errno != 0 && errno != unix.EAGAIN {
				l.breaks(errno)
				err = l.failed(stripe)
				break
			}
			moved = moved || errno == 0
			left = left || len(j.head)+len(j.body) > 0
		}
		if !left && err == nil {
			break
		}
		if idle++; moved {
			idle = 0
		}
		if err == nil && idle > 0 {
			err = l.standBy(idle, stripes)
		}
	}
	for stripe := range stripes {
		l.jobs[stripe].clear()
	}
	l.broken = l.broken || err != nil // perhaps within a frame
	l.emptied()
	return err
}

// write writes as much as the socket takes, in one system call. If more is to
// come on the stripe, a last segment that is not full waits for it; in the
// kernel, which sends it anyway when what was sent before has arrived.
func (j *job) write(fd int, more bool) unix.Errno {
	setIovec(&j.vector[0], j.head)
	setIovec(&j.vector[1], j.body[:min(len(j.body), mostPerCall)])
	j.message.Iov = &j.vector[0]
	j.message.SetIovlen(2)
	flags := uintptr(0)
	if more {
		flags = unix.MSG_MORE
	}
	n, errno := sendFrom(fd, &j.message, flags)
	if errno != 0 {
		return errno
	}
	head := min(n, len(j.head))
	j.head, j.body = j.head[head:], j.body[n-head:]
	return 0
}

// clear lets go of what the caller gave us.
func (j *job) clear() {
	j.head, j.body = nil, nil
	j.vector = [2]unix.Iovec{}
}

// standBy lets time pass while sockets are full. The peer may be in the same
// place, so what it puts is taken in; and it may need this core.
func (l *tcpLink) standBy(idle, stripes int) error {
	if l.fabric.progress() {
		return nil
	}
	if err := l.over("put"); err != nil {
		return err
	}
	if idle < 50 {
		spin.Yield()
		return nil
	}
	polls := l.polls[:0]
	for stripe := range stripes {
		if j := &l.jobs[stripe]; len(j.head)+len(j.body) > 0 {
			polls = append(polls, unix.PollFd{Fd: int32(l.conns[stripe].fd), Events: unix.POLLOUT})
		}
	}
	polls = append(polls, unix.PollFd{Fd: int32(l.fabric.epoll), Events: unix.POLLIN})
	_, _ = unix.Poll(polls, 2) // an error, such as EINTR, is as good as an end
	return nil
}

// heardBye takes the bye of one stripe.
func (l *tcpLink) heardBye(f *frame) {
	if int(l.byes.Add(1)) < len(l.conns) {
		return
	}
	l.lose(l.said(f))
}

// said is what a peer's bye means here.
func (l *tcpLink) said(bye *frame) error {
	if lost := int(bye.region) - 1; lost >= 0 && lost < len(l.fabric.peers) && lost != l.rank && lost != l.fabric.rank {
		return &link.PeerLostError{Rank: lost, Err: fmt.Errorf("rank %d saw it and has closed its communicator", l.rank)}
	}
	return fmt.Errorf("rank %d has closed its communicator: %w", l.rank, link.ErrClosed)
}

// lose records that nobody is there any more, the first time. The peer, if it
// waits for us to hang up, sees that too.
func (l *tcpLink) lose(err error) {
	if !l.gone.CompareAndSwap(nil, &err) {
		return
	}
	for _, c := range l.conns {
		_ = unix.Shutdown(c.fd, unix.SHUT_RDWR)
	}
	l.fabric.forgetAll(l)
	l.fabric.report(l.rank, err)
}

// sayBye puts a bye behind everything on every stripe. The fabric is closed; a
// Put that is under way still gets its second.
func (l *tcpLink) sayBye(bye frame) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken || l.gone.Load() != nil || l.room(headerBytes) != nil {
		return
	}
	for stripe := range l.conns {
		if stripe == 0 {
			l.out = bye.append(l.out)
		} else {
			l.jobs[stripe].head = bye.append(l.jobs[stripe].header[:0])
		}
	}
	_ = l.write(len(l.conns))
	for _, c := range l.conns {
		_ = unix.Shutdown(c.fd, unix.SHUT_WR)
	}
}

// hungUp reports whether the peer has hung up.
func (l *tcpLink) hungUp() bool {
	for _, c := range l.conns {
		if !c.over.Load() {
			return false
		}
	}
	return true
}

// close closes the connections, when nobody has anything to do with them any
// more but by mistake.
func (l *tcpLink) close() error {
	err := error(&ClosedError{l.fabric.rank, "put"})
	l.gone.CompareAndSwap(nil, &err)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns { // who reads one may be about to end them all
		c.mu.Lock()
		defer c.mu.Unlock()
	}
	var errs []error
	for _, c := range l.conns {
		c.over.Store(true)
		errs = append(errs, unix.Close(c.fd))
	}
	return errors.Join(errs...)
}
