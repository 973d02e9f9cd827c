package main

import (
	"bufio"
	"bytes"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// Machine is what the numbers were taken on.
type Machine struct {
	CPU       string `json:"cpu"`
	Cores     int    `json:"cores"` // usable, by the affinity mask
	Kernel    string `json:"kernel"`
	MemoryMiB int64  `json:"memory_mib"`
	Go        string `json:"go"`
}

func thisMachine() Machine {
	m := Machine{Cores: runtime.NumCPU(), Go: runtime.Version(), CPU: runtime.GOARCH, MemoryMiB: meminfo("MemTotal") >> 20}
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if v := colonValue(b, "model name"); v != "" {
			m.CPU = v
		}
	}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(b))
	}
	return m
}

// availableMemory is what the kernel thinks can be had without swapping; where
// it does not say, no point is refused.
func availableMemory() int64 {
	if v := meminfo("MemAvailable"); v > 0 {
		return v
	}
	return 1 << 62
}

func meminfo(key string) int64 {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSuffix(colonValue(b, key), " kB"), 10, 64) // 0 if absent
	return n << 10
}

func colonValue(b []byte, key string) string {
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		if k, v, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
