package rc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/verbs"
)

// ErrUnavailable says that this machine does not have what the medium needs;
// the error that wraps it says what.
var ErrUnavailable = errors.New("the RDMA medium is unavailable")

// ClosedError says that a fabric was used after Close. It is link.ErrClosed.
type ClosedError struct {
	Rank int    // whose fabric it was
	Op   string // what was asked of it: "alloc", "connect", ...
}

func (e *ClosedError) Error() string {
	return fmt.Sprintf("rank %d: %s after Close: it takes a new communicator", e.Rank, e.Op)
}

func (e *ClosedError) Unwrap() error { return link.ErrClosed }

// PathError says what went wrong on the way to a peer: it unwraps to a
// verbs.Status, an *EventError, or what a call of package verbs said. Where a
// peer is lost by it, it comes wrapped in a *link.PeerLostError.
type PathError struct {
	Device string // this side's
	Port   int
	Peer   int // the rank at the other end
	Err    error
	Advice string // the likely reason, and what would change it; may be empty
}

func (e *PathError) Error() string {
	s := fmt.Sprintf("%s port %d to rank %d: %v", e.Device, e.Port, e.Peer, e.Err)
	if e.Advice != "" {
		s += ": " + e.Advice
	}
	return s
}

func (e *PathError) Unwrap() error { return e.Err }

// EventError is what a device said by itself and nothing recovers from.
type EventError struct {
	Type  verbs.EventType
	Event string // what it happened to, and what
}

func (e *EventError) Error() string { return e.Event }

// ProtocolError says that a peer sent what no rank of the same build sends. It
// comes wrapped in a *link.PeerLostError, or from Connect.
type ProtocolError struct {
	Peer   int // who sent it
	Reason string
}

func (e *ProtocolError) Error() string {
	return fmt.Sprintf("rank %d sent what cannot be right: %s; are all ranks the same build?", e.Peer, e.Reason)
}

// RefusedError is what a peer said when it could not connect, or not go on.
type RefusedError struct {
	Peer   int
	Reason string // in its words
}

func (e *RefusedError) Error() string { return fmt.Sprintf("rank %d says: %s", e.Peer, e.Reason) }

// Exchanger is what Open needs of a bootstrap. Whoever sees what it exchanges
// can join the job.
type Exchanger interface {
	Rank() int
	Size() int
	// AllGather gives every rank's blob to every rank, indexed by rank.
	AllGather(ctx context.Context, blob []byte) ([][]byte, error)
}

// Signal is how a notification reaches its counter.
type Signal int

const (
	// Immediate sends the notification as a number that completes a receive; the
	// peer raises the counter when it polls, and wakes whoever sleeps. It is
	// right on every device.
	Immediate Signal = iota
	// Direct writes the count to the counter itself, behind the puts on the same
	// queue pair. The peer needs to do nothing, but one that sleeps sees it only
	// when its nap ends; and it is right only where the device places the writes
	// of a queue pair in order, which soft-RoCE does, and adapters do unless they
	// route adaptively.
	Direct
)

func (s Signal) String() string {
	if s == Direct {
		return "direct"
	}
	return "immediate"
}

// Config says which devices a rank uses, and how. The zero value is every active
// port of the fastest kind that the machine has, and the field's usual values.
// FromEnv fills in what variables say.
type Config struct {
	// Devices are the rails, in order: names such as "mlx5_0", or "mlx5_0:2" for
	// a port; a first name that begins with ^ means all devices but these. Of a
	// device without a port, the first active one is taken. Ranks need not have
	// the same number; lane i uses rail i modulo that number.
	Devices []string

	// GIDIndex is the entry of the GID table that all rails use; nil chooses by
	// rule: on RoCE version 2 before 1, addresses that can be routed before those
	// that cannot, those of Listen's network first, IPv4 first; else 0.
	GIDIndex *int

	// MTU is the payload of a packet in bytes, 256 to 4096; 0 is the smaller of
	// both ports' active MTUs. It is an error if one of them has less.
	MTU int

	ServiceLevel int // 0 to 15
	TrafficClass int // 0 to 255; on RoCE v2 the DSCP in its upper six bits
	PKeyIndex    int // of the partition table

	// Timeout is when an unanswered packet is sent again, 4.096 us times two to
	// the power of it, 1 to 31; 0 is DefaultTimeout. RetryCount is how often, 1 to
	// 7; 0 is DefaultRetryCount. Soft-RoCE takes 7 for endless. RNRRetry is how
	// often it is sent again when the peer has no receive, which does not happen
	// in the normal course; 0 is DefaultRNRRetry, which is endless.
	Timeout    int
	RetryCount int
	RNRRetry   int

	// QueuePairs is the number of queue pairs for each rail and peer, so that
	// large puts spread over paths of the network; 0 is 1. Of two ranks the lower
	// decides for both, and with its number of rails how many lanes a link has,
	// up to MaxLanes.
	QueuePairs int

	// SendDepth is how many requests may be outstanding on a queue pair, and
	// Credits how many notifications a peer may send before this rank has polled;
	// 0 are DefaultSendDepth and DefaultCredits. A device that has less gets less.
	SendDepth int
	Credits   int

	// InlineBytes is how much of a put is handed to the device with the request;
	// 0 is DefaultInlineBytes, less than 0 nothing. A device that has less gets
	// less.
	InlineBytes int

	// BounceBytes is registered memory of each lane, through which puts go that
	// are small or not from registered memory; 0 is DefaultBounceBytes.
	BounceBytes int

	// Signal is how notifications go. It is this rank's choice for what it sends.
	Signal Signal

	// Listen and Advertise are the address of the control connections, as with
	// package tcp: empty is the loopback interface.
	Listen, Advertise string

	// Silence is how long a peer's machine may leave packets of the control
	// connection unanswered; 30 s if zero.
	Silence time.Duration

	// PortGrace is how long a port may be down before the peers behind it are
	// lost, if their queue pairs have not given up by then; 3 s if zero.
	PortGrace time.Duration

	// Log takes what happens seldom; nil discards it.
	Log *slog.Logger
}

// Limits and defaults of Config.
const (
	MaxRails           = 8
	MaxLanes           = 16
	DefaultTimeout     = 14
	DefaultRetryCount  = 6
	DefaultRNRRetry    = 7
	DefaultSendDepth   = 128
	DefaultCredits     = 256
	DefaultInlineBytes = 220
	DefaultBounceBytes = 512 << 10

	minBounceBytes   = 64 << 10
	defaultPortGrace = 3 * time.Second
)

// ConfigError says which setting cannot be used, and why.
type ConfigError struct {
	Field string // of Config, or the variable
	Err   error
}

func (e *ConfigError) Error() string { return fmt.Sprintf("rc: %s: %v", e.Field, e.Err) }

func (e *ConfigError) Unwrap() error { return e.Err }

// fill checks the settings and replaces zeros by defaults.
func (c *Config) fill() error {
	for _, s := range []struct {
		field    string
		value    *int
		low, top int
		zero     int
	}{
		{"ServiceLevel", &c.ServiceLevel, 0, 15, 0},
		{"TrafficClass", &c.TrafficClass, 0, 255, 0},
		{"PKeyIndex", &c.PKeyIndex, 0, 1<<16 - 1, 0},
		{"Timeout", &c.Timeout, 1, 31, DefaultTimeout},
		{"RetryCount", &c.RetryCount, 1, 7, DefaultRetryCount},
		{"RNRRetry", &c.RNRRetry, 1, 7, DefaultRNRRetry},
		{"QueuePairs", &c.QueuePairs, 1, MaxLanes, 1},
		{"SendDepth", &c.SendDepth, 8, 1 << 14, DefaultSendDepth},
		{"Credits", &c.Credits, 4, 1 << 14, DefaultCredits},
		{"InlineBytes", &c.InlineBytes, -1, 1024, DefaultInlineBytes},
		{"BounceBytes", &c.BounceBytes, minBounceBytes, 1 << 30, DefaultBounceBytes},
	} {
		if *s.value == 0 {
			*s.value = s.zero
		}
		if *s.value < s.low || *s.value > s.top {
			return &ConfigError{s.field, fmt.Errorf("%d is not %d to %d", *s.value, s.low, s.top)}
		}
	}
	c.InlineBytes = max(c.InlineBytes, 0)
	c.BounceBytes &^= 4095
	if c.GIDIndex != nil && (*c.GIDIndex < 0 || *c.GIDIndex > 255) {
		return &ConfigError{"GIDIndex", fmt.Errorf("%d is not 0 to 255", *c.GIDIndex)}
	}
	if c.MTU != 0 {
		if _, err := verbs.MTUOf(c.MTU); err != nil {
			return &ConfigError{"MTU", err}
		}
	}
	if c.Signal != Immediate && c.Signal != Direct {
		return &ConfigError{"Signal", fmt.Errorf("%d is neither Immediate nor Direct", c.Signal)}
	}
	if c.PortGrace <= 0 {
		c.PortGrace = defaultPortGrace
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}
