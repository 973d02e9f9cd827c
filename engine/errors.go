package engine

import (
	"errors"
	"fmt"

	"github.com/tutti-go/tutti/mem"
)

// ErrBusy says that another goroutine is inside a collective of the same Comm.
// It is noticed in most cases, not in all.
var ErrBusy = errors.New("a collective of this communicator is already running")

// ArgumentError says that a call was wrong in itself. Nothing was sent; the
// communicator is as it was.
type ArgumentError struct {
	Call   string // "allreduce"
	Reason string
}

func (e *ArgumentError) Error() string { return e.Call + ": " + e.Reason }

// CallError says that a collective failed after it began. The communicator is
// of no more use: every later call returns the first CallError.
type CallError struct {
	Call string // "allreduce"
	Rank int    // the rank that reports
	Seq  uint64 // which call of the communicator it was, from 1
	Err  error  // why: a *link.PeerLostError, the context's error, a *MismatchError, ...
}

func (e *CallError) Error() string {
	return fmt.Sprintf("rank %d: %s (call %d): %v", e.Rank, e.Call, e.Seq, e.Err)
}

func (e *CallError) Unwrap() error { return e.Err }

// MismatchError says that two ranks met in different calls.
type MismatchError struct {
	Rank         int // whose call is Theirs
	Mine, Theirs Signature
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("this rank calls %v, rank %d calls %v", e.Mine, e.Rank, e.Theirs)
}

// Signature is what all ranks of a call must agree in.
type Signature struct {
	Call  string
	Bytes int
	Type  mem.DType
	Op    mem.Op
}

func (s Signature) String() string {
	return fmt.Sprintf("%s of %d bytes (%v, %v)", s.Call, s.Bytes, s.Type, s.Op)
}
