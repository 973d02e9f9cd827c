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
}

func extentOf(b *mem.Buffer) extent {
	start := address(b.Bytes())
	return extent{start, start + uintptr(b.Len()), b.Region()}
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

// find returns the region that holds all of b and b's offset in it, or region
// zero.
func (r *registry) find(b []byte) (mem.RegionID, int) {
	p := r.table.Load()
	if p == nil {
		return 0, 0
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
		return 0, 0
	}
	if e := (*p)[lo-1]; at+uintptr(len(b)) <= e.end {
		return e.region, int(at - e.start)
	}
	return 0, 0
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
