package mesh

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
)

const (
	cardVersion  = 1 // changes with everything that ranks say to each other
	shareBytes   = 32
	maxAddress   = 128
	minCardBytes = 4 + shareBytes + 1
)

// card is what a rank tells the others about itself, through the exchange:
// where it listens, and its share of the job's key. It is as secret as the key.
type card struct {
	share   [shareBytes]byte
	address string // host:port, the host an IP address
}

func newCard(address string) card {
	c := card{address: address}
	rand.Read(c.share[:])
	return c
}

func (c *card) encode() []byte {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, minCardBytes+len(c.address)), cardVersion)
	b = append(b, c.share[:]...)
	return append(b, c.address...)
}

var errForeignCard = errors.New("not a card of this version of tutti: are all ranks the same build?")

func decodeCard(b []byte) (card, error) {
	if len(b) < minCardBytes || len(b) > minCardBytes+maxAddress || binary.LittleEndian.Uint32(b) != cardVersion {
		return card{}, errForeignCard
	}
	c := card{share: [shareBytes]byte(b[4:]), address: string(b[4+shareBytes:])}
	if _, err := usable(c.address); err != nil {
		return card{}, fmt.Errorf("it says that it listens at %q: %w", c.address, err)
	}
	return c, nil
}

// usable returns the address that others may dial, or why they cannot.
func usable(address string) (netip.AddrPort, error) {
	at, err := netip.ParseAddrPort(address)
	switch {
	case err != nil:
		return at, err
	case at.Addr().IsUnspecified():
		return at, errors.New("that is every address of the machine; give the one that the other ranks reach it by")
	case at.Port() == 0:
		return at, errors.New("no port")
	}
	return at, nil
}

// jobKey is the secret of those who have seen all cards.
func jobKey(blobs [][]byte) [sha256.Size]byte {
	h := sha256.New()
	put := func(n int) { h.Write(binary.LittleEndian.AppendUint64(nil, uint64(n))) }
	h.Write([]byte("tutti mesh key"))
	put(len(blobs))
	for _, b := range blobs {
		put(len(b))
		h.Write(b)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// proof is what only a rank of the job can say of these words.
func proof(key *[sha256.Size]byte, role string, words ...[]byte) [sha256.Size]byte {
	h := hmac.New(sha256.New, key[:])
	h.Write([]byte{byte(len(role))})
	h.Write([]byte(role))
	for _, w := range words {
		h.Write(w)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// listenAddress is where to listen for a setting, which may leave out the port.
func listenAddress(setting string) string {
	if setting == "" {
		return "127.0.0.1:0"
	}
	if a, err := netip.ParseAddr(setting); err == nil {
		return net.JoinHostPort(a.String(), "0")
	}
	return setting
}

// advertised is what the others are told: the setting, with the port of the
// socket where it has none, or else the socket's own address.
func advertised(setting string, socket netip.AddrPort) string {
	if setting == "" {
		return socket.String()
	}
	if a, err := netip.ParseAddr(setting); err == nil {
		return netip.AddrPortFrom(a, socket.Port()).String()
	}
	return setting
}
