package shm

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/internal/move"
	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
)

// adoptPages is how many whole pages memory must have to be worth adopting.
const adoptPages = 16

// adoption is memory of the caller's whose whole pages are those of a segment.
//
// The segment spans every page that the memory touches. Its own mapping is the
// window. Of the caller's pages only the whole ones, inner, are exchanged: the
// pages at the edges hold bytes that are not the caller's to share.
type adoption struct {
	fabric  *Fabric
	region  mem.RegionID
	segment *segment
	inner   []byte // at the caller's address; may be somebody else's by now
	at      int    // of inner in the segment
	device  string // of the segment's file, as in a vma
	inode   uint64
}

var _ link.Adopter = (*Fabric)(nil)

// Adopt implements link.Adopter. Peers map the region as one from Alloc.
//
// Memory is refused, besides what link.Adopter says, if it has fewer than 16
// whole pages, is C's brk heap, a stack, a mapping of a file, shared, not
// readable and writable, executable, or adopted before; and, where that can be
// found out quickly, if it is marked by madvise in a way that other pages would
// not keep (MADV_DONTFORK and such). Three things cannot be seen and are for
// the caller to know. Memory that is registered with a device (ibv_reg_mr,
// cudaHostRegister) must not be adopted, for the device would go on with the
// old pages. Nor may a buffer in the stack of a thread that is not the main
// one. And an allocator that gets the memory back before Release must not count
// on MADV_DONTNEED to clear it, for shared pages stay as they are. Those of
// glibc and mimalloc do not; jemalloc's does, so nothing is adopted where it is
// loaded, which can be seen only of a shared library.
//
// Until Release the memory is shared with children of fork, not copied. And it
// has huge pages only where the machine grants them to shared memory
// (transparent_hugepage/shmem_enabled), which most do not.
func (f *Fabric) Adopt(memory []byte) (*mem.Adopted, error) {
	f.adopting.Lock()
	defer f.adopting.Unlock()
	if f.isClosed() {
		return nil, &ClosedError{f.rank, "adopt"}
	}
	refuse := func(reason string, err error) error {
		return &link.AdoptError{Rank: f.rank, Address: addressOf(memory), Bytes: len(memory), Reason: reason, Err: err}
	}
	head, tail := edges(memory)
	if whole := len(memory) - head - tail; whole < adoptPages*os.Getpagesize() {
		return nil, refuse(fmt.Sprintf("it has fewer than %d whole pages", adoptPages), nil)
	}
	inner := memory[head : len(memory)-tail]
	reason, err := vet(memory)
	if err != nil {
		return nil, refuse("/proc/self does not tell what it is", err)
	}
	if reason != "" {
		return nil, refuse(reason, nil)
	}

	// All that can fail comes first; then one system call exchanges the pages.
	page := os.Getpagesize()
	offset := int(addressOf(memory)) & (page - 1)
	a := &adoption{fabric: f, inner: inner, at: roundToPage(offset)}
	if a.segment, err = f.newSegment(offset + len(memory)); err != nil {
		return nil, err
	}
	if a.device, a.inode, err = a.segment.identity(); err != nil {
		return nil, errors.Join(err, a.segment.close())
	}
	move.Bytes(a.segment.memory[a.at:][:len(inner)], inner)
	if err := a.attach(); err != nil {
		return nil, errors.Join(refuse("the kernel does not exchange its pages", err), a.segment.close())
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	if f.isClosed() { // while we were at it
		return nil, errors.Join(&ClosedError{f.rank, "adopt"}, a.detach(), a.segment.close())
	}
	f.next++
	a.region = f.next
	f.segments[a.region], f.adopted[a.region] = a.segment, a
	end := offset + len(memory)
	return mem.NewAdopted(mem.Adoption{
		Region: a.region, Offset: offset, Window: a.segment.memory[offset:end:end],
		Head: head, Tail: tail, Check: a.current, Undo: a.release,
	}), nil
}

// edges returns how many bytes of memory lie before and behind its whole pages.
func edges(memory []byte) (head, tail int) {
	page := uintptr(os.Getpagesize())
	head = int(-addressOf(memory) & (page - 1))
	tail = int((addressOf(memory) + uintptr(len(memory))) & (page - 1))
	if head+tail > len(memory) {
		return len(memory), 0
	}
	return head, tail
}

func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// vet says why the pages of memory must not be exchanged, or "".
func vet(memory []byte) (reason string, err error) {
	start := addressOf(memory)
	end := start + uintptr(len(memory))
	all, err := ownMappings()
	if err != nil {
		return "", err
	}
	if goHeap(all, start, end) {
		return "it is in Go's heap, which Go gives back and clears by itself; use memory from Alloc", nil
	}
	if library := careless(all); library != "" {
		return "the process uses " + library + ", whose calloc counts on pages that madvise clears; use memory from Alloc", nil
	}
	touched, err := covering(all, start, end)
	if err != nil {
		return err.Error(), nil
	}
	for i := range touched {
		if reason := touched[i].unfit(); reason != "" {
			return reason, nil
		}
	}
	if cheap, err := flagsAreCheap(len(memory)); err != nil || !cheap {
		return "", err
	}
	smaps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return "", err
	}
	defer smaps.Close()
	return flagged(bufio.NewScanner(smaps), start, end)
}

// identity is how the segment's file shows in a vma.
func (s *segment) identity() (device string, inode uint64, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(s.file.Fd()), &st); err != nil {
		return "", 0, fmt.Errorf("shm: fstat: %w", err)
	}
	return fmt.Sprintf("%02x:%02x", unix.Major(st.Dev), unix.Minor(st.Dev)), st.Ino, nil
}

// attach puts the segment's pages in the place of the caller's. They are there
// already, and mapped without asking whether that succeeds: a page that is not
// is mapped when it is first touched.
func (a *adoption) attach() error {
	const flags = unix.MAP_FIXED | unix.MAP_SHARED | unix.MAP_POPULATE
	if err := a.remap(a.inner, unix.PROT_READ|unix.PROT_WRITE, flags); err != nil {
		return errors.Join(err, a.mend())
	}
	adviseHugePages(a.inner)
	return nil
}

// remap maps the segment's pages over a piece of inner.
func (a *adoption) remap(piece []byte, prot, flags int) error {
	offset := int64(a.at) + int64(addressOf(piece)-addressOf(a.inner))
	_, err := unix.MmapPtr(int(a.segment.file.Fd()), offset, unsafe.Pointer(unsafe.SliceData(piece)), uintptr(len(piece)), prot, flags)
	return err
}

// mend closes the hole that an mmap leaves which fails when it has already
// unmapped what was there; kernels before 6.12 can do that when they run out of
// memory for their own tables. Where there is no hole it does nothing.
func (a *adoption) mend() error {
	const flags = unix.MAP_FIXED_NOREPLACE | unix.MAP_PRIVATE | unix.MAP_ANON
	at := unsafe.Pointer(unsafe.SliceData(a.inner))
	got, err := unix.MmapPtr(-1, 0, at, uintptr(len(a.inner)), unix.PROT_READ|unix.PROT_WRITE, flags)
	switch {
	case errors.Is(err, unix.EEXIST):
		return nil
	case err != nil:
		return err
	case got != at: // before Linux 4.17 it is a hint only, and was not taken: no hole
		return unix.MunmapPtr(got, uintptr(len(a.inner)))
	}
	move.Bytes(a.inner, a.segment.memory[a.at:][:len(a.inner)])
	return nil
}

// current implements mem.Adopted.Current: what changes in the window must change
// at the caller's address, in the first whole page and in the last.
func (a *adoption) current() bool {
	if a.fabric.isClosed() {
		return false
	}
	window := a.segment.memory[a.at:][:len(a.inner)]
	last := len(a.inner) - os.Getpagesize()
	return sameWord(window, a.inner, 0) && sameWord(window, a.inner, last)
}

func sameWord(window, memory []byte, at int) bool {
	w := (*atomic.Uint32)(unsafe.Pointer(&window[at]))
	m := (*atomic.Uint32)(unsafe.Pointer(&memory[at]))
	before := w.Load()
	w.Store(^before)
	same := m.Load() == ^before
	w.Store(before)
	return same && m.Load() == before
}
