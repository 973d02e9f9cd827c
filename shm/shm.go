package shm

import (
	"context"
	"errors"
	"fmt"

	"github.com/tutti-go/tutti/link"
)

// ErrUnavailable says that this machine cannot share memory between ranks;
// the error that wraps it says why.
var ErrUnavailable = errors.New("shared memory is unavailable")

// ClosedError says that a fabric was used after Close. It is link.ErrClosed.
type ClosedError struct {
	Rank int    // whose fabric it was
	Op   string // what was asked of it: "alloc", "connect", ...
}

func (e *ClosedError) Error() string {
	return fmt.Sprintf("rank %d: %s after Close: it takes a new communicator", e.Rank, e.Op)
}

func (e *ClosedError) Unwrap() error { return link.ErrClosed }

// Exchanger is what Open needs of a bootstrap.
type Exchanger interface {
	Rank() int
	Size() int
	// AllGather gives every rank's blob to every rank, indexed by rank.
	AllGather(ctx context.Context, blob []byte) ([][]byte, error)
}
