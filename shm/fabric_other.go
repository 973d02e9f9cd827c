//go:build !linux

package shm

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"

	"github.com/tutti-go/tutti/link"
)

// Fabric is one rank's end of the shared-memory medium.
type Fabric struct{ link.Fabric }

// Open returns an error that wraps ErrUnavailable: the medium needs Linux.
func Open(context.Context, Exchanger, *slog.Logger) (*Fabric, error) {
	return nil, fmt.Errorf("%w on %s", ErrUnavailable, runtime.GOOS)
}

// Domain returns an error that wraps ErrUnavailable.
func Domain() (string, error) { return "", fmt.Errorf("%w on %s", ErrUnavailable, runtime.GOOS) }
