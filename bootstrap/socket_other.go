//go:build !linux

package bootstrap

import (
	"net"
	"os"
	"time"
)

// abstractSockets: ranks of one machine meet on loopback instead.
const abstractSockets = false

var silence = 15 * time.Second // less in tests

func keep(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: silence / 3, Interval: silence / 5, Count: 3})
	}
}

func checkPeer(net.Conn) error { return nil }

func ancestor(string) int { return os.Getppid() }
