package shm

import (
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/link"
)

// Cross-memory attach: the kernel copies between two processes' memory, by
// address, on behalf of one of them. It takes the right to trace the other, and
// whether that is granted only a try with that very process can tell: on itself
// a process may always do it.

// probeWord is what peers read, and write back as it was, to find out. It is
// the same for all fabrics of the process and lies where nothing else will ever
// be. Writer: this process, before the first card leaves it. Readers: peers.
// What peers write is what they read, so it does not matter who does and when.
var probeWord [8]byte

var fillProbeWord = sync.OnceFunc(func() { rand.Read(probeWord[:]) })

// ownProbe is what this process's cards say of the word.
func ownProbe() probe {
	fillProbeWord()
	return probe{uint64(uintptr(unsafe.Pointer(&probeWord))), probeWord}
}

var errOtherProcess = errors.New("another word than the peer's is at the peer's address")

// tryAttach reads and writes the peer's word.
func (p *peer) tryAttach(theirs probe) error {
	failed := func(err error) error {
		return &link.AttachError{Rank: p.fabric.rank, Peer: p.rank, Pid: p.pid, Err: err, Why: gather(p.pid).explain(err)}
	}
	if p.pid <= 0 {
		return failed(unix.ESRCH)
	}
	var word [8]byte
	if _, err := copyAcross(p.pid, word[:], uintptr(theirs.address), false); err != nil {
		return failed(fmt.Errorf("process_vm_readv: %w", err))
	}
	if word != theirs.word {
		return failed(errOtherProcess)
	}
	if _, err := copyAcross(p.pid, word[:], uintptr(theirs.address), true); err != nil {
		return failed(fmt.Errorf("process_vm_writev: %w", err))
	}
	return nil
}

// copyAcross copies all of local from, or to, an address of another process.
func copyAcross(pid int, local []byte, addr uintptr, write bool) (done int, err error) {
	for done < len(local) {
		// The kernel copies at most 2 GiB in a call, and stops short of the
		// first page that is not there; the next call says why.
		rest := local[done:]
		ours := [1]unix.Iovec{{Base: &rest[0]}}
		ours[0].SetLen(len(rest))
		theirs := [1]unix.RemoteIovec{{Base: addr + uintptr(done), Len: len(rest)}}
		var n int
		if write {
			n, err = unix.ProcessVMWritev(pid, ours[:], theirs[:], 0)
		} else {
			n, err = unix.ProcessVMReadv(pid, ours[:], theirs[:], 0)
		}
		switch {
		case err == nil && n > 0:
			done += n
		case errors.Is(err, unix.EINTR):
		case err == nil:
			return done, unix.EFAULT // it says neither how far nor why not
		default:
			return done, err
		}
	}
	return done, nil
}

var _ link.Copier = (*shmLink)(nil)

// Attach implements link.Copier.
func (l *shmLink) Attach() error { return l.peer.attachErr }

// ReadFrom implements link.Copier.
func (l *shmLink) ReadFrom(dst []byte, addr uintptr) error { return l.copy("read", dst, addr, false) }

// WriteTo implements link.Copier.
func (l *shmLink) WriteTo(addr uintptr, src []byte) error { return l.copy("write", src, addr, true) }

// copy makes sure as well as one can that the peer's process id is still the
// peer's. When a process ends its sockets are closed long before its number can
// be given to another.
func (l *shmLink) copy(op string, local []byte, addr uintptr, write bool) error {
	p := l.peer
	if p.fabric.isClosed() {
		return &ClosedError{p.fabric.rank, op}
	}
	if p.attachErr != nil {
		return p.attachErr
	}
	if err := p.isGone(); err != nil {
		return err
	}
	done, err := copyAcross(p.pid, local, addr, write)
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.ESRCH) {
		return &link.PeerLostError{Rank: p.rank, Pid: p.pid, Err: fmt.Errorf("its process has ended: %w", err)}
	}
	return &link.CopyError{Rank: p.fabric.rank, Peer: p.rank, Write: write, Address: addr, Bytes: len(local), Done: done, Err: err}
}

// isGone returns why the peer is not there any more, if so.
func (p *peer) isGone() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone
}
