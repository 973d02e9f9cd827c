package verbs

import (
	"encoding/binary"
	"fmt"
	"syscall"
	"unsafe"
)

// Segment is a range of local memory in a work request. MR.Segment makes one.
type Segment struct {
	Addr  uint64
	Bytes uint32
	LKey  uint32
}

// Request is a work request for a send queue.
type Request struct {
	ID     uint64 // its completion carries it
	Opcode Opcode
	Flags  SendFlags
	Imm    uint32 // SendImm, WriteImm

	// What is sent or written, one behind the other; where a read or the 8 bytes
	// of an atomic go. The memory must stay as it is until the request has
	// completed.
	Segments []Segment
	// Instead of Segments: what is sent or written. It is copied at once, so it
	// may be any memory.
	Inline []byte

	RemoteAddr uint64 // Write, WriteImm, Read, CompareSwap, FetchAdd: at the peer
	RKey       uint32
	CompareAdd uint64 // CompareSwap: what is compared; FetchAdd: what is added
	Swap       uint64 // CompareSwap: what is written if it is equal

	AH         *AddressHandle // UD: to whom
	RemoteQPN  uint32
	RemoteQKey uint32
}

// BatchOptions are the sizes of a batch. Zero takes what all requests together
// may need.
type BatchOptions struct {
	Requests    int // at most in the batch at a time
	Segments    int // of all of them
	InlineBytes int // of all of them, each rounded up to 8
}

// chainHeader is the C end of a chain, struct tv_chain: what is posted to a
// queue in one call.
type chainHeader struct {
	queue, first, next uintptr
	kind               uint32
	rc                 int32
	bad                uintptr
}

const (
	chainSend = iota
	chainRecv
	chainSRQRecv
)

// sendWR is struct ibv_send_wr. The middle is a union: rkey; compareAdd and
// swap and rkey; or ah (in remoteAddr), queue pair number and key.
type sendWR struct {
	id         uint64
	next       uintptr
	segments   uintptr
	nsegments  int32
	opcode     uint32
	flags      uint32
	imm        [4]byte
	remoteAddr uint64
	mid        [2]uint32
	swap       uint64
	atomicKey  uint32
	_          uint32
	_          [7]uint64
}

// recvWR is struct ibv_recv_wr.
type recvWR struct {
	id        uint64
	next      uintptr
	segments  uintptr
	nsegments int32
	_         uint32
}

// chain is what Batch and RecvBatch have in common: requests in memory of C,
// of which those from from to n are yet to be posted.
type chain struct {
	node    node
	device  string
	queue   string // "queue pair 0x11, send queue"
	c       *chainHeader
	memory  handle
	base    uintptr // of the requests
	stride  uintptr // from one to the next
	n, from int
	max     int
	linked  bool // into the call that is being made: it may be named twice

	segments     []Segment
	segmentsUsed int
	maxSegments  int // in one request
	inline       []byte
	inlineUsed   int
}

// size of a range, rounded up so that what follows is aligned.
func rounded(n int) int { return (n + 63) &^ 63 }

// open makes the chain's memory: header, requests, segments, inline bytes.
func (b *chain) open(label string, parent *node, queue handle, kind uint32, requests, segments, stride, inline int) error {
	if requests < 1 || requests > 1<<24 || segments < 0 || segments > 1<<26 || inline < 0 || inline > 1<<30 {
		return &Error{Op: "making a batch", Device: b.device, Object: b.queue, Err: syscall.EINVAL, Advice: fmt.Sprintf("%d requests, %d segments, %d bytes inline are no sizes", requests, segments, inline)}
	}
	if err := b.node.begin(kindBatch, label, parent); err != nil {
		return err
	}
	head, wrs, segs := rounded(int(unsafe.Sizeof(chainHeader{}))), rounded(requests*stride), rounded(segments*int(unsafe.Sizeof(Segment{})))
	memory := sysAlloc(head + wrs + segs + inline)
	if memory == nil {
		b.node.abandon()
		return &Error{Op: "making a batch", Device: b.device, Object: b.queue, Err: syscall.ENOMEM}
	}
	b.memory, b.c = memory, (*chainHeader)(memory)
	b.c.queue, b.c.kind = uintptr(queue), kind
	b.base = uintptr(memory) + uintptr(head)
	b.stride, b.max = uintptr(stride), requests
	b.segments = unsafe.Slice((*Segment)(unsafe.Add(memory, head+wrs)), segments)
	b.inline = unsafe.Slice((*byte)(unsafe.Add(memory, head+wrs+segs)), inline)
	return nil
}

// Len returns how many requests are yet to be posted.
func (b *chain) Len() int { return b.n - b.from }

// Clear takes out all requests.
func (b *chain) Clear() { b.n, b.from, b.segmentsUsed, b.inlineUsed = 0, 0, 0, 0 }

// Close frees the batch.
func (b *chain) Close() error {
	return b.node.end(func() error {
		sysFree(b.memory)
		b.memory, b.c, b.segments, b.inline = nil, nil, nil, nil
		b.Clear()
		return nil
	})
}

// at returns where request i lies.
func (b *chain) at(i int) uintptr { return b.base + uintptr(i)*b.stride }

// take makes room for one more request with so many segments.
func (b *chain) take(segments int) error {
	switch {
	case b.c == nil:
		return ErrClosed
	case segments > b.maxSegments:
		return fmt.Errorf("%w: %d segments: the %s was created for %d", ErrRequest, segments, b.queue, b.maxSegments)
	case b.n == b.max || segments > len(b.segments)-b.segmentsUsed:
		return ErrBatchFull
	}
	return nil
}

// put stores segments and returns where.
func (b *chain) put(segments []Segment) uintptr {
	if len(segments) == 0 {
		return 0
	}
	s := b.segments[b.segmentsUsed:]
	copy(s, segments)
	b.segmentsUsed += len(segments)
	return uintptr(unsafe.Pointer(&s[0]))
}

// ready prepares the chain for posting and reports whether there is anything
// to post.
func (b *chain) ready() bool {
	if b.c == nil || b.n == b.from {
		return false
	}
	b.c.first = b.at(b.from)
	return true
}

// posted takes out what was posted and returns err, or if that is nil, what
// went wrong with this chain.
func (b *chain) posted(err error) error {
	linked := b.linked
	b.linked = false
	switch {
	case b.c == nil:
		if err == nil {
			err = fmt.Errorf("%w: batch", ErrClosed)
		}
		return err
	case b.n == b.from, !linked:
		return err
	case b.c.rc == 0:
		b.Clear()
		return err
	}
	index := 0
	if bad := int((b.c.bad - b.base) / b.stride); b.c.bad >= b.base && bad >= b.from && bad < b.n {
		index = bad - b.from
	}
	b.from += index
	if err == nil {
		id := *(*uint64)(unsafe.Add(b.memory, b.at(b.from)-uintptr(b.memory))) // both kinds of request begin with it
		err = &PostError{Device: b.device, Queue: b.queue, Index: index, ID: id, Err: syscall.Errno(b.c.rc)}
	}
	return err
}

// post posts the chain alone.
func (b *chain) post() (int, error) {
	before := b.Len()
	if b.ready() {
		b.c.next, b.linked = 0, true
		sysPostPoll(b, nil, nil)
	}
	err := b.posted(nil)
	return before - b.Len(), err
}

// Batch gathers requests for one queue pair's send queue, which Post or
// CompletionQueue.PostAndPoll hand to the device all at once, in the order in
// which they were added. It belongs to one goroutine at a time.
type Batch struct {
	chain
	qp  *QueuePair
	wrs []sendWR
}

// NewBatch makes a batch for the queue pair's sends. Errors: *Error.
func (qp *QueuePair) NewBatch(o BatchOptions) (*Batch, error) {
	caps := qp.options.Caps
	if o.Segments == 0 {
		o.Segments = o.Requests * max(1, caps.SendSegments)
	}
	if o.InlineBytes == 0 {
		o.InlineBytes = o.Requests * ((caps.InlineBytes + 7) &^ 7)
	}
	b := &Batch{qp: qp}
	b.device, b.queue = qp.pd.device.info.Name, fmt.Sprintf("queue pair %#x, send queue", qp.qpn)
	b.maxSegments = max(1, caps.SendSegments)
	err := b.open(fmt.Sprintf("batch of queue pair %#x of %s", qp.qpn, b.device), &qp.node, qp.h, chainSend,
		o.Requests, o.Segments, int(unsafe.Sizeof(sendWR{})), o.InlineBytes)
	if err != nil {
		return nil, err
	}
	b.wrs = unsafe.Slice((*sendWR)(unsafe.Add(b.memory, b.base-uintptr(b.memory))), o.Requests)
	return b, nil
}

// Add adds a request. r may be used again at once; it does not escape. Errors:
// ErrBatchFull; ErrRequest for what the queue pair cannot do; ErrClosed.
func (b *Batch) Add(r *Request) error {
	segments := r.Segments
	flags := r.Flags
	if r.Inline != nil {
		if len(segments) != 0 || len(r.Inline) > b.qp.options.Caps.InlineBytes {
			return b.wrongInline(r)
		}
		if len(r.Inline) > len(b.inline)-b.inlineUsed {
			return ErrBatchFull
		}
		flags |= InlineSegments
	}
	if err := b.take(max(len(segments), min(1, len(r.Inline)))); err != nil {
		return err
	}
	wr := &b.wrs[b.n]
	wr.id, wr.next, wr.opcode, wr.flags = r.ID, 0, uint32(r.Opcode), uint32(flags)
	switch {
	case b.qp.options.Type == UD:
		if r.AH == nil || r.AH.h == nil || (r.Opcode != Send && r.Opcode != SendImm) {
			return fmt.Errorf("%w: %v on %v: datagrams are sent, to an address handle that is open", ErrRequest, r.Opcode, b.qp)
		}
		wr.remoteAddr, wr.mid = uint64(uintptr(r.AH.h)), [2]uint32{r.RemoteQPN, r.RemoteQKey}
	case r.Opcode == FetchAdd || r.Opcode == CompareSwap:
		wr.remoteAddr, wr.swap, wr.atomicKey = r.RemoteAddr, r.Swap, r.RKey
		*(*uint64)(unsafe.Pointer(&wr.mid)) = r.CompareAdd
	case r.Opcode > FetchAdd:
		return fmt.Errorf("%w: %v", ErrRequest, r.Opcode)
	default:
		wr.remoteAddr, wr.mid = r.RemoteAddr, [2]uint32{r.RKey}
	}
	binary.BigEndian.PutUint32(wr.imm[:], r.Imm)
	if r.Inline != nil {
		wr.segments, wr.nsegments = 0, 0
		if n := len(r.Inline); n > 0 {
			at := b.inline[b.inlineUsed:]
			copy(at, r.Inline)
			b.inlineUsed += min((n+7)&^7, len(at))
			one := [1]Segment{{Addr: uint64(uintptr(unsafe.Pointer(&at[0]))), Bytes: uint32(n)}}
			wr.segments, wr.nsegments = b.put(one[:]), 1
		}
	} else {
		wr.segments, wr.nsegments = b.put(segments), int32(len(segments))
	}
	if b.n > b.from {
		b.wrs[b.n-1].next = b.at(b.n)
	}
	b.n++
	return nil
}

func (b *Batch) wrongInline(r *Request) error {
	if len(r.Segments) != 0 {
		return fmt.Errorf("%w: it has both segments and inline bytes", ErrRequest)
	}
	return fmt.Errorf("%w: %d bytes inline: %v was created for %d", ErrRequest, len(r.Inline), b.qp, b.qp.options.Caps.InlineBytes)
}

// Post hands the requests to the device and takes them out of the batch. It
// returns how many. When one is refused, it and those behind it stay in the
// batch, to be posted again or cleared. It does not block, though soft-RoCE
// does the sending in it. Errors: *PostError, ErrClosed.
func (b *Batch) Post() (int, error) { return b.post() }

// RecvBatch gathers receives for a queue pair or a shared receive queue. It
// belongs to one goroutine at a time.
type RecvBatch struct {
	chain
	wrs []recvWR
}

// NewRecvBatch makes a batch for the queue pair's receives. Errors: *Error.
func (qp *QueuePair) NewRecvBatch(o BatchOptions) (*RecvBatch, error) {
	if qp.options.SRQ != nil {
		return nil, &Error{Op: "making a batch of receives", Device: qp.pd.device.info.Name, Object: fmt.Sprintf("queue pair %#x", qp.qpn), Err: syscall.EINVAL, Advice: "it takes its receives from a shared queue: post them there"}
	}
	b := &RecvBatch{}
	b.device, b.queue = qp.pd.device.info.Name, fmt.Sprintf("queue pair %#x, receive queue", qp.qpn)
	return b.open(fmt.Sprintf("batch of receives of queue pair %#x of %s", qp.qpn, b.device), &qp.node, qp.h, chainRecv, o, qp.options.Caps.RecvSegments)
}

// NewRecvBatch makes a batch for the shared receive queue. Errors: *Error.
func (s *SRQ) NewRecvBatch(o BatchOptions) (*RecvBatch, error) {
	b := &RecvBatch{}
	b.device, b.queue = s.pd.device.info.Name, "shared receive queue"
	return b.open("batch of receives of a shared receive queue of "+b.device, &s.node, s.h, chainSRQRecv, o, s.options.Segments)
}

func (b *RecvBatch) open(label string, parent *node, queue handle, kind uint32, o BatchOptions, maxSegments int) (*RecvBatch, error) {
	b.maxSegments = maxSegments
	if o.Segments == 0 {
		o.Segments = o.Requests * maxSegments
	}
	if err := b.chain.open(label, parent, queue, kind, o.Requests, o.Segments, int(unsafe.Sizeof(recvWR{})), 0); err != nil {
		return nil, err
	}
	b.wrs = unsafe.Slice((*recvWR)(unsafe.Add(b.memory, b.base-uintptr(b.memory))), o.Requests)
	return b, nil
}

// Add adds a receive, whose message fills the segments one after the other;
// with none it only takes a number. Errors: ErrBatchFull, ErrRequest,
// ErrClosed.
func (b *RecvBatch) Add(id uint64, segments ...Segment) error {
	if err := b.take(len(segments)); err != nil {
		return err
	}
	wr := &b.wrs[b.n]
	wr.id, wr.next = id, 0
	wr.segments, wr.nsegments = b.put(segments), int32(len(segments))
	if b.n > b.from {
		b.wrs[b.n-1].next = b.at(b.n)
	}
	b.n++
	return nil
}

// Post is Batch.Post for receives.
func (b *RecvBatch) Post() (int, error) { return b.post() }
