package shm

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unsafe"
)

// What is mapped in this process, as /proc/self/maps and smaps show it.

// vma is one mapping: a line of /proc/self/maps.
type vma struct {
	start, end uintptr
	perms      string // "rw-p": read, write, execute, private or shared
	offset     uint64 // in the file
	device     string // "major:minor" of the file, in hexadecimal
	inode      uint64 // of the file; 0 for memory that is no file's
	name       string // of the file, or what the kernel calls the memory
}

// ownMappings reads /proc/self/maps.
func ownMappings() ([]vma, error) {
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	return parseMaps(b)
}

// parseMaps reads the text of a maps file. What it returns is in the order of
// addresses and does not overlap.
func parseMaps(text []byte) ([]vma, error) {
	var all []vma
	for line := range bytes.Lines(text) {
		v, err := parseMapping(strings.TrimSuffix(string(line), "\n"))
		if err != nil {
			return nil, err
		}
		if n := len(all); n > 0 && v.start < all[n-1].end {
			return nil, fmt.Errorf("mapping %#x-%#x comes after %#x-%#x", v.start, v.end, all[n-1].start, all[n-1].end)
		}
		all = append(all, v)
	}
	return all, nil
}

// parseMapping reads one line: "start-end perms offset device inode   name".
// The name may hold spaces.
func parseMapping(line string) (vma, error) {
	var v vma
	var fields [5]string
	rest := line
	for i := range fields {
		fields[i], rest, _ = strings.Cut(rest, " ")
	}
	from, to, _ := strings.Cut(fields[0], "-")
	start, err1 := strconv.ParseUint(from, 16, strconv.IntSize)
	end, err2 := strconv.ParseUint(to, 16, strconv.IntSize)
	offset, err3 := strconv.ParseUint(fields[2], 16, 64)
	inode, err4 := strconv.ParseUint(fields[4], 10, 64)
	for _, err := range []error{err1, err2, err3, err4} {
		if err != nil {
			return v, fmt.Errorf("mapping %q: %w", line, err)
		}
	}
	perms := fields[1]
	if start >= end || len(perms) != 4 || !strings.Contains("ps", perms[3:]) || !strings.Contains(fields[3], ":") {
		return v, fmt.Errorf("mapping %q: not of the known form", line)
	}
	return vma{
		start: uintptr(start), end: uintptr(end), perms: perms, offset: offset,
		device: fields[3], inode: inode, name: strings.TrimLeft(rest, " "),
	}, nil
}

// covering returns the mappings that touch the range, or an error that says
// where nothing is mapped in it.
func covering(all []vma, start, end uintptr) ([]vma, error) {
	first, _ := slices.BinarySearchFunc(all, start, func(v vma, at uintptr) int {
		if v.end <= at {
			return -1
		}
		return 1
	})
	at, n := start, first
	for ; n < len(all) && all[n].start <= at && at < end; n++ {
		at = all[n].end
	}
	if at < end {
		return nil, fmt.Errorf("nothing is mapped at %#x", at)
	}
	return all[first:n], nil
}

// unfit says why the memory of a mapping must not be exchanged for other pages,
// or "".
func (v *vma) unfit() string {
	ours := v.name == "/memfd:"+segmentName+" (deleted)"
	switch {
	case v.perms[3] == 's' && ours:
		return "it is a communicator's already: adopted before, or a region"
	case v.perms[3] == 's':
		return "it is mapped shared (" + v.name + ")"
	case ours && v.perms[:3] == "rw-":
		return "" // adopted once, until a fabric closed: private by now
	case v.inode != 0:
		return "it is a mapping of the file " + v.name
	case strings.HasPrefix(v.name, "[anon: Go:"):
		return "it belongs to Go's runtime (" + v.name + "); use memory from Alloc"
	case strings.Contains(v.name, "stack"):
		return "it is a thread's stack (" + v.name + ")"
	case v.name == "[heap]":
		return "it is in the heap that C's malloc grows and shrinks (brk), not a block of its own"
	case v.name != "" && !strings.HasPrefix(v.name, "[anon:"):
		return "it is " + v.name
	case v.perms[:3] != "rw-":
		return "it is " + v.perms[:3] + ", not readable and writable data"
	}
	return ""
}

// careless names a library of the process that would be led astray by memory
// that it gets back while it is adopted, or is "". jemalloc's calloc clears
// blocks by MADV_DONTNEED, which leaves shared pages as they are. Where it is
// linked statically it has no mapping of its own and is not found.
func careless(all []vma) string {
	for i := range all {
		if all[i].inode != 0 && strings.Contains(filepath.Base(all[i].name), "jemalloc") {
			return all[i].name
		}
	}
	return ""
}

// unfitFlags are the kernel's marks (VmFlags in smaps) of memory that loses its
// meaning, or somebody's trust, if other pages take its place. Locked memory
// (lo) is not among them: adopted memory is locked as well, where that is
// allowed.
var unfitFlags = map[string]string{
	"gd": "it grows downwards, as stacks do",
	"dd": "it is marked not to be dumped (MADV_DONTDUMP)",
	"dc": "it is marked not to be inherited (MADV_DONTFORK)",
	"wf": "it is marked to be empty in children (MADV_WIPEONFORK)",
	"io": "it is a device's",
	"pf": "it is a device's",
	"mm": "it is a device's",
	"ht": "it is of huge pages (hugetlb)",
	"um": "userfaultfd watches it",
	"uw": "userfaultfd watches it",
	"ss": "it is a shadow stack",
	"sl": "it is sealed (mseal)",
}

// flagsAreCheap reports whether the flags of that much memory may be looked up.
// The kernel shows them only together with figures for which it walks the page
// tables of all that lies before, 100 ms for each resident GiB of small pages
// where we measured, a tenth of what adopting it takes. So that many small
// adoptions in a large process do not take minutes, it is done where the walk is
// short, or short beside the adoption itself.
func flagsAreCheap(bytes int) (bool, error) {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return false, err
	}
	var size, resident int
	if _, err := fmt.Sscan(string(b), &size, &resident); err != nil {
		return false, fmt.Errorf("/proc/self/statm %q: %w", b, err)
	}
	return resident <= max(512<<20, 10*bytes)/os.Getpagesize(), nil
}

// flagged reads smaps as far as the range and says which flag is in the way of
// it, or "".
func flagged(smaps *bufio.Scanner, start, end uintptr) (string, error) {
	inside := false
	for smaps.Scan() {
		line := smaps.Text()
		key, value, _ := strings.Cut(line, ":")
		if key == "VmFlags" {
			for f := range strings.FieldsSeq(value) {
				if reason := unfitFlags[f]; inside && reason != "" {
					return reason, nil
				}
			}
			continue
		}
		if v, err := parseMapping(line); err == nil {
			if v.start >= end {
				break
			}
			inside = v.end > start
		}
	}
	return "", smaps.Err()
}

// goHeap reports whether the range is in Go's heap, which holds goroutines'
// stacks too. Go reserves address space for it in large pieces side by side, so
// it is the run of mappings without a gap around what Go has allocated. A heap
// that other mappings keep from growing at its end has more pieces; those are
// found only where the kernel shows names, or when all comes from them.
func goHeap(all []vma, start, end uintptr) bool {
	var local byte
	anchors := [2]uintptr{uintptr(unsafe.Pointer(unsafe.SliceData(all))), uintptr(unsafe.Pointer(&local))}
	for i := 0; i < len(all); {
		from := all[i].start
		for i++; i < len(all) && all[i].start == all[i-1].end; i++ {
		}
		to := all[i-1].end
		if to <= start || from >= end {
			continue
		}
		for _, at := range anchors {
			if at >= from && at < to {
				return true
			}
		}
	}
	return false
}
