package mesh

import (
	"errors"
	"fmt"
	"os"
)

// ErrClosed says that the mesh was used after Close. It is os.ErrClosed.
var ErrClosed = fmt.Errorf("mesh: %w", os.ErrClosed)

// ErrStranger says that the other end of a connection has not proved that it
// belongs to the job, or does not speak this protocol at all.
var ErrStranger = errors.New("not a rank of this job")

// ConfigError says which setting cannot be used, and why.
type ConfigError struct {
	Field string // of Config
	Value string
	Err   error
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("mesh: %s %q: %v", e.Field, e.Value, e.Err)
}

func (e *ConfigError) Unwrap() error { return e.Err }

// CardError says that what a rank told the others about itself cannot be used.
type CardError struct {
	Rank int // whose it is
	Err  error
}

func (e *CardError) Error() string { return fmt.Sprintf("mesh: rank %d: %v", e.Rank, e.Err) }

func (e *CardError) Unwrap() error { return e.Err }

// DialError says why there is no connection to a peer. A refused connection
// (ECONNREFUSED) means that nobody listens there any more: the peer has closed
// its mesh, or its process has ended.
type DialError struct {
	Rank    int    // who dialled
	Peer    int    // whom
	Address string // where
	Purpose string // what for
	Err     error
}

func (e *DialError) Error() string {
	return fmt.Sprintf("mesh: rank %d: dialling rank %d at %s for %s: %v", e.Rank, e.Peer, e.Address, e.Purpose, e.Err)
}

func (e *DialError) Unwrap() error { return e.Err }
