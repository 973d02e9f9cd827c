package tcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tutti-go/tutti/link"
)

// ErrUnavailable says that this machine does not have what the medium needs;
// the error that wraps it says what.
var ErrUnavailable = errors.New("the socket medium is unavailable")

// ClosedError says that a fabric was used after Close. It is link.ErrClosed.
type ClosedError struct {
	Rank int    // whose fabric it was
	Op   string // what was asked of it: "alloc", "connect", ...
}

func (e *ClosedError) Error() string {
	return fmt.Sprintf("rank %d: %s after Close: it takes a new communicator", e.Rank, e.Op)
}

func (e *ClosedError) Unwrap() error { return link.ErrClosed }

// FrameError says that a peer sent what no rank of the same build sends. The
// connection has been ended. It comes wrapped in a *link.PeerLostError.
type FrameError struct {
	Peer   int // who sent it
	Reason string
}

func (e *FrameError) Error() string {
	return fmt.Sprintf("rank %d sent a frame that cannot be right: %s; are all ranks the same build?", e.Peer, e.Reason)
}

// Exchanger is what Open needs of a bootstrap. Whoever sees what it exchanges
// can join the job.
type Exchanger interface {
	Rank() int
	Size() int
	// AllGather gives every rank's blob to every rank, indexed by rank.
	AllGather(ctx context.Context, blob []byte) ([][]byte, error)
}

// Config is how a rank uses its sockets. The zero value is the loopback
// interface and what was found best.
type Config struct {
	// Listen is the IP address, or IP address and port, of the interface to be
	// reached at. Empty is 127.0.0.1: nothing is reachable from other machines
	// unless an address says so.
	Listen string

	// Advertise is what other ranks dial where that is not Listen.
	Advertise string

	// Stripes is the number of connections to each peer, 1 to MaxStripes; 0 is
	// DefaultStripes. Large puts are spread over all of them, which pays where
	// a network or a network card gives one connection less than it has; inside
	// a machine it does not. Where two puts with no notification between them
	// overlap, either may be the last then. Of two ranks the lower decides for
	// both.
	Stripes int

	// SocketBytes is the size of the kernel's buffer for each direction of each
	// connection; 0 leaves it to the kernel, which adapts it.
	SocketBytes int

	// Congestion is the kernel's congestion control for the connections, such
	// as "cubic"; empty leaves the system's. One that paces, such as bbr, is made
	// for long ways: between processes of one machine it costs a third of the
	// bandwidth of large puts.
	Congestion string

	// Silence is how long a peer's machine may leave packets unanswered before
	// the peer is lost; 30 s if zero. A peer that is stopped for that long
	// while its socket is full is lost too.
	Silence time.Duration

	// Log takes what happens seldom, such as strangers; nil discards it.
	Log *slog.Logger
}

// Limits and defaults of Config.
const (
	MaxStripes     = 16
	DefaultStripes = 1
)

// ConfigError says which setting cannot be used, and why.
type ConfigError struct {
	Field string // of Config
	Err   error
}

func (e *ConfigError) Error() string { return fmt.Sprintf("tcp: %s: %v", e.Field, e.Err) }

func (e *ConfigError) Unwrap() error { return e.Err }

func (c *Config) check() error {
	if c.Stripes < 0 || c.Stripes > MaxStripes {
		return &ConfigError{"Stripes", fmt.Errorf("%d, not 1 to %d, or 0 for the default", c.Stripes, MaxStripes)}
	}
	if c.SocketBytes < 0 || c.SocketBytes > 1<<30 {
		return &ConfigError{"SocketBytes", fmt.Errorf("%d, not up to 1 GiB, or 0 to leave it to the kernel", c.SocketBytes)}
	}
	return nil
}
