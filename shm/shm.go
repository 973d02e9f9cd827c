package shm

import (
	"context"
	"errors"
)

// ErrUnavailable says that this machine cannot share memory between ranks;
// the error that wraps it says why.
var ErrUnavailable = errors.New("shared memory is unavailable")

// Exchanger is what Open needs of a bootstrap.
type Exchanger interface {
	Rank() int
	Size() int
	// AllGather gives every rank's blob to every rank, indexed by rank.
	AllGather(ctx context.Context, blob []byte) ([][]byte, error)
}
