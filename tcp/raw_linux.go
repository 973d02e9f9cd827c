package tcp

import (
	"net"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The system calls of the hot path. They never block, so the scheduler is not
// told of them: that would cost as much as a short one. None allocates, and
// memory that they are given is Tutti's own, or kept alive by the caller.

// mostPerCall bounds what one system call copies, because nothing stops the
// thread for the garbage collector meanwhile.
const mostPerCall = 512 << 10

// recv reads what has arrived, up to len(b) bytes.
func recv(fd int, b []byte) (int, unix.Errno) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd),
			uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
		if errno != unix.EINTR {
			runtime.KeepAlive(b)
			return int(n), errno
		}
	}
}

// recvInto reads what has arrived into up to len(v) places in turn.
func recvInto(fd int, v []unix.Iovec) (int, unix.Errno) {
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_READV, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(v))), uintptr(len(v)))
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}

// send writes as much of b as the socket takes.
func send(fd int, b []byte) (int, unix.Errno) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd),
			uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		if errno != unix.EINTR {
			runtime.KeepAlive(b)
			return int(n), errno
		}
	}
}

// sendFrom writes as much as the socket takes of what m describes.
func sendFrom(fd int, m *unix.Msghdr, flags uintptr) (int, unix.Errno) {
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(m)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL|flags)
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}

// setIovec lets v describe b.
func setIovec(v *unix.Iovec, b []byte) {
	v.Base = unsafe.SliceData(b)
	v.SetLen(len(b))
}

// detach takes the socket out of Go's hands: from now on it is ours to read, to
// write and to close. It does not block.
func detach(c *net.TCPConn) (fd int, err error) {
	defer c.Close()
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	if e := raw.Control(func(was uintptr) {
		fd, err = unix.FcntlInt(was, unix.F_DUPFD_CLOEXEC, 0)
	}); e != nil {
		return -1, e
	}
	return fd, err
}
