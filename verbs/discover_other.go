//go:build !linux

package verbs

import (
	"fmt"
	"runtime"
)

// CharDevices returns nil: RDMA needs Linux.
func CharDevices(string) []string { return nil }

// DeviceOf returns ErrNoDevice: RDMA needs Linux.
func DeviceOf(string) (string, error) {
	return "", fmt.Errorf("%w: not on %s", ErrNoDevice, runtime.GOOS)
}

// Resources returns ErrUnsupported: RDMA needs Linux.
func Resources() (map[string]map[string]uint64, error) {
	return nil, fmt.Errorf("%w: RDMA resources on %s", ErrUnsupported, runtime.GOOS)
}

func netdevName(int) string { return "" }

func netdevIndex(string) int { return 0 }
