package shm

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
)

const someMaps = `00400000-004ab000 r-xp 00000000 fe:00 10216296                           /usr/bin/a program
00599000-005cf000 rw-p 00000000 00:00 0 
005cf000-00600000 rw-p 00000000 00:00 0                                  [heap]
7f6531249000-7f653124d000 r--p 00000000 00:00 0                          [vvar]
7ffcd77dc000-7ffcd77fd000 rw-p 00000000 00:00 0                          [stack]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
`

func TestParseMaps(t *testing.T) {
	all, err := parseMaps([]byte(someMaps))
	if err != nil || len(all) != 6 {
		t.Fatal(all, err)
	}
	want := vma{0x400000, 0x4ab000, "r-xp", 0, "fe:00", 10216296, "/usr/bin/a program"}
	if all[0] != want {
		t.Errorf("got %+v", all[0])
	}
	if (all[1] != vma{0x599000, 0x5cf000, "rw-p", 0, "00:00", 0, ""}) {
		t.Errorf("got %+v", all[1])
	}
	for _, bad := range []string{
		"nonsense", "1-2", "2000-1000 rw-p 0 00:00 0", "1000-2000 rw-x 0 00:00 0", "1000-2000 rwp 0 00:00 0",
		"1000-2000 rw-p 0 0000 0", "1000-2000 rw-p 0 00:00 x", "-2000 rw-p 0 00:00 0", "1000-20000000000000000 rw-p 0 00:00 0",
		"2000-3000 rw-p 0 00:00 0\n1000-2001 rw-p 0 00:00 0", "\n",
	} {
		if all, err := parseMaps([]byte(bad)); err == nil {
			t.Errorf("%q: %+v", bad, all)
		}
	}
}

func TestCovering(t *testing.T) {
	all, err := parseMaps([]byte(someMaps))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		start, end uintptr
		first, n   int // n: 0 for an error
	}{
		{0x400000, 0x400001, 0, 1},
		{0x4aafff, 0x4ab000, 0, 1},
		{0x4ab000, 0x4ab001, 0, 0},
		{0x4aafff, 0x4ab001, 0, 0},
		{0x599000, 0x600000, 1, 2},
		{0x5cefff, 0x5cf001, 1, 2},
		{0x5cf000, 0x5cf001, 2, 1},
		{0x5cf000, 0x600001, 0, 0},
		{0, 1, 0, 0},
		{^uintptr(0) - 1, ^uintptr(0), 0, 0},
	} {
		got, err := covering(all, tt.start, tt.end)
		if (err == nil) != (tt.n > 0) || len(got) != tt.n || tt.n > 0 && got[0] != all[tt.first] {
			t.Errorf("%#x-%#x: %+v, %v", tt.start, tt.end, got, err)
		}
	}
}

// TestUnfit is of mappings that not every machine has.
func TestUnfit(t *testing.T) {
	for line, want := range map[string]string{
		"rw-p 0 00:00 0":                           "",
		"rw-p 0 00:00 0  [anon:jemalloc]":          "",
		"rw-p 0 00:00 0  [heap]":                   "brk",
		"rw-p 0 00:00 0  [stack]":                  "stack",
		"rw-p 0 00:00 0  [stack:1234]":             "stack",
		"rw-p 0 00:00 0  [anon: glibc: thr stack]": "stack",
		"rw-p 0 00:00 0  [anon: Go: heap]":         "Go's runtime",
		"rw-p 0 00:00 0  [vvar]":                   "[vvar]",
		"rw-p 0 00:0f 99 /anon_hugepage (deleted)": "file /anon_hugepage",
		"rw-s 0 00:05 99 /dev/zero (deleted)":      "mapped shared",
		"rw-s 0 00:06 99 /dev/nvidia0":             "mapped shared",
		"rw-p 0 00:01 99 /memfd:tutti (deleted)":   "",
		"r--p 0 00:01 99 /memfd:tutti (deleted)":   "file",
		"rw-s 0 00:01 99 /memfd:tutti (deleted)":   "already",
		"rw-p 0 00:01 99 /memfd:another (deleted)": "file",
		"rwxp 0 00:00 0":                           "rwx",
		"r--p 0 00:00 0":                           "not readable and writable",
		"---p 0 00:00 0":                           "not readable and writable",
	} {
		v, err := parseMapping("1000-2000 " + line)
		if err != nil {
			t.Fatal(err)
		}
		if got := v.unfit(); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

func TestFlagged(t *testing.T) {
	smaps := func(flags ...string) *bufio.Scanner {
		var b strings.Builder
		for i, f := range flags {
			fmt.Fprintf(&b, "%x000-%x000 rw-p 00000000 00:00 0\nSize:  4 kB\nVmFlags: rd wr mr mw me %s \n", i+1, i+2, f)
		}
		return bufio.NewScanner(strings.NewReader(b.String()))
	}
	for _, tt := range []struct {
		flags []string
		want  string
	}{
		{[]string{"", "ac", "sd lo"}, ""},
		{[]string{"gd", "ac", "ht"}, ""}, // on both sides of it
		{[]string{"", "ac gd", ""}, "downwards"},
		{[]string{"", "ht", ""}, "huge"},
		{[]string{"", "io", ""}, "device"},
		{[]string{"", "sl", ""}, "sealed"},
	} {
		got, err := flagged(smaps(tt.flags...), 0x2000, 0x3000)
		if err != nil || (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%q: %q, %v", tt.flags, got, err)
		}
	}
}

func FuzzParseMaps(f *testing.F) {
	f.Add([]byte(someMaps), uint64(0x599000), uint64(0x600000))
	if own, err := os.ReadFile("/proc/self/maps"); err == nil {
		f.Add(own, uint64(0), uint64(1))
	}
	f.Fuzz(func(t *testing.T, text []byte, start, end uint64) {
		all, err := parseMaps(text)
		if err != nil {
			return
		}
		if n := bytes.Count(text, []byte("\n")); len(all) < n || len(all) > n+1 {
			t.Errorf("%d mappings in %d lines", len(all), n)
		}
		for i := range all {
			if all[i].start >= all[i].end || i > 0 && all[i].start < all[i-1].end {
				t.Errorf("mapping %d: %+v", i, all[i])
			}
			_, _ = all[i].unfit(), all[i].protection()
		}
		if start >= end {
			return
		}
		touched, err := covering(all, uintptr(start), uintptr(end))
		if err == nil && (touched[0].start > uintptr(start) || touched[len(touched)-1].end < uintptr(end)) {
			t.Errorf("%#x-%#x is not covered by %+v", start, end, touched)
		}
		_ = goHeap(all, uintptr(start), uintptr(end))
		_, _ = flagged(bufio.NewScanner(bytes.NewReader(text)), uintptr(start), uintptr(end))
	})
}
