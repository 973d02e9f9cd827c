package engine

import (
	"errors"

	"github.com/tutti-go/tutti/link"
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

// unlessGone forgives an error of a message to a peer that has closed its
// communicator: it needs to know no more. Of a sub-group that is closed the
// peer has freed the control region, and that is all that is seen of it.
func (c *Comm) unlessGone(err error) error {
	gone := errors.Is(err, link.ErrClosed) || c.parent != nil && errors.Is(err, link.ErrRange)
	if gone && c.failures.comm.Err() == nil {
		return nil
	}
	return err
}
