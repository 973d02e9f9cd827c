// Package cpu tells which cores this process may use and how much of them,
// how much memory and cache there is for it, and pins it to a core.
package cpu

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"
)

// root is the file system that /proc and /sys are read from; tests have their
// own.
var root fs.FS = os.DirFS("/")

// ErrUnknown says that the machine does not tell.
var ErrUnknown = errors.New("not known on this machine")

// Count is Limit in whole cores, rounded up. It is at least 1.
func Count() int { return max(1, int(math.Ceil(Limit()))) }

// Limit is how many cores' worth of time this process may use: the cores of
// its affinity mask, or what the cgroup's CPU limit leaves of them.
func Limit() float64 {
	cores := float64(runtime.NumCPU())
	if usable, err := Usable(); err == nil {
		cores = float64(len(usable))
	}
	if limit, err := cgroupCores(root); err == nil {
		cores = min(cores, limit)
	}
	return cores
}

// Limited is what the cgroup's CPU limit leaves of a number of cores, rounded
// up. It is at least 1.
func Limited(cores int) int {
	if limit, err := cgroupCores(root); err == nil {
		cores = min(cores, int(math.Ceil(limit)))
	}
	return max(1, cores)
}

// cgroupCores is the CPU limit of this process's cgroup in cores: the
// tightest of the cgroup and those above it.
func cgroupCores(fsys fs.FS) (float64, error) {
	limit := math.Inf(1)
	for _, dir := range cgroupDirs(fsys, "cpu") {
		if quota, period, ok := readPair(fsys, path.Join(dir, "cpu.max")); ok {
			limit = min(limit, quota/period)
		}
		quota, ok := readNumber(fsys, path.Join(dir, "cpu.cfs_quota_us"))
		period, ok2 := readNumber(fsys, path.Join(dir, "cpu.cfs_period_us"))
		if ok && ok2 && quota > 0 && period > 0 {
			limit = min(limit, quota/period)
		}
	}
	if math.IsInf(limit, 1) {
		return 0, ErrUnknown
	}
	return limit, nil
}

// MemAvailable is how many bytes this process could still take without
// swapping: what the machine has available, or what the cgroup's limit leaves.
func MemAvailable() (uint64, error) { return memAvailable(root) }

func memAvailable(fsys fs.FS) (uint64, error) {
	f, err := fsys.Open("proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("available memory: %w: %w", ErrUnknown, err)
	}
	defer f.Close()
	available := math.Inf(1)
	for s := bufio.NewScanner(f); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), "MemAvailable:"); ok {
			if kib, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64); err == nil {
				available = float64(kib) * 1024
			}
		}
	}
	for _, dir := range cgroupDirs(fsys, "memory") {
		for _, names := range [][3]string{
			{"memory.max", "memory.current", "inactive_file"},
			{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"},
		} {
			limit, ok := readNumber(fsys, path.Join(dir, names[0]))
			used, ok2 := readNumber(fsys, path.Join(dir, names[1]))
			if ok && ok2 {
				// Usage counts cached files, which make room when asked to.
				used = max(0, used-readStat(fsys, path.Join(dir, "memory.stat"), names[2]))
				available = min(available, max(0, limit-used))
			}
		}
	}
	if math.IsInf(available, 1) {
		return 0, fmt.Errorf("available memory: %w", ErrUnknown)
	}
	return uint64(available), nil
}

// CacheBytes is the size of the last cache before memory: the one that the
// first core reaches, which others may share.
func CacheBytes() (int, error) { return cacheBytes(root) }

func cacheBytes(fsys fs.FS) (int, error) {
	dirs, _ := fs.Glob(fsys, "sys/devices/system/cpu/cpu0/cache/index*")
	last, bytes := 0.0, 0
	for _, dir := range dirs {
		level, ok := readNumber(fsys, path.Join(dir, "level"))
		if !ok || level <= last {
			continue
		}
		text, _ := fs.ReadFile(fsys, path.Join(dir, "size"))
		size, found := strings.CutSuffix(strings.TrimSpace(string(text)), "K")
		if kib, err := strconv.Atoi(size); found && err == nil && kib > 0 {
			last, bytes = level, kib<<10
		}
	}
	if bytes == 0 {
		return 0, fmt.Errorf("size of the last cache: %w", ErrUnknown)
	}
	return bytes, nil
}

// Machine names the running kernel: two processes read the same name if they
// share a machine, also in different containers. It is empty where the kernel
// does not tell.
func Machine() string {
	boot, err := fs.ReadFile(root, "proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(boot))
}

// Model is the processor's name.
func Model() string { return model(root) }

func model(fsys fs.FS) string {
	f, err := fsys.Open("proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if key, value, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// cgroupDirs lists the directories of this process's cgroup and of those
// above it, version 2 and version 1 with the given controller.
func cgroupDirs(fsys fs.FS, controller string) []string {
	text, err := fs.ReadFile(fsys, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	var dirs []string
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		base := "sys/fs/cgroup"
		if parts[1] != "" { // version 1 names its controllers
			if !strings.Contains(","+parts[1]+",", ","+controller+",") {
				continue
			}
			base = path.Join(base, parts[1])
		}
		for at := path.Clean("/" + parts[2]); ; at = path.Dir(at) {
			dirs = append(dirs, path.Join(base, at))
			if at == "/" {
				break
			}
		}
	}
	return dirs
}

func readNumber(fsys fs.FS, name string) (float64, bool) {
	text, err := fs.ReadFile(fsys, name)
	if err != nil {
		return 0, false
	}
	x, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64) // "max" is no number
	return x, err == nil
}

// readStat reads one value of a file of "key value" lines, 0 where it is not.
func readStat(fsys fs.FS, name, key string) float64 {
	text, err := fs.ReadFile(fsys, name)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), " "); ok && k == key {
			if x, err := strconv.ParseFloat(v, 64); err == nil && x > 0 {
				return x
			}
		}
	}
	return 0
}

// readPair reads "quota period", as cpu.max has it.
func readPair(fsys fs.FS, name string) (a, b float64, ok bool) {
	text, err := fs.ReadFile(fsys, name)
	if err != nil {
		return 0, 0, false
	}
	fields := strings.Fields(string(text))
	if len(fields) != 2 {
		return 0, 0, false
	}
	a, errA := strconv.ParseFloat(fields[0], 64)
	b, errB := strconv.ParseFloat(fields[1], 64)
	return a, b, errA == nil && errB == nil && b > 0
}
