package engine

import (
	"errors"
	"fmt"
	"sync"

	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
)

// registration is memory that Register has made reachable. users counts the
// calls that are at work in it: while there is one, the memory is known to be
// there, and must not be looked at by writing to it.
type registration struct {
	*mem.Adopted
	mu    sync.Mutex
	users int
}

// use reports whether the buffer b still is what view shows at another
// address, and counts a user. Its owner may have freed it without a word, and
// something else may be there by now; so unless somebody is at work in it, it
// changes a byte at either end through one address and looks at the other.
func (r *registration) use(b, view []byte, head, tail int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if inner := len(b) - head - tail; r.users == 0 && inner > 0 &&
		(!same(&b[head], &view[head]) || !same(&b[head+inner-1], &view[head+inner-1])) {
		return false
	}
	r.users++
	return true
}

// same reports whether two addresses show the same byte.
func same(a, b *byte) bool {
	old := *b
	*b = ^old
	changed := *a == ^old
	*b = old
	return changed && *a == old
}

func (r *registration) done() {
	r.mu.Lock()
	r.users--
	r.mu.Unlock()
}

// current is use without a buffer at hand.
func (r *registration) current() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.users > 0 || r.Current()
}

// Register makes ordinary memory reachable for all ranks where it lies, so that
// calls use it without a copy, as they use what Alloc returns: an anonymous
// mmap, or a large block of C's malloc, such as the data of a NumPy array. It
// is not a collective. It copies the memory once and takes some time for each
// page; nobody may touch the memory meanwhile, nor but for the call itself
// while a call uses it.
//
// What changes: the whole pages of the memory become shared, so a child that
// is forked sees later changes instead of having a copy. Files that are mapped,
// stacks, Go's own memory and whatever else cannot be vouched for are refused
// with a *link.AdoptError, and nothing has happened to them.
//
// Memory may be freed without Deregister; it is then found out at the next
// call, or Deregister, that the address shows something else.
func (c *Comm) Register(memory []byte) error {
	if len(memory) == 0 {
		return &ArgumentError{"register", "no memory"}
	}
	f := c.family
	if e, _, ok := f.buffers.find(memory); ok {
		if e.adopted == nil || e.adopted.current() {
			return &ArgumentError{"register", fmt.Sprintf("the %d bytes at %#x are registered already", len(memory), address(memory))}
		}
		if err := f.drop(e); err != nil {
			return err
		}
	}
	adopter, ok := f.fabric.(link.Adopter)
	if !ok {
		return &ArgumentError{"register", f.fabric.Medium() + " cannot reach memory that it has not made"}
	}
	a, err := adopter.Adopt(memory)
	if err != nil {
		return fmt.Errorf("rank %d: register: %w", c.rank, err)
	}
	start := address(memory)
	f.buffers.add(extent{start, start + uintptr(len(memory)), a.Region(), a.Offset(), &registration{Adopted: a}})
	return nil
}

// Deregister undoes Register, for the same memory. Its contents stay. After a
// failed call the memory stays shared until the communicator that Init returned
// is closed, because a slow peer may still be at work in it.
func (c *Comm) Deregister(memory []byte) error {
	e, offset, ok := c.family.buffers.find(memory)
	if !ok || e.adopted == nil || offset != 0 || e.end-e.start != uintptr(len(memory)) {
		return &ArgumentError{"deregister", fmt.Sprintf("the %d bytes at %#x are not what was registered", len(memory), address(memory))}
	}
	return c.family.drop(e)
}

// drop takes registered memory out of use.
func (f *family) drop(e extent) error {
	f.buffers.remove(e.region)
	if f.failed.Load() {
		return nil
	}
	return e.adopted.Release()
}

// located is where a buffer is: in a region, or at an address only. Who has
// located a buffer lets it go when the call is over.
type located struct {
	region mem.RegionID
	at     int // offset in the region
	// view is the buffer as peers see it, where that is not the address at
	// which the caller has it. Its first head and last tail bytes are shadows
	// of the caller's.
	view       []byte
	head, tail int
	held       *registration
}

// locate finds a buffer.
func (f *family) locate(b []byte) located {
	e, offset, ok := f.buffers.find(b)
	switch {
	case !ok:
		return located{}
	case e.adopted == nil:
		return located{region: e.region, at: offset}
	}
	all := int(e.end - e.start)
	l := located{
		region: e.region, at: e.offset + offset,
		view: e.adopted.Window()[offset:][:len(b)],
		head: min(len(b), max(0, e.adopted.Head()-offset)),
		held: e.adopted,
	}
	l.tail = min(len(b)-l.head, max(0, offset+len(b)-(all-e.adopted.Tail())))
	if !e.adopted.use(b, l.view, l.head, l.tail) {
		// Errors are of no consequence: the memory is not ours any more.
		_ = f.drop(e)
		return located{}
	}
	return l
}

// letGo ends the use of a buffer.
func (l *located) letGo() {
	if l.held != nil {
		l.held.done()
	}
	*l = located{}
}

// show copies the edges of b to their shadows, for peers to read.
func (l *located) show(b []byte) {
	copy(l.view[:l.head], b)
	copy(l.view[len(l.view)-l.tail:], b[len(b)-l.tail:])
}

// fetch copies the shadows of the edges, which peers have written, to b.
func (l *located) fetch(b []byte) {
	copy(b, l.view[:l.head])
	copy(b[len(b)-l.tail:], l.view[len(l.view)-l.tail:])
}

// releaseAdopted makes what is still registered private again, before the
// fabric goes.
func (f *family) releaseAdopted() error {
	p := f.buffers.table.Load()
	if p == nil {
		return nil
	}
	var errs []error
	for _, e := range *p {
		if e.adopted != nil {
			errs = append(errs, e.adopted.Release())
		}
	}
	return errors.Join(errs...)
}
