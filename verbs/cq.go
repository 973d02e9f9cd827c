package verbs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"unsafe"
)

// CompletionQueue is where work requests end. Several queue pairs may share
// one.
type CompletionQueue struct {
	node    node
	device  *Device
	channel *CompletionChannel
	h       handle
	entries int

	// Guarded by channel.mu.
	unacked uint32
	closing bool
}

// CQOptions say what completion queue is wanted.
type CQOptions struct {
	Entries int                // it must hold every request that is outstanding, unsignalled ones too
	Channel *CompletionChannel // where it reports that it is no longer empty; nil for a queue that is polled only
	Vector  int                // the interrupt, less than Device.CompletionVectors
}

// CreateCQ makes a completion queue. Errors: *Error.
func (d *Device) CreateCQ(o CQOptions) (*CompletionQueue, error) {
	cq := &CompletionQueue{device: d, channel: o.Channel}
	parents := []*node{&d.node}
	var channel handle
	if o.Channel != nil {
		parents = append(parents, &o.Channel.node)
		channel = o.Channel.h
	}
	fail := func(err error, advice string) (*CompletionQueue, error) {
		return nil, &Error{Op: fmt.Sprintf("creating a completion queue of %d entries", o.Entries), Device: d.info.Name, Err: err, Advice: advice}
	}
	if o.Channel != nil && o.Channel.device != d {
		return fail(syscall.EINVAL, "the channel is another device's")
	}
	if o.Entries < 1 || o.Entries > 1<<30 {
		return fail(syscall.EINVAL, "it must hold at least one entry")
	}
	if err := cq.node.begin(kindCQ, "completion queue of "+d.info.Name, parents...); err != nil {
		return nil, err
	}
	h, entries, errno := sysCreateCQ(d.ctx, o.Entries, channel, o.Vector)
	if errno != 0 {
		cq.node.abandon()
		return fail(errno, d.cqAdvice(o, errno))
	}
	cq.h, cq.entries = h, entries
	cq.node.named("completion queue of %d entries of %s", entries, d.info.Name)
	d.objects.Store(h, cq)
	return cq, nil
}

func (d *Device) cqAdvice(o CQOptions, errno syscall.Errno) string {
	a, err := d.Attr()
	switch {
	case err != nil:
		return ""
	case o.Entries > a.MaxCQEntries:
		return fmt.Sprintf("the device allows %d entries", a.MaxCQEntries)
	case o.Vector < 0 || o.Vector >= d.vectors:
		return fmt.Sprintf("the device has %d completion vectors", d.vectors)
	case errno == syscall.ENOMEM:
		return noMemory()
	}
	return ""
}

func (cq *CompletionQueue) String() string {
	return fmt.Sprintf("%s: completion queue of %d entries", cq.device.info.Name, cq.entries)
}

// Device returns the device that the queue is of.
func (cq *CompletionQueue) Device() *Device { return cq.device }

// Entries returns how many completions it holds: what was asked for or more.
// With one more it overflows and is lost, with all queue pairs that use it.
func (cq *CompletionQueue) Entries() int { return cq.entries }

// Close frees the queue and what it holds. Errors: *BusyError, *Error.
func (cq *CompletionQueue) Close() error {
	return cq.node.end(func() error {
		if ch := cq.channel; ch != nil {
			// From here on Wait acknowledges at once, so that the library does
			// not wait for events that nobody acknowledges.
			ch.mu.Lock()
			cq.closing = true
			if cq.unacked > 0 {
				sysAckCQ(cq.h, cq.unacked)
				cq.unacked = 0
			}
			ch.mu.Unlock()
		}
		cq.device.objects.Delete(cq.h)
		if errno := sysDestroyCQ(cq.h); errno != 0 {
			cq.device.objects.Store(cq.h, cq)
			cq.reopen()
			return &Error{Op: "destroying", Device: cq.device.info.Name, Object: "completion queue", Err: errno}
		}
		cq.h = nil
		return nil
	})
}

// reopen takes back that the queue is closing.
func (cq *CompletionQueue) reopen() {
	if ch := cq.channel; ch != nil {
		ch.mu.Lock()
		defer ch.mu.Unlock()
		cq.closing = false
	}
}

// Completion is the end of a work request, as the device wrote it. Where the
// status is not Success only ID, Status, QPN and Vendor mean anything.
type Completion struct {
	ID     uint64
	Status Status
	Opcode CompletionOpcode
	Vendor uint32 // the vendor's code of an error
	Bytes  uint32 // received, or read
	imm    [4]byte
	QPN    uint32
	SrcQPN uint32 // UD: the sender
	Flags  CompletionFlags

	PKeyIndex uint16
	SLID      uint16 // UD: the sender's LID
	SL        uint8
	PathBits  uint8
}

// CompletionOpcode is what a completed request was.
type CompletionOpcode uint32

// The opcodes. Those of receives have RecvBit.
const (
	CompletedSend        CompletionOpcode = 0
	CompletedWrite       CompletionOpcode = 1
	CompletedRead        CompletionOpcode = 2
	CompletedCompareSwap CompletionOpcode = 3
	CompletedFetchAdd    CompletionOpcode = 4
	CompletedRecv        CompletionOpcode = 128 // of a SEND
	CompletedRecvImm     CompletionOpcode = 129 // of a WRITE_WITH_IMM
	RecvBit              CompletionOpcode = 128
)

// CompletionFlags say what a completion carries.
type CompletionFlags uint32

// With CompletedGRH the first GRHBytes of a UD receive are a routing header;
// with CompletedImm the completion carries a number.
const (
	CompletedGRH CompletionFlags = 1
	CompletedImm CompletionFlags = 2
)

// GRHBytes is what a UD receive needs besides its message: bytes at the start
// that the header takes, and that are skipped where there is none.
const GRHBytes = 40

// Imm returns the number that the peer sent along. ok is false if it did not.
func (c *Completion) Imm() (v uint32, ok bool) {
	return binary.BigEndian.Uint32(c.imm[:]), c.Flags&CompletedImm != 0
}

// Err returns nil for a request that succeeded, otherwise a *CompletionError,
// which does not name the device; CompletionQueue.Check does.
func (c *Completion) Err() error {
	if c.Status == Success {
		return nil
	}
	return &CompletionError{ID: c.ID, QPN: c.QPN, Status: c.Status, Vendor: c.Vendor}
}

// Poll takes completions out of the queue, as many as there are and fit into
// done, and returns how many. It does not block or allocate. Errors: ErrClosed,
// *Error.
func (cq *CompletionQueue) Poll(done []Completion) (int, error) {
	return cq.PostAndPoll(done, nil)
}

// PostAndPoll posts receives, unless nil, then all the batches, then polls, in
// one call of C. Each batch is posted whatever becomes of the others. It
// returns the number of completions, which are there also with an error:
// those of RecvBatch.Post, Batch.Post and Poll, the first that happened. It
// does not block or allocate. An empty done polls nothing.
func (cq *CompletionQueue) PostAndPoll(done []Completion, receives *RecvBatch, batches ...*Batch) (int, error) {
	if cq.h == nil {
		return 0, ErrClosed
	}
	var first, last *chain
	link := func(c *chain) {
		c.c.next, c.linked = 0, true
		if last == nil {
			first = c
		} else {
			last.c.next = uintptr(unsafe.Pointer(c.c))
		}
		last = c
	}
	if receives != nil && receives.ready() {
		link(&receives.chain)
	}
	for _, b := range batches {
		if b != nil && !b.linked && b.ready() {
			link(&b.chain)
		}
	}
	n := sysPostPoll(first, cq.h, done)
	var err error
	if receives != nil {
		err = receives.posted(err)
	}
	for _, b := range batches {
		if b != nil {
			err = b.posted(err)
		}
	}
	if n < 0 {
		if err == nil {
			err = cq.pollError(n)
		}
		n = 0
	}
	return n, err
}

// Check is Completion.Err for a completion of this queue, and names the device.
func (cq *CompletionQueue) Check(c *Completion) error {
	if c.Status == Success {
		return nil
	}
	return &CompletionError{Device: cq.device.info.Name, ID: c.ID, QPN: c.QPN, Status: c.Status, Vendor: c.Vendor}
}

func (cq *CompletionQueue) pollError(n int) error {
	errno := syscall.EIO
	if n < -1 {
		errno = syscall.Errno(-n)
	}
	return &Error{Op: "polling", Device: cq.device.info.Name, Object: "completion queue", Err: errno, Advice: "the queue or the device is broken: look at its events and the kernel's log"}
}

// Arm asks for one event on the queue's channel when the next completion comes,
// or, if solicited, the next one of a message sent with Solicited or in error.
// What came before does not count: Arm, then Poll once more, then Wait.
func (cq *CompletionQueue) Arm(solicited bool) error {
	if cq.h == nil {
		return ErrClosed
	}
	if cq.channel == nil {
		return &Error{Op: "arming", Device: cq.device.info.Name, Object: "completion queue", Err: syscall.EINVAL, Advice: "it was created without a channel"}
	}
	if errno := sysArm(cq.h, solicited); errno != 0 {
		return &Error{Op: "arming", Device: cq.device.info.Name, Object: "completion queue", Err: errno}
	}
	return nil
}

// CompletionChannel is where completion queues report that they are no longer
// empty.
type CompletionChannel struct {
	node   node
	device *Device
	h      handle
	fd     int
	events *waiter

	mu sync.Mutex // held while an event is read and counted
}

// CreateChannel makes a completion channel.
func (d *Device) CreateChannel() (*CompletionChannel, error) {
	ch := &CompletionChannel{device: d}
	if err := ch.node.begin(kindChannel, "completion channel of "+d.info.Name, &d.node); err != nil {
		return nil, err
	}
	h, fd, errno := sysCreateChannel(d.ctx)
	if errno != 0 {
		ch.node.abandon()
		return nil, &Error{Op: "creating a completion channel", Device: d.info.Name, Err: errno}
	}
	events, err := newWaiter(fd, d.info.Name+" completions")
	if err != nil {
		_ = sysDestroyChannel(h)
		ch.node.abandon()
		return nil, &Error{Op: "watching a completion channel", Device: d.info.Name, Err: err}
	}
	ch.h, ch.fd, ch.events = h, fd, events
	return ch, nil
}

// Fd returns the descriptor that becomes readable when there is an event, for
// poll(2) and its like. It is not blocking and stays the channel's. Read events
// by Wait or TryWait only.
func (ch *CompletionChannel) Fd() int { return ch.fd }

// Wait waits for an event and returns the queue that it is of. It keeps no
// thread while it waits; several goroutines may. Errors: the cause that ctx
// ended; ErrClosed once the channel is closed; *Error.
func (ch *CompletionChannel) Wait(ctx context.Context) (*CompletionQueue, error) {
	var cq *CompletionQueue
	var errno syscall.Errno
	err := ch.events.await(ctx, func() bool {
		cq, errno = ch.take()
		return cq != nil || (errno != 0 && errno != syscall.EAGAIN)
	})
	switch {
	case errors.Is(err, ErrClosed):
		return nil, fmt.Errorf("%w: completion channel of %s", ErrClosed, ch.device.info.Name)
	case err != nil:
		return nil, err
	case errno != 0:
		return nil, ch.readError(errno)
	}
	return cq, nil
}

// TryWait is Wait that returns nil instead of waiting.
func (ch *CompletionChannel) TryWait() (*CompletionQueue, error) {
	if ch.h == nil {
		return nil, ErrClosed
	}
	cq, errno := ch.take()
	if errno != 0 && errno != syscall.EAGAIN {
		return nil, ch.readError(errno)
	}
	return cq, nil
}

func (ch *CompletionChannel) readError(errno syscall.Errno) error {
	return &Error{Op: "reading completion events", Device: ch.device.info.Name, Object: "completion channel", Err: errno}
}

// take reads one event. The library wants events acknowledged before the queue
// is destroyed and takes a lock for it, so that is done by the thousand.
func (ch *CompletionChannel) take() (*CompletionQueue, syscall.Errno) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	h, errno := sysCQEvent(ch.h)
	if errno != 0 {
		return nil, errno
	}
	cq := lookUp[CompletionQueue](ch.device, h)
	if cq == nil || cq.closing {
		sysAckCQ(h, 1)
		return nil, syscall.EAGAIN
	}
	if cq.unacked++; cq.unacked == 1024 {
		sysAckCQ(h, cq.unacked)
		cq.unacked = 0
	}
	return cq, 0
}

// Close closes the channel and wakes those who wait. Errors: *BusyError while a
// completion queue uses it, *Error.
func (ch *CompletionChannel) Close() error {
	return ch.node.end(func() error {
		ch.events.close()
		if errno := sysDestroyChannel(ch.h); errno != 0 {
			return &Error{Op: "destroying", Device: ch.device.info.Name, Object: "completion channel", Err: errno}
		}
		ch.h = nil
		return nil
	})
}
