//go:build !linux

package rc

import (
	"context"
	"fmt"
	"runtime"

	"github.com/tutti-go/tutti/link"
)

// Fabric is one rank's end of the RDMA medium.
type Fabric struct{ link.Fabric }

// Open returns an error that wraps ErrUnavailable: the medium needs Linux.
func Open(context.Context, Exchanger, Config) (*Fabric, error) {
	return nil, fmt.Errorf("%w on %s", ErrUnavailable, runtime.GOOS)
}
