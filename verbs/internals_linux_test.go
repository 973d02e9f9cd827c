package verbs

import "testing"

// vmPin reads /proc/self/status, which is the kernel's, but whatever it says.
func FuzzVMPin(f *testing.F) {
	f.Add("VmPeak:\t 1 kB\nVmPin:\t      12 kB\nVmHWM:\t 3 kB\n")
	f.Add("VmPin:")
	f.Add("VmPin: 99999999999999999999 kB")
	f.Fuzz(func(t *testing.T, s string) {
		if v := vmPin(s); v%1024 != 0 {
			t.Errorf("%q is %d", s, v)
		}
	})
}

func TestVMPin(t *testing.T) {
	for s, want := range map[string]uint64{
		"VmPeak:\t 1 kB\nVmPin:\t      12 kB\nVmHWM:\t 3 kB\n": 12 << 10,
		"VmPin: x kB\n": 0, "": 0, "VmPin:\t18014398509481984 kB\n": 0,
	} {
		if got := vmPin(s); got != want {
			t.Errorf("%q: %d, want %d", s, got, want)
		}
	}
}
