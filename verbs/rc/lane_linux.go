package rc

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tutti-go/tutti/verbs"
)

// The identifier of a request: whether it is a receive, the number of its lane,
// and, of what is sent, how many were posted to the lane with it.
const (
	idReceive  = 1 << 63
	idLane     = 40
	idLaneBits = 23
	idPosted   = 1<<idLane - 1
)

const (
	// chainMost is how many requests are handed to the device at once.
	chainMost = 32
	// kept is how many slots of a send queue are left to credits and marks.
	kept = 4
	// spareReceives are for what comes without a credit: credits, of which there
	// are never more than two under way.
	spareReceives = 8
	// boundsBounce is what share of the bounce memory a piece may have.
	bouncePieces = 4
)

// lane is a queue pair of a link, and what this side knows of it.
//
// What is sent is written under the link's lock, except done, which is who
// polls'. What is received belongs to who polls the lane's queue.
type lane struct {
	link     *rcLink
	index    int // in the link
	id       uint64
	rail     *rail
	queue    *queue
	taken    int // entries of queue
	peerRail int
	qp       *verbs.QueuePair
	psn      uint32

	batch  *verbs.Batch
	inline int // bytes that a request may carry
	depth  uint64
	posted uint64 // requests that were added to the batch
	asked  uint64 // of those, the last that was signalled
	done   atomic.Uint64
	marks  uint32 // how many were sent
	dirty  bool   // something was sent that no mark has told of
	inHand int    // bytes in the batch

	bounce    []byte // a ring
	bounceMR  *verbs.MR
	head      uint64   // bytes that were ever taken from the ring
	askedHead uint64   // head as of asked
	ends      []uint64 // head behind each of the last depth requests

	receives *verbs.RecvBatch
	used     int // receives that have completed and are to be posted again
	again    int // how many that are when they are
	arrived  atomic.Uint32
}

// open makes the lane's queue pair and memory, and posts its receives.
func (l *lane) open() (err error) {
	f := l.link.fabric
	cfg, r := &f.cfg, l.rail
	depth := min(cfg.SendDepth, r.attr.MaxQPRequests)
	credits := l.link.granted
	l.again = max(1, credits/4)
	receives := credits + l.again + spareReceives
	caps := verbs.QPCaps{SendRequests: depth, RecvRequests: receives, SendSegments: 1, RecvSegments: 1, InlineBytes: cfg.InlineBytes}
	l.taken = depth + receives
	if l.queue, err = f.queueFor(r, l.taken); err != nil {
		return err
	}
	for {
		l.qp, err = r.pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: l.queue.cq, RecvCQ: l.queue.cq, Caps: caps})
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOMEM) || caps.InlineBytes == 0 {
			return err
		}
		// How much may go inline, no device says before.
		if caps.InlineBytes /= 2; caps.InlineBytes < 28 {
			caps.InlineBytes = 0
		}
	}
	l.depth, l.inline = uint64(depth), min(l.qp.Caps().InlineBytes, caps.InlineBytes)
	l.ends = make([]uint64, depth)
	if l.batch, err = l.qp.NewBatch(verbs.BatchOptions{Requests: min(chainMost, depth), Segments: min(chainMost, depth), InlineBytes: min(chainMost, depth) * ((l.inline + 7) &^ 7)}); err != nil {
		return err
	}
	if l.receives, err = l.qp.NewRecvBatch(verbs.BatchOptions{Requests: receives, Segments: 1}); err != nil {
		return err
	}
	if l.bounce, err = mapMemory(cfg.BounceBytes); err != nil {
		return err
	}
	if l.bounceMR, err = r.pd.RegisterMemory(l.bounce, verbs.AccessLocalWrite); err != nil {
		return err
	}
	return l.qp.ToInit(verbs.InitOptions{Port: r.port.Number, PKeyIndex: cfg.PKeyIndex, Access: verbs.AccessRemoteWrite})
}

// fill posts all receives; the lane has its number.
func (l *lane) fill() error {
	l.used = l.link.granted + l.again + spareReceives
	return l.receiveAgain()
}

func (l *lane) receiveAgain() error {
	for ; l.used > 0; l.used-- {
		if err := l.receives.Add(idReceive | l.id); err != nil {
			return err
		}
	}
	_, err := l.receives.Post()
	return err
}

// offer is what the peer must know of the lane.
func (l *lane) offer() laneOffer {
	r := l.rail
	return laneOffer{qpn: l.qp.QPN(), psn: l.psn, gid: r.gid.GID, lid: r.port.LID, mtu: r.mtu(), layer: r.port.LinkLayer, rail: uint8(r.index)}
}

// connect makes the queue pair ready to receive and to send.
func (l *lane) connect(theirs *laneOffer, mtuForced bool) error {
	f, r := l.link.fabric, l.rail
	cfg := &f.cfg
	if theirs.layer != r.port.LinkLayer {
		return fmt.Errorf("this side's link layer is %v, the peer's %v: choose devices of one kind", r.port.LinkLayer, theirs.layer)
	}
	mtu := min(r.mtu(), theirs.mtu)
	if cfg.MTU != 0 && mtu != r.mtu() || mtuForced && mtu != theirs.mtu {
		return fmt.Errorf("an MTU of %v was asked for, and the other side has %v", max(r.mtu(), theirs.mtu), mtu)
	}
	rtr := verbs.DefaultRTR()
	rtr.DestQPN, rtr.PSN, rtr.MTU = theirs.qpn, theirs.psn, mtu
	rtr.Address = verbs.AddressVector{Port: r.port.Number, DLID: theirs.lid, SL: uint8(cfg.ServiceLevel)}
	if r.port.LinkLayer == verbs.LinkEthernet || r.port.GRHRequired || prefix(theirs.gid) != prefix(r.gid.GID) {
		rtr.Address.Global, rtr.Address.DGID, rtr.Address.SGIDIndex = true, theirs.gid, r.gid.Index
		rtr.Address.HopLimit, rtr.Address.TrafficClass = 255, uint8(cfg.TrafficClass)
	}
	for try := 0; ; try++ {
		err := l.qp.ToRTR(rtr)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.ETIMEDOUT) || try == 3 || f.isClosed() {
			return err
		}
		time.Sleep(time.Duration(50<<try) * time.Millisecond) // nobody has answered for the peer's address yet
	}
	rts := verbs.DefaultRTS()
	rts.PSN, rts.Timeout, rts.RetryCount, rts.RNRRetry = l.psn, uint8(cfg.Timeout), uint8(cfg.RetryCount), uint8(cfg.RNRRetry)
	return l.qp.ToRTS(rts)
}

func prefix(g verbs.GID) [8]byte { return [8]byte(g[:8]) }

// close destroys everything of the lane.
func (l *lane) close() error {
	var errs []error
	if l.batch != nil {
		errs = append(errs, l.batch.Close())
	}
	if l.receives != nil {
		errs = append(errs, l.receives.Close())
	}
	if l.qp != nil {
		errs = append(errs, l.qp.Close())
	}
	if l.bounceMR != nil {
		errs = append(errs, l.bounceMR.Close())
	}
	if l.bounce != nil {
		errs = append(errs, unmapMemory(l.bounce))
	}
	if l.queue != nil {
		l.queue.giveBack(l.taken)
	}
	return errors.Join(errs...)
}

// failure wraps what went wrong on the lane.
func (l *lane) failure(cause error) *PathError {
	e := &PathError{Device: l.rail.device.Name(), Port: l.rail.port.Number, Peer: l.link.rank, Err: cause}
	if p, err := l.rail.device.Port(e.Port); err == nil && p.State != verbs.PortActive {
		e.Advice = fmt.Sprintf("the port is %v", p.State)
		return e
	}
	if s := verbs.Success; errors.As(cause, &s) {
		e.Advice = s.Cause()
	}
	return e
}

// completed takes one completion. The queue's mu is held.
func (l *lane) completed(c *verbs.Completion) {
	switch {
	case c.Status != verbs.Success:
		if c.Status != verbs.Flushed {
			l.link.fail(l, c.Status)
		}
	case c.ID&idReceive == 0:
		before := l.done.Load()
		l.done.Store(before + (c.ID-before)&idPosted)
		if l.link.owes.Load() {
			l.link.tryPay()
		}
	default:
		number, ok := c.Imm()
		if !ok {
			l.link.fail(l, &ProtocolError{l.link.rank, "a message without a number"})
			return
		}
		if l.used++; l.used >= l.again {
			if err := l.receiveAgain(); err != nil {
				l.link.fail(l, err)
				return
			}
		}
		l.link.arrived(l, number)
	}
}
