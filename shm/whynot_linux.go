package shm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// evidence is what this machine shows of two processes when one of them was not
// let at the other's memory. Fields that could not be read are zero.
type evidence struct {
	pid      int
	selfErr  error  // of the same system call upon this process's own memory
	yama     int    // kernel.yama.ptrace_scope
	user     string // this process's user namespace
	peerUser string
	ids      string // this process's user and group ids: real, effective, saved, file
	peerIDs  string
	caps     uint64 // this process's permitted capabilities
	peerCaps uint64
	guarded  bool // the peer's files in /proc are not its own user's: it is not dumpable
}

// gather looks around. It is for failures only, so it may be slow.
func gather(pid int) evidence {
	e := evidence{pid: pid, user: namespace("self"), peerUser: namespace(strconv.Itoa(pid))}
	var word [8]byte
	_, e.selfErr = copyAcross(os.Getpid(), word[:], uintptr(unsafe.Pointer(&probeWord)), false)
	if b, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope"); err == nil {
		e.yama, _ = strconv.Atoi(string(bytes.TrimSpace(b)))
	}
	e.ids, e.caps = status("thread-self") // rights are a thread's
	e.peerIDs, e.peerCaps = status(strconv.Itoa(pid))
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/mem", pid), &st); err == nil {
		e.guarded = int(st.Uid) != os.Geteuid()
	}
	return e
}

func namespace(process string) string {
	name, _ := os.Readlink("/proc/" + process + "/ns/user")
	return name
}

// status takes the ids and capabilities of a process from its status file.
func status(process string) (ids string, caps uint64) {
	b, _ := os.ReadFile("/proc/" + process + "/status")
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.Join(strings.Fields(value), " ")
		switch key {
		case "Uid", "Gid":
			ids += key + " " + value + " "
		case "CapPrm":
			caps, _ = strconv.ParseUint(value, 16, 64)
		}
	}
	return ids, caps
}

const capSysPtrace = 19

// explain names the likeliest reason for err and what would change it. The
// order is that of certainty.
func (e evidence) explain(err error) string {
	tracer := e.caps>>capSysPtrace&1 != 0
	switch {
	case errors.Is(err, errOtherProcess), errors.Is(err, unix.ESRCH), errors.Is(err, unix.EFAULT):
		return "the two ranks do not see each other's process ids, so they are in different pid namespaces; " +
			"start them in the same one (docker: --pid=container:NAME or --pid=host)"
	case errors.Is(e.selfErr, unix.ENOSYS), errors.Is(e.selfErr, unix.EPERM), errors.Is(e.selfErr, unix.EACCES):
		return "this process may not even read its own memory that way: a seccomp filter forbids process_vm_readv and process_vm_writev, " +
			"or the kernel was built without CONFIG_CROSS_MEMORY_ATTACH; allow both calls in the container's seccomp profile"
	case errors.Is(err, unix.ENOSYS):
		return "a seccomp filter forbids process_vm_writev, or the kernel was built without CONFIG_CROSS_MEMORY_ATTACH; " +
			"allow the call in the container's seccomp profile"
	case e.user != "" && e.peerUser != "" && e.user != e.peerUser:
		return fmt.Sprintf("the ranks are in different user namespaces (%s here, %s there); start them in the same one", e.user, e.peerUser)
	case e.ids != "" && e.peerIDs != "" && e.ids != e.peerIDs:
		return fmt.Sprintf("the ranks run under different ids (%shere, %sthere); start them as the same user and group", e.ids, e.peerIDs)
	case e.peerCaps&^e.caps != 0 && !tracer:
		return fmt.Sprintf("the peer has capabilities that this rank has not (%#x); start them with the same", e.peerCaps&^e.caps)
	case e.yama >= 3:
		return "kernel.yama.ptrace_scope is 3, which forbids it for good; only another boot with a lower value changes that"
	case e.yama == 2 && !tracer:
		return "kernel.yama.ptrace_scope is 2, which wants CAP_SYS_PTRACE: grant it, or set the value to 0 (sysctl -w kernel.yama.ptrace_scope=0)"
	case e.yama == 1 && !tracer:
		// PR_SET_PTRACER names one process, which is not enough for several
		// peers, or any, which lets every process of the user into this one
		// for as long as it lives. That is not for a library to decide.
		return "kernel.yama.ptrace_scope is 1, which lets a process be traced by its ancestors and whom it names; " +
			"set it to 0 (sysctl -w kernel.yama.ptrace_scope=0), grant CAP_SYS_PTRACE, or let every rank's program call " +
			"prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY) before it joins, if all processes of its user may be trusted with its memory"
	case e.guarded && !tracer:
		return "the peer is not dumpable: it has changed its user id, runs a file that it may not read, or called prctl(PR_SET_DUMPABLE, 0)"
	}
	return "no reason that is known here: a seccomp filter (Seccomp in /proc/self/status) or a security module such as SELinux or AppArmor may forbid it"
}
