//go:build !linux

package tcp

import (
	"context"
	"fmt"
	"runtime"

	"github.com/tutti-go/tutti/link"
)

// Fabric is one rank's end of the socket medium.
type Fabric struct{ link.Fabric }

// Open returns an error that wraps ErrUnavailable: the medium needs Linux.
func Open(_ context.Context, _ Exchanger, cfg Config) (*Fabric, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w on %s", ErrUnavailable, runtime.GOOS)
}
