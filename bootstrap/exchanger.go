package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
)

// Exchanger connects one rank with the others.
type Exchanger interface {
	Rank() int
	Size() int

	// AllGather gives every rank's blob to every rank, indexed by rank. All
	// ranks call it in the same order; it blocks until all have, ctx ends, or
	// the job fails. The blobs returned are the caller's. One call at a time.
	// A call that ends with ctx leaves the Exchanger of no more use: nobody
	// can tell which round the others are in.
	AllGather(ctx context.Context, blob []byte) ([][]byte, error)

	// Done is closed when the job has failed or whoever coordinates it is
	// gone; Err then says why, and is nil before.
	Done() <-chan struct{}
	Err() error

	// Close leaves. It does not wait for the others.
	Close() error
}

// Addresser is what every Exchanger of this package is besides: it knows the
// address on which this rank should listen for the others, on the interface
// that was chosen for the job. It is a loopback address where all ranks are on
// one machine.
type Addresser interface{ Address() netip.Addr }

// loopback is the address of ranks that share a machine.
var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// What can go wrong.
var (
	// ErrNoEnvironment: this process was not started as a rank.
	ErrNoEnvironment = errors.New("not started as a rank: neither TUTTI_RANK nor the variables of a launcher are set")
	// ErrClosed: the Exchanger was closed.
	ErrClosed = errors.New("bootstrap: closed")
	// ErrCoordinatorGone: the process that started the ranks has ended.
	ErrCoordinatorGone = errors.New("the process that started this rank is gone")
	// ErrLeft: a rank hung up, or ended with status 0, before the others were
	// done with it.
	ErrLeft = errors.New("left while other ranks still wait for it")
	// ErrTooLarge: a blob is larger than MaxBlob.
	ErrTooLarge = fmt.Errorf("blob of more than %d bytes", MaxBlob)
)

// MaxBlob is the largest blob of one rank, in bytes.
const MaxBlob = 1 << 20

// EnvError says that a variable that describes the job makes no sense.
type EnvError struct {
	Name, Value, Want string
}

func (e *EnvError) Error() string {
	return fmt.Sprintf("environment variable %s is %q; want %s", e.Name, e.Value, e.Want)
}

// JobError is what the other ranks are told when a job fails.
type JobError struct {
	Reason string
	Rank   int // at fault, or -1 where that is nobody, or more than one, or not told
	// Err can be told apart where the ranks are not children of one process:
	// a *LostError, *MissingError or *JoinError, or one that is ErrLeft; else nil.
	Err error

	encoded []byte // as it came, to be passed on
}

func (e *JobError) Error() string { return "the job failed: " + e.Reason }
func (e *JobError) Unwrap() error { return e.Err }
