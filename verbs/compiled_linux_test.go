//go:build linux && cgo && (amd64 || arm64 || loong64 || ppc64le || riscv64 || s390x)

package verbs_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/tutti-go/tutti/verbs"
	"github.com/tutti-go/tutti/verbs/fakeverbs"
)

// compiled says that this build can load the library.
const compiled = true

// fabric commands the simulated device; nil where the tests run on another.
var fabric *fakeverbs.Fabric

// prepare decides what the tests run on: the library that the variable names,
// so the same tests run on real devices; without it the simulated device, in a
// directory of its own.
func prepare() (done func(), err error) {
	if os.Getenv(verbs.LibraryVariable) != "" {
		return func() {}, nil
	}
	library, err := fakeverbs.Build("")
	if errors.Is(err, fakeverbs.ErrUnavailable) {
		return nil, fmt.Errorf("no device to test on: %w; set %s to run on the system's", err, verbs.LibraryVariable)
	}
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "verbs-")
	if err != nil {
		return nil, err
	}
	if fabric, err = fakeverbs.Open(dir); err != nil {
		return nil, err
	}
	for name, value := range map[string]string{verbs.LibraryVariable: library, "TUTTI_FAKE_VERBS_DIR": dir, "TUTTI_FAKE_VERBS_QUIET": "1"} {
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	return func() { os.RemoveAll(dir) }, nil
}

// onFake skips what can be brought about on the simulated device only.
func onFake(t *testing.T) {
	t.Helper()
	if fabric == nil {
		t.Skipf("%s: no real device can be made to do this", os.Getenv(verbs.LibraryVariable))
	}
}
