package link

import (
	"testing"
	"unsafe"
)

// TestCounterLayout: peers of other builds would read the words elsewhere, and
// a sleeper's word on the first line would slow every exchange.
func TestCounterLayout(t *testing.T) {
	var c Counter
	if size := unsafe.Sizeof(c); size != CounterBytes {
		t.Errorf("a counter has %d bytes, not %d", size, CounterBytes)
	}
	for name, at := range map[string][2]uintptr{
		"value":    {unsafe.Offsetof(c.value), 0},
		"Data":     {unsafe.Offsetof(c.Data), 8},
		"sleepers": {unsafe.Offsetof(c.sleepers), LineBytes},
		"wake":     {unsafe.Offsetof(c.wake), LineBytes + 4},
	} {
		if at[0] != at[1] {
			t.Errorf("%s is at %d, not %d", name, at[0], at[1])
		}
	}
}
