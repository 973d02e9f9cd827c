package shm

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/internal/move"
)

// Adopted memory is made private again in one of two ways. Release copies it
// into fresh pages and moves them into place: it ends up as ordinary as it was,
// but what somebody writes during the copy is lost, which is why nobody may.
// Close cannot ask that of a program that does not know what was adopted. It
// makes the mapping of the file a private one and the pages copies of the
// file's, one by one, which loses nothing; but it remains a file's mapping.

// release implements mem.Adopted.Release.
func (a *adoption) release() error {
	f := a.fabric
	f.adopting.Lock()
	defer f.adopting.Unlock()
	f.mu.Lock()
	_, ok := f.adopted[a.region]
	delete(f.adopted, a.region)
	f.mu.Unlock()
	if !ok {
		return nil // Close has done it
	}
	pieces, err := a.pieces()
	for _, p := range pieces {
		if e := a.restore(p); e != nil {
			// Rather private in the other way than not at all.
			err = errors.Join(err, e, a.privatize(p))
		}
	}
	return errors.Join(err, f.free(a.region))
}

// detach does for Close what release does; the segment is the caller's to
// close.
func (a *adoption) detach() error {
	pieces, err := a.pieces()
	for _, p := range pieces {
		err = errors.Join(err, a.privatize(p))
	}
	return err
}

// piece is a part of the caller's memory that still shows the segment.
type piece struct {
	memory []byte
	prot   int // what the caller has made of its protection since
}

// pieces looks which parts of the caller's memory still show the segment: the
// caller may have unmapped or replaced some or all.
func (a *adoption) pieces() ([]piece, error) {
	all, err := ownMappings()
	if err != nil {
		return nil, fmt.Errorf("shm: looking for adopted memory: %w", err)
	}
	start := addressOf(a.inner)
	end := start + uintptr(len(a.inner))
	var found []piece
	for _, v := range all {
		if v.end <= start || v.start >= end || v.inode != a.inode || v.device != a.device || v.perms[3] != 's' {
			continue
		}
		if v.offset+uint64(start)-uint64(v.start) != uint64(a.at) {
			continue // ours, but moved here from elsewhere in it
		}
		from, to := max(v.start, start), min(v.end, end)
		found = append(found, piece{a.inner[from-start : to-start], v.protection()})
	}
	return found, nil
}

func (v *vma) protection() int {
	prot := unix.PROT_NONE
	for i, bit := range []int{unix.PROT_READ, unix.PROT_WRITE, unix.PROT_EXEC} {
		if v.perms[i] == "rwx"[i] {
			prot |= bit
		}
	}
	return prot
}

// restore puts private anonymous memory with the same contents in the place of
// a piece. The move is one system call, so there is never nothing there.
func (a *adoption) restore(p piece) error {
	bytes := uintptr(len(p.memory))
	fresh, err := unix.MmapPtr(-1, 0, nil, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return fmt.Errorf("shm: making adopted memory private: mmap: %w", err)
	}
	memory := unsafe.Slice((*byte)(fresh), len(p.memory))
	if err := populate(memory); err != nil {
		return errors.Join(fmt.Errorf("shm: making adopted memory private: %w", err), unix.MunmapPtr(fresh, bytes))
	}
	move.Bytes(memory, a.windowOf(p))
	if p.prot != unix.PROT_READ|unix.PROT_WRITE {
		if err := unix.Mprotect(memory, p.prot); err != nil {
			return errors.Join(fmt.Errorf("shm: making adopted memory private: mprotect: %w", err), unix.MunmapPtr(fresh, bytes))
		}
	}
	at := unsafe.Pointer(unsafe.SliceData(p.memory))
	if _, err := unix.MremapPtr(fresh, bytes, at, bytes, unix.MREMAP_FIXED|unix.MREMAP_MAYMOVE); err != nil {
		return errors.Join(fmt.Errorf("shm: making adopted memory private: mremap: %w", err), unix.MunmapPtr(fresh, bytes))
	}
	return nil
}

func (a *adoption) windowOf(p piece) []byte {
	return a.segment.memory[a.at+int(addressOf(p.memory)-addressOf(a.inner)):][:len(p.memory)]
}

// privatize makes a piece private while others may be writing to it. Writes
// before the new mapping are in the file; those after it go into copies of the
// file's pages, and then every page is made a copy. The file's own pages, which
// nobody sees any more, are given back.
func (a *adoption) privatize(p piece) error {
	if err := a.remap(p.memory, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_FIXED|unix.MAP_PRIVATE); err != nil {
		return fmt.Errorf("shm: making adopted memory private: mmap: %w", err)
	}
	err := unix.Madvise(p.memory, unix.MADV_POPULATE_WRITE)
	if errors.Is(err, unix.EINVAL) { // before Linux 5.14
		for i := 0; i < len(p.memory); i += os.Getpagesize() {
			(*atomic.Uint32)(unsafe.Pointer(&p.memory[i])).Add(0)
		}
		err = nil
	}
	if err == nil && p.prot != unix.PROT_READ|unix.PROT_WRITE {
		err = unix.Mprotect(p.memory, p.prot)
	}
	if err != nil {
		return fmt.Errorf("shm: making adopted memory private: %w", err)
	}
	offset := int64(a.at) + int64(addressOf(p.memory)-addressOf(a.inner))
	const punch = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	if err := unix.Fallocate(int(a.segment.file.Fd()), punch, offset, int64(len(p.memory))); err != nil {
		return fmt.Errorf("shm: giving back the pages of adopted memory: %w", err)
	}
	return nil
}
