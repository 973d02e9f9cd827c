package bootstrap

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// hub is the parent's side: it gathers a blob from every rank and sends all of
// them to each. One goroutine for each rank reads from it.
type hub struct {
	mu     sync.Mutex
	conns  []net.Conn // by rank
	blobs  [][]byte   // of the round that is being gathered
	there  []bool
	gone   []bool // have hung up
	failed bool

	reading sync.WaitGroup
	// wrong is called when a rank breaks the protocol, and with ErrLeft when
	// others wait for a rank that has hung up. It may block.
	wrong func(rank int, err error)
}

func newHub(conns []net.Conn, wrong func(int, error)) *hub {
	n := len(conns)
	h := &hub{conns: conns, blobs: make([][]byte, n), there: make([]bool, n), gone: make([]bool, n), wrong: wrong}
	for rank, conn := range conns {
		h.reading.Go(func() { h.serve(rank, conn) })
	}
	return h
}

func (h *hub) serve(rank int, conn net.Conn) {
	for {
		kind, blob, err := readFrame(conn, MaxBlob)
		if err == nil && kind != frameGather {
			err = &FrameError{fmt.Sprintf("a frame of kind %d from a rank", kind)}
		}
		if err == nil {
			err = h.gather(rank, blob)
		}
		if err != nil {
			// Anything but nonsense means that the rank has hung up.
			var bad *FrameError
			if errors.As(err, &bad) {
				h.wrong(rank, err)
			} else {
				h.leave(rank)
			}
		}
		if missing := h.missing(); missing >= 0 {
			h.wrong(missing, ErrLeft)
		}
		if err != nil {
			return
		}
	}
}

func (h *hub) leave(rank int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gone[rank] = true
}

// missing returns a rank that has hung up before it gave its part to a round
// in which another waits, or -1. A rank that leaves between rounds may be done.
func (h *hub) missing() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	left, waits := -1, false
	for rank, there := range h.there {
		switch {
		case there && !h.gone[rank]:
			waits = true
		case !there && h.gone[rank]:
			left = rank
		}
	}
	if !waits {
		return -1
	}
	return left
}

// gather puts a rank's blob on the table and, when it is the last, sends the
// round to all.
func (h *hub) gather(rank int, blob []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.there[rank] {
		return &FrameError{"a second blob in one round"}
	}
	h.there[rank], h.blobs[rank] = true, blob
	for _, there := range h.there {
		if !there {
			return nil
		}
	}
	result := encodeBlobs(h.blobs)
	clear(h.there)
	clear(h.blobs)
	for _, conn := range h.conns {
		// A rank that cannot be written to is ending; its Wait says how.
		_ = writeFrame(conn, frameResult, result)
	}
	return nil
}

// fail tells every rank that the job has failed. A rank that is stopped and
// does not read is given up after patience, so that the others are told.
func (h *hub) fail(reason string, patience time.Duration) {
	for _, conn := range h.conns {
		_ = conn.SetWriteDeadline(time.Now().Add(patience))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failed {
		return
	}
	h.failed = true
	for _, conn := range h.conns {
		_ = writeFrame(conn, frameFail, []byte(reason))
	}
}

func (h *hub) close() {
	for _, conn := range h.conns {
		conn.Close()
	}
	h.reading.Wait()
}
