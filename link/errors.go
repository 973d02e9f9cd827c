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
