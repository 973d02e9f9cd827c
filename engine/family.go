package engine

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
)

// family is what a communicator and its sub-groups share: the medium, and the
// memory that ranks reach of each other. Everything by which calls are ordered
// (counters, notices, scratch) each communicator has of its own, so that
// groups of one family work at the same time without meeting.
type family struct {
	fabric  link.Fabric
	buffers registry // what Alloc and Register gave out

	// attach: all ranks can copy each other's ordinary memory by address.
	// attachErr says why not.
	attach    bool
	attachErr error

	// failed: a call of some communicator of the family has failed, so a slow
	// peer may be at work in any buffer. Nothing is freed from then on; it all
	// goes with the fabric.
	failed atomic.Bool

	mu       sync.Mutex
	children map[*Comm]struct{} // sub-groups that are open
}

func (f *family) adopt(child *Comm) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.children == nil {
		f.children = map[*Comm]struct{}{}
	}
	f.children[child] = struct{}{}
}

func (f *family) forget(child *Comm) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.children, child)
}

// closeChildren closes the sub-groups that are still open.
func (f *family) closeChildren() error {
	f.mu.Lock()
	var open []*Comm
	for child := range f.children {
		open = append(open, child)
	}
	f.mu.Unlock()
	var errs []error
	for _, child := range open {
		errs = append(errs, child.Close())
	}
	return errors.Join(errs...)
}

// free gives memory back, unless a peer may still be at work in it.
func (f *family) free(b *mem.Buffer) error {
	if f.failed.Load() {
		return nil
	}
	return b.Free()
}

// Alloc makes a zeroed buffer that every rank reaches without a copy, in calls
// of this communicator, of its sub-groups and of the one it was split from. It
// is not a collective. The pages are there when it returns.
//
// Free the buffer when no call that uses it is running. After a call has
// failed its memory stays until the communicator that Init returned is closed.
func (c *Comm) Alloc(bytes int) (*mem.Buffer, error) {
	if bytes <= 0 {
		return nil, &ArgumentError{"alloc", fmt.Sprintf("%d bytes asked for; want at least 1", bytes)}
	}
	f := c.family
	b, err := f.fabric.Alloc(bytes)
	if err != nil {
		return nil, fmt.Errorf("rank %d: alloc: %w", c.rank, err)
	}
	f.buffers.add(extentOf(b))
	return mem.NewBuffer(b.Region(), b.Bytes(), func() error {
		f.buffers.remove(b.Region())
		return f.free(b)
	}), nil
}
