package shm

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tutti-go/tutti/link"
)

// What ranks say to each other over the Unix socket. Messages are datagrams
// of a fixed size (SOCK_SEQPACKET), little-endian: kind(4) region(4) bytes(8)
// token(16). What a kind does not use is zero.
//
//	hello   region: the client's rank; token   client to server, first
//	welcome                                    server to client: the hello was good
//	want    region                             client to server
//	have    region, bytes                      server to client, with a descriptor; 0 bytes: no such region
//	freed   region                             server to client: gone, and nobody is at work in it
//	bye     region, bytes: see farewell        server to client: closed in good order
const (
	tokenBytes   = 16
	messageBytes = 32

	kindHello   = 1
	kindWelcome = 2
	kindWant    = 3
	kindHave    = 4
	kindFreed   = 5
	kindBye     = 6
)

type message struct {
	kind   uint32
	region uint32 // of hello: the rank
	bytes  uint64
	token  [tokenBytes]byte
}

func (m *message) encode() []byte {
	b := make([]byte, messageBytes)
	binary.LittleEndian.PutUint32(b[0:], m.kind)
	binary.LittleEndian.PutUint32(b[4:], m.region)
	binary.LittleEndian.PutUint64(b[8:], m.bytes)
	copy(b[16:], m.token[:])
	return b
}

func decodeMessage(b []byte) (message, error) {
	if len(b) != messageBytes {
		return message{}, fmt.Errorf("a message of %d bytes, not %d", len(b), messageBytes)
	}
	m := message{
		kind:   binary.LittleEndian.Uint32(b[0:]),
		region: binary.LittleEndian.Uint32(b[4:]),
		bytes:  binary.LittleEndian.Uint64(b[8:]),
	}
	copy(m.token[:], b[16:])
	if m.kind < kindHello || m.kind > kindBye {
		return message{}, fmt.Errorf("a message of unknown kind %d", m.kind)
	}
	return m, nil
}

// farewell is the bye of a rank that lost a peer before it closed, or nil: the
// others, who may not have noticed yet, are to hear of the cause and not only
// of its consequence. Region is the lost rank plus one, bytes its process id.
func farewell(lost *link.PeerLostError) message {
	if lost == nil {
		return message{kind: kindBye}
	}
	return message{kind: kindBye, region: uint32(lost.Rank) + 1, bytes: uint64(lost.Pid)}
}

// card is what a rank tells the others about itself at start, through the
// bootstrap: where its socket is, and the secret that proves that one belongs
// to the job. The name is visible to every user of the machine, the token is
// not.
type card struct {
	name  [tokenBytes]byte
	token [tokenBytes]byte
	probe probe
}

// probe is a word in the memory of the rank's process, by which a peer finds
// out whether it can reach that memory, and that it is the right process.
type probe struct {
	address uint64
	word    [8]byte
}

const (
	cardVersion = 4 // changes with everything above
	cardBytes   = 4 + 2*tokenBytes + 16
)

func (c *card) encode() []byte {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, cardBytes), cardVersion)
	b = append(b, c.name[:]...)
	b = append(b, c.token[:]...)
	b = binary.LittleEndian.AppendUint64(b, c.probe.address)
	return append(b, c.probe.word[:]...)
}

// socket is the abstract address of the rank's Unix socket.
func (c *card) socket() string { return fmt.Sprintf("@tutti-%x", c.name) }

var errForeignCard = errors.New("not a card of this version of tutti: are all ranks the same build?")

func decodeCard(b []byte) (card, error) {
	if len(b) != cardBytes || binary.LittleEndian.Uint32(b) != cardVersion {
		return card{}, errForeignCard
	}
	var c card
	copy(c.name[:], b[4:])
	copy(c.token[:], b[4+tokenBytes:])
	c.probe.address = binary.LittleEndian.Uint64(b[4+2*tokenBytes:])
	copy(c.probe.word[:], b[12+2*tokenBytes:])
	return c, nil
}
