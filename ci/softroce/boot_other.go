//go:build !linux

package softroce

import (
	"context"
	"errors"
	"runtime"
)

// Boot works on Linux only.
func Boot(context.Context, Config) (*Cluster, error) {
	return nil, errors.New("softroce: machines are booted on Linux only, and this is " + runtime.GOOS)
}
