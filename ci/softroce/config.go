package softroce

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// Config says what to boot. The zero Config is two machines with one
// processor each.
type Config struct {
	Machines  int // 2 where 0
	CPUs      int // of each; 1 where 0
	MemoryMiB int // of each; 768 where 0
	MTU       int // of eth0; 4200 where 0, which gives rxe0 its largest, 4096

	// Files are put into every machine: path there, path here. Programs bring
	// the libraries that they need.
	Files map[string]string
	// Modules are loaded besides those that the network takes.
	Modules []string
	// MPI brings Open MPI with UCX into the machines.
	MPI bool

	// Accel is "kvm" or "tcg", QEMU's emulation. Where it is "",
	// TUTTI_SOFTROCE_ACCEL decides, and without that what the processor can.
	Accel string
	// CPU is the processor model as QEMU has it; "" is the one found best.
	CPU string
	// Limit is how long a boot may take; 3 minutes where 0.
	Limit time.Duration

	// Log gets a line about each thing that takes time; nil drops them.
	Log func(format string, args ...any)
}

func (c Config) filled() (Config, error) {
	set := func(n *int, value int) {
		if *n == 0 {
			*n = value
		}
	}
	set(&c.Machines, 2)
	set(&c.CPUs, 1)
	set(&c.MemoryMiB, 768)
	set(&c.MTU, 4200)
	if c.Limit == 0 {
		c.Limit = 3 * time.Minute
	}
	if c.Log == nil {
		c.Log = func(string, ...any) {}
	}
	if c.Accel == "" {
		c.Accel = os.Getenv(EnvAccel)
	}
	switch {
	case c.Machines < 1 || c.Machines > 64:
		return c, fmt.Errorf("softroce: %d machines, there may be 1 to 64", c.Machines)
	case c.CPUs < 1 || c.MemoryMiB < 128 || c.MTU < 576 || c.MTU > 65535:
		return c, fmt.Errorf("softroce: a machine of %d processors, %d MiB and MTU %d", c.CPUs, c.MemoryMiB, c.MTU)
	case c.Accel != "" && c.Accel != "kvm" && c.Accel != "tcg":
		return c, fmt.Errorf("softroce: no accelerator %q, there is kvm and tcg; see %s", c.Accel, EnvAccel)
	}
	return c, nil
}

// virtualises reports whether processor and kernel run machines at full speed.
// The device node alone does not say so: there are kernels that offer /dev/kvm
// on a processor without the instructions, for guests that know of it only.
func virtualises() bool {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return false
	}
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	_ = f.Close()
	return hasVirtualisation(string(info))
}

func hasVirtualisation(cpuinfo string) bool {
	for line := range strings.Lines(cpuinfo) {
		key, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(key) != "flags" {
			continue
		}
		for _, flag := range strings.Fields(value) {
			if flag == "vmx" || flag == "svm" {
				return true
			}
		}
	}
	return false
}
