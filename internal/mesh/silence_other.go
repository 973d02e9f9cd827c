//go:build !linux

package mesh

import (
	"net"
	"time"
)

// limitSilence does nothing here: there is no portable way.
func limitSilence(*net.TCPConn, time.Duration) error { return nil }
