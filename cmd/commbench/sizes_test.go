package main

import (
	"slices"
	"testing"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int{
		"8": 8, "0": 0, "1K": 1 << 10, "1k": 1 << 10, "64KiB": 64 << 10, "64kb": 64 << 10, "1.5M": 3 << 19,
		"1G": 1 << 30, "2GiB": 2 << 30, "1T": 1 << 40, " 4 M ": 4 << 20, "100B": 100, "0.5K": 512,
	} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("parseSize(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "K", "-1", "1Q", "1e3", "0x10", "1.5", "NaN", "1.1.1", "8 8", "100T", "1KK", "∞", "1_000"} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("parseSize(%q) = %d; want an error", text, got)
		}
	}
}

func TestSweep(t *testing.T) {
	for _, tt := range []struct {
		begin, end, step int
		factor           float64
		want             []int
	}{
		{8, 64, 0, 2, []int{8, 16, 32, 64}},
		{8, 100, 0, 4, []int{8, 32}},
		{8, 8, 0, 2, []int{8}},
		{100, 350, 100, 2, []int{100, 200, 300}},
		{1, 4, 0, 1.1, []int{1, 2, 3, 4}}, // always moves on
		{8, 4, 0, 2, nil},
		{0, 4, 0, 2, nil},
		{8, 64, 0, 1, nil},
		{1, 1 << 40, 1, 2, nil}, // too many
	} {
		got, err := sweep(tt.begin, tt.end, tt.step, tt.factor)
		if !slices.Equal(got, tt.want) || (err == nil) != (tt.want != nil) {
			t.Errorf("sweep(%d, %d, %d, %v) = %v, %v; want %v", tt.begin, tt.end, tt.step, tt.factor, got, err, tt.want)
		}
	}
}

func TestSizesAreWrittenAsTheyAreRead(t *testing.T) {
	for _, n := range []int{1, 8, 1000, 1 << 10, 3 << 19, 1 << 30, 1<<30 + 1, 5 << 40} {
		if got, err := parseSize(shortBytes(n)); err != nil || got != n {
			t.Errorf("%d is written %q and read %d, %v", n, shortBytes(n), got, err)
		}
	}
	for n, want := range map[uint64]string{100: "100 bytes", 1 << 10: "1 KiB", 3 << 29: "1.5 GiB"} {
		if got := formatBytes(n); got != want {
			t.Errorf("formatBytes(%d) = %q, want %q", n, got, want)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"8", "1.5G", "64KiB", "x", "1e9"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := parseSize(s)
		if err == nil && (n < 0 || n > maxSize) {
			t.Errorf("parseSize(%q) = %d", s, n)
		}
	})
}
