package mesh

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// How a connection begins. All frames are of a fixed size, little-endian.
//
//	dialler                              acceptor
//	hello: who, whom, what for, nonce →
//	                                   ← challenge: nonce, proof
//	answer: proof                     →
//	                                   ← admission: proof
//
// A proof is an HMAC over the role, the hello and both nonces: it says that
// whoever made it knows the job's key, means this very connection, and agrees
// on everything that the hello says. Roles differ, so that no proof can be
// returned to its maker as one's own. The acceptor proves itself first: it has
// been told who is meant, and reveals nothing by that. An acceptor that gets
// anything else hangs up without a word.
const (
	magic          = "tuttimsh"
	version        = 1
	purposeBytes   = 24
	nonceBytes     = 32
	helloBytes     = len(magic) + 4*4 + purposeBytes + nonceBytes
	challengeBytes = nonceBytes + sha256.Size

	roleAcceptor = "acceptor"
	roleDialler  = "dialler"
	roleAdmitter = "admitter"
)

// hello is the first frame.
type hello struct {
	ranks    uint32 // in the job
	from, to uint32
	purpose  string
	nonce    [nonceBytes]byte
}

func (h *hello) encode() []byte {
	b := append(make([]byte, 0, helloBytes), magic...)
	for _, n := range [...]uint32{version, h.ranks, h.from, h.to} {
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	b = append(b, h.purpose...)
	b = append(b, make([]byte, purposeBytes-len(h.purpose))...)
	return append(b, h.nonce[:]...)
}

// decodeHello reads the hello of a stranger.
func decodeHello(b []byte) (hello, error) {
	if len(b) != helloBytes || string(b[:len(magic)]) != magic {
		return hello{}, fmt.Errorf("%w: it does not speak this protocol", ErrStranger)
	}
	b = b[len(magic):]
	if v := binary.LittleEndian.Uint32(b); v != version {
		return hello{}, fmt.Errorf("%w: it speaks version %d of the protocol, not %d", ErrStranger, v, version)
	}
	h := hello{
		ranks: binary.LittleEndian.Uint32(b[4:]),
		from:  binary.LittleEndian.Uint32(b[8:]),
		to:    binary.LittleEndian.Uint32(b[12:]),
		nonce: [nonceBytes]byte(b[16+purposeBytes:]),
	}
	h.purpose = strings.TrimRight(string(b[16:16+purposeBytes]), "\x00")
	if err := checkPurpose(h.purpose); err != nil {
		return hello{}, fmt.Errorf("%w: %w", ErrStranger, err)
	}
	return h, nil
}

func checkPurpose(p string) error {
	if p == "" || len(p) > purposeBytes || strings.ContainsRune(p, 0) {
		return fmt.Errorf("a purpose has 1 to %d bytes, none of them zero; this is %q", purposeBytes, p)
	}
	return nil
}

// greet is the dialler's side. It returns when the peer has let us in.
func (m *Mesh) greet(c io.ReadWriter, peer int, purpose string) error {
	h := hello{ranks: uint32(len(m.cards)), from: uint32(m.rank), to: uint32(peer), purpose: purpose}
	rand.Read(h.nonce[:])
	said := h.encode()
	if _, err := c.Write(said); err != nil {
		return err
	}
	var challenge [challengeBytes]byte
	if _, err := io.ReadFull(c, challenge[:]); err != nil {
		return hungUp(err)
	}
	nonce := challenge[:nonceBytes]
	if !m.proves(challenge[nonceBytes:], roleAcceptor, said, nonce) {
		return fmt.Errorf("what listens there is %w", ErrStranger)
	}
	answer := proof(&m.key, roleDialler, said, nonce)
	if _, err := c.Write(answer[:]); err != nil {
		return err
	}
	var admission [sha256.Size]byte
	if _, err := io.ReadFull(c, admission[:]); err != nil {
		return hungUp(err)
	}
	if !m.proves(admission[:], roleAdmitter, said, nonce) {
		return fmt.Errorf("what listens there is %w", ErrStranger)
	}
	return nil
}

// errHungUp is temporary: the peer may have had too many callers at once.
var errHungUp = errors.New("it hung up while we introduced ourselves")

func hungUp(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errHungUp
	}
	return err
}

// admit is the acceptor's side. It returns who called, and what for.
func (m *Mesh) admit(c io.ReadWriter) (peer int, purpose string, err error) {
	said := make([]byte, helloBytes)
	if _, err := io.ReadFull(c, said); err != nil {
		return 0, "", fmt.Errorf("%w: %w", ErrStranger, err)
	}
	h, err := decodeHello(said)
	if err != nil {
		return 0, "", err
	}
	ranks := uint32(len(m.cards))
	if h.ranks != ranks || h.from >= ranks || int(h.from) == m.rank || int(h.to) != m.rank {
		return 0, "", fmt.Errorf("%w: it says that it is rank %d of %d and means rank %d; this is rank %d of %d",
			ErrStranger, h.from, h.ranks, h.to, m.rank, ranks)
	}
	var nonce [nonceBytes]byte
	rand.Read(nonce[:])
	ours := proof(&m.key, roleAcceptor, said, nonce[:])
	if _, err := c.Write(append(nonce[:len(nonce):len(nonce)], ours[:]...)); err != nil {
		return 0, "", err
	}
	var answer [sha256.Size]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		return 0, "", fmt.Errorf("%w: %w", ErrStranger, err)
	}
	if !m.proves(answer[:], roleDialler, said, nonce[:]) {
		return 0, "", fmt.Errorf("%w: it says that it is rank %d and does not know the key", ErrStranger, h.from)
	}
	admission := proof(&m.key, roleAdmitter, said, nonce[:])
	if _, err := c.Write(admission[:]); err != nil {
		return 0, "", err
	}
	return int(h.from), h.purpose, nil
}

// proves compares in a time that says nothing about where the two differ.
func (m *Mesh) proves(got []byte, role string, words ...[]byte) bool {
	want := proof(&m.key, role, words...)
	return hmac.Equal(got, want[:])
}
