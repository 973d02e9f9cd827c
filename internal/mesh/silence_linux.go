package mesh

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// limitSilence ends the connection when the peer has left data unacknowledged
// for so long. Keep-alive packets alone are sent only where nothing is under
// way.
func limitSilence(c *net.TCPConn, limit time.Duration) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	if err := raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(limit.Milliseconds()))
	}); err != nil {
		return err
	}
	return set
}
