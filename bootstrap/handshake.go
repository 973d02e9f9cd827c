package bootstrap

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// Before frames, the two ends of a connection between ranks say who they are
// and prove that they know the job's secret:
//
//	caller: hello    magic, version, role, secret or not, rank, size, job, nonce
//	server: answer   magic, version, a code; then its nonce, or why not
//	caller: proof    where it listens itself, and a MAC of all of the above
//	server: verdict  a code; then a MAC of all of the above, or why not
//
// The MACs are HMAC-SHA256 under the secret with a label for each end, over
// everything that both have sent. Both nonces are fresh, so nothing of an
// earlier connection is of use, and nothing of one direction in the other.
// Where there is no secret the same is done with an empty one, which proves
// nothing but that the other end speaks the protocol.
//
// The magic, the version, and an answer up to its text are the same in every
// version, so that different ones can tell each other.
//
// What follows are frames, each with a MAC under a key that only the two ends
// of this connection know, over a number that rises. They are sealed, not
// hidden: who can listen on the network can read them.
const (
	wireVersion = 1

	magicSize   = 8
	nonceSize   = 32
	macSize     = sha256.Size
	jobSize     = 16
	helloSize   = magicSize + 2 + 1 + 1 + 4 + 4 + jobSize + nonceSize
	answerSize  = magicSize + 2 + 1 + 2 // the text or the challenge follows
	addressSize = 255                   // at most

	// A connection to rank 0, and one to the parent in the tree.
	roleJoin = 1
	roleLink = 2
)

var magic = [magicSize]byte{'t', 'u', 't', 't', 'i', 0xbb, '\r', '\n'}

// hello is what a caller says of itself.
type hello struct {
	version   uint16
	role      byte
	hasSecret bool
	rank      uint32
	size      uint32
	job       [jobSize]byte // a hash of the job's name, or zero
	nonce     [nonceSize]byte
}

func (h *hello) encode() []byte {
	b := append(make([]byte, 0, helloSize), magic[:]...)
	b = binary.LittleEndian.AppendUint16(b, h.version)
	b = append(b, h.role, flag(h.hasSecret))
	b = binary.LittleEndian.AppendUint32(b, h.rank)
	b = binary.LittleEndian.AppendUint32(b, h.size)
	b = append(b, h.job[:]...)
	return append(b, h.nonce[:]...)
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// errStranger is the end of a connection to somebody who speaks something else.
var errStranger = errors.New("what is there does not speak Tutti's protocol")

// readHello reads what a caller says. Of another version nothing is known but
// that. The error is errStranger unless it begins with the magic.
func readHello(r io.Reader, ours uint16) (h hello, raw []byte, err error) {
	raw = make([]byte, helloSize)
	if err := readPrefix(r, raw[:magicSize+2]); err != nil {
		return h, nil, err
	}
	if h.version = binary.LittleEndian.Uint16(raw[magicSize:]); h.version != ours {
		return h, nil, ErrVersion
	}
	if _, err := io.ReadFull(r, raw[magicSize+2:]); err != nil {
		return h, nil, err
	}
	return parseHello(raw)
}

// parseHello takes a hello of our version apart.
func parseHello(raw []byte) (h hello, same []byte, err error) {
	b := raw[magicSize:]
	h.version = binary.LittleEndian.Uint16(b)
	h.role, h.hasSecret = b[2], b[3] == 1
	if (h.role != roleJoin && h.role != roleLink) || b[3] > 1 {
		return h, nil, &FrameError{"a hello that makes no sense"}
	}
	h.rank, h.size = binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:])
	copy(h.job[:], b[12:])
	copy(h.nonce[:], b[12+jobSize:])
	return h, raw, nil
}

// readPrefix reads a magic and a version, and stops at the first byte that is
// wrong.
func readPrefix(r io.Reader, b []byte) error {
	for n := 0; n < len(b); {
		m, err := r.Read(b[n:])
		for i := n; i < n+m && i < magicSize; i++ {
			if b[i] != magic[i] {
				return errStranger
			}
		}
		if n += m; err != nil && n < len(b) {
			if n > 0 && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// answer is what a server says to a hello: a challenge, or why not.
type answer struct {
	version   uint16
	code      byte
	text      string // of a refusal
	hasSecret bool
	nonce     [nonceSize]byte
}

func (a *answer) encode() []byte {
	b := append([]byte(nil), magic[:]...)
	b = binary.LittleEndian.AppendUint16(b, a.version)
	b = append(b, a.code)
	if a.code != codeFine {
		return appendText(b, a.text)
	}
	b = binary.LittleEndian.AppendUint16(b, 1+nonceSize)
	return append(append(b, flag(a.hasSecret)), a.nonce[:]...)
}

func appendText(b []byte, s string) []byte {
	s = clip(s)
	return append(binary.LittleEndian.AppendUint16(b, uint16(len(s))), s...)
}

func readAnswer(r io.Reader, ours uint16) (a answer, raw []byte, err error) {
	raw = make([]byte, answerSize)
	if err := readPrefix(r, raw[:magicSize+2]); err != nil {
		return a, nil, err
	}
	if _, err := io.ReadFull(r, raw[magicSize+2:]); err != nil {
		return a, nil, err
	}
	a.version = binary.LittleEndian.Uint16(raw[magicSize:])
	a.code = raw[magicSize+2]
	n := int(binary.LittleEndian.Uint16(raw[magicSize+3:]))
	if n > longestText || a.code == codeFine && n != 1+nonceSize {
		return a, nil, &FrameError{fmt.Sprintf("an answer of %d bytes", n)}
	}
	rest := make([]byte, n)
	if _, err := io.ReadFull(r, rest); err != nil {
		return a, nil, err
	}
	switch {
	case a.code == codeFine && (a.version != ours || rest[0] > 1):
		return a, nil, &FrameError{"an answer that makes no sense"}
	case a.code == codeFine:
		a.hasSecret = rest[0] == 1
		copy(a.nonce[:], rest[1:])
	case !utf8.Valid(rest):
		return a, nil, &FrameError{"an answer with a bad text"}
	default:
		a.text = string(rest)
	}
	return a, append(raw, rest...), nil
}

// readProof reads where a caller listens and its MAC.
func readProof(r io.Reader) (address string, raw []byte, mac [macSize]byte, err error) {
	var n [1]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return "", nil, mac, err
	}
	raw = make([]byte, 1+int(n[0]))
	raw[0] = n[0]
	if _, err := io.ReadFull(r, raw[1:]); err != nil {
		return "", nil, mac, err
	}
	_, err = io.ReadFull(r, mac[:])
	return string(raw[1:]), raw, mac, err
}

// verdict is a server's last word.
type verdict struct {
	code byte
	text string
	mac  [macSize]byte
}

func (v *verdict) encode() []byte {
	b := []byte{v.code}
	if v.code != codeFine {
		return appendText(b, v.text)
	}
	return append(b, v.mac[:]...)
}

func readVerdict(r io.Reader) (v verdict, err error) {
	var b [3]byte
	if _, err := io.ReadFull(r, b[:1]); err != nil {
		return v, err
	}
	if v.code = b[0]; v.code == codeFine {
		_, err := io.ReadFull(r, v.mac[:])
		return v, err
	}
	if _, err := io.ReadFull(r, b[1:]); err != nil {
		return v, err
	}
	n := int(binary.LittleEndian.Uint16(b[1:]))
	if n > longestText {
		return v, &FrameError{fmt.Sprintf("a verdict of %d bytes", n)}
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return v, err
	}
	if !utf8.Valid(text) {
		return v, &FrameError{"a verdict with a bad text"}
	}
	v.text = string(text)
	return v, nil
}

// transcript is what both ends of a connection have seen of it.
type transcript struct {
	key []byte // the secret
	sum []byte // all bytes so far
}

func (t *transcript) add(b []byte) { t.sum = append(t.sum, b...) }

// mac is what only one who knows the secret can make, for one use.
func (t *transcript) mac(label string) [macSize]byte {
	h := hmac.New(sha256.New, t.key)
	h.Write([]byte("tutti bootstrap " + label + "\x00"))
	h.Write(t.sum)
	return [macSize]byte(h.Sum(nil))
}

// keys are the keys of the frames that follow: those that the caller sends,
// and those that the server sends.
func (t *transcript) keys() (caller, server [macSize]byte) {
	return t.mac("frames of the caller"), t.mac("frames of the server")
}

// treeKey is the secret with which ranks link up in the tree: nobody has it
// but those who were let in by rank 0, which made the seed.
func treeKey(secret []byte, seed []byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte("tutti bootstrap tree\x00"))
	h.Write(seed)
	return h.Sum(nil)
}

// jobHash is how the name of a job goes over the wire.
func jobHash(name string) (id [jobSize]byte) {
	if name != "" {
		sum := sha256.Sum256([]byte("tutti job " + name))
		copy(id[:], sum[:])
	}
	return id
}

func newNonce() (n [nonceSize]byte) {
	_, _ = rand.Read(n[:]) // never fails
	return n
}
