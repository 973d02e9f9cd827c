package shm

import (
	"errors"
	"fmt"
	"math"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/link"
)

// seals keep a region's size as its peers know it, and themselves in place.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// segmentName is what regions are called in /proc/*/maps, as "/memfd:tutti".
const segmentName = "tutti"

// segment is one region of this rank: a sealed memfd and its mapping.
type segment struct {
	file   *os.File
	memory []byte // whole pages
	bytes  int    // as asked for
}

// placement tells what the machine granted for a segment beyond plain pages.
type placement struct {
	lockErr error // nil when the pages are locked in memory
}

// newSegment makes a sealed memfd of at least the given size, maps it and
// faults in every page, so that no page is missing later and memory that is
// not there is an error now.
func newSegment(bytes int) (*segment, placement, error) {
	if bytes > math.MaxInt-os.Getpagesize() {
		return nil, placement{}, fmt.Errorf("%d bytes of shared memory: %w", bytes, unix.ENOMEM)
	}
	size := roundToPage(bytes)
	fd, err := unix.MemfdCreate(segmentName, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, placement{}, fmt.Errorf("%w: memfd_create: %w (a seccomp profile may forbid it)", ErrUnavailable, err)
	}
	file := os.NewFile(uintptr(fd), "memfd:"+segmentName)
	s, p, err := buildSegment(file, size)
	if err != nil {
		file.Close()
		return nil, placement{}, fmt.Errorf("%d bytes of shared memory: %w", bytes, err)
	}
	s.bytes = bytes
	return s, p, nil
}

func buildSegment(file *os.File, size int) (*segment, placement, error) {
	fd := int(file.Fd())
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return nil, placement{}, fmt.Errorf("ftruncate: %w", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return nil, placement{}, fmt.Errorf("seal: %w", err)
	}
	memory, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, placement{}, fmt.Errorf("mmap: %w", err)
	}
	preferLocalNode(memory)
	adviseHugePages(memory)
	if err := populate(memory); err != nil {
		unix.Munmap(memory)
		return nil, placement{}, err
	}
	return &segment{file: file, memory: memory}, placement{lockErr: unix.Mlock(memory)}, nil
}

func (s *segment) close() error {
	return errors.Join(unix.Munmap(s.memory), s.file.Close())
}

// mapForeign maps a descriptor that a peer sent, after making sure that it is
// what it should be: sealed, and as large as the peer says.
func mapForeign(fd int, bytes uint64) ([]byte, error) {
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("a region without seals: %w", err)
	}
	if got&seals != seals {
		return nil, fmt.Errorf("a region that is not sealed (seals %#x, want %#x)", got, seals)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("fstat: %w", err)
	}
	if bytes == 0 || uint64(st.Size) < bytes {
		return nil, fmt.Errorf("a region of %d bytes that claims %d: %w", st.Size, bytes, link.ErrRange)
	}
	memory, err := unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	adviseHugePages(memory)
	if err := populate(memory); err != nil {
		unix.Munmap(memory)
		return nil, err
	}
	return memory[:bytes], nil
}

// unmapForeign undoes mapForeign, which may have cut the slice short.
func unmapForeign(memory []byte) error {
	return unix.Munmap(memory[:cap(memory)])
}

func roundToPage(bytes int) int {
	page := os.Getpagesize()
	return (bytes + page - 1) / page * page
}

// populate faults in every page for writing.
func populate(memory []byte) error {
	err := unix.Madvise(memory, unix.MADV_POPULATE_WRITE)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EINVAL): // before Linux 5.14
		touch(memory)
		return nil
	case errors.Is(err, unix.ENOMEM), errors.Is(err, unix.EFAULT):
		return fmt.Errorf("not enough memory: %w", err)
	}
	return fmt.Errorf("populate: %w", err)
}

// touch writes every page without changing it. Where memory runs out this
// kills the process, which is why populate is tried first.
func touch(memory []byte) {
	for i := 0; i < len(memory); i += os.Getpagesize() {
		p := (*byte)(unsafe.Pointer(&memory[i]))
		*p |= 0
	}
}

// adviseHugePages asks for huge pages; the kernel grants them where
// transparent_hugepage/shmem_enabled says advise or more, and refusing is no
// error.
func adviseHugePages(memory []byte) {
	_ = unix.Madvise(memory, unix.MADV_HUGEPAGE)
}

// preferLocalNode places the region's pages on the NUMA node of the core that
// this thread runs on, whoever touches them first. Containers often forbid
// mbind; then the first touch, which is ours, has nearly the same effect.
func preferLocalNode(memory []byte) {
	var node uint32
	if _, _, errno := unix.RawSyscall(unix.SYS_GETCPU, 0, uintptr(unsafe.Pointer(&node)), 0); errno != 0 || node >= 64 {
		return
	}
	const mpolPreferred = 1
	mask := uint64(1) << node
	// The kernel takes maxnode as one more than the bits in the mask.
	_, _, _ = unix.RawSyscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(unsafe.SliceData(memory))), uintptr(len(memory)),
		mpolPreferred, uintptr(unsafe.Pointer(&mask)), 65, 0)
}
