package engine

import (
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/tutti-go/tutti/mem"
)

// registry finds the region that an address belongs to. Lookups take no lock:
// the table is replaced, never changed.
type registry struct {
	mu    sync.Mutex // writers
	table atomic.Pointer[[]extent]
}

// extent is where a region lies in this process. Regions are not Go memory, so
// their addresses are plain numbers.
type extent struct {
	start, end uintptr
	region     mem.RegionID
	offset     int           // of start in the region
	adopted    *registration // nil for what Alloc made
}

func extentOf(b *mem.Buffer) extent {
	start := address(b.Bytes())
	return extent{start: start, end: start + uintptr(b.Len()), region: b.Region()}
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

func (r *registry) change(f func([]extent) []extent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var old []extent
	if p := r.table.Load(); p != nil {
		old = *p
	}
	table := f(slices.Clone(old))
	r.table.Store(&table)
}

func (r *registry) add(e extent) {
	r.change(func(t []extent) []extent {
		i, _ := slices.BinarySearchFunc(t, e, func(a, b extent) int { return cmpAddress(a.start, b.start) })
		return slices.Insert(t, i, e)
	})
}

func (r *registry) remove(region mem.RegionID) {
	r.change(func(t []extent) []extent {
		return slices.DeleteFunc(t, func(e extent) bool { return e.region == region })
	})
}

// find returns the extent that holds all of b, and b's offset in it.
func (r *registry) find(b []byte) (e extent, offset int, ok bool) {
	p := r.table.Load()
	if p == nil || len(b) == 0 {
		return extent{}, 0, false
	}
	at := address(b)
	lo, hi := 0, len(*p)
	for lo < hi { // the last extent that starts at or before b
		if mid := (lo + hi) / 2; (*p)[mid].start <= at {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return extent{}, 0, false
	}
	if e := (*p)[lo-1]; at+uintptr(len(b)) <= e.end {
		return e, int(at - e.start), true
	}
	return extent{}, 0, false
}

func cmpAddress(a, b uintptr) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
