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
	// peer on this fabric can reach. It does not block on peers.
	Alloc(bytes int) (*mem.Buffer, error)

	// Connect returns the link to peer. The first call for a peer may block
	// until the peer has opened its fabric; later calls return the same link.
	Connect(ctx context.Context, peer int) (Link, error)

	// Lost sets the function that the fabric calls, from a goroutine of its
	// own and at most once a peer, when a peer closed its fabric (an error
	// that is ErrClosed) or died (a *PeerLostError).
	Lost(f func(peer int, err error))

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

	// Notify raises the counter that the peer sees of this rank to v, after
	// every earlier Put on this link is visible there. v never falls.
	Notify(v uint64) error

	// Seen is the counter that the peer raises here by its Notify.
	Seen() *Counter
}

// Mapper is a Link on which load and store reach the peer's memory.
type Mapper interface {
	// Map returns the memory of one of the peer's regions. The first call for
	// a region asks the peer's fabric and may block for it; later calls look
	// it up. The memory stays mapped at least until the peer frees the region
	// or the fabric is closed. Errors: ErrRange for a region the peer does not have.
	Map(ctx context.Context, region mem.RegionID) ([]byte, error)
}

// Board is a Fabric whose ranks each have a single counter that all peers
// see, so that one store tells everybody.
type Board interface {
	// Own is that counter. Raising it is a Notify on every link.
	Own() *Counter
}
