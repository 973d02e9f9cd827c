package tcp

import (
	"errors"
	"fmt"
	"maps"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
)

// region is a piece of this rank's memory that peers can reach. It does not
// change; a region that is freed is replaced by one that says so, which stays
// until all peers who knew it have said that nothing more comes for it.
type region struct {
	memory []byte
	mapped []byte // what is to be unmapped: of Alloc, not of Expose
	freed  bool
}

// Alloc implements link.Fabric. The pages are there when it returns.
func (f *Fabric) Alloc(bytes int) (*mem.Buffer, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("tcp: alloc of %d bytes: %w", bytes, link.ErrRange)
	}
	if f.isClosed() {
		return nil, &ClosedError{f.rank, "alloc"}
	}
	mapped, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("tcp: alloc of %d bytes: %w", bytes, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		err = &ClosedError{f.rank, "alloc"}
	case f.exposes:
		err = fmt.Errorf("tcp: rank %d: a fabric that exposes memory allocates none", f.rank)
	}
	if err != nil {
		return nil, errors.Join(err, unix.Munmap(mapped))
	}
	f.next++
	id := f.next
	f.setRegion(id, &region{memory: mapped[:bytes:bytes], mapped: mapped})
	return mem.NewBuffer(id, mapped[:bytes:bytes], func() error { return f.withdraw(id) }), nil
}

// Expose implements link.Exposer. Errors: link.ErrRange for memory that cannot
// be a region, and a number that was given before; ErrClosed.
func (f *Fabric) Expose(id mem.RegionID, memory []byte) (withdraw func() error, err error) {
	if len(memory) == 0 || uintptr(unsafe.Pointer(unsafe.SliceData(memory)))%link.LineBytes != 0 {
		return nil, fmt.Errorf("tcp: %d bytes that do not begin on a multiple of %d are no region: %w", len(memory), link.LineBytes, link.ErrRange)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return nil, &ClosedError{f.rank, "expose"}
	case f.next != 0:
		return nil, fmt.Errorf("tcp: rank %d: a fabric that allocates memory exposes none", f.rank)
	case id == 0 || (*f.regions.Load())[id] != nil:
		return nil, fmt.Errorf("tcp: rank %d: region %d was given before, or is none: %w", f.rank, id, link.ErrRange)
	}
	f.exposes = true
	f.setRegion(id, &region{memory: memory})
	return func() error { return f.withdraw(id) }, nil
}

// setRegion changes the table of regions; nil takes one out. mu is held.
func (f *Fabric) setRegion(id mem.RegionID, r *region) {
	table := maps.Clone(*f.regions.Load())
	if table == nil {
		table = map[mem.RegionID]*region{}
	}
	if r != nil {
		table[id] = r
	} else {
		delete(table, id)
	}
	f.regions.Store(&table)
}

// withdraw takes a region out of service and tells peers that know it. Whoever
// frees it vouches that none of them is at work in it; one that is all the same
// does no harm.
func (f *Fabric) withdraw(id mem.RegionID) error {
	f.mu.Lock()
	r := (*f.regions.Load())[id]
	if r == nil || r.freed {
		f.mu.Unlock()
		return nil // before, or by Close
	}
	told := f.told[id]
	if len(told) == 0 {
		delete(f.told, id)
		f.setRegion(id, nil)
	} else {
		f.setRegion(id, &region{freed: true})
	}
	f.mu.Unlock()
	for _, c := range *f.conns.Load() {
		c.avoid(id)
	}
	f.mu.Lock()
	var tell []*tcpLink
	for l := range f.told[id] {
		tell = append(tell, l)
	}
	f.mu.Unlock()
	for _, l := range tell {
		if err := l.answer(frame{kind: kindFreed, region: id}); err != nil {
			f.log.Warn("a peer that does not read was not told of a freed region", "rank", f.rank, "peer", l.rank, "region", id)
		}
	}
	if r.mapped == nil {
		return nil
	}
	return unix.Munmap(r.mapped)
}

// tell records that a peer wants to know a region, and returns its size; 0 if
// there is none.
func (f *Fabric) tell(l *tcpLink, id mem.RegionID) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := (*f.regions.Load())[id]
	if r == nil || r.freed {
		return 0
	}
	if f.told[id] == nil {
		f.told[id] = map[*tcpLink]struct{}{}
	}
	f.told[id][l] = struct{}{}
	return len(r.memory)
}

// forgotten records that nothing more comes from a peer for a region.
func (f *Fabric) forgotten(l *tcpLink, id mem.RegionID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget(l, id)
}

// forgetAll is forgotten for all regions of a peer that is gone.
func (f *Fabric) forgetAll(l *tcpLink) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id := range f.told {
		f.forget(l, id)
	}
}

func (f *Fabric) forget(l *tcpLink, id mem.RegionID) {
	delete(f.told[id], l)
	if len(f.told[id]) != 0 {
		return
	}
	delete(f.told, id)
	if r := (*f.regions.Load())[id]; r != nil && r.freed {
		f.setRegion(id, nil)
	}
}

// unmapAll frees what Alloc made, when no connection is read any more.
func (f *Fabric) unmapAll() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var err error
	for _, r := range *f.regions.Load() {
		if r.mapped != nil {
			err = errors.Join(err, unix.Munmap(r.mapped))
		}
	}
	f.regions.Store(new(map[mem.RegionID]*region))
	return err
}
