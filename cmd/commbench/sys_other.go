//go:build !linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"
)

func newShared(int) (*os.File, error) {
	return nil, fmt.Errorf("shared memory for the roofline on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

func mapShared(*os.File, int) ([]byte, error) { return nil, errors.ErrUnsupported }

func mapPrivate(bytes int) ([]byte, error) { return make([]byte, bytes), nil }

func unmapShared([]byte) error { return nil }

func sinceBoot() time.Duration { return time.Duration(time.Now().UnixNano()) }

func isTerminal(io.Writer) bool { return false }
