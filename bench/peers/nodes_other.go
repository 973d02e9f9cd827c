//go:build !linux

package main

import (
	"errors"
	"os"
)

// newNamespace makes a network namespace, which only Linux has.
func newNamespace() (*os.File, error) { return nil, errors.ErrUnsupported }
