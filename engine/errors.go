package engine

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/plan"
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

// CountError says that two ranks of a v form disagree about the size of a
// block that goes from one to the other. Every rank of the call gets it; but in
// GatherV and ScatterV, where memory is mapped, the receiver of that block, and
// its sender if the block is too long to be sent ahead.
type CountError struct {
	Call           string // "alltoallv"
	From, To       int    // the ranks; equal ranks, or To -1, where all must know the size
	Sent, Expected int    // bytes, as From and To have them
}

func (e *CountError) Error() string {
	return fmt.Sprintf("%s: rank %d brings a block of %d bytes for rank %d, which expects %d", e.Call, e.From, e.Sent, e.To, e.Expected)
}

// Signature is what all ranks of a call must agree in.
type Signature struct {
	Call  string
	Bytes int // of a block; -1 in v forms, whose blocks differ
	Type  mem.DType
	Op    mem.Op
	Root  int // -1 where there is none
	Wire  Wire
}

func (s Signature) String() string {
	var b strings.Builder
	b.WriteString(s.Call)
	if s.Call == plan.Barrier.String() {
		return b.String()
	}
	if s.Bytes >= 0 {
		fmt.Fprintf(&b, " of %d bytes", s.Bytes)
	}
	fmt.Fprintf(&b, " (%v", s.Type)
	if c, err := plan.ParseCollective(strings.TrimSuffix(s.Call, "v")); err == nil && c.Reduces() {
		fmt.Fprintf(&b, ", %v", s.Op)
	}
	if s.Root >= 0 {
		fmt.Fprintf(&b, ", root %d", s.Root)
	}
	if s.Wire != WireFull {
		fmt.Fprintf(&b, ", over %v", s.Wire)
	}
	b.WriteString(")")
	return b.String()
}
