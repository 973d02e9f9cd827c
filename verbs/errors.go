package verbs

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// What calls report. ErrClosed is also os.ErrClosed, ErrUnsupported also
// errors.ErrUnsupported.
var (
	ErrUnavailable = errors.New("verbs: libibverbs is not available")
	ErrNoDevice    = errors.New("verbs: no such RDMA device")
	ErrClosed      = fmt.Errorf("verbs: %w", os.ErrClosed)
	ErrUnsupported = fmt.Errorf("verbs: %w", errors.ErrUnsupported)
	ErrRange       = errors.New("verbs: outside the memory region")
	ErrBatchFull   = errors.New("verbs: the batch is full")
	ErrQueueFull   = errors.New("verbs: the queue is full")
	ErrRequest     = errors.New("verbs: malformed work request")
	ErrBusy        = errors.New("verbs: still in use")
)

// UnavailableError says why libibverbs cannot be used. It is ErrUnavailable.
type UnavailableError struct {
	Library string // what was to be loaded, empty where nothing was tried
	Reason  string
}

func (e *UnavailableError) Error() string {
	if e.Library == "" {
		return fmt.Sprintf("%v: %s", ErrUnavailable, e.Reason)
	}
	return fmt.Sprintf("%v: %s: %s (Debian and Ubuntu: install ibverbs-providers; %s names another library)",
		ErrUnavailable, e.Library, e.Reason, LibraryVariable)
}

// Is reports whether target is ErrUnavailable.
func (e *UnavailableError) Is(target error) bool { return target == ErrUnavailable }

// NoDeviceError says that there is no device of a name. It is ErrNoDevice.
type NoDeviceError struct {
	Name    string
	Present []string // the devices that there are
}

func (e *NoDeviceError) Error() string {
	if len(e.Present) == 0 {
		return fmt.Sprintf("%v: %q: the library finds no device at all: is a driver loaded, and /dev/infiniband visible here?", ErrNoDevice, e.Name)
	}
	return fmt.Sprintf("%v: %q: there are %s", ErrNoDevice, e.Name, strings.Join(e.Present, ", "))
}

// Is reports whether target is ErrNoDevice.
func (e *NoDeviceError) Is(target error) bool { return target == ErrNoDevice }

// Error is a call that failed.
type Error struct {
	Op     string // what was to be done
	Device string
	Object string // what it was to be done to, empty for the device itself
	Err    error  // mostly a syscall.Errno
	Advice string // the likely reason, and what would change it; may be empty
}

func (e *Error) Error() string { return message(e.Device, e.Object, e.Op, e.Err, e.Advice) }

func (e *Error) Unwrap() error { return e.Err }

// RegisterError says why memory could not be registered.
type RegisterError struct {
	Device string
	Addr   uint64 // of the memory, or the offset in its dma-buf
	Bytes  int
	Access Access
	Limit  uint64 // of locked memory in bytes (RLIMIT_MEMLOCK); ^0 for none or unknown
	Pinned uint64 // bytes that this process has pinned already, where the kernel says so
	Err    error
	Advice string
}

func (e *RegisterError) Error() string {
	return message(e.Device, "", fmt.Sprintf("registering %d bytes at %#x for %v", e.Bytes, e.Addr, e.Access), e.Err, e.Advice)
}

func (e *RegisterError) Unwrap() error { return e.Err }

// StateError says that a queue pair did not change its state.
type StateError struct {
	Device   string
	QPN      uint32
	From, To QPState // From is what the device said afterwards
	Err      error
	Advice   string
}

func (e *StateError) Error() string {
	return message(e.Device, fmt.Sprintf("queue pair %#x", e.QPN), fmt.Sprintf("going from %v to %v", e.From, e.To), e.Err, e.Advice)
}

func (e *StateError) Unwrap() error { return e.Err }

// PostError says that a work request, and those after it, were not posted.
// With no room in the queue it is ErrQueueFull.
type PostError struct {
	Device string
	Queue  string // "queue pair 0x11, send queue"
	Index  int    // of the request among those that were to be posted
	ID     uint64 // of the request
	Err    error
}

func (e *PostError) Error() string {
	advice := ""
	switch {
	case errors.Is(e.Err, syscall.ENOMEM):
		advice = "the queue is full: poll the completion of a signalled request first"
	case errors.Is(e.Err, syscall.EINVAL):
		advice = "the queue pair is in a state in which nothing may be posted, or the request has an opcode, more segments or more inline bytes than the queue pair was created for"
	}
	return message(e.Device, e.Queue, fmt.Sprintf("posting request %d (ID %d)", e.Index, e.ID), e.Err, advice)
}

func (e *PostError) Unwrap() error { return e.Err }

// Is reports whether target is ErrQueueFull and the queue was full.
func (e *PostError) Is(target error) bool {
	return target == ErrQueueFull && errors.Is(e.Err, syscall.ENOMEM)
}

// CompletionError is a work request that failed. It unwraps to its Status.
type CompletionError struct {
	Device string // empty from Completion.Err
	ID     uint64 // of the request
	QPN    uint32
	Status Status
	Vendor uint32 // what the vendor calls it
}

func (e *CompletionError) Error() string {
	return message(e.Device, fmt.Sprintf("queue pair %#x", e.QPN), fmt.Sprintf("request with ID %d (vendor code %#x)", e.ID, e.Vendor), e.Status, e.Status.Cause())
}

func (e *CompletionError) Unwrap() error { return e.Status }

// BusyError says that an object was not closed because others need it. It is
// ErrBusy.
type BusyError struct {
	Object   string
	Children []string // what is to be closed first
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("%v: %s: close these first: %s", ErrBusy, e.Object, strings.Join(e.Children, ", "))
}

// Is reports whether target is ErrBusy.
func (e *BusyError) Is(target error) bool { return target == ErrBusy }

func message(device, object, op string, err error, advice string) string {
	var s strings.Builder
	s.WriteString("verbs: ")
	for _, part := range []string{device, object} {
		if part != "" {
			s.WriteString(part)
			s.WriteString(": ")
		}
	}
	fmt.Fprintf(&s, "%s: %v", op, err)
	if advice != "" {
		s.WriteString(": ")
		s.WriteString(advice)
	}
	return s.String()
}
