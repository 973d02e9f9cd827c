package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Why a rank is not let into a job. A *JoinError says which rank and whence.
var (
	// ErrVersion: the ranks run builds that do not understand each other.
	ErrVersion = errors.New("another version of the protocol: run the same build as all ranks")
	// ErrSize: the ranks were told different numbers of ranks.
	ErrSize = errors.New("another world size")
	// ErrRank: a rank that the job does not have.
	ErrRank = errors.New("no rank of this job")
	// ErrDuplicate: two processes are the same rank.
	ErrDuplicate = errors.New("two processes claim the same rank")
	// ErrSecret: the other end does not know the job's secret, or only one of
	// the two has one.
	ErrSecret = errors.New("not the job's secret: set " + EnvSecret + " or " + EnvSecretFile + " to the same for all ranks")
	// ErrOtherJob: the rendezvous is that of another job.
	ErrOtherJob = errors.New("the rendezvous of another job")
	// ErrAddress: an address that other ranks cannot reach.
	ErrAddress = errors.New("an address that not all ranks can reach")
	// ErrUser: the other end belongs to another user of this machine.
	ErrUser = errors.New("another user's process")
)

// JoinError says why a rank is not, or could not be, let into a job. Its cause
// is one of the errors above.
type JoinError struct {
	Cause   error
	Rank    int    // that was refused, or -1 where it did not get to say
	Address string // from which it came, or where it was refused
	Detail  string
}

func (e *JoinError) Error() string {
	s := fmt.Sprintf("rank %d", e.Rank)
	if e.Rank < 0 {
		s = "a process"
	}
	if e.Address != "" {
		s += " at " + e.Address
	}
	s += ": " + e.Cause.Error()
	if e.Detail != "" {
		s += " (" + e.Detail + ")"
	}
	return s
}

func (e *JoinError) Unwrap() error { return e.Cause }

// OpenError says that the rendezvous would be open to everybody who can reach
// it: it is not on loopback, and there is no secret.
type OpenError struct{ Address string }

func (e *OpenError) Error() string {
	return fmt.Sprintf("the rendezvous at %s can be reached from outside this machine and has no secret: "+
		"set %s or %s for all ranks, or %s=1 where everybody who reaches it may join", e.Address, EnvSecret, EnvSecretFile, EnvOpen)
}

// MissingError says which ranks had not come when the time was over.
type MissingError struct {
	Ranks []int // that are missing
	Size  int   // of the job
	After time.Duration
	// Notes are what rank 0 has seen of those that it did not let in.
	Notes []string
}

// Unwrap makes it a deadline that has passed.
func (e *MissingError) Unwrap() error { return context.DeadlineExceeded }

func (e *MissingError) Error() string {
	s := fmt.Sprintf("%s of %d have not come within %v", ranks(e.Ranks), e.Size, e.After.Round(time.Millisecond))
	if len(e.Notes) > 0 {
		s += "; turned away: " + strings.Join(e.Notes, "; ")
	}
	return s
}

// LostError says that the connection to a rank has ended although the rank has
// not left: it was killed, it crashed, it ended without Close, or the network
// between failed.
type LostError struct {
	Rank    int
	Address string // of its end of the connection
	Err     error  // nil where the other end hung up
}

func (e *LostError) Error() string {
	s := fmt.Sprintf("rank %d", e.Rank)
	if e.Address != "" {
		s += " at " + e.Address
	}
	s += " is gone"
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *LostError) Unwrap() error { return e.Err }

// UnreachableError says that a rank could not connect to another.
type UnreachableError struct {
	Rank, Peer int
	Address    string // of Peer
	After      time.Duration
	Err        error // of the last attempt
}

func (e *UnreachableError) Error() string {
	what := "which is its parent in the tree; is " + EnvInterface + " right?"
	if e.Peer == 0 {
		what = "which serves the rendezvous"
	}
	return fmt.Sprintf("rank %d cannot reach rank %d at %s within %v, %s: %v", e.Rank, e.Peer, e.Address, e.After.Round(time.Millisecond), what, e.Err)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// WaitError says that a rank has stopped waiting: its context has ended. The
// others are told, since it cannot take part any more.
type WaitError struct {
	Rank int
	For  string // what it waited for
	Err  error  // the cause of the context's end
}

func (e *WaitError) Error() string {
	return fmt.Sprintf("rank %d has stopped waiting for %s: %v", e.Rank, e.For, e.Err)
}

func (e *WaitError) Unwrap() error { return e.Err }

// OptionError says that a field of Options makes no sense.
type OptionError struct{ Field, Value, Want string }

func (e *OptionError) Error() string {
	return fmt.Sprintf("bootstrap: Options.%s is %q; want %s", e.Field, e.Value, e.Want)
}

// ranks names ranks in few words.
func ranks(list []int) string {
	const most = 20 // ranges
	var parts []string
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		part := strconv.Itoa(list[i])
		if j > i {
			part += "-" + strconv.Itoa(list[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	if len(parts) > most {
		parts = append(parts[:most], "…")
	}
	word := "ranks "
	if len(list) == 1 {
		word = "rank "
	}
	return word + strings.Join(parts, ",")
}
