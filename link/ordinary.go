package link

import "github.com/tutti-go/tutti/mem"

// Ordinary memory is what Alloc did not make: a slice, what C's malloc
// returned. Two powers reach it: a Copier copies it by address, an Adopter
// turns it into a region.

// Copier is a Link that can copy from and to the peer's ordinary memory by
// address, without the peer doing anything. Its methods may be called from
// several goroutines. That the peer agrees, that the address means what the
// caller thinks and that nobody else uses the bytes meanwhile is for the ranks
// to settle; a wrong address that the peer has mapped is written to.
type Copier interface {
	// Attach reports whether ReadFrom and WriteTo work with this peer: nil,
	// or an *AttachError that says why the machine forbids it and what would
	// change that. It was tried out when the link was made; Attach only looks
	// it up. The peer may find otherwise of this rank: ranks that must choose
	// alike have to tell each other.
	Attach() error

	// ReadFrom fills dst from addr in the peer's memory. After an error some of
	// dst may have changed. It does not allocate. Errors: *CopyError for memory
	// that the peer does not have or may not read, *PeerLostError, ErrClosed,
	// and that of Attach.
	ReadFrom(dst []byte, addr uintptr) error

	// WriteTo copies src to addr in the peer's memory. When it has returned
	// nil, all is there; a Notify on the same link that comes after is behind
	// it. Errors are those of ReadFrom.
	WriteTo(addr uintptr, src []byte) error
}

// Adopter is a Fabric that can make a region of memory that exists.
type Adopter interface {
	// Adopt makes memory reachable for peers where it lies: its whole pages
	// become those of a region, with the same contents at the same address.
	// Nobody may touch the memory while Adopt runs. It must be private
	// anonymous memory of this process, such as malloc's large blocks or an
	// anonymous mmap, and not Go's. After an error, an *AdoptError where the
	// memory is the reason, it is as it was.
	Adopt(memory []byte) (*mem.Adopted, error)
}
