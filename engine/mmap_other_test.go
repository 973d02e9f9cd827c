//go:build !linux

package engine_test

import "testing"

// anonymous stands in for memory that is not Go's.
func anonymous(_ *testing.T, bytes int) []byte { return make([]byte, bytes) }
