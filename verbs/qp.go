package verbs

import (
	"fmt"
	"syscall"
)

// QueuePair is a send queue and a receive queue. RC and UC ones are connected
// to one other, UD ones send to whom each request names.
type QueuePair struct {
	node    node
	pd      *PD
	h       handle
	qpn     uint32
	options QPOptions // with what the device gave as Caps
}

// QPCaps are the sizes of a queue pair.
type QPCaps struct {
	SendRequests int // that may be outstanding
	RecvRequests int // that may be posted; none with an SRQ
	SendSegments int // in one request
	RecvSegments int // in one receive
	InlineBytes  int // of all segments of an inline request
}

// QPOptions say what queue pair is wanted.
type QPOptions struct {
	Type      QPType
	SendCQ    *CompletionQueue // where its sends end
	RecvCQ    *CompletionQueue // where its receives end; it may be the same
	SRQ       *SRQ             // where it takes receives from, instead of its own
	Caps      QPCaps
	SignalAll bool // every request that succeeds completes
}

// CreateQP makes a queue pair, in StateReset. The device may give more than
// the caps that were asked for: see Caps. Errors: *Error.
func (pd *PD) CreateQP(o QPOptions) (*QueuePair, error) {
	qp := &QueuePair{pd: pd, options: o}
	device := pd.device.info.Name
	fail := func(err error, advice string) (*QueuePair, error) {
		return nil, &Error{Op: fmt.Sprintf("creating an %v queue pair", o.Type), Device: device, Err: err, Advice: advice}
	}
	if o.SendCQ == nil || o.RecvCQ == nil {
		return fail(syscall.EINVAL, "it needs completion queues for sends and for receives")
	}
	if o.SendCQ.device != pd.device || o.RecvCQ.device != pd.device {
		return fail(syscall.EINVAL, "its completion queues are another device's")
	}
	for _, n := range []int{o.Caps.SendRequests, o.Caps.RecvRequests, o.Caps.SendSegments, o.Caps.RecvSegments, o.Caps.InlineBytes} {
		if n < 0 || n > 1<<30 {
			return fail(syscall.EINVAL, fmt.Sprintf("%d is no size", n))
		}
	}
	parents := []*node{&pd.node, &o.SendCQ.node}
	if o.RecvCQ != o.SendCQ {
		parents = append(parents, &o.RecvCQ.node)
	}
	var srq handle
	if o.SRQ != nil {
		if o.SRQ.pd.device != pd.device {
			return fail(syscall.EINVAL, "its shared receive queue is another device's")
		}
		parents = append(parents, &o.SRQ.node)
	}
	if err := qp.node.begin(kindQP, fmt.Sprintf("%v queue pair of %s", o.Type, device), parents...); err != nil {
		return nil, err
	}
	if o.SRQ != nil {
		srq = o.SRQ.h
	}
	h, qpn, errno := sysCreateQP(pd.h, &qp.options, o.SendCQ.h, o.RecvCQ.h, srq)
	if errno != 0 {
		qp.node.abandon()
		return fail(errno, qpAdvice(pd.device, o, errno))
	}
	qp.h, qp.qpn = h, qpn
	qp.node.named("%v queue pair %#x of %s", o.Type, qpn, device)
	pd.device.objects.Store(h, qp)
	return qp, nil
}

func qpAdvice(d *Device, o QPOptions, errno syscall.Errno) string {
	a, err := d.Attr()
	if err != nil {
		return ""
	}
	switch {
	case o.Caps.SendRequests > a.MaxQPRequests || o.Caps.RecvRequests > a.MaxQPRequests:
		return fmt.Sprintf("the device allows %d requests in a queue", a.MaxQPRequests)
	case o.Caps.SendSegments > a.MaxSegments || o.Caps.RecvSegments > a.MaxSegments:
		return fmt.Sprintf("the device allows %d segments in a request", a.MaxSegments)
	case errno == syscall.EINVAL && o.Caps.InlineBytes > 0:
		return fmt.Sprintf("the device may not send %d bytes inline, or not with so many segments and requests", o.Caps.InlineBytes)
	case errno == syscall.ENOMEM:
		return fmt.Sprintf("the device allows %d queue pairs; if there are fewer, %s", a.MaxQueuePairs, noMemory())
	}
	return ""
}

// QPN returns the queue pair's number, which its peer must know.
func (qp *QueuePair) QPN() uint32 { return qp.qpn }

// Type returns the service.
func (qp *QueuePair) Type() QPType { return qp.options.Type }

// Caps returns what the device gave: what was asked for or more.
func (qp *QueuePair) Caps() QPCaps { return qp.options.Caps }

// Device returns the device that the queue pair is of.
func (qp *QueuePair) Device() *Device { return qp.pd.device }

func (qp *QueuePair) String() string {
	return fmt.Sprintf("%s: %v queue pair %#x", qp.pd.device.info.Name, qp.options.Type, qp.qpn)
}

// Close destroys the queue pair; requests that are outstanding end without a
// completion. Errors: *BusyError, *Error.
func (qp *QueuePair) Close() error {
	return qp.node.end(func() error {
		objects := &qp.pd.device.objects
		objects.Delete(qp.h)
		if errno := sysDestroyQP(qp.h); errno != 0 {
			objects.Store(qp.h, qp)
			return &Error{Op: "destroying", Device: qp.pd.device.info.Name, Object: fmt.Sprintf("queue pair %#x", qp.qpn), Err: errno}
		}
		qp.h = nil
		return nil
	})
}

// AddressVector is the way to a peer.
type AddressVector struct {
	Port         int  // of this side, from 1
	Global       bool // DGID counts: always on RoCE, on InfiniBand between subnets
	DGID         GID  // the peer's
	SGIDIndex    int  // in this side's table
	HopLimit     uint8
	TrafficClass uint8
	FlowLabel    uint32 // 20 bits; on RoCE v2 it spreads over paths
	DLID         uint16 // the peer's, on InfiniBand
	SL           uint8  // the service level
	PathBits     uint8
	StaticRate   uint8
}

// InitOptions are what StateInit needs.
type InitOptions struct {
	Port      int // from 1
	PKeyIndex int
	Access    Access // RC and UC: what the peer may do
	QKey      uint32 // UD: what senders must know
}

// RTROptions are what StateRTR needs. UD needs none of them, and UC no more
// than the peer, PSN, MTU and address.
type RTROptions struct {
	DestQPN         uint32 // the peer
	PSN             uint32 // 24 bits: what the peer starts with, its RTSOptions.PSN
	MTU             MTU    // the smaller one of both ports
	MaxDestRDAtomic int    // reads and atomics of the peer at a time
	MinRNRTimer     uint8  // how long the peer is to wait when no receive is posted; encoded, 12 is 0.64 ms
	Address         AddressVector
}

// RTSOptions are what StateRTS needs. UD needs PSN only, UC too.
type RTSOptions struct {
	PSN         uint32 // 24 bits: what this side starts with
	Timeout     uint8  // without an answer, sends again after about 4.096 us << Timeout; 0 never does
	RetryCount  uint8  // how often, 0 to 7
	RNRRetry    uint8  // how often when the peer has no receive posted; 7 is without end
	MaxRDAtomic int    // reads and atomics under way at a time
}

// DefaultRTR returns the usual values; the peer, PSN, MTU and address are to be
// filled in.
func DefaultRTR() RTROptions { return RTROptions{MaxDestRDAtomic: 1, MinRNRTimer: 12} }

// DefaultRTS returns the usual values; PSN is to be filled in. A peer that does
// not answer is given up after 7 to 30 seconds. The retry count is 6 because
// soft-RoCE takes 7 for endless.
func DefaultRTS() RTSOptions {
	return RTSOptions{Timeout: 18, RetryCount: 6, RNRRetry: 7, MaxRDAtomic: 1}
}

// The attributes of a queue pair that a change sets.
const (
	setState           = 1 << 0
	setAccess          = 1 << 3
	setPKeyIndex       = 1 << 4
	setPort            = 1 << 5
	setQKey            = 1 << 6
	setAddress         = 1 << 7
	setPathMTU         = 1 << 8
	setTimeout         = 1 << 9
	setRetryCount      = 1 << 10
	setRNRRetry        = 1 << 11
	setRQPSN           = 1 << 12
	setMaxRDAtomic     = 1 << 13
	setMinRNRTimer     = 1 << 15
	setSQPSN           = 1 << 16
	setMaxDestRDAtomic = 1 << 17
	setCaps            = 1 << 19
	setDestQPN         = 1 << 20
)

// ToInit goes from StateReset to StateInit: receives may be posted. Errors:
// *StateError.
func (qp *QueuePair) ToInit(o InitOptions) error {
	a := QPAttr{State: StateInit, PKeyIndex: o.PKeyIndex, Port: o.Port, Access: o.Access, QKey: o.QKey}
	mask := setState | setPKeyIndex | setPort
	if qp.options.Type == UD {
		mask |= setQKey
	} else {
		mask |= setAccess
	}
	if o.Port < 1 || o.Port > 255 || o.PKeyIndex < 0 || o.PKeyIndex > 1<<16-1 {
		return qp.refuse(StateInit, fmt.Sprintf("port %d with partition key %d: ports are numbered from 1, keys from 0", o.Port, o.PKeyIndex))
	}
	return qp.modify(&a, mask)
}

// ToRTR goes from StateInit to StateRTR: receives are filled and the peer may
// reach memory. On RoCE it finds the peer's MAC address, which may take a
// second, so it does not belong on a thread that must not stop. Errors:
// *StateError, which is syscall.ETIMEDOUT where the peer's address was not
// found; to call it again may help.
func (qp *QueuePair) ToRTR(o RTROptions) error {
	a := QPAttr{State: StateRTR, PathMTU: o.MTU, DestQPN: o.DestQPN, RQPSN: o.PSN & 0xffffff,
		MaxDestRDAtomic: o.MaxDestRDAtomic, MinRNRTimer: o.MinRNRTimer, Address: o.Address}
	mask := setState
	if qp.options.Type != UD {
		mask |= setAddress | setPathMTU | setDestQPN | setRQPSN
		if o.MTU.Bytes() == 0 {
			return qp.refuse(StateRTR, fmt.Sprintf("MTU %d is none of the encoded ones, which are 1 to 5", uint32(o.MTU)))
		}
		if why := o.Address.wrong(); why != "" {
			return qp.refuse(StateRTR, why)
		}
	}
	if qp.options.Type == RC {
		mask |= setMaxDestRDAtomic | setMinRNRTimer
		if o.MaxDestRDAtomic < 0 || o.MaxDestRDAtomic > 255 {
			return qp.refuse(StateRTR, fmt.Sprintf("MaxDestRDAtomic is %d", o.MaxDestRDAtomic))
		}
	}
	return qp.modify(&a, mask)
}

// ToRTS goes from StateRTR to StateRTS: sends may be posted. Errors:
// *StateError.
func (qp *QueuePair) ToRTS(o RTSOptions) error {
	a := QPAttr{State: StateRTS, SQPSN: o.PSN & 0xffffff, Timeout: o.Timeout, RetryCount: o.RetryCount, RNRRetry: o.RNRRetry, MaxRDAtomic: o.MaxRDAtomic}
	mask := setState | setSQPSN
	if qp.options.Type == RC {
		mask |= setTimeout | setRetryCount | setRNRRetry | setMaxRDAtomic
		if o.RetryCount > 7 || o.RNRRetry > 7 || o.Timeout > 31 || o.MaxRDAtomic < 0 || o.MaxRDAtomic > 255 {
			return qp.refuse(StateRTS, fmt.Sprintf("retry counts go to 7, timeouts to 31: %+v", o))
		}
	}
	return qp.modify(&a, mask)
}

// ToError goes to StateErr: everything outstanding completes with Flushed.
// Errors: *StateError.
func (qp *QueuePair) ToError() error { return qp.modify(&QPAttr{State: StateErr}, setState) }

// Reset goes to StateReset and forgets everything outstanding. Completions that
// are in the completion queues should be polled before. Errors: *StateError.
func (qp *QueuePair) Reset() error { return qp.modify(&QPAttr{State: StateReset}, setState) }

func (av *AddressVector) wrong() string {
	switch {
	case av.Port < 1 || av.Port > 255:
		return fmt.Sprintf("the address names port %d of this side: ports are numbered from 1", av.Port)
	case av.SGIDIndex < 0 || av.SGIDIndex > 255:
		return fmt.Sprintf("GID index %d: it must be 0 to 255", av.SGIDIndex)
	case av.FlowLabel >= 1<<20:
		return fmt.Sprintf("flow label %#x has more than 20 bits", av.FlowLabel)
	}
	return ""
}

func (qp *QueuePair) refuse(to QPState, why string) error {
	return &StateError{Device: qp.pd.device.info.Name, QPN: qp.qpn, From: qp.state(), To: to, Err: syscall.EINVAL, Advice: why}
}

func (qp *QueuePair) state() QPState {
	if a, err := qp.Query(); err == nil {
		return a.State
	}
	return StateUnknown
}

func (qp *QueuePair) modify(a *QPAttr, mask int) error {
	if qp.h == nil {
		return &StateError{Device: qp.pd.device.info.Name, QPN: qp.qpn, From: StateUnknown, To: a.State, Err: ErrClosed}
	}
	errno := sysModifyQP(qp.h, a, mask)
	if errno == 0 {
		return nil
	}
	e := &StateError{Device: qp.pd.device.info.Name, QPN: qp.qpn, From: qp.state(), To: a.State, Err: errno}
	e.Advice = qp.stateAdvice(e, errno, a)
	return e
}

// stateAdvice looks for what the device may not have liked.
func (qp *QueuePair) stateAdvice(e *StateError, errno syscall.Errno, a *QPAttr) string {
	before := map[QPState]QPState{StateInit: StateReset, StateRTR: StateInit, StateRTS: StateRTR}
	if b, ok := before[e.To]; ok && e.From != b && e.From != StateUnknown && e.From != e.To {
		return fmt.Sprintf("%v is reached from %v only", e.To, b)
	}
	d := qp.pd.device
	switch {
	case e.To == StateRTR && errno == syscall.ETIMEDOUT:
		return fmt.Sprintf("nobody answered for %v: no route, or no answer to ARP or neighbour discovery: is the peer up, and in the same network as GID %d of port %d?", a.Address.DGID, a.Address.SGIDIndex, a.Address.Port)
	case e.To == StateRTR && (errno == syscall.ENETUNREACH || errno == syscall.EHOSTUNREACH):
		return fmt.Sprintf("there is no route to %v", a.Address.DGID)
	case e.To == StateRTR && qp.options.Type != UD:
		return d.addressAdvice(a.Address, a.PathMTU)
	case e.To == StateInit:
		p, err := d.Port(a.Port)
		if err != nil {
			return fmt.Sprintf("%s has no port %d", d.info.Name, a.Port)
		}
		if a.PKeyIndex >= p.PKeys {
			return fmt.Sprintf("partition key %d is outside the table of %d", a.PKeyIndex, p.PKeys)
		}
	case e.To == StateRTS:
		if attr, err := d.Attr(); err == nil && a.MaxRDAtomic > attr.MaxInitiateRDAtomic {
			return fmt.Sprintf("MaxRDAtomic is %d, the device allows %d", a.MaxRDAtomic, attr.MaxInitiateRDAtomic)
		}
	}
	return ""
}

// addressAdvice looks for what is wrong with an address.
func (d *Device) addressAdvice(av AddressVector, mtu MTU) string {
	p, err := d.Port(av.Port)
	if err != nil {
		return fmt.Sprintf("the address must name a port of this side, and %s has no port %d", d.info.Name, av.Port)
	}
	switch {
	case p.State != PortActive:
		return fmt.Sprintf("port %d is %v", av.Port, p.State)
	case p.LinkLayer == LinkEthernet && !av.Global:
		return "on RoCE an address must be global, with a GID"
	case mtu > p.ActiveMTU:
		return fmt.Sprintf("MTU %v is more than the port's, which is %v", mtu, p.ActiveMTU)
	case av.Global && av.DGID.Zero():
		return "the peer's GID is empty"
	}
	if av.Global {
		if entries, err := d.GIDs(av.Port); err == nil {
			valid := []int{}
			for _, e := range entries {
				if e.Index == av.SGIDIndex {
					return fmt.Sprintf("is GID %d of port %d (%v, %v) of the same kind as the peer's, %v?", av.SGIDIndex, av.Port, e.Type, e.GID, av.DGID)
				}
				valid = append(valid, e.Index)
			}
			return fmt.Sprintf("port %d has no GID with index %d: there are %v", av.Port, av.SGIDIndex, valid)
		}
	}
	return ""
}

// QPAttr is what a device says of a queue pair.
type QPAttr struct {
	State           QPState
	PathMTU         MTU
	QKey            uint32
	RQPSN, SQPSN    uint32
	DestQPN         uint32
	Access          Access
	Caps            QPCaps
	Address         AddressVector
	PKeyIndex       int
	Port            int
	MaxRDAtomic     int
	MaxDestRDAtomic int
	MinRNRTimer     uint8
	Timeout         uint8
	RetryCount      uint8
	RNRRetry        uint8
}

// Query asks the device for the state of the queue pair.
func (qp *QueuePair) Query() (QPAttr, error) {
	var a QPAttr
	object := fmt.Sprintf("queue pair %#x", qp.qpn)
	if qp.h == nil {
		return a, fmt.Errorf("%w: %s", ErrClosed, object)
	}
	mask := setState | setAccess | setPKeyIndex | setPort | setCaps
	if qp.options.Type == UD {
		mask |= setQKey | setSQPSN
	} else {
		mask |= setAddress | setPathMTU | setDestQPN | setRQPSN | setSQPSN
	}
	if qp.options.Type == RC {
		mask |= setTimeout | setRetryCount | setRNRRetry | setMaxRDAtomic | setMaxDestRDAtomic | setMinRNRTimer
	}
	if errno := sysQueryQP(qp.h, &a, mask); errno != 0 {
		return QPAttr{}, &Error{Op: "querying", Device: qp.pd.device.info.Name, Object: object, Err: errno}
	}
	return a, nil
}

// DataInOrder reports whether the device vouches that the bytes of a message
// reach memory in the order of their addresses, so that the last one may be
// polled for. It says nothing of two requests. Some devices answer in StateRTS
// only. Where the library or the device does not know, it is false.
func (qp *QueuePair) DataInOrder(op Opcode) bool {
	return qp.h != nil && sysDataInOrder(qp.h, op)
}
