package engine

import (
	"errors"

	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
)

// failures is what ends this rank's waits. An error of the communicator ends
// all of them. A peer that has closed its communicator ends only the waits for
// that peer: it may have finished the last call before others have, and what
// it owed them is done.
type failures struct {
	comm link.Fault
	of   []link.Fault // by the rank that is waited for
}

// fail ends all waits, and reports whether err was the first error.
func (f *failures) fail(err error) bool {
	first := f.comm.Fail(err)
	for rank := range f.of {
		f.of[rank].Fail(err)
	}
	return first
}

// lost takes what the fabric reports of a peer.
func (f *failures) lost(rank int, err error) {
	if errors.Is(err, link.ErrClosed) {
		f.of[rank].Fail(err)
		return
	}
	f.fail(err)
}

// notify raises this rank's progress at a peer. A peer that has closed its
// communicator needs to know no more.
func (c *Comm) notify(rank int, progress uint64) error {
	err := c.links[rank].Notify(mem.Remote{Region: c.peerRegions[rank], Offset: mirrorAt(c.rank)}, progress)
	if errors.Is(err, link.ErrClosed) && c.failures.comm.Err() == nil {
		return nil
	}
	return err
}
