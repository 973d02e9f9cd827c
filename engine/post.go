package engine

import (
	"math"
	"runtime"
	"unsafe"

	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/plan"
)

// post is how messages go from one rank to another: a stream of parcels for
// each ordered pair of ranks. It needs one-sided puts only, so it is the same
// on every medium.
//
// Parcel number p (from 1) of the stream from s to d uses line p mod 8 of s in
// d's control region, and if need be the slot of the same number there:
//
//	s  waits until d has taken parcel p-8, writes slot and line, raises the
//	   line's counter to p
//	d  waits for the counter, reads, and tells s how many parcels it has taken:
//	   in each parcel of its own to s, and by a counter in s's control region
//	   when four have gone untold, or s waits for it
//
// One writer each: s writes its lines and slots at d, d the counter of what it
// has taken at s. What d has told in a parcel s finds when it takes that
// parcel, or when it has no room and looks through those that have come; so
// what is told once is never lost on one that only sends. It is told after d
// has read slot and line, for no parcel leaves between the two.
//
// A message is one parcel that holds it, or several that hold it one slot after
// the other, or one that says where it lies, for d to fetch: s then waits until
// that parcel is taken. Messages of a pair are matched in order.
type post struct {
	comm  *Comm
	out   []outgoing    // by receiver
	in    []incoming    // by sender
	own   *Exchange     // of Send, Recv and SendRecv
	short int           // bytes of the longest message that is sure to be one parcel
	line  *link.Counter // what a line is to be, where it is put
	// pinner holds the buffers whose addresses peers have been told.
	pinner runtime.Pinner
}

const (
	postLines    = 8
	postTakeEach = postLines / 2
	postAll      = 4 << 20   // bytes of slots for all senders together,
	postSlotMost = 128 << 10 // within these limits for one slot
	postSlotMin  = 4 << 10
	inlineBytes  = link.LineBytes - 8 - int(unsafe.Sizeof(parcel{}))
)

// parcel is what a line says. It lies in the counter's Data, and what follows
// it there is the message, if it is so short.
type parcel struct {
	at     uint64 // where the message lies: offset in the region, or address
	bytes  uint64 // of the message; up to inlineBytes it is in the line
	part   uint32 // bytes in this parcel's slot
	region uint32
	dtype  uint8
	kind   uint8
	call   uint8 // the collective that it is part of, or noCollective
	_      uint8
	taken  uint32 // the last parcel that its sender has taken of the receiver's
}

// noCollective is the call of a message that is part of none.
const noCollective = plan.Collective(0xff)

// Kinds of parcels.
const (
	parcelHere   = iota // the message, or its next part, is in the line or slot
	parcelMapped        // it lies in a region of the sender
	parcelFar           // it lies at an address of the sender
)

// receipt is what the receiver says with the counter of what it has taken, once
// and for all, when a message is not what it expected: the counter then goes to
// refused.
type receipt struct {
	sent, expected         uint64 // bytes
	sentType, expectedType uint8
	sentCall, expectedCall uint8 // as in parcels
}

// refused is the count of a receiver that takes no more.
const refused = math.MaxUint64

// outgoing is the stream to a receiver, as its sender sees it.
type outgoing struct {
	number uint64                   // of the last parcel
	known  uint64                   // taken, as far as this rank has heard
	taken  *link.Counter            // here; the receiver raises it
	lines  [postLines]*link.Counter // at the receiver, if mapped
	slots  [postLines][]byte
	offset int // of the stream in the receiver's control region
}

// incoming is the stream from a sender, as its receiver sees it.
type incoming struct {
	number uint64 // of the last parcel taken
	told   uint64 // of those, how many the sender has been told
	lines  [postLines]*link.Counter
	slots  [postLines][]byte
	taken  *link.Counter // at the sender, if mapped
	offset int           // of that counter in the sender's control region
}

// postSlotBytes is the size of a slot among so many ranks.
func postSlotBytes(ranks int) int {
	return min(postSlotMost, max(postSlotMin, postAll/(ranks*postLines)/pageBytes*pageBytes))
}

// streamBytes is the room of one stream: lines, slots, and the counter of what
// this rank's own messages to that peer have come to.
func streamBytes(ranks int) int {
	return postLines*(link.CounterBytes+postSlotBytes(ranks)) + 8*link.CounterBytes
}

func postBytes(ranks int) int { return ranks * streamBytes(ranks) }

// Parts of a stream's room, from its start.
func postLineAt(i int) int { return i * link.CounterBytes }

const postTakenAt = postLines * link.CounterBytes

func postSlotAt(i, ranks int) int {
	return (postLines+8)*link.CounterBytes + i*postSlotBytes(ranks)
}

func newPost(c *Comm) post {
	n := c.size
	p := post{
		comm: c, out: make([]outgoing, n), in: make([]incoming, n), line: new(link.Counter),
		short: min(c.eager(), postSlotBytes(n)),
	}
	room := func(control []byte, peer int) []byte {
		return control[c.layout.post+peer*streamBytes(n):][:streamBytes(n)]
	}
	for rank := range n {
		here := room(c.control.Bytes(), rank)
		in, out := &p.in[rank], &p.out[rank]
		out.offset = c.layout.post + c.rank*streamBytes(n)
		out.taken = link.CounterAt(here[postTakenAt:])
		in.offset = out.offset + postTakenAt
		for i := range postLines {
			in.lines[i] = link.CounterAt(here[postLineAt(i):])
			in.slots[i] = here[postSlotAt(i, n):][:postSlotBytes(n)]
		}
		if there := c.controls[rank]; there != nil {
			theirs := room(there, c.rank)
			in.taken = link.CounterAt(theirs[postTakenAt:])
			for i := range postLines {
				out.lines[i] = link.CounterAt(theirs[postLineAt(i):])
				out.slots[i] = theirs[postSlotAt(i, n):][:postSlotBytes(n)]
			}
		}
	}
	p.own = &Exchange{comm: c, call: noCollective}
	return p
}

// free reports whether the next parcel to a rank may be written.
func (p *post) free(to int) bool {
	o := &p.out[to]
	if o.hasTaken(o.number+1, postLines) {
		return true
	}
	// The word may be in a parcel that nobody here has asked for yet.
	in := &p.in[to]
	for number := in.number + 1; number <= in.number+postLines; number++ {
		line := in.lines[number%postLines]
		if line.Load() < number {
			break
		}
		o.heard(parcelIn(line))
	}
	return o.known+postLines >= o.number+1
}

// heard takes note of what a parcel from the receiver tells.
func (o *outgoing) heard(what *parcel) {
	// The low half is enough: the two are never more than a few apart.
	if news := int32(what.taken - uint32(o.known)); news > 0 && o.known != refused {
		o.known += uint64(news)
	}
}

// hasTaken reports whether the receiver has taken all parcels up to number,
// but for the last few. Where it has refused one it has.
func (o *outgoing) hasTaken(number, few uint64) bool {
	if o.known < refused && o.known+few < number {
		o.known = max(o.known, o.taken.Load())
	}
	return o.known == refused || o.known+few >= number
}

// refusal is the error of a stream whose receiver has refused a message.
func (o *outgoing) refusal(to int) error {
	if o.known != refused {
		return nil
	}
	r := receiptIn(o.taken)
	return &MismatchError{
		Rank: to, Mine: messageSignature("send", r.sentCall, r.sent, r.sentType),
		Theirs: messageSignature("recv", r.expectedCall, r.expected, r.expectedType),
	}
}

// messageSignature is one side of a message: send, recv, or the v form that it
// is part of.
func messageSignature(plain string, call uint8, bytes uint64, t uint8) Signature {
	s := Signature{Call: plain, Bytes: int(bytes), Type: mem.DType(t), Root: -1}
	if of := plan.Collective(call); of != noCollective {
		s.Call = of.String() + "v"
	}
	return s
}

// parcelIn is the parcel in a line, and inlineIn the room behind it.
func parcelIn(c *link.Counter) *parcel { return (*parcel)(unsafe.Pointer(&c.Data[0])) }

func inlineIn(c *link.Counter) []byte { return c.Data[unsafe.Sizeof(parcel{}):] }

func receiptIn(c *link.Counter) *receipt { return (*receipt)(unsafe.Pointer(&c.Data[0])) }

// send writes the next parcel to a receiver, with what belongs into its line
// or slot. The stream must be free.
func (p *post) send(to int, what parcel, data []byte) error {
	o, in := &p.out[to], &p.in[to]
	o.number++
	what.taken, in.told = uint32(in.number), in.number
	i := int(o.number % postLines)
	short := what.kind == parcelHere && what.bytes <= uint64(inlineBytes)
	if line := o.lines[i]; line != nil {
		*parcelIn(line) = what
		if short {
			copy(inlineIn(line), data)
		} else if len(data) > 0 {
			copyBytes(o.slots[i], data)
		}
		line.Raise(o.number)
		if o.known+postLines > o.number {
			// As in the door: a write that means nothing fetches the next line.
			// The receiver has taken what it last held.
			parcelIn(o.lines[(o.number+1)%postLines]).at = 0
		}
		return nil
	}
	c := p.comm
	n := c.size
	*parcelIn(p.line) = what
	if short {
		copy(inlineIn(p.line), data)
	} else if len(data) > 0 {
		if err := c.links[to].Put(mem.Remote{Region: c.peerRegions[to], Offset: o.offset + postSlotAt(i, n)}, data); err != nil {
			return err
		}
	}
	at := mem.Remote{Region: c.peerRegions[to], Offset: o.offset + postLineAt(i)}
	if err := c.links[to].Put(mem.Remote{Region: at.Region, Offset: at.Offset + 8}, p.line.Data[:]); err != nil {
		return err
	}
	return c.links[to].Notify(at, o.number)
}

// took tells a sender how far its parcels have been taken. now is for parcels
// that it waits for.
func (p *post) took(from int, now bool) error {
	in := &p.in[from]
	if !now && in.number-in.told < postTakeEach {
		return nil
	}
	in.told = in.number
	if in.taken != nil {
		in.taken.Raise(in.number)
		return nil
	}
	c := p.comm
	return c.unlessGone(c.links[from].Notify(mem.Remote{Region: c.peerRegions[from], Offset: in.offset}, in.number))
}

// refuse tells a sender that its message is not what is expected here. Nothing
// that it sends is taken any more.
func (p *post) refuse(from int, r receipt) error {
	in := &p.in[from]
	if in.taken != nil {
		*receiptIn(in.taken) = r
		in.taken.Raise(refused)
		return nil
	}
	c := p.comm
	at := mem.Remote{Region: c.peerRegions[from], Offset: in.offset}
	*receiptIn(p.line) = r
	err := c.links[from].Put(mem.Remote{Region: at.Region, Offset: at.Offset + 8}, p.line.Data[:])
	if err == nil {
		err = c.links[from].Notify(at, refused)
	}
	return c.unlessGone(err)
}
