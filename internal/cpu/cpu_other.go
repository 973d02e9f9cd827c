//go:build !linux

package cpu

import (
	"fmt"
	"runtime"
)

// Usable lists all cores.
func Usable() ([]int, error) {
	cores := make([]int, runtime.NumCPU())
	for i := range cores {
		cores[i] = i
	}
	return cores, nil
}

// Pin cannot pin here.
func Pin(cores ...int) error {
	return fmt.Errorf("pin to cores %v: %w", cores, ErrUnknown)
}
