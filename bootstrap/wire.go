package bootstrap

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"io"
	"net"
	"sync"
	"time"
)

// wire carries sealed frames over a connection that has passed the handshake.
// One goroutine reads; any may write.
type wire struct {
	conn net.Conn
	in   seal // the reader's

	mu     sync.Mutex
	out    seal
	broken error // a frame was not written whole: no other can follow
}

// seal makes the MACs of one direction.
type seal struct {
	mac  hash.Hash
	next uint64
}

func newSeal(key [macSize]byte) seal { return seal{mac: hmac.New(sha256.New, key[:])} }

func (s *seal) sum(header, payload []byte) []byte {
	var number [8]byte
	binary.LittleEndian.PutUint64(number[:], s.next)
	s.next++
	s.mac.Reset()
	s.mac.Write(number[:])
	s.mac.Write(header)
	s.mac.Write(payload)
	return s.mac.Sum(nil)
}

func newWire(conn net.Conn, in, out [macSize]byte) *wire {
	return &wire{conn: conn, in: newSeal(in), out: newSeal(out)}
}

// write sends a frame. An error means that no other can be sent.
func (w *wire) write(kind byte, payload []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writeLocked(kind, payload)
}

func (w *wire) writeLocked(kind byte, payload []byte) error {
	if w.broken != nil {
		return w.broken
	}
	header := appendHeader(nil, kind, len(payload))
	parts := net.Buffers{header, payload, w.out.sum(header, payload)}
	_, err := parts.WriteTo(w.conn)
	w.broken = err
	return err
}

// writeWithin sends a frame that must get through within a time.
func (w *wire) writeWithin(limit time.Duration, kind byte, payload []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.conn.SetWriteDeadline(time.Now().Add(limit))
	err := w.writeLocked(kind, payload)
	_ = w.conn.SetWriteDeadline(time.Time{})
	return err
}

// last sends a frame to an end that may not read: what is being written and
// this have the patience to get through.
func (w *wire) last(kind byte, payload []byte) {
	_ = w.conn.SetWriteDeadline(time.Now().Add(patience)) // for the one under way
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.conn.SetWriteDeadline(time.Now().Add(patience))
	_ = w.writeLocked(kind, payload)
	if w.broken == nil {
		w.broken = net.ErrClosed
	}
}

// read reads a frame. limit says how much a kind may carry, less than 0 where
// it must not come.
func (w *wire) read(limit func(kind byte) int) (kind byte, payload []byte, err error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(w.conn, header[:]); err != nil {
		return 0, nil, err
	}
	kind, n, err := parseHeader(header, limit)
	if err != nil {
		return 0, nil, err
	}
	if payload, err = readPayload(w.conn, n); err != nil {
		return 0, nil, err
	}
	var mac [macSize]byte
	if _, err := io.ReadFull(w.conn, mac[:]); err != nil {
		return 0, nil, &FrameError{"a frame that ends early"}
	}
	if !hmac.Equal(mac[:], w.in.sum(header[:], payload)) {
		return 0, nil, &FrameError{"a frame that the other end did not send"}
	}
	return kind, payload, nil
}
