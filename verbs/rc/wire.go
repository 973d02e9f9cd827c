package rc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/verbs"
)

// What ranks say to each other, little-endian.
//
// On the control connection go messages: kind(1) zero(1) length(2), then as many
// bytes. First both send an offer, the one that dialled first; then, when its
// queue pairs are ready, each sends ready. After that, in any order:
//
//	want    region(4)                                  where is it?
//	have    region(4) zero(4) size(8) address(8) key(4) for each rail
//	                                                   the answer; size 0: nowhere
//	freed   region(4)                                  to who wanted it: gone
//	bye     rank(4)                                    closed in good order; or 1 + the rank that was lost before
//	heard   nothing                                    the answer to bye: nothing more comes
//	failed  text                                       cannot go on, or not connect
//
// On lane 0 go numbers, each with a message of any length, in their upper two
// bits what they are:
//
//	count   counter(10) count(20)    a counter that a record has named rises to the next count that ends so
//	record  serial(30)               a record lies in slot serial modulo the number of slots
//	credit  taken(30)                so many counts and records were taken, modulo 2^30
//
// On the others go marks: the message before it, and all before that, are there.
const (
	protocolVersion = 1
	protocolMagic   = "tuttirc\n"

	messageHead   = 4
	maxMessageLen = 1 << 10

	kindOffer  = 1
	kindReady  = 2
	kindWant   = 3
	kindHave   = 4
	kindFreed  = 5
	kindBye    = 6
	kindHeard  = 7
	kindFailed = 8

	numberKind   = 30
	numberCount  = 0 << numberKind
	numberRecord = 1 << numberKind
	numberCredit = 2 << numberKind
	numberMark   = 3 << numberKind
	numberBody   = 1<<numberKind - 1

	countBits   = 20
	countMask   = 1<<countBits - 1
	maxCounters = 1 << (numberKind - countBits)
)

// message is what was read from a control connection.
type message struct {
	kind byte
	body []byte
}

func appendMessage(b []byte, kind byte, body []byte) []byte {
	b = append(b, kind, 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(body)))
	return append(b, body...)
}

var errLength = errors.New("it is of a length that its kind does not have")

// readMessage reads the next message into room, which the result may use.
func readMessage(r io.Reader, room *[maxMessageLen]byte) (message, error) {
	var head [messageHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return message{}, err
	}
	n := int(binary.LittleEndian.Uint16(head[2:]))
	if n > maxMessageLen || head[1] != 0 {
		return message{}, fmt.Errorf("a message of kind %d with %d bytes", head[0], n)
	}
	if _, err := io.ReadFull(r, room[:n]); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return message{}, err
	}
	return message{head[0], room[:n]}, nil
}

// region reads the region number that want, freed and bye are all of.
func (m *message) number() (uint32, error) {
	if len(m.body) != 4 {
		return 0, errLength
	}
	return binary.LittleEndian.Uint32(m.body), nil
}

func numberBytes(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }

// text reads what a peer says, which is for people: nothing in it that a
// terminal would take for an order.
func (m *message) text() string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '�' {
			return '.'
		}
		return r
	}, strings.ToValidUTF8(string(m.body), "."))
}

// place is where a peer's region lies, as its devices know it.
type place struct {
	region mem.RegionID
	size   uint64
	addr   uint64
	keys   [MaxRails]uint32 // by the peer's rail
	rails  int
}

func (p *place) encode() []byte {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, 24+4*MaxRails), uint32(p.region))
	b = append(b, 0, 0, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, p.size)
	b = binary.LittleEndian.AppendUint64(b, p.addr)
	for _, k := range p.keys[:p.rails] {
		b = binary.LittleEndian.AppendUint32(b, k)
	}
	return b
}

func decodePlace(b []byte) (place, error) {
	rails := (len(b) - 24) / 4
	if len(b) < 24 || len(b)%4 != 0 || rails > MaxRails {
		return place{}, errLength
	}
	p := place{
		region: mem.RegionID(binary.LittleEndian.Uint32(b)),
		size:   binary.LittleEndian.Uint64(b[8:]),
		addr:   binary.LittleEndian.Uint64(b[16:]),
		rails:  rails,
	}
	if p.size > 1<<62 || p.addr+p.size < p.addr || binary.LittleEndian.Uint32(b[4:]) != 0 {
		return place{}, fmt.Errorf("a region of %d bytes at %#x", p.size, p.addr)
	}
	for i := range rails {
		p.keys[i] = binary.LittleEndian.Uint32(b[24+4*i:])
	}
	return p, nil
}

// offer is what a rank brings to a link.
type offer struct {
	rails      uint8
	mtuForced  bool
	credits    uint32 // counts and records that its peer may send before it takes any
	maxMessage uint32 // bytes in a request, of the least of its ports
	slotsAddr  uint64 // where records go
	slotsKey   uint32 // on the rail of lane 0
	lanes      []laneOffer
}

// laneOffer is one queue pair.
type laneOffer struct {
	qpn, psn uint32
	gid      verbs.GID
	lid      uint16
	mtu      verbs.MTU
	layer    verbs.LinkLayer
	rail     uint8
}

const (
	offerHead = 8 + 4 + 4 + 4 + 4 + 8 + 4 + 4
	laneBytes = 4 + 4 + 16 + 2 + 1 + 1 + 1 + 3
)

func (o *offer) encode() []byte {
	le := binary.LittleEndian
	b := append(make([]byte, 0, offerHead+laneBytes*len(o.lanes)), protocolMagic...)
	b = le.AppendUint32(b, protocolVersion)
	b = append(b, uint8(len(o.lanes)), o.rails, uint8(boolean(o.mtuForced)), 0)
	b = le.AppendUint32(b, o.credits)
	b = le.AppendUint32(b, o.maxMessage)
	b = le.AppendUint64(b, o.slotsAddr)
	b = le.AppendUint32(b, o.slotsKey)
	b = le.AppendUint32(b, 0)
	for i := range o.lanes {
		l := &o.lanes[i]
		b = le.AppendUint32(b, l.qpn)
		b = le.AppendUint32(b, l.psn)
		b = append(b, l.gid[:]...)
		b = le.AppendUint16(b, l.lid)
		b = append(b, uint8(l.mtu), uint8(l.layer), l.rail, 0, 0, 0)
	}
	return b
}

// decodeOffer reads the offer of a peer.
func decodeOffer(b []byte) (offer, error) {
	le := binary.LittleEndian
	if len(b) < offerHead || string(b[:8]) != protocolMagic {
		return offer{}, errors.New("not an offer")
	}
	if v := le.Uint32(b[8:]); v != protocolVersion {
		return offer{}, fmt.Errorf("version %d of the protocol, this is %d", v, protocolVersion)
	}
	n := int(b[12])
	o := offer{
		rails: b[13], mtuForced: b[14] != 0,
		credits: le.Uint32(b[16:]), maxMessage: le.Uint32(b[20:]),
		slotsAddr: le.Uint64(b[24:]), slotsKey: le.Uint32(b[32:]),
	}
	switch {
	case n < 1 || n > MaxLanes || len(b) != offerHead+n*laneBytes || b[14] > 1 || b[15] != 0 || le.Uint32(b[36:]) != 0:
		return offer{}, fmt.Errorf("%d lanes in %d bytes", n, len(b))
	case o.rails < 1 || o.rails > MaxRails:
		return offer{}, fmt.Errorf("%d rails", o.rails)
	case o.credits < 2 || o.credits > 1<<20 || o.maxMessage < 4096:
		return offer{}, fmt.Errorf("%d credits, messages of up to %d bytes", o.credits, o.maxMessage)
	}
	for b = b[offerHead:]; len(b) > 0; b = b[laneBytes:] {
		l := laneOffer{
			qpn: le.Uint32(b), psn: le.Uint32(b[4:]), gid: verbs.GID(b[8:]), lid: le.Uint16(b[24:]),
			mtu: verbs.MTU(b[26]), layer: verbs.LinkLayer(b[27]), rail: b[28],
		}
		if l.mtu.Bytes() == 0 || l.qpn >= 1<<24 || l.psn >= 1<<24 || l.rail >= o.rails || b[29]|b[30]|b[31] != 0 {
			return offer{}, fmt.Errorf("a lane with queue pair %#x, packet number %#x, MTU %d, on rail %d of %d", l.qpn, l.psn, uint32(l.mtu), l.rail, o.rails)
		}
		o.lanes = append(o.lanes, l)
	}
	return o, nil
}

// record is a notification in full: of a counter's first, and where other lanes
// must have come so far first.
//
//	region(4) counter(2) marks(1) zero(1) offset(8) count(8), then for each mark 4 bytes
type record struct {
	region  mem.RegionID
	counter uint16 // the number that stands for it from now on; noCounter: none
	marks   uint8
	offset  uint64
	count   uint64
	mark    [MaxLanes - 1]uint32 // how many marks lane 1, 2, ... has sent
}

const (
	recordHead = 24
	maxRecord  = recordHead + 4*(MaxLanes-1)
	recordSlot = 128
	noCounter  = 0xffff
	recordRoom = recordSlot - maxRecord // must not be negative
	_          = uint(recordRoom)
)

// encode writes the record to b, and returns how much of it that took.
func (r *record) encode(b *[recordSlot]byte) int {
	le := binary.LittleEndian
	le.PutUint32(b[0:], uint32(r.region))
	le.PutUint16(b[4:], r.counter)
	b[6], b[7] = r.marks, 0
	le.PutUint64(b[8:], r.offset)
	le.PutUint64(b[16:], r.count)
	for i, m := range r.mark[:r.marks] {
		le.PutUint32(b[recordHead+4*i:], m)
	}
	return recordHead + 4*int(r.marks)
}

// decode reads a record from a slot; false if it cannot be one.
func (r *record) decode(b []byte) bool {
	le := binary.LittleEndian
	r.region = mem.RegionID(le.Uint32(b))
	r.counter = le.Uint16(b[4:])
	r.marks = b[6]
	r.offset = le.Uint64(b[8:])
	r.count = le.Uint64(b[16:])
	if r.region == 0 || r.marks > MaxLanes-1 || b[7] != 0 || r.counter >= maxCounters && r.counter != noCounter {
		return false
	}
	for i := range r.mark[:r.marks] {
		r.mark[i] = le.Uint32(b[recordHead+4*i:])
	}
	return true
}
