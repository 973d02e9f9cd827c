package linktest

import (
	"testing"

	"github.com/tutti-go/tutti/link"
)

func TestMemory(t *testing.T) {
	for name, o := range map[string]Options{
		"mapped": {Mapped: true},
		"put":    {},
		"late":   {Late: true},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(_ *testing.T, n int) []link.Fabric { return Memory(n, o) })
		})
	}
}
