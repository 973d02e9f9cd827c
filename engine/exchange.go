package engine

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/tutti-go/tutti/internal/move"
	"github.com/tutti-go/tutti/internal/spin"
	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/plan"
)

// Exchange is a group of sends and receives that are made together, so that
// no pattern of them can deadlock: what ncclGroupStart and ncclGroupEnd are
// for. Add to it with Send and Recv, then Run it; after that it is empty and
// may be filled again. It is for one goroutine at a time, and its buffers are
// its own until it has run.
//
// Between two ranks, messages are matched in the order in which they are
// sent and received, over all exchanges; GatherV and ScatterV, of which some blocks
// are messages too, have their place in that order. Bytes and type must be the
// same on both sides. A rank may send to itself, where it receives in the same
// exchange or the message is short.
type Exchange struct {
	comm *Comm
	ops  []message
	err  error           // of the first wrong Send or Recv
	call plan.Collective // which collective it is part of, or noCollective
}

// message is one send or receive on its way.
type message struct {
	buf   []byte
	dtype mem.DType
	peer  int
	recv  bool

	call    plan.Collective
	state   messageState
	done    int    // bytes sent or received
	waitFor uint64 // the parcel that the receiver is to take, for the sender
	at      located
}

type messageState uint8

const (
	messageNew messageState = iota
	messageMoving
	messageOffered // the receiver fetches it
	messageDone
)

// NewExchange returns an empty exchange.
func (c *Comm) NewExchange() *Exchange { return &Exchange{comm: c, call: noCollective} }

// Send adds a message of len(buf) bytes of elements of type t to rank to.
func (x *Exchange) Send(buf []byte, t mem.DType, to int) { x.add("send", buf, t, to, false) }

// Recv adds the receipt of a message from rank from that fills buf.
func (x *Exchange) Recv(buf []byte, t mem.DType, from int) { x.add("recv", buf, t, from, true) }

func (x *Exchange) add(name string, buf []byte, t mem.DType, peer int, recv bool) {
	if err := x.comm.checkMessage(name, buf, t, peer); err != nil {
		if x.err == nil {
			x.err = err
		}
		return
	}
	x.ops = append(x.ops, message{buf: buf, dtype: t, peer: peer, recv: recv, call: x.call})
}

// checkMessage refuses what cannot be a message.
func (c *Comm) checkMessage(name string, buf []byte, t mem.DType, peer int) error {
	switch {
	case peer < 0 || peer >= c.size:
		return &ArgumentError{name, fmt.Sprintf("rank %d is not among %d ranks", peer, c.size)}
	case !t.Valid():
		return &ArgumentError{name, fmt.Sprintf("unknown element type %v", t)}
	case len(buf)%t.Size() != 0:
		return &ArgumentError{name, fmt.Sprintf("%d bytes are not a whole number of %v elements of %d bytes", len(buf), t, t.Size())}
	}
	return nil
}

// check finds buffers that overlap where they may not: one that is received
// into, with any other.
func (x *Exchange) check() error {
	if x.err != nil {
		return x.err
	}
	for i := range x.ops {
		for j := range x.ops[:i] {
			a, b := &x.ops[i], &x.ops[j]
			if (a.recv || b.recv) && !legalAlias(a.buf, b.buf, noPlace) {
				return &ArgumentError{"exchange", fmt.Sprintf("the buffers of messages %d and %d overlap, and one of them is received into", j, i)}
			}
		}
	}
	return nil
}

// Run makes all sends and receives and returns when the buffers are the
// caller's again. Errors are as for collectives. A message whose size or type
// is not what the other side has is a *MismatchError at the receiver, and at
// the sender where it is too long to be sent ahead.
func (x *Exchange) Run(ctx context.Context) error {
	if err := x.comm.settle(ctx, "exchange"); err != nil {
		x.reset()
		return err
	}
	return x.run(ctx)
}

// RunAsync is Run, asynchronously. The exchange must be left alone until the
// work is done.
func (x *Exchange) RunAsync(ctx context.Context) (Work, error) {
	c := x.comm
	if err := x.check(); err != nil {
		x.reset()
		return Work{}, err
	}
	return c.enqueue("exchange", pending{ctx: ctx, exchange: x})
}

func (x *Exchange) run(ctx context.Context) error {
	c := x.comm
	defer x.reset()
	if err := x.check(); err != nil {
		return err
	}
	if err := c.begin("exchange"); err != nil {
		return err
	}
	return c.exit("exchange", x.progress(ctx))
}

func (x *Exchange) reset() {
	x.call = noCollective
	for i := range x.ops {
		x.ops[i].at.letGo()
	}
	clear(x.ops) // the buffers are the caller's
	x.ops, x.err = x.ops[:0], nil
}

// progress moves all messages until all are done.
func (x *Exchange) progress(ctx context.Context) error {
	c := x.comm
	defer c.post.pinner.Unpin()
	var stop error // why to end, unless one last look shows that a peer did its part
	for idle := 0; ; {
		moved, left := false, false
		for i := range x.ops {
			m := &x.ops[i]
			if m.state == messageDone || x.behind(i) {
				left = left || m.state != messageDone
				continue
			}
			did, err := c.post.step(ctx, m)
			if err != nil {
				return err
			}
			moved = moved || did
			left = left || m.state != messageDone
		}
		switch {
		case !left:
			return nil
		case moved:
			idle, stop = 0, nil
		case stop != nil:
			return stop
		default:
			idle++
			stop = x.idle(ctx, idle)
		}
	}
}

// behind reports whether a message must wait for an earlier one of its pair.
// A send that is only waiting to be fetched holds up nobody.
func (x *Exchange) behind(i int) bool {
	m := &x.ops[i]
	if m.state != messageNew {
		return false
	}
	for j := range x.ops[:i] {
		o := &x.ops[j]
		if o.peer == m.peer && o.recv == m.recv && o.state != messageDone && (o.recv || o.state != messageOffered) {
			return true
		}
	}
	return false
}

// dozing is how long an exchange sleeps when nothing has moved for long. It
// waits for several counters and can sleep on none of them.
const dozing = 50 * time.Microsecond

// idle passes the time when no message could be moved, or returns why the
// exchange should end. What a peer sent before it went away still counts, and
// may have come since.
func (x *Exchange) idle(ctx context.Context, rounds int) error {
	c := x.comm
	if c.progresser != nil {
		c.progresser.Progress()
	}
	patience := c.waiters[0].Patience
	if rounds <= patience.Polls {
		return nil
	}
	for i := range x.ops {
		if m := &x.ops[i]; m.state != messageDone {
			if err := c.failures.of[m.peer].Err(); err != nil {
				return err
			}
		}
	}
	if err := c.interrupted(ctx); err != nil {
		return err
	}
	switch rounds -= patience.Polls; {
	case rounds > patience.Yields:
		time.Sleep(dozing)
	case rounds%8 == 7:
		runtime.Gosched()
	default:
		spin.Yield()
	}
	return nil
}

// step moves one message as far as it goes without waiting.
func (p *post) step(ctx context.Context, m *message) (moved bool, err error) {
	if m.recv {
		return p.stepRecv(ctx, m)
	}
	return p.stepSend(m)
}

// eagerBytes is up to where a message that could be fetched is copied instead,
// so that its sender need not wait.
const (
	eagerBytes        = 8 << 10
	eagerBytesCrowded = 64 << 10 // where waiting means giving the core away
)

func (c *Comm) eager() int {
	if c.crowded {
		return eagerBytesCrowded
	}
	return eagerBytes
}

func (p *post) stepSend(m *message) (moved bool, err error) {
	c, o := p.comm, &p.out[m.peer]
	if m.state == messageOffered {
		return p.fetched(m)
	}
	for m.state == messageNew || m.done < len(m.buf) {
		if !p.free(m.peer) {
			return moved, nil
		}
		if err := o.refusal(m.peer); err != nil {
			return true, err
		}
		what := parcel{bytes: uint64(len(m.buf)), dtype: uint8(m.dtype), call: uint8(m.call)}
		if m.state == messageNew && len(m.buf) > c.eager() && m.peer != c.rank && c.near(m.peer) {
			m.at = c.family.locate(m.buf)
			if what.region, what.at = m.at.notice(m.buf); what.region != 0 {
				what.kind = parcelMapped
				if m.at.view != nil {
					m.at.show(m.buf)
				}
			} else if c.cfg.FetchByAddress && c.family.attach {
				what.kind = parcelFar
				pin(&p.pinner, m.buf, 0)
			}
		}
		if what.kind != parcelHere {
			m.state = messageOffered
			err := p.send(m.peer, what, nil)
			m.waitFor = o.number
			return true, err
		}
		part := m.buf[m.done:][:min(len(m.buf)-m.done, c.partBytes(m))]
		what.part = uint32(len(part))
		if err := p.send(m.peer, what, part); err != nil {
			return true, err
		}
		m.state, moved = messageMoving, true
		m.done += len(part)
	}
	m.state = messageDone
	return true, nil
}

// partBytes is how much of a message one slot takes at most. A message that
// fits into all slots is sent without waiting. A longer one goes round them; if
// it goes one way only, in halves, since one rank fills them all before the
// other has emptied the first, and they should stay in the cache meanwhile.
func (c *Comm) partBytes(m *message) int {
	slot := postSlotBytes(c.size)
	if m.call != noCollective && len(m.buf) > postLines*slot {
		return slot / 2
	}
	return slot
}

// fetched looks whether the receiver has fetched a message.
func (p *post) fetched(m *message) (bool, error) {
	o := &p.out[m.peer]
	if !o.hasTaken(m.waitFor, 0) {
		return false, nil
	}
	if err := o.refusal(m.peer); err != nil {
		return true, err
	}
	m.state = messageDone
	return true, nil
}

func (p *post) stepRecv(ctx context.Context, m *message) (moved bool, err error) {
	in := &p.in[m.peer]
	for m.state == messageNew || m.done < len(m.buf) {
		i := (in.number + 1) % postLines
		line := in.lines[i]
		if line.Load() < in.number+1 {
			return moved, nil
		}
		moved = true
		in.number++
		what := *parcelIn(line)
		p.out[m.peer].heard(&what)
		if what.bytes != uint64(len(m.buf)) || what.dtype != uint8(m.dtype) || what.call != uint8(m.call) {
			r := receipt{
				sent: what.bytes, sentType: what.dtype, sentCall: what.call,
				expected: uint64(len(m.buf)), expectedType: uint8(m.dtype), expectedCall: uint8(m.call),
			}
			if err := p.refuse(m.peer, r); err != nil {
				return true, err
			}
			return true, &MismatchError{
				Rank: m.peer, Mine: messageSignature("recv", r.expectedCall, r.expected, r.expectedType),
				Theirs: messageSignature("send", r.sentCall, r.sent, r.sentType),
			}
		}
		m.state = messageMoving
		rest := m.buf[m.done:]
		switch {
		case what.kind != parcelHere:
			if err := p.fetch(ctx, m, &what); err != nil {
				return true, err
			}
			m.done = len(m.buf)
		case len(m.buf) <= inlineBytes:
			m.done += copy(rest, inlineIn(line))
		default:
			n := min(int(what.part), len(in.slots[i]), len(rest))
			p.comm.copyFor(m, true)(rest[:n], in.slots[i][:n])
			m.done += n
		}
		if err := p.took(m.peer, what.kind != parcelHere); err != nil {
			return true, err
		}
	}
	m.state = messageDone
	return true, nil
}

// fetchBytes is how much is fetched at a time, to look at deadlines between.
const fetchBytes = 4 << 20

// fetch copies a message from where its sender has it.
func (p *post) fetch(ctx context.Context, m *message, what *parcel) error {
	c := p.comm
	var there []byte
	if what.kind == parcelMapped {
		var err error
		if there, err = c.mapPeer(ctx, m.peer, mem.RegionID(what.region), what.at, what.bytes); err != nil {
			return err
		}
	} else if c.copiers[m.peer] == nil {
		return fmt.Errorf("rank %d offers memory by address, which this rank cannot reach: %w", m.peer, link.ErrRange)
	}
	way := c.copyFor(m, false)
	for from := 0; from < len(m.buf); from += fetchBytes {
		if err := c.interrupted(ctx); err != nil {
			return err
		}
		part := m.buf[from:min(from+fetchBytes, len(m.buf))]
		if there != nil {
			way(part, there[from:][:len(part)])
			continue
		}
		if err := c.copiers[m.peer].ReadFrom(part, uintptr(what.at)+uintptr(from)); err != nil {
			return err
		}
	}
	return nil
}

// copyFor is how a message gets to where it is received: past the cache if the
// ranks, should all be sending and receiving as much, use more than it holds;
// for one that goes one way only, out of slots, less will do, as streamFrom says.
func (c *Comm) copyFor(m *message, slots bool) func(dst, src []byte) {
	most := c.cfg.CacheBytes
	if slots && m.call != noCollective {
		most = most / 4 * 3
	}
	if 2*len(m.buf)*c.size > most {
		return move.Stream
	}
	return move.Bytes
}

// copyBytes copies src to the start of dst.
func copyBytes(dst, src []byte) {
	if len(src) > 0 {
		move.Bytes(dst[:len(src)], src)
	}
}
