package link

import (
	"context"

	"github.com/tutti-go/tutti/mem"
)

// Fabric is one rank's end of one medium. Its methods may be called from
// several goroutines.
type Fabric interface {
	// Medium is the medium's name: "shm", "verbs", "tcp".
	Medium() string

	// Alloc makes a region of the given size in bytes, zeroed, that every
	// peer on this fabric can reach. It does not block on peers. The region
	// starts on a multiple of LineBytes. It may be freed only when no peer can
	// be at work in it: whoever frees it vouches for that, and peers unmap it
	// on any thread and at any time from then on, unless they Keep it.
	Alloc(bytes int) (*mem.Buffer, error)

	// Connect returns the link to peer. The first call for a peer may block
	// until the peer has opened its fabric; later calls return the same link.
	Connect(ctx context.Context, peer int) (Link, error)

	// Lost adds a function that the fabric calls, from a goroutine of its own
	// and at most once a peer, when a peer closed its fabric (an error that is
	// ErrClosed) or died (a *PeerLostError). A peer that had gone before is
	// reported to it at once, also from a goroutine. f must not block, nor
	// close the fabric. forget takes the function out again; a call that is
	// under way may still end after forget has returned. Nothing is reported
	// any more once the fabric is closed.
	Lost(f func(peer int, err error)) (forget func())

	// Close closes all links and frees all regions. Peers are told.
	Close() error
}

// Link is what this rank can do to one peer. Put and Notify are for one
// goroutine at a time; nothing here waits for the peer to make a call.
type Link interface {
	// Put writes src into the peer's memory. The peer may look at the bytes
	// only after a Notify that came behind the Put. src may be changed as
	// soon as Put has returned. Errors: ErrRange, ErrClosed, *PeerLostError.
	Put(dst mem.Remote, src []byte) error

	// Notify raises the Counter that lies at dst in one of the peer's regions
	// to v, after every earlier Put on this link is visible there, and wakes
	// whoever sleeps on it. A counter has one writer, so no other rank, nor the
	// peer itself, may raise this one; and v never falls. dst.Offset is a
	// multiple of 8. Errors: those of Put.
	Notify(dst mem.Remote, v uint64) error
}

// Mapper is a Link on which load and store reach the peer's memory. A medium
// is called mapped when its links are Mappers; a rank can then raise a counter
// in a region of its own, and by one store all peers see it.
type Mapper interface {
	// Map returns the memory of one of the peer's regions. The first call for
	// a region asks the peer's fabric and may block for it; later calls look
	// it up. The memory stays mapped at least until the peer frees the region
	// or the fabric is closed. Errors: ErrRange for a region the peer does not
	// have, ErrClosed, *PeerLostError.
	Map(ctx context.Context, region mem.RegionID) ([]byte, error)

	// Keep is Map for memory that this rank may still look at when the peer
	// has freed it: it stays mapped until release is called or the fabric is
	// closed. It is the same mapping that Map returns, and Map, Put and Notify
	// find the region as long as somebody keeps it. release may be called
	// several times; the memory must not be used through this Keep afterwards.
	// It may unmap, but does not block on the peer.
	Keep(ctx context.Context, region mem.RegionID) (memory []byte, release func() error, err error)
}

// Progresser is a Fabric on which bytes come in with the help of a processor,
// such as sockets. It brings them in by itself, from a goroutine or a thread of
// its own, so that a rank that computes is reached too. But a rank that waits
// has nothing better to do, and to wake somebody else costs more than to look:
// so waits call Progress between their looks at a counter.
type Progresser interface {
	// Progress takes in what has arrived, if anything, and returns at once: it
	// does not wait for more, nor for another goroutine that is doing the same.
	// As long as it is called, the fabric may leave the work to its callers; it
	// takes over by itself within about a millisecond of the last call. It may
	// be called from several goroutines, and does not allocate.
	Progress()
}

// Exposer is a Fabric that makes reachable what another one has allocated, so
// that a rank's memory is one region, shared inside a node and written to from
// others.
type Exposer interface {
	// Expose makes memory a region of this rank under a number that the caller
	// gives out, never twice. Calls of Alloc and of Expose are not mixed on one
	// fabric. The memory must stay until withdraw has returned, which may be
	// called only when no peer can be at work in it, and does what the Free of
	// a Buffer does. memory begins on a multiple of LineBytes and must not be
	// Go's.
	Expose(region mem.RegionID, memory []byte) (withdraw func() error, err error)
}

// Mourner is a Fabric whose Close tells peers not only that this rank goes, but
// also whom it had lost: who leaves for that reason leaves others waiting for
// ranks that are still there.
type Mourner interface {
	// Mourn says of a loss that this fabric has not seen itself. The first one
	// that it saw or was told of is what its Close passes on.
	Mourn(lost *PeerLostError)
}
