package link

import (
	"errors"
	"fmt"
	"os"
)

// What a medium reports. ErrClosed is also os.ErrClosed.
var (
	ErrClosed  = fmt.Errorf("link: %w", os.ErrClosed)
	ErrRange   = errors.New("link: outside the peer's region")
	ErrAborted = errors.New("link: aborted")
)

// PeerLostError says that a peer went away without closing its fabric.
type PeerLostError struct {
	Rank int   // the rank that was lost
	Pid  int   // its process on this host, 0 when not known
	Err  error // what was seen of it
}

func (e *PeerLostError) Error() string {
	if e.Pid == 0 {
		return fmt.Sprintf("rank %d was lost: %v", e.Rank, e.Err)
	}
	return fmt.Sprintf("rank %d (pid %d) was lost: %v", e.Rank, e.Pid, e.Err)
}

func (e *PeerLostError) Unwrap() error { return e.Err }

// AttachError says why a rank cannot reach the ordinary memory of a peer.
type AttachError struct {
	Rank int    // who tried
	Peer int    // whose memory it was
	Pid  int    // the peer's process as seen from here; 0 when it cannot be seen
	Err  error  // what the kernel answered
	Why  string // the likely reason, and what would change it
}

func (e *AttachError) Error() string {
	return fmt.Sprintf("rank %d cannot reach the memory of rank %d (pid %d): %v: %s", e.Rank, e.Peer, e.Pid, e.Err, e.Why)
}

func (e *AttachError) Unwrap() error { return e.Err }

// CopyError says that a copy from or to a peer's ordinary memory went wrong.
// The usual reason is an address that the peer has not mapped (EFAULT).
type CopyError struct {
	Rank    int     // who copied
	Peer    int     // whose memory it was
	Write   bool    // to the peer, not from it
	Address uintptr // in the peer's memory, where the copy was to start
	Bytes   int     // that were to be copied
	Done    int     // that were copied before Err
	Err     error   // what the kernel answered
}

func (e *CopyError) Error() string {
	verb := "reading"
	if e.Write {
		verb = "writing"
	}
	return fmt.Sprintf("rank %d: %s %d bytes at %#x in the memory of rank %d, of which %d were copied: %v",
		e.Rank, verb, e.Bytes, e.Address, e.Peer, e.Done, e.Err)
}

func (e *CopyError) Unwrap() error { return e.Err }

// AdoptError says why memory cannot be adopted. Nothing has happened to it.
type AdoptError struct {
	Rank    int
	Address uintptr // of the memory
	Bytes   int
	Reason  string // what is in the way
	Err     error  // what the kernel answered, or nil
}

func (e *AdoptError) Error() string {
	s := fmt.Sprintf("rank %d: %d bytes at %#x cannot be shared where they are: %s", e.Rank, e.Bytes, e.Address, e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *AdoptError) Unwrap() error { return e.Err }
