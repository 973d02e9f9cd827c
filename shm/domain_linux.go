package shm

import (
	"fmt"
	"os"

	"github.com/tutti-go/tutti/internal/cpu"
)

// Domain names those who can share memory by this medium: processes on one
// kernel that see the same abstract Unix sockets, that is, of one network
// namespace. Ranks whose domains are equal make a node. Containers on one
// machine have domains of their own unless they share the host's network.
func Domain() (string, error) {
	machine := cpu.Machine()
	if machine == "" {
		return "", fmt.Errorf("%w: the kernel tells no boot_id", ErrUnavailable)
	}
	netns, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return machine + " " + netns, nil
}
