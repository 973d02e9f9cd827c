package remote

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

// A kind says what a frame carries. The client sends start, stdin, stdinEnd
// and signal; the server sends hello, once and first, stdout, stderr and exit.
type kind byte

const (
	kindHello    kind = iota + 1 // Hello as JSON
	kindStart                    // Command as JSON
	kindStdin                    // bytes
	kindStdinEnd                 // nothing
	kindSignal                   // one byte: its number
	kindStdout                   // bytes
	kindStderr                   // bytes
	kindExit                     // Status as JSON
)

const (
	headerBytes = 9       // length of the payload, kind, number of the process
	maxPayload  = 1 << 20 // more is nonsense, and the stream is given up
	chunkBytes  = 32 << 10
)

// A frame is one message about one process. The client numbers processes.
type frame struct {
	kind    kind
	process uint32
	payload []byte
}

// A StreamError says that the other end sent what this protocol does not have.
type StreamError struct{ Reason string }

func (e *StreamError) Error() string { return "remote: not our protocol: " + e.Reason }

// readFrame returns the next frame; its payload is the caller's. The end of the
// stream between two frames is io.EOF.
func readFrame(r *bufio.Reader) (frame, error) {
	var h [headerBytes]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return frame{}, err
	}
	n := binary.BigEndian.Uint32(h[:])
	f := frame{kind: kind(h[4]), process: binary.BigEndian.Uint32(h[5:])}
	if n > maxPayload {
		return frame{}, &StreamError{fmt.Sprintf("a frame of %d bytes, the most is %d", n, maxPayload)}
	}
	if f.kind < kindHello || f.kind > kindExit {
		return frame{}, &StreamError{fmt.Sprintf("a frame of kind %d", f.kind)}
	}
	f.payload = make([]byte, n)
	if _, err := io.ReadFull(r, f.payload); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return frame{}, err
	}
	return f, nil
}

// A frameWriter writes whole frames, for any number of goroutines.
type frameWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (w *frameWriter) write(f frame) error {
	b := make([]byte, headerBytes+len(f.payload))
	binary.BigEndian.PutUint32(b, uint32(len(f.payload)))
	b[4] = byte(f.kind)
	binary.BigEndian.PutUint32(b[5:], f.process)
	copy(b[headerBytes:], f.payload)
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.w.Write(b)
	return err
}

// stream is an io.Writer that sends what it is given as frames of one kind.
type stream struct {
	to      *frameWriter
	kind    kind
	process uint32
}

func (s stream) Write(p []byte) (int, error) {
	for n := 0; n < len(p); {
		c := p[n:min(n+chunkBytes, len(p))]
		if err := s.to.write(frame{s.kind, s.process, c}); err != nil {
			return n, err
		}
		n += len(c)
	}
	return len(p), nil
}

// A queue holds items until they are taken. It is not bounded, so that one
// process that does not read, or one slow reader of output, holds up no other.
type queue[T any] struct {
	mu    sync.Mutex
	some  sync.Cond
	items []T
	ended bool
}

func newQueue[T any]() *queue[T] {
	q := &queue[T]{}
	q.some.L = &q.mu
	return q
}

// put adds an item; after end it does nothing.
func (q *queue[T]) put(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.ended {
		q.items = append(q.items, item)
		q.some.Signal()
	}
}

// end says that nothing more will come. What is queued can still be taken.
func (q *queue[T]) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.some.Signal()
}

// take blocks for the next item; false means that there will be none.
func (q *queue[T]) take() (T, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.items) == 0 && !q.ended {
		q.some.Wait()
	}
	var item T
	if len(q.items) == 0 {
		return item, false
	}
	item = q.items[0]
	q.items = q.items[1:]
	return item, true
}
