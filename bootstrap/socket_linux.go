package bootstrap

import (
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// abstractSockets: sockets can have names that are not in the file system.
const abstractSockets = true

// When nothing comes from the other end's machine for about this long, it
// counts as gone. A process that is killed is noticed at once.
var silence = 15 * time.Second // less in tests

// keep has the kernel notice when the other end's machine is gone.
func keep(conn net.Conn) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: silence / 3, Interval: silence / 5, Count: 3})
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	// An option that the kernel lacks leaves its own, longer time.
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silence.Milliseconds()))
	})
}

// checkPeer refuses who is at the other end of a socket of this machine, if
// it is another user's.
func checkPeer(conn net.Conn) error {
	local, ok := conn.(*net.UnixConn)
	if !ok {
		return nil
	}
	raw, err := local.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if failed != nil {
		return fmt.Errorf("who is at the other end of the socket: %w", failed)
	}
	if int(cred.Uid) != os.Geteuid() {
		return fmt.Errorf("process %d of user %d", cred.Pid, cred.Uid)
	}
	return nil
}

// ancestor is the nearest process above this one whose name begins like that,
// or its parent.
func ancestor(name string) int {
	for pid, depth := os.Getppid(), 0; pid > 1 && depth < 64; depth++ {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			break
		}
		// pid (name) state parent ...; a name may hold anything
		open, end := strings.IndexByte(string(stat), '('), strings.LastIndexByte(string(stat), ')')
		if open < 0 || end < open {
			break
		}
		if strings.HasPrefix(string(stat[open+1:end]), name) {
			return pid
		}
		var state string
		if _, err := fmt.Sscan(string(stat[end+1:]), &state, &pid); err != nil {
			break
		}
	}
	return os.Getppid()
}
