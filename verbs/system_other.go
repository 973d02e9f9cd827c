//go:build !linux

package verbs

import (
	"errors"
	"os"
)

func sysWatch(int, string) (*os.File, error) { return nil, errors.ErrUnsupported }

func sysMemlock() (limit, pinned uint64) { return ^uint64(0), 0 }
