package verbs_test

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/tutti-go/tutti/verbs"
)

func TestMTU(t *testing.T) {
	for bytes, want := range map[int]verbs.MTU{256: verbs.MTU256, 1024: verbs.MTU1024, 4096: verbs.MTU4096} {
		if m, err := verbs.MTUOf(bytes); m != want || err != nil || m.Bytes() != bytes {
			t.Errorf("MTUOf(%d) = %d, %v, of %d bytes", bytes, m, err, m.Bytes())
		}
	}
	for _, bytes := range []int{0, -1, 1500, 8192} {
		if _, err := verbs.MTUOf(bytes); err == nil {
			t.Errorf("MTUOf(%d) has no error", bytes)
		}
	}
	if verbs.MTU(0).Bytes() != 0 || verbs.MTU(6).Bytes() != 0 {
		t.Error("what is no MTU has bytes")
	}
}

func TestNames(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{verbs.FetchAdd.String(), "FETCH_ADD"},
		{verbs.Opcode(77).String(), "opcode 77"},
		{verbs.StateRTR.String(), "RTR"},
		{verbs.UD.String(), "UD"},
		{verbs.QPType(0).String(), "queue pair type 0"},
		{verbs.PortActive.String(), "ACTIVE"},
		{verbs.NodeUnknown.String(), "unknown"},
		{verbs.NodeCA.String(), "channel adapter"},
		{verbs.TransportUnknown.String(), "unknown"},
		{verbs.GIDRoCEv2.String(), "RoCE v2"},
		{verbs.Access(0).String(), "local read"},
		{(verbs.AccessLocalWrite | verbs.AccessRelaxedOrdering | 1<<30).String(), "local write, relaxed ordering, 0x40000000"},
		{verbs.EventSRQLimit.String(), "shared receive queue limit reached"},
		{verbs.EventType(1 << 31).String(), "event 2147483648"},
		{verbs.Status(99).Error(), "work completion status 99"},
		{verbs.Census{QueuePairs: 2, MRs: 1}.String(), "1 memory regions, 2 queue pairs"},
		{verbs.Census{}.String(), "nothing"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
	for _, fatal := range []verbs.EventType{verbs.EventCQError, verbs.EventQPFatal, verbs.EventDeviceFatal} {
		if !fatal.Fatal() {
			t.Errorf("%v is not fatal", fatal)
		}
	}
	if verbs.EventPortError.Fatal() || verbs.EventGIDChange.Fatal() {
		t.Error("what passes is fatal")
	}
}

// Every status that a reliable or datagram queue pair can end with has a cause.
func TestStatuses(t *testing.T) {
	for _, s := range []verbs.Status{verbs.LocalLength, verbs.LocalQPOperation, verbs.LocalProtection, verbs.Flushed, verbs.BadResponse,
		verbs.LocalAccess, verbs.RemoteInvalidRequest, verbs.RemoteAccess, verbs.RemoteOperation, verbs.RetryExceeded,
		verbs.RNRRetryExceeded, verbs.RemoteAborted, verbs.Fatal, verbs.ResponseTimeout, verbs.General} {
		if s.Cause() == "" || s.Error() == "" {
			t.Errorf("status %d: %q: %q", uint32(s), s.Error(), s.Cause())
		}
		c := verbs.Completion{ID: 7, QPN: 0x11, Status: s, Vendor: 0x81}
		err := c.Err()
		var ce *verbs.CompletionError
		if !errors.Is(err, s) || !errors.As(err, &ce) || ce.ID != 7 || ce.QPN != 0x11 || ce.Vendor != 0x81 {
			t.Errorf("status %d: %v", uint32(s), err)
		}
		for _, part := range []string{"0x11", "ID 7", "0x81", s.Error(), s.Cause()} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not say %q", err, part)
			}
		}
	}
	if err := (&verbs.Completion{}).Err(); err != nil {
		t.Errorf("success is %v", err)
	}
}

// What errors are, and that they say what to do.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		is   []error
		says []string
	}{
		{&verbs.UnavailableError{Library: "libibverbs.so.1", Reason: "not found"}, []error{verbs.ErrUnavailable}, []string{"libibverbs.so.1", "not found", "install", verbs.LibraryVariable}},
		{&verbs.NoDeviceError{Name: "mlx5_9", Present: []string{"mlx5_0", "mlx5_1"}}, []error{verbs.ErrNoDevice}, []string{"mlx5_9", "mlx5_0, mlx5_1"}},
		{&verbs.NoDeviceError{Name: "mlx5_9"}, []error{verbs.ErrNoDevice}, []string{"no device at all"}},
		{&verbs.Error{Op: "opening", Device: "rxe0", Object: "port 1", Err: syscall.EACCES, Advice: "ask"}, []error{syscall.EACCES, fs.ErrPermission}, []string{"rxe0: port 1: opening: permission denied: ask"}},
		{&verbs.PostError{Device: "rxe0", Queue: "queue pair 0x11, send queue", Index: 3, ID: 9, Err: syscall.ENOMEM}, []error{verbs.ErrQueueFull, syscall.ENOMEM}, []string{"0x11", "request 3 (ID 9)", "poll"}},
		{&verbs.PostError{Err: syscall.EINVAL}, []error{syscall.EINVAL}, []string{"state"}},
		{&verbs.StateError{Device: "rxe0", QPN: 0x11, From: verbs.StateInit, To: verbs.StateRTR, Err: syscall.ETIMEDOUT, Advice: "ARP"}, []error{syscall.ETIMEDOUT}, []string{"rxe0", "0x11", "INIT to RTR", "ARP"}},
		{&verbs.BusyError{Object: "device rxe0", Children: []string{"protection domain of rxe0"}}, []error{verbs.ErrBusy}, []string{"device rxe0", "close these first: protection domain of rxe0"}},
		{verbs.ErrClosed, []error{os.ErrClosed}, nil},
		{verbs.ErrUnsupported, []error{errors.ErrUnsupported}, nil},
	} {
		for _, is := range c.is {
			if !errors.Is(c.err, is) {
				t.Errorf("%v is not %v", c.err, is)
			}
		}
		for _, says := range c.says {
			if !strings.Contains(c.err.Error(), says) {
				t.Errorf("%q does not say %q", c.err, says)
			}
		}
	}
	if errors.Is(&verbs.PostError{Err: syscall.EINVAL}, verbs.ErrQueueFull) {
		t.Error("a malformed request is a full queue")
	}
}
