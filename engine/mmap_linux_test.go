package engine_test

import (
	"testing"

	"golang.org/x/sys/unix"
)

// anonymous maps memory that is neither Go's nor Tutti's, until the test ends.
func anonymous(t *testing.T, bytes int) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(b) })
	return b
}
