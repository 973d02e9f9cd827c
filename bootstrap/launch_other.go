//go:build !linux

package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"runtime"
)

// Job is a set of running ranks.
type Job struct{}

// Launch needs Linux: elsewhere children cannot be tied to their parent's life.
func Launch(context.Context, Spec) (*Job, error) {
	return nil, fmt.Errorf("launching ranks on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

// Wait is never reached.
func (*Job) Wait() error { return errors.ErrUnsupported }

// Pids is never reached.
func (*Job) Pids() []int { return nil }
