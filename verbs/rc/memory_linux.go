package rc

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/verbs"
)

// region is a piece of this rank's memory that peers can reach. Only freed
// changes; who raises a counter in it looks at that under its link's rx.
type region struct {
	memory []byte
	mapped []byte // what is to be unmapped: of Alloc, not of Expose
	known  *known
	freed  atomic.Bool
}

// known is memory that the devices know, by address.
type known struct {
	from, to uintptr
	mrs      []*verbs.MR // by rail
	users    int         // how often it was registered; under the fabric's mu
}

// memoryTable is all of it, by where it begins. furthest[i] is the furthest end
// of the first i+1, so that a search knows when there is nothing more to find.
type memoryTable struct {
	all      []*known
	furthest []uintptr
}

// find returns what covers n bytes from an address on, or nil. It does not
// allocate.
func (t *memoryTable) find(from uintptr, n int) *known {
	to := from + uintptr(n)
	low, high := 0, len(t.all)
	for low < high {
		if m := (low + high) / 2; t.all[m].from <= from {
			low = m + 1
		} else {
			high = m
		}
	}
	for i := low - 1; i >= 0 && t.furthest[i] >= to; i-- {
		if t.all[i].to >= to {
			return t.all[i]
		}
	}
	return nil
}

// with returns a table that has k too, or, if without, has it no more.
func (t *memoryTable) with(k *known, without bool) *memoryTable {
	n := &memoryTable{}
	for _, o := range t.all {
		if o != k {
			n.all = append(n.all, o)
		}
	}
	if !without {
		at, _ := slices.BinarySearchFunc(n.all, k, func(a, b *known) int { return cmp.Compare(a.from, b.from) })
		n.all = slices.Insert(n.all, at, k)
	}
	end := uintptr(0)
	for _, o := range n.all {
		end = max(end, o.to)
		n.furthest = append(n.furthest, end)
	}
	return n
}

func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// introduce registers memory with all devices.
func (f *Fabric) introduce(memory []byte, access verbs.Access) (*known, error) {
	at := addressOf(memory)
	k := &known{from: at, to: at + uintptr(len(memory)), users: 1}
	for _, r := range f.rails {
		mr, err := r.pd.RegisterMemory(memory, access)
		if err != nil {
			return nil, errors.Join(err, k.close())
		}
		k.mrs = append(k.mrs, mr)
	}
	return k, nil
}

func (k *known) close() error {
	var errs []error
	for _, mr := range k.mrs {
		errs = append(errs, mr.Close())
	}
	return errors.Join(errs...)
}

// reachable is what peers may do to regions: memory that counters lie in is
// written in order.
const reachable = verbs.AccessLocalWrite | verbs.AccessRemoteWrite

// Alloc implements link.Fabric. The pages are there and pinned when it returns.
// Errors: link.ErrRange, ErrClosed, *verbs.RegisterError.
func (f *Fabric) Alloc(bytes int) (*mem.Buffer, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("rc: alloc of %d bytes: %w", bytes, link.ErrRange)
	}
	if f.isClosed() {
		return nil, &ClosedError{f.rank, "alloc"}
	}
	mapped, err := mapMemory(bytes)
	if err != nil {
		return nil, fmt.Errorf("rc: alloc of %d bytes: %w", bytes, err)
	}
	k, err := f.introduce(mapped, reachable)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("rc: alloc of %d bytes: %w", bytes, err), unix.Munmap(mapped))
	}
	f.mu.Lock()
	switch {
	case f.closed:
		err = &ClosedError{f.rank, "alloc"}
	case f.exposes:
		err = fmt.Errorf("rc: rank %d: a fabric that exposes memory allocates none", f.rank)
	}
	if err != nil {
		f.mu.Unlock()
		return nil, errors.Join(err, k.close(), unix.Munmap(mapped))
	}
	f.next++
	id := f.next
	f.setRegion(id, &region{memory: mapped[:bytes:bytes], mapped: mapped, known: k})
	f.mu.Unlock()
	return mem.NewBuffer(id, mapped[:bytes:bytes], func() error { return f.withdraw(id) }), nil
}

// mapMemory returns whole pages, zeroed and present. They are shared, so that a
// fork, which copies private pages, takes none of them from the devices.
func mapMemory(bytes int) ([]byte, error) {
	return unix.Mmap(-1, 0, (bytes+4095)&^4095, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
}

// Expose implements link.Exposer. Errors: link.ErrRange for memory that cannot
// be a region, and a number that was given before; ErrClosed;
// *verbs.RegisterError.
func (f *Fabric) Expose(id mem.RegionID, memory []byte) (withdraw func() error, err error) {
	if len(memory) == 0 || addressOf(memory)%link.LineBytes != 0 {
		return nil, fmt.Errorf("rc: %d bytes that do not begin on a multiple of %d are no region: %w", len(memory), link.LineBytes, link.ErrRange)
	}
	f.mu.Lock()
	switch {
	case f.closed:
		err = &ClosedError{f.rank, "expose"}
	case f.next != 0:
		err = fmt.Errorf("rc: rank %d: a fabric that allocates memory exposes none", f.rank)
	case id == 0 || (*f.regions.Load())[id] != nil:
		err = fmt.Errorf("rc: rank %d: region %d was given before, or is none: %w", f.rank, id, link.ErrRange)
	default:
		f.exposes = true
	}
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	k, err := f.introduce(memory, reachable)
	if err != nil {
		return nil, fmt.Errorf("rc: exposing %d bytes: %w", len(memory), err)
	}
	f.mu.Lock()
	if f.closed {
		err = &ClosedError{f.rank, "expose"}
	} else if (*f.regions.Load())[id] != nil {
		err = fmt.Errorf("rc: rank %d: region %d was given before: %w", f.rank, id, link.ErrRange)
	}
	if err != nil {
		f.mu.Unlock()
		return nil, errors.Join(err, k.close())
	}
	f.setRegion(id, &region{memory: memory, known: k})
	f.mu.Unlock()
	return func() error { return f.withdraw(id) }, nil
}

// Register makes memory known to the devices, so that large puts from it are not
// copied. It is pinned until release is called, which must be before it is
// unmapped and when no Put from it is under way, and not reachable for peers. The
// same memory may be registered several times; it is released with the last. It
// must not be Go's. Errors: *verbs.RegisterError, ErrClosed.
func (f *Fabric) Register(memory []byte) (release func() error, err error) {
	if len(memory) == 0 {
		return nil, fmt.Errorf("rc: registering nothing: %w", link.ErrRange)
	}
	from := addressOf(memory)
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil, &ClosedError{f.rank, "register"}
	}
	k := f.registered(from, len(memory))
	if k != nil {
		k.users++
	}
	f.mu.Unlock()
	if k == nil {
		fresh, err := f.introduce(memory, 0)
		if err != nil {
			return nil, fmt.Errorf("rc: registering %d bytes: %w", len(memory), err)
		}
		f.mu.Lock()
		if f.closed {
			f.mu.Unlock()
			return nil, errors.Join(&ClosedError{f.rank, "register"}, fresh.close())
		}
		k = fresh
		f.known.Store(f.known.Load().with(k, false))
		f.mu.Unlock()
	}
	var released atomic.Bool
	return func() error {
		if released.Swap(true) {
			return nil
		}
		return f.forgetMemory(k)
	}, nil
}

// registered returns what Register has made of exactly this memory. mu is held.
func (f *Fabric) registered(from uintptr, n int) *known {
	for _, k := range f.known.Load().all {
		if k.from == from && k.to == from+uintptr(n) && k.users > 0 && !f.isRegion(k) {
			return k
		}
	}
	return nil
}

func (f *Fabric) isRegion(k *known) bool {
	for _, r := range *f.regions.Load() {
		if r.known == k {
			return true
		}
	}
	return false
}

// forgetMemory takes one use of memory away, and with the last the memory.
func (f *Fabric) forgetMemory(k *known) error {
	f.mu.Lock()
	k.users--
	last := k.users == 0
	if last {
		f.known.Store(f.known.Load().with(k, true))
	}
	f.mu.Unlock()
	if !last {
		return nil
	}
	return k.close()
}

// setRegion adds a region. mu is held.
func (f *Fabric) setRegion(id mem.RegionID, r *region) {
	table := maps.Clone(*f.regions.Load())
	if table == nil {
		table = map[mem.RegionID]*region{}
	}
	table[id] = r
	f.regions.Store(&table)
	f.known.Store(f.known.Load().with(r.known, false))
}

// withdraw takes a region out of service and tells peers that know it. Whoever
// frees it vouches that none of them is at work in it: a peer that is all the
// same loses its queue pair.
func (f *Fabric) withdraw(id mem.RegionID) error {
	f.mu.Lock()
	r := (*f.regions.Load())[id]
	if r == nil || r.freed.Swap(true) {
		f.mu.Unlock()
		return nil // before, or by Close
	}
	table := maps.Clone(*f.regions.Load())
	if f.exposes {
		table[id] = &region{known: &known{}} // its number is not given again
		table[id].freed.Store(true)
	} else {
		delete(table, id)
	}
	f.regions.Store(&table)
	f.known.Store(f.known.Load().with(r.known, true))
	told := f.told[id]
	delete(f.told, id)
	f.mu.Unlock()
	for _, l := range f.links() {
		l.rx.Lock()   // who raises a counter in it has seen it before, and is done
		l.rx.Unlock() //nolint:staticcheck // nothing is to be done meanwhile
	}
	for l := range told {
		l.say(kindFreed, numberBytes(uint32(id)))
	}
	return r.release()
}

// release gives the memory back to the devices' and to the system.
func (r *region) release() error {
	err := r.known.close()
	if err == nil && r.mapped != nil {
		err = unix.Munmap(r.mapped)
	}
	return err
}

// tell records that a peer wants to know a region, and returns where it is.
func (f *Fabric) tell(l *rcLink, id mem.RegionID) place {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := place{region: id}
	r := (*f.regions.Load())[id]
	if r == nil || r.freed.Load() {
		return p
	}
	if f.told[id] == nil {
		f.told[id] = map[*rcLink]struct{}{}
	}
	f.told[id][l] = struct{}{}
	p.size, p.addr, p.rails = uint64(len(r.memory)), r.known.mrs[0].Addr(), len(f.rails)
	for i, mr := range r.known.mrs {
		p.keys[i] = mr.RKey()
	}
	return p
}

// forgetPeer is for a peer that is gone: it need not be told of anything.
func (f *Fabric) forgetPeer(l *rcLink) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id := range f.told {
		delete(f.told[id], l)
		if len(f.told[id]) == 0 {
			delete(f.told, id)
		}
	}
}

// freeAll frees what is left when all queue pairs are gone.
func (f *Fabric) freeAll() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for _, r := range *f.regions.Load() {
		if !r.freed.Swap(true) {
			f.known.Store(f.known.Load().with(r.known, true))
			errs = append(errs, r.release())
		}
	}
	for _, k := range f.known.Load().all {
		errs = append(errs, k.close())
	}
	f.regions.Store(new(map[mem.RegionID]*region))
	f.known.Store(new(memoryTable))
	return errors.Join(errs...)
}

func unmapMemory(b []byte) error { return unix.Munmap(b) }
