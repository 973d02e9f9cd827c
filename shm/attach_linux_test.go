package shm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/link"
)

// anonymous maps memory that is not Go's.
func anonymous(bytes int) ([]byte, error) {
	return unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
}

// pattern fills b with bytes that tell where they belong.
func pattern(b []byte, seed int) {
	for i := range b {
		b[i] = byte(i*7 + i>>8 + seed)
	}
}

func patterned(n, seed int) []byte {
	b := make([]byte, n)
	pattern(b, seed)
	return b
}

// connected is rank 0's fabric and link, rank 1 being in its own process.
func connected(t *testing.T, o *other) (*Fabric, *shmLink) {
	t.Helper()
	f, err := Open(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	l, err := f.Connect(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	return f, l.(*shmLink)
}

const lentBytes = 3<<20 + 77

// needAttach skips where the machine permits no copies by address. In CI it
// does.
func needAttach(t *testing.T, l interface{ Attach() error }) {
	t.Helper()
	err := l.Attach()
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatal(err)
	default:
		t.Skip("NOT TESTED here: ", err)
	}
}

// lend is the role of a rank that lets rank 0 at its ordinary memory.
func lend(ctx context.Context, ex *pipes) error {
	f, err := Open(ctx, ex, nil)
	if err != nil {
		return err
	}
	defer f.Close()
	memory := patterned(lentBytes, 1) // Go's, which does not move
	hole, err := anonymous(3 * os.Getpagesize())
	if err != nil {
		return err
	}
	if err := unix.Mprotect(hole[2*os.Getpagesize():], unix.PROT_NONE); err != nil {
		return err
	}
	if _, err := ex.numbers(uint64(addressOf(memory)), uint64(addressOf(hole))); err != nil {
		return err
	}
	if _, err := ex.numbers(); err != nil { // rank 0 has written
		return err
	}
	if !bytes.Equal(memory, patterned(lentBytes, 2)) {
		return errors.New("not what rank 0 wrote")
	}
	_, err = ex.numbers() // rank 0 is done with us, or has killed us
	runtime.KeepAlive(memory)
	return err
}

func init() { roles["lend"] = lend }

func TestCopyAcrossProcesses(t *testing.T) {
	checkLeaks(t)
	o := spawn(t, "lend")
	f, l := connected(t, o)
	needAttach(t, l)
	at := o.swapped()
	memory, hole := uintptr(at[0]), uintptr(at[1])
	want := patterned(lentBytes, 1)
	for _, part := range [][2]int{{0, lentBytes}, {0, 0}, {1, 1}, {4095, 2}, {12345, 1 << 20}, {lentBytes - 1, 1}} {
		got := make([]byte, part[1])
		if err := l.ReadFrom(got, memory+uintptr(part[0])); err != nil || !bytes.Equal(got, want[part[0]:][:part[1]]) {
			t.Errorf("reading %d bytes at %d: %v", part[1], part[0], err)
		}
	}
	write := patterned(lentBytes, 2)
	for from := 0; from < lentBytes; from += 999_999 {
		part := write[from:min(from+999_999, lentBytes)]
		if err := l.WriteTo(memory+uintptr(from), part); err != nil {
			t.Error(err)
		}
	}

	page := os.Getpagesize()
	for _, tt := range []struct {
		addr  uintptr
		bytes int
		done  int
	}{
		{8, 8, 0},                              // never mapped
		{hole + uintptr(page), 3 * page, page}, // ends in the middle
		{hole + uintptr(2*page), 1, 0},
		{math.MaxUint64 - 100, 50, 0}, // not a user's address
	} {
		local := make([]byte, tt.bytes)
		for _, write := range []bool{false, true} {
			err := l.ReadFrom(local, tt.addr)
			if write {
				err = l.WriteTo(tt.addr, local)
			}
			var e *link.CopyError
			if !errors.As(err, &e) || !errors.Is(err, unix.EFAULT) || e.Rank != 0 || e.Peer != 1 || e.Write != write ||
				e.Address != tt.addr || e.Bytes != tt.bytes || e.Done != tt.done {
				t.Errorf("%d bytes at %#x, write %t: %v", tt.bytes, tt.addr, write, err)
			}
		}
	}

	few := make([]byte, 64)
	if n := testing.AllocsPerRun(100, func() { _ = l.ReadFrom(few, memory) }); n != 0 {
		t.Errorf("a copy allocates %v times", n)
	}
	o.swapped()
	o.swapped()
	o.end()
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	var closed *ClosedError
	if err := l.ReadFrom(few, memory); !errors.As(err, &closed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestCopyFromTheDead: whether the socket has told of it yet or not.
func TestCopyFromTheDead(t *testing.T) {
	checkLeaks(t)
	o := spawn(t, "lend")
	_, l := connected(t, o)
	needAttach(t, l)
	memory := uintptr(o.swapped()[0])
	o.kill()
	for range 100 {
		var lost *link.PeerLostError
		if err := l.ReadFrom(make([]byte, 8), memory); !errors.As(err, &lost) || lost.Rank != 1 || lost.Pid != o.cmd.Process.Pid {
			t.Fatalf("got %v", err)
		}
		runtime.Gosched()
	}
}

// forbidden is a rank whose thread has less rights than it would need.
func forbidden(ctx context.Context, ex *pipes, renounce func() error) error {
	f, err := Open(ctx, ex, nil)
	if err != nil {
		return err
	}
	defer f.Close()
	runtime.LockOSThread() // rights are a thread's
	if err := renounce(); err != nil {
		return err
	}
	l, err := f.Connect(ctx, 0)
	if err != nil {
		return fmt.Errorf("all but attaching should work: %w", err)
	}
	c := l.(link.Copier)
	failure := c.Attach()
	var attach *link.AttachError
	if read := c.ReadFrom(make([]byte, 8), 4096); failure != nil && !errors.Is(read, failure) || failure == nil && errors.As(read, &attach) {
		return fmt.Errorf("Attach says %w, ReadFrom says %w", failure, read)
	}
	if failure == nil {
		_, err = ex.swap(nil)
		return err
	}
	if !errors.As(failure, &attach) || attach.Rank != 1 || attach.Peer != 0 || attach.Pid != os.Getppid() {
		return fmt.Errorf("of another type or rank: %w", failure)
	}
	_, err = ex.swap([]byte(failure.Error()))
	return err
}

// filter makes the two calls fail in this thread.
func filter() error {
	const seccompSetModeFilter = 1
	answer := func(call uint32) []unix.SockFilter {
		return []unix.SockFilter{
			{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 1},
			{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		}
	}
	program := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}} // the number of the call
	program = append(program, answer(unix.SYS_PROCESS_VM_READV)...)
	program = append(program, answer(unix.SYS_PROCESS_VM_WRITEV)...)
	program = append(program, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, seccompSetModeFilter, 0, uintptr(unsafe.Pointer(&prog))); errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return nil
}

// dropCapabilities takes all capabilities from this thread.
func dropCapabilities() error {
	var none [2]unix.CapUserData
	return unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0])
}

func init() {
	roles["filtered"] = func(ctx context.Context, ex *pipes) error { return forbidden(ctx, ex, filter) }
	roles["capless"] = func(ctx context.Context, ex *pipes) error { return forbidden(ctx, ex, dropCapabilities) }
}

// TestAttachForbidden: the error says by what, and only Attach is the worse for
// it.
func TestAttachForbidden(t *testing.T) {
	for role, reason := range map[string]string{
		"filtered": "seccomp",
		"capless":  "capabilities",
	} {
		t.Run(role, func(t *testing.T) {
			if role == "capless" {
				if _, caps := status("self"); caps == 0 {
					t.Skip("NOT TESTED: needs a user with capabilities, such as root")
				}
			}
			checkLeaks(t)
			o := spawn(t, role)
			_, l := connected(t, o)
			if err := l.Attach(); err != nil {
				t.Log("this process cannot attach to its child: ", err)
			}
			failure, err := o.swap(nil)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(failure), reason) {
				t.Errorf("the reason is %q, want it to name %q", failure, reason)
			}
			o.end()
		})
	}
}

// TestWhyNot: each reason is told from the others.
func TestWhyNot(t *testing.T) {
	const tracer = 1 << capSysPtrace
	for _, tt := range []struct {
		err  error
		e    evidence
		want string
	}{
		{unix.ESRCH, evidence{}, "pid namespaces"},
		{unix.EFAULT, evidence{}, "pid namespaces"},
		{errOtherProcess, evidence{yama: 3}, "pid namespaces"},
		{unix.EPERM, evidence{selfErr: unix.EPERM, yama: 1}, "seccomp"},
		{unix.ENOSYS, evidence{selfErr: unix.ENOSYS}, "CROSS_MEMORY_ATTACH"},
		{unix.ENOSYS, evidence{}, "writev"},
		{unix.EPERM, evidence{user: "user:[1]", peerUser: "user:[2]", yama: 1}, "user namespaces"},
		{unix.EPERM, evidence{ids: "Uid 1 ", peerIDs: "Uid 2 "}, "under different ids (Uid 1 here, Uid 2 there)"},
		{unix.EPERM, evidence{peerCaps: 6, caps: 2}, "capabilities that this rank has not (0x4)"},
		{unix.EPERM, evidence{yama: 1}, "PR_SET_PTRACER"},
		{unix.EPERM, evidence{yama: 2}, "CAP_SYS_PTRACE"},
		{unix.EPERM, evidence{yama: 3, caps: tracer}, "another boot"},
		{unix.EPERM, evidence{guarded: true}, "dumpable"},
		{unix.EPERM, evidence{guarded: true, yama: 1, caps: tracer}, "no reason that is known"},
		{unix.EPERM, evidence{}, "no reason that is known"},
	} {
		if got := tt.e.explain(tt.err); !strings.Contains(got, tt.want) {
			t.Errorf("%v, %+v: %q, want %q in it", tt.err, tt.e, got, tt.want)
		}
	}
}

// TestAttachNotSeen: a peer whose process id does not reach this namespace, and
// one whose address holds something else.
func TestAttachNotSeen(t *testing.T) {
	p := &peer{fabric: &Fabric{}, rank: 1}
	var e *link.AttachError
	if err := p.tryAttach(ownProbe()); !errors.As(err, &e) || e.Pid != 0 || !strings.Contains(e.Why, "pid namespaces") {
		t.Errorf("process 0: %v", err)
	}
	p.pid = os.Getpid()
	other := ownProbe()
	other.word[3]++
	if err := p.tryAttach(other); !errors.Is(err, errOtherProcess) {
		t.Errorf("another word: %v", err)
	}
	other = ownProbe()
	other.address = 16
	if err := p.tryAttach(other); !errors.Is(err, unix.EFAULT) || !errors.As(err, &e) {
		t.Errorf("nothing there: %v", err)
	}
	if err := p.tryAttach(ownProbe()); err != nil {
		t.Errorf("ourselves: %v", err)
	}
}
