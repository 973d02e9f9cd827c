package shm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
)

var pageBytes = os.Getpagesize()

// region maps anonymous memory for a test that leaves it mapped.
func region(t *testing.T, pages int) []byte {
	t.Helper()
	b, err := anonymous(pages * pageBytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // all that is left of it; the rest may belong to another thread by now
		for i := 0; i < len(b); i += pageBytes {
			page := unsafe.Pointer(&b[i])
			if _, gone := unmapped.LoadAndDelete(uintptr(page)); !gone {
				_ = unix.MunmapPtr(page, uintptr(pageBytes))
			}
		}
	})
	return b
}

// unmapped holds the pages that tests have unmapped under a region.
var unmapped sync.Map

func single(t *testing.T) *Fabric {
	t.Helper()
	f, err := Open(t.Context(), bootstrap.Single(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func adopt(t *testing.T, f *Fabric, memory []byte) *mem.Adopted {
	t.Helper()
	a, err := f.Adopt(memory)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// kindsAt says how the range shows in /proc/self/maps: perms and names.
func kindsAt(t *testing.T, memory []byte) string {
	t.Helper()
	return mappingsAt(t, memory, func(v vma) string { return strings.TrimSpace(v.perms + " " + v.name) })
}

// permsAt is kindsAt without names.
func permsAt(t *testing.T, memory []byte) string {
	t.Helper()
	return mappingsAt(t, memory, func(v vma) string { return v.perms })
}

func mappingsAt(t *testing.T, memory []byte, describe func(vma) string) string {
	t.Helper()
	all, err := ownMappings()
	if err != nil {
		t.Fatal(err)
	}
	start, end := addressOf(memory), addressOf(memory)+uintptr(len(memory))
	var kinds []string
	for _, v := range all {
		if v.end <= start || v.start >= end {
			continue
		}
		kinds = append(kinds, describe(v))
	}
	return strings.Join(slices.Compact(kinds), ", ")
}

const ordinary = "rw-p"

// TestAdopt: at every offset in a page and of every length, what was there
// stays, its whole pages are shared, its edges are not, and after Release it is
// as ordinary as before.
func TestAdopt(t *testing.T) {
	checkLeaks(t)
	fabrics := openAll(t, 2)
	defer fabrics[0].Close()
	defer fabrics[1].Close()
	owner := fabrics[0].(*Fabric)
	l, err := fabrics[1].Connect(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	whole := region(t, 64)
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 40 {
		offset := rng.IntN(3 * pageBytes)
		length := (adoptPages+2)*pageBytes + rng.IntN(40*pageBytes)
		switch round { // the corners
		case 0:
			offset, length = 0, adoptPages*pageBytes
		case 1:
			offset, length = 0, len(whole)
		case 2:
			offset, length = pageBytes-1, adoptPages*pageBytes+2
		}
		pattern(whole, round)
		was := bytes.Clone(whole)
		memory := whole[offset:][:length]
		a := adopt(t, owner, memory)
		if !bytes.Equal(whole, was) {
			t.Fatalf("%d bytes at %d: adoption changed them", length, offset)
		}
		head, tail := -offset&(pageBytes-1), (offset+length)&(pageBytes-1)
		if a.Head() != head || a.Tail() != tail || a.Offset() != offset&(pageBytes-1) || len(a.Window()) != length || !a.Current() {
			t.Fatalf("%d bytes at %d: %d head, %d tail, offset %d, window %d, current %t",
				length, offset, a.Head(), a.Tail(), a.Offset(), len(a.Window()), a.Current())
		}
		view, err := l.(link.Mapper).Map(t.Context(), a.Region())
		if err != nil {
			t.Fatal(err)
		}
		view = view[a.Offset():][:length]
		inner := memory[head : length-tail]
		if !bytes.Equal(view[head:length-tail], inner) || !bytes.Equal(a.Window()[head:length-tail], inner) {
			t.Fatalf("%d bytes at %d: the peer sees others", length, offset)
		}
		pattern(inner, round+1) // ours, the peer sees it
		if !bytes.Equal(view[head:length-tail], inner) {
			t.Fatal("a write does not reach the peer")
		}
		pattern(view, round+2) // the peer's, edges and all
		for i := range view {
			if edge := i < head || i >= length-tail; (memory[i] == view[i]) == edge && memory[i] != was[offset+i] {
				t.Fatalf("%d bytes at %d: byte %d", length, offset, i)
			}
		}
		if !bytes.Equal(whole[:offset+head], was[:offset+head]) || !bytes.Equal(whole[offset+length-tail:], was[offset+length-tail:]) {
			t.Fatalf("%d bytes at %d: a peer has written beyond the whole pages", length, offset)
		}
		is := bytes.Clone(whole)
		if err := errors.Join(a.Release(), a.Release()); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(whole, is) {
			t.Fatalf("%d bytes at %d: Release changed them", length, offset)
		}
		if a.Current() {
			t.Error("current after Release")
		}
		if got := kindsAt(t, whole); got != ordinary {
			t.Fatalf("after Release it is %s", got)
		}
		view[head]++
		if !bytes.Equal(whole, is) {
			t.Fatal("a peer reaches what was released")
		}
		awaitNotice(t, &fabrics[1].(*Fabric).peers[0], a.Region())
	}
}

const borrowedPages = 300

// borrow is the role of a rank that works in rank 0's adopted memory.
func borrow(ctx context.Context, ex *pipes) error {
	f, err := Open(ctx, ex, nil)
	if err != nil {
		return err
	}
	defer f.Close()
	l, err := f.Connect(ctx, 0)
	if err != nil {
		return err
	}
	got, err := ex.numbers()
	if err != nil {
		return err
	}
	view, err := l.(link.Mapper).Map(ctx, mem.RegionID(got[0]))
	if err != nil {
		return err
	}
	view = view[got[1]:][:borrowedPages*pageBytes]
	if want := patterned(len(view), 1); !bytes.Equal(view[pageBytes:len(view)-pageBytes], want[pageBytes:len(view)-pageBytes]) {
		return errors.New("not what rank 0 has there")
	}
	pattern(view, 2)
	if _, err := ex.numbers(); err != nil {
		return err
	}
	if _, err := ex.numbers(); err != nil { // rank 0 has released it
		return err
	}
	pattern(view, 3) // allowed to the memory's user only by this test
	_, err = ex.numbers()
	return err
}

func init() { roles["borrow"] = borrow }

func TestAdoptAcrossProcesses(t *testing.T) {
	checkLeaks(t)
	o := spawn(t, "borrow")
	f, _ := connected(t, o)
	memory := region(t, borrowedPages+1)[5:][:borrowedPages*pageBytes]
	pattern(memory, 1)
	a := adopt(t, f, memory)
	o.swapped(uint64(a.Region()), uint64(a.Offset()))
	o.swapped()
	inner := memory[a.Head() : len(memory)-a.Tail()]
	want := patterned(len(memory), 2)[a.Head():][:len(inner)]
	if !bytes.Equal(inner, want) {
		t.Error("what the peer has written is not there")
	}
	if err := a.Release(); err != nil {
		t.Error(err)
	}
	o.swapped()
	o.swapped()
	if !bytes.Equal(inner, want) {
		t.Error("Release has changed it, or a late peer could")
	}
	o.end()
}

// TestAdoptRefuses: with a reason, and leaving everything as it was.
func TestAdoptRefuses(t *testing.T) {
	checkLeaks(t)
	f := single(t)
	const pages = adoptPages + 2
	map1 := func(prot, flags int) []byte {
		b, err := unix.Mmap(-1, 0, pages*pageBytes, prot, flags|unix.MAP_ANON)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Munmap(b) })
		return b
	}
	const rw = unix.PROT_READ | unix.PROT_WRITE
	advised := func(advice int) []byte {
		b := region(t, pages)
		if err := unix.Madvise(b[pageBytes:2*pageBytes], advice); err != nil {
			t.Fatal(err)
		}
		return b
	}
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(int64(pages * pageBytes)); err != nil {
		t.Fatal(err)
	}
	mapped, err := unix.Mmap(int(file.Fd()), 0, pages*pageBytes, rw, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mapped)
	hole := region(t, pages)
	if err := unix.MunmapPtr(unsafe.Pointer(&hole[3*pageBytes]), uintptr(pageBytes)); err != nil {
		t.Fatal(err)
	}
	unmapped.Store(uintptr(unsafe.Pointer(&hole[3*pageBytes])), true)
	half := region(t, pages)
	if err := unix.Mprotect(half[(pages-1)*pageBytes:], unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	buffer, err := f.Alloc(pages * pageBytes)
	if err != nil {
		t.Fatal(err)
	}
	twice := region(t, 2*pages)
	first := adopt(t, f, twice[:pages*pageBytes])
	all, err := ownMappings()
	if err != nil {
		t.Fatal(err)
	}
	special := func(name string) []byte {
		for _, v := range all {
			if v.name == name && v.end-v.start >= (adoptPages+1)*uintptr(pageBytes) {
				return bytesAt(v.start, int(v.end-v.start))
			}
		}
		return nil
	}
	var onStack [pages << 12]byte
	for name, tt := range map[string]struct {
		memory []byte
		reason string
	}{
		"nothing":         {nil, "fewer than 16 whole pages"},
		"small":           {region(t, 17)[1 : 16*pageBytes+1], "fewer than 16 whole pages"},
		"shared":          {map1(rw, unix.MAP_SHARED), "mapped shared"},
		"file":            {mapped, "mapping of the file"},
		"read only":       {map1(unix.PROT_READ, unix.MAP_PRIVATE), "not readable and writable"},
		"no access":       {map1(unix.PROT_NONE, unix.MAP_PRIVATE), "not readable and writable"},
		"executable":      {map1(rw|unix.PROT_EXEC, unix.MAP_PRIVATE), "not readable and writable data"},
		"read-only edge":  {half, "not readable and writable"},
		"hole":            {hole, fmt.Sprintf("nothing is mapped at %#x", addressOf(hole)+3*uintptr(pageBytes))},
		"never mapped":    {bytesAt(1<<20, pages*pageBytes), "nothing is mapped at 0x100000"},
		"end of memory":   {bytesAt(^uintptr(0)-uintptr(pages*pageBytes), pages*pageBytes), "nothing is mapped"},
		"grows down":      {map1(rw, unix.MAP_PRIVATE|unix.MAP_GROWSDOWN), "grows downwards"},
		"not dumped":      {advised(unix.MADV_DONTDUMP), "DONTDUMP"},
		"not inherited":   {advised(unix.MADV_DONTFORK), "DONTFORK"},
		"wiped by fork":   {advised(unix.MADV_WIPEONFORK), "WIPEONFORK"},
		"main stack":      {special("[stack]"), "stack"},
		"brk heap":        {special("[heap]"), "brk"},
		"from Alloc":      {buffer.Bytes(), "communicator's already"},
		"adopted":         {twice[:pages*pageBytes], "communicator's already"},
		"partly adopted":  {twice[pageBytes:], "communicator's already"},
		"Go's heap":       {make([]byte, 100<<20), "Go's heap"},
		"Go's small heap": {make([]byte, pages*pageBytes), "Go's heap"},
		"Go's stack":      {bytesAt(uintptr(unsafe.Pointer(&onStack)), len(onStack)), "Go's heap"},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.memory == nil && name != "nothing" {
				t.Skip("NOT TESTED here: this process has none; TestUnfit has the line")
			}
			before := kindsAt(t, tt.memory)
			a, err := f.Adopt(tt.memory)
			var e *link.AdoptError
			if !errors.As(err, &e) || !strings.Contains(e.Reason, tt.reason) ||
				e.Rank != 0 || e.Bytes != len(tt.memory) || e.Address != addressOf(tt.memory) {
				t.Errorf("got %v, want a reason with %q", err, tt.reason)
			}
			if a != nil {
				t.Error(a.Release())
			}
			if after := kindsAt(t, tt.memory); after != before {
				t.Errorf("it was %s, now it is %s", before, after)
			}
		})
	}
	beside := adopt(t, f, twice[pages*pageBytes:]) // shares a mapping with the first, but no page
	for _, a := range []*mem.Adopted{first, beside} {
		if err := a.Release(); err != nil {
			t.Error(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if _, err := f.Adopt(twice); !errors.Is(err, link.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	runtime.KeepAlive(&onStack)
}

// bytesAt is the slice at an address. vet does not like numbers that become
// pointers, for good reasons that do not hold for memory that is not Go's.
func bytesAt(at uintptr, n int) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), n)
}

// TestReleaseOfWhatIsGone: what the program has unmapped or replaced is left
// alone, and what is left of the memory becomes ordinary with its contents.
func TestReleaseOfWhatIsGone(t *testing.T) {
	checkLeaks(t)
	f := single(t)
	const pages = 40
	unmap := func(t *testing.T, b []byte) {
		if err := unix.MunmapPtr(unsafe.Pointer(&b[0]), uintptr(len(b))); err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(b); i += pageBytes {
			unmapped.Store(uintptr(unsafe.Pointer(&b[i])), true)
		}
	}
	replace := func(t *testing.T, b []byte) {
		const flags = unix.MAP_FIXED | unix.MAP_PRIVATE | unix.MAP_ANON
		if _, err := unix.MmapPtr(-1, 0, unsafe.Pointer(&b[0]), uintptr(len(b)), unix.PROT_READ|unix.PROT_WRITE, flags); err != nil {
			t.Fatal(err)
		}
		pattern(b, 9)
	}
	for name, tt := range map[string]struct {
		do      func(t *testing.T, whole []byte)
		kinds   string
		changed [2]int // pages that are not the memory's own any more
		current bool   // whether Current may be asked, and what it says
	}{
		"untouched": {func(*testing.T, []byte) {}, "rw-p", [2]int{}, true},
		"unmapped":  {unmap, "", [2]int{0, pages}, false},
		"replaced":  {replace, "rw-p", [2]int{0, pages}, false},
		"middle unmapped": {func(t *testing.T, b []byte) { unmap(t, b[10*pageBytes:20*pageBytes]) },
			"rw-p", [2]int{10, 20}, true},
		"middle replaced": {func(t *testing.T, b []byte) { replace(t, b[10*pageBytes:20*pageBytes]) },
			"rw-p", [2]int{10, 20}, true},
		"end replaced": {func(t *testing.T, b []byte) { replace(t, b[30*pageBytes:]) },
			"rw-p", [2]int{30, pages}, false},
		"start replaced": {func(t *testing.T, b []byte) { replace(t, b[:2*pageBytes]) },
			"rw-p", [2]int{0, 2}, false},
		"protected": {func(t *testing.T, b []byte) {
			if err := unix.Mprotect(b[10*pageBytes:20*pageBytes], unix.PROT_READ); err != nil {
				t.Fatal(err)
			}
		}, "rw-p, r--p, rw-p", [2]int{}, true},
	} {
		for _, byClose := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s close=%t", name, byClose), func(t *testing.T) {
				f := f
				if byClose {
					f = single(t)
				}
				whole := region(t, pages)
				pattern(whole, 1)
				want := bytes.Clone(whole)
				a := adopt(t, f, whole[7:len(whole)-7])
				tt.do(t, whole)
				if name != "unmapped" && a.Current() != tt.current {
					t.Errorf("Current says %t", !tt.current)
				}
				if byClose {
					if err := f.Close(); err != nil {
						t.Error(err)
					}
					if a.Current() {
						t.Error("current after Close")
					}
				}
				if err := a.Release(); err != nil {
					t.Error(err)
				}
				kinds := kindsAt(t, whole)
				if byClose {
					kinds = permsAt(t, whole)
				}
				if kinds != tt.kinds {
					t.Errorf("it is %q now, want %q", kinds, tt.kinds)
				}
				for i := range whole {
					if p := i / pageBytes; (p < tt.changed[0] || p >= tt.changed[1]) && whole[i] != want[i] {
						t.Fatalf("byte %d of page %d has changed", i%pageBytes, p)
					}
				}
				if strings.Contains(name, "replaced") {
					if b := whole[tt.changed[0]*pageBytes : tt.changed[1]*pageBytes]; !bytes.Equal(b, patterned(len(b), 9)) {
						t.Error("what was not its own has changed")
					}
				}
			})
		}
	}
}

// TestCloseLosesNoWrite: Close makes adopted memory private while the program
// goes on writing to it; a new fabric can adopt it again.
func TestCloseLosesNoWrite(t *testing.T) {
	const pages = 512
	memory := region(t, pages)
	word := func(page int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&memory[page*pageBytes])) }
	for range 5 {
		f := single(t)
		adopt(t, f, memory)
		var stop atomic.Bool
		written := make([]uint64, pages)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := uint64(1); !stop.Load(); i++ {
				page := int(i*31) % pages
				word(page).Store(i)
				written[page] = i
			}
		}()
		time.Sleep(time.Millisecond)
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Millisecond)
		stop.Store(true)
		<-done
		for page, want := range written {
			if got := word(page).Load(); got != want && want != 0 {
				t.Fatalf("page %d: %d was written last, %d is there", page, want, got)
			}
		}
		if got := kindsAt(t, memory); got != "rw-p /memfd:tutti (deleted)" {
			t.Fatalf("after Close it is %s", got)
		}
	}
	f := single(t)
	pattern(memory, 4)
	if err := adopt(t, f, memory).Release(); err != nil {
		t.Error(err)
	}
	if kindsAt(t, memory) != ordinary || !bytes.Equal(memory, patterned(len(memory), 4)) {
		t.Error("not as ordinary as after any other Release")
	}
}

// TestAdoptBesideClose: several threads adopt and release when the fabric
// closes; each finds its memory as it left it.
func TestAdoptBesideClose(t *testing.T) {
	checkLeaks(t)
	for round := range 10 {
		f := single(t)
		var wg sync.WaitGroup
		for i := range 4 {
			memory := region(t, 40)
			pattern(memory, i)
			wg.Go(func() {
				for {
					a, err := f.Adopt(memory[9:])
					if err != nil {
						if !errors.Is(err, link.ErrClosed) {
							t.Error(err)
						}
						break
					}
					if err := a.Release(); err != nil {
						t.Error(err)
					}
				}
				if !bytes.Equal(memory, patterned(len(memory), i)) {
					t.Error("the memory has changed")
				}
				if got := permsAt(t, memory); got != ordinary {
					t.Errorf("the memory is %s", got)
				}
			})
		}
		time.Sleep(time.Duration(round) * time.Millisecond)
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
}

// TestAdoptLeaksNothing: no descriptor, no mapping, however often.
func TestAdoptLeaksNothing(t *testing.T) {
	f := single(t)
	count := func() (files, maps int) {
		all, err := ownMappings()
		if err != nil {
			t.Fatal(err)
		}
		return openDescriptors(t), len(all)
	}
	cycle := func() {
		b, err := anonymous(40 * pageBytes)
		if err != nil {
			t.Fatal(err)
		}
		if err := adopt(t, f, b[5:len(b)-5]).Release(); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Adopt(b[:pageBytes]); err == nil {
			t.Fatal("adopted a page")
		}
		if err := unix.Munmap(b); err != nil {
			t.Fatal(err)
		}
	}
	cycle()
	files, maps := count()
	for range 100 {
		cycle()
	}
	files2, maps2 := count()
	if files2 != files || maps2 > maps+20 { // Go's runtime maps memory too
		t.Errorf("%d descriptors and %d mappings before, %d and %d after", files, maps, files2, maps2)
	}
}

// TestAdoptFails half-way: the memory is as it was.
func TestAdoptFails(t *testing.T) {
	f := single(t)
	memory := region(t, 32)
	pattern(memory, 1)
	s, _, err := newSegment(len(memory))
	if err != nil {
		t.Fatal(err)
	}
	copy(s.memory, memory)
	a := &adoption{fabric: f, inner: memory, segment: s}
	s.file.Close() // the exchange will fail
	if err := a.attach(); err == nil {
		t.Fatal("attached a closed file")
	}
	if kindsAt(t, memory) != ordinary || !bytes.Equal(memory, patterned(len(memory), 1)) {
		t.Error("a failure has changed the memory")
	}
	// As a kernel that gives up half-way leaves it.
	if err := unix.MunmapPtr(unsafe.Pointer(&memory[0]), uintptr(len(memory))); err != nil {
		t.Fatal(err)
	}
	if err := a.mend(); err != nil {
		t.Fatal(err)
	}
	if kindsAt(t, memory) != ordinary || !bytes.Equal(memory, patterned(len(memory), 1)) {
		t.Error("not mended")
	}
	if err := unix.Munmap(s.memory); err != nil {
		t.Error(err)
	}
}

// TestAdoptedIsSharedByFork: what a child writes, we see, as documented; not
// any more after Release.
func TestAdoptedIsSharedByFork(t *testing.T) {
	f := single(t)
	memory := region(t, 32)
	a := adopt(t, f, memory)
	store := func() byte {
		memory[pageBytes] = 1
		pid, errno := forkAndStore(&memory[pageBytes])
		if errno != 0 {
			t.Fatal(errno)
		}
		if _, err := unix.Wait4(int(pid), nil, 0, nil); err != nil {
			t.Fatal(err)
		}
		return memory[pageBytes]
	}
	if got := store(); got != 7 {
		t.Errorf("adopted memory is not shared with children: %d", got)
	}
	if err := a.Release(); err != nil {
		t.Fatal(err)
	}
	if got := store(); got != 1 {
		t.Errorf("released memory is shared with children: %d", got)
	}
}

// forkAndStore makes a child that stores 7 at p and exits. The child has one
// thread and Go's locks as they were, so it must not call anything.
//
//go:norace
//go:noinline
func forkAndStore(p *byte) (pid uintptr, errno unix.Errno) {
	pid, _, errno = unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if pid == 0 && errno == 0 {
		*p = 7
		for {
			_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	return pid, errno
}

func TestCurrentIsCheap(t *testing.T) {
	f := single(t)
	a := adopt(t, f, region(t, 32))
	if n := testing.AllocsPerRun(100, func() { a.Current() }); n != 0 {
		t.Errorf("Current allocates %v times", n)
	}
}

func BenchmarkCurrent(b *testing.B) {
	f, err := Open(b.Context(), bootstrap.Single(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	memory, err := anonymous(32 * pageBytes)
	if err != nil {
		b.Fatal(err)
	}
	a, err := f.Adopt(memory)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		a.Current()
	}
}

func BenchmarkAdopt(b *testing.B) {
	f, err := Open(b.Context(), bootstrap.Single(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	memory, err := anonymous(16 << 20)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(memory)))
	for b.Loop() {
		a, err := f.Adopt(memory)
		if err != nil {
			b.Fatal(err)
		}
		if err := a.Release(); err != nil {
			b.Fatal(err)
		}
	}
}
