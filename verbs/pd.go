package verbs

import (
	"fmt"
	"syscall"
	"unsafe"
)

// PD is a protection domain: queue pairs reach the memory regions of their own
// only.
type PD struct {
	node   node
	device *Device
	h      handle
}

// AllocPD makes a protection domain.
func (d *Device) AllocPD() (*PD, error) {
	pd := &PD{device: d}
	if err := pd.node.begin(kindPD, "protection domain of "+d.info.Name, &d.node); err != nil {
		return nil, err
	}
	h, errno := sysAllocPD(d.ctx)
	if errno != 0 {
		pd.node.abandon()
		return nil, &Error{Op: "allocating a protection domain", Device: d.info.Name, Err: errno}
	}
	pd.h = h
	return pd, nil
}

// Device returns the device that the protection domain is of.
func (pd *PD) Device() *Device { return pd.device }

// Close frees the protection domain. Errors: *BusyError, *Error.
func (pd *PD) Close() error {
	return pd.node.end(func() error {
		if errno := sysDeallocPD(pd.h); errno != 0 {
			return &Error{Op: "closing", Device: pd.device.info.Name, Object: "protection domain", Err: errno}
		}
		pd.h = nil
		return nil
	})
}

// MR is a memory region: memory that the device may reach, pinned as long as it
// is open.
type MR struct {
	node       node
	pd         *PD
	h          handle
	addr       uint64 // as work requests name its first byte
	bytes      int
	lkey, rkey uint32
}

// RegisterMemory makes memory reachable. The device reads and writes it, as
// access says, until the region is closed; it must stay where it is until then,
// and must not be Go's. Work requests, here and at peers, name its bytes by
// their addresses. Every region pins and counts its pages by itself. Errors:
// *RegisterError.
func (pd *PD) RegisterMemory(memory []byte, access Access) (*MR, error) {
	addr := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(memory))))
	return pd.RegisterAddress(addr, len(memory), addr, access)
}

// RegisterAddress is RegisterMemory for memory at an address of this process.
// Work requests name its first byte by iova, which mostly is the address; a
// library before rdma-core 28 can no other.
func (pd *PD) RegisterAddress(addr uint64, bytes int, iova uint64, access Access) (*MR, error) {
	if bytes <= 0 {
		return nil, &RegisterError{Device: pd.device.info.Name, Addr: addr, Bytes: bytes, Access: access, Limit: ^uint64(0), Err: syscall.EINVAL, Advice: "there is nothing to register"}
	}
	if lib, _ := Load(); iova != addr && !lib.RelaxedOrdering {
		return nil, &RegisterError{Device: pd.device.info.Name, Addr: addr, Bytes: bytes, Access: access, Limit: ^uint64(0), Err: ErrUnsupported, Advice: "an address of its own for work requests needs rdma-core 28 or later"}
	}
	return pd.register(addr, bytes, iova, access, func() (handle, uint32, uint32, syscall.Errno) {
		return sysRegister(pd.h, addr, bytes, iova, access)
	}, false)
}

// RegisterDMABuf makes a dma-buf reachable, which is how memory of a GPU is
// handed over: bytes of it from offset, which work requests name from iova on.
// fd may be closed afterwards. Errors: *RegisterError, which is ErrUnsupported
// where library, kernel or device cannot.
func (pd *PD) RegisterDMABuf(fd int, offset uint64, bytes int, iova uint64, access Access) (*MR, error) {
	if bytes <= 0 {
		return nil, &RegisterError{Device: pd.device.info.Name, Addr: offset, Bytes: bytes, Access: access, Limit: ^uint64(0), Err: syscall.EINVAL, Advice: "there is nothing to register"}
	}
	return pd.register(offset, bytes, iova, access, func() (handle, uint32, uint32, syscall.Errno) {
		return sysRegisterDMABuf(pd.h, fd, offset, bytes, iova, access)
	}, true)
}

// DMABuf reports whether the library, the kernel and the device take dma-bufs.
func (pd *PD) DMABuf() bool {
	if pd.h == nil {
		return false
	}
	// A descriptor that is none is refused as such only where the device looks
	// at it at all.
	_, _, _, errno := sysRegisterDMABuf(pd.h, -1, 0, 1, 0, AccessLocalWrite)
	return errno == syscall.EBADF
}

func (pd *PD) register(addr uint64, bytes int, iova uint64, access Access, call func() (handle, uint32, uint32, syscall.Errno), dmabuf bool) (*MR, error) {
	mr := &MR{pd: pd, addr: iova, bytes: bytes}
	if access&AccessZeroBased != 0 {
		mr.addr = 0
	}
	if err := mr.node.begin(kindMR, fmt.Sprintf("memory region of %d bytes at %#x of %s", bytes, addr, pd.device.info.Name), &pd.node); err != nil {
		return nil, err
	}
	h, lkey, rkey, errno := call()
	if errno != 0 {
		mr.node.abandon()
		e := &RegisterError{Device: pd.device.info.Name, Addr: addr, Bytes: bytes, Access: access, Err: errno}
		e.Limit, e.Pinned = sysMemlock()
		e.Advice = registerAdvice(e, errno, dmabuf)
		if errno == syscall.EOPNOTSUPP || errno == syscall.EPROTONOSUPPORT {
			e.Err = fmt.Errorf("%w: %w", ErrUnsupported, errno)
		}
		return nil, e
	}
	mr.h, mr.lkey, mr.rkey = h, lkey, rkey
	return mr, nil
}

func registerAdvice(e *RegisterError, errno syscall.Errno, dmabuf bool) string {
	switch errno {
	case syscall.ENOMEM:
		return memlockAdvice(e.Limit, e.Pinned, fmt.Sprintf(", and this needs %d more", e.Bytes))
	case syscall.EINVAL:
		switch {
		case e.Access&(AccessRemoteWrite|AccessRemoteAtomic) != 0 && e.Access&AccessLocalWrite == 0:
			return "remote write and remote atomic need local write too"
		case e.Access&AccessOnDemand != 0:
			return "the device may not page on demand"
		case dmabuf:
			return "the range may leave the dma-buf, or not begin on a page"
		}
	case syscall.EFAULT:
		return "not all of the range is mapped, or it may not be written"
	case syscall.EBADF:
		if dmabuf {
			return "the descriptor is not that of a dma-buf"
		}
	case syscall.EOPNOTSUPP, syscall.EPROTONOSUPPORT:
		if dmabuf {
			return "the library (rdma-core 34 or later), the kernel (5.12 or later) and the device's driver must all take dma-bufs: use memory of the host"
		}
		return "the kernel cannot pin this kind of memory: files on DAX are one such"
	}
	return ""
}

// memlockAdvice is what to do where the kernel would not pin more memory, which
// queues need too.
func memlockAdvice(limit, pinned uint64, more string) string {
	if limit == ^uint64(0) {
		return "there is no limit on locked memory here, so the device or the machine is out of memory or of such objects"
	}
	return fmt.Sprintf("the limit on locked memory (RLIMIT_MEMLOCK) is %d bytes, of which %d are pinned already%s: "+
		"raise it with ulimit -l unlimited, memlock in /etc/security/limits.conf, LimitMEMLOCK=infinity for a service, --ulimit memlock=-1 for a container, or give the process CAP_IPC_LOCK",
		limit, pinned, more)
}

// noMemory is memlockAdvice for a queue.
func noMemory() string {
	limit, pinned := sysMemlock()
	return memlockAdvice(limit, pinned, "")
}

// Addr returns the address by which work requests name the first byte.
func (mr *MR) Addr() uint64 { return mr.addr }

// Len returns the size in bytes.
func (mr *MR) Len() int { return mr.bytes }

// LKey returns the key by which this side's work requests name the region.
func (mr *MR) LKey() uint32 { return mr.lkey }

// RKey returns the key by which peers name it.
func (mr *MR) RKey() uint32 { return mr.rkey }

// Segment returns n bytes of the region from an offset on, for a work request.
// Errors: ErrRange.
func (mr *MR) Segment(offset, n int) (Segment, error) {
	if offset < 0 || n < 0 || n > mr.bytes || offset > mr.bytes-n || uint64(n) > 1<<31 {
		return Segment{}, fmt.Errorf("%w: %d bytes at %d of %d", ErrRange, n, offset, mr.bytes)
	}
	return Segment{Addr: mr.addr + uint64(offset), Bytes: uint32(n), LKey: mr.lkey}, nil
}

// Close takes the memory out of the device's reach and unpins it. No request
// may be under way that touches it. Errors: *BusyError, *Error.
func (mr *MR) Close() error {
	return mr.node.end(func() error {
		if errno := sysDeregister(mr.h); errno != 0 {
			return &Error{Op: "deregistering", Device: mr.pd.device.info.Name, Object: fmt.Sprintf("memory region of %d bytes", mr.bytes), Err: errno}
		}
		mr.h = nil
		return nil
	})
}
