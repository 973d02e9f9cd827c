package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// inherited is whether the descriptor in the environment has been used. Its
// number may be anybody's after that.
var inherited atomic.Bool

// inherit joins over a socket that the process which started this one has
// handed down, "fd:N".
func inherit(number, size, localRank int, value string) (Exchanger, error) {
	text, _ := strings.CutPrefix(value, "fd:")
	fd, err := strconv.Atoi(text)
	if err != nil || fd < 3 {
		return nil, &EnvError{EnvBootstrap, value, "fd:N, the number of an inherited socket"}
	}
	if inherited.Swap(true) {
		return nil, &EnvError{EnvBootstrap, value, "a socket that is not in use: this process has called FromEnv before"}
	}
	file := os.NewFile(uintptr(fd), "bootstrap")
	conn, err := net.FileConn(file)
	file.Close()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", &EnvError{EnvBootstrap, value, "an inherited socket"}, err)
	}
	r := newRank(number, size, conn)
	r.localRank = localRank
	return r, nil
}

// rank is an Exchanger over a stream to the process that started it. One
// goroutine reads; Close stops it.
type rank struct {
	rank, size int
	localRank  int
	conn       net.Conn
	results    chan [][]byte
	done       chan struct{}
	reading    sync.WaitGroup

	mu  sync.Mutex
	err error
}

func newRank(number, size int, conn net.Conn) *rank {
	r := &rank{rank: number, size: size, localRank: -1, conn: conn, results: make(chan [][]byte, 1), done: make(chan struct{})}
	r.reading.Go(r.read)
	return r
}

func (r *rank) read() {
	for {
		kind, payload, err := readFrame(r.conn, resultLimit(r.size))
		switch {
		case errors.Is(err, io.EOF):
			err = ErrCoordinatorGone
		case err != nil:
			err = fmt.Errorf("rank %d: %w", r.rank, err)
		case kind == frameFail:
			err = &JobError{Reason: string(payload), Rank: -1}
		case kind == frameResult:
			var blobs [][]byte
			if blobs, err = decodeBlobs(payload, r.size); err == nil {
				select {
				case r.results <- blobs:
				default:
					err = &FrameError{"a result that nobody asked for"}
				}
			}
		default:
			err = &FrameError{fmt.Sprintf("a frame of kind %d from the parent", kind)}
		}
		if err != nil {
			r.fail(err)
			return
		}
	}
}

func (r *rank) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
		close(r.done)
	}
}

func (r *rank) Rank() int             { return r.rank }
func (r *rank) Size() int             { return r.size }
func (r *rank) LocalRank() int        { return r.localRank }
func (r *rank) Address() netip.Addr   { return loopback }
func (r *rank) Done() <-chan struct{} { return r.done }

func (r *rank) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

func (r *rank) AllGather(ctx context.Context, blob []byte) ([][]byte, error) {
	if len(blob) > MaxBlob {
		return nil, fmt.Errorf("rank %d: %w (%d)", r.rank, ErrTooLarge, len(blob))
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	// The parent reads at once, unless it is stopped: then the socket fills
	// up and only ctx ends the write.
	stop := context.AfterFunc(ctx, func() { _ = r.conn.SetWriteDeadline(time.Unix(1, 0)) })
	err := writeFrame(r.conn, frameGather, blob)
	stop()
	if ctx.Err() != nil {
		r.fail(context.Cause(ctx))
	}
	if err != nil {
		<-r.done // the reader knows better what happened
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	select {
	case blobs := <-r.results:
		return blobs, nil
	case <-r.done:
		return nil, r.Err()
	case <-ctx.Done():
		r.fail(context.Cause(ctx))
		return nil, r.Err()
	}
}

func (r *rank) Close() error {
	r.fail(ErrClosed)
	err := r.conn.Close()
	r.reading.Wait()
	return err
}
