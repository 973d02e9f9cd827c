package shm

import (
	"fmt"
	"os"
	"strings"
)

// Domain names those who can share memory by this medium: processes on one
// kernel that see the same abstract Unix sockets, that is, of one network
// namespace. Ranks whose domains are equal make a node. Containers on one
// machine have domains of their own unless they share the host's network.
func Domain() (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	netns, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return strings.TrimSpace(string(boot)) + " " + netns, nil
}
