package bootstrap

import (
	"context"
	"errors"
	"fmt"
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

// What can go wrong.
var (
	// ErrNoEnvironment: this process was not started as a rank.
	ErrNoEnvironment = errors.New("not started as a rank: TUTTI_RANK is not set")
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
type JobError struct{ Reason string }

func (e *JobError) Error() string { return "the job failed: " + e.Reason }
