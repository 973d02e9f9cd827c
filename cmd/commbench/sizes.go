package main

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// maxSize bounds one buffer, so that sums of sizes cannot overflow.
const maxSize = 1 << 46

var sizePattern = regexp.MustCompile(`(?i)^\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)i?B?\s*$`)

// parseSize reads a number of bytes: 8, 64K, 1.5MiB, 1GB. All suffixes are
// powers of 1024.
func parseSize(s string) (int, error) {
	m := sizePattern.FindStringSubmatch(s)
	if m == nil {
		return 0, fmt.Errorf("%q is not a size: want bytes, or a number with K, M, G or T", s)
	}
	x, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a size: %w", s, err)
	}
	if m[2] != "" {
		x *= float64(int64(1) << (10 * (1 + strings.Index("KMGT", strings.ToUpper(m[2])))))
	}
	if x > maxSize {
		return 0, fmt.Errorf("%q is too large: at most %s", s, shortBytes(maxSize))
	}
	if x != math.Trunc(x) {
		return 0, fmt.Errorf("%q is not a whole number of bytes", s)
	}
	return int(x), nil
}

// sizeValue is a flag that holds a size.
type sizeValue struct {
	bytes int
	set   bool
}

func (v *sizeValue) String() string {
	if v.bytes == 0 {
		return ""
	}
	return shortBytes(v.bytes)
}

func (v *sizeValue) Set(s string) error {
	n, err := parseSize(s)
	if err != nil {
		return err
	}
	v.bytes, v.set = n, true
	return nil
}

func (*sizeValue) Type() string { return "size" }

// sweep lists the sizes from begin to end: times factor, or plus step where
// step is not 0.
func sweep(begin, end, step int, factor float64) ([]int, error) {
	switch {
	case begin <= 0:
		return nil, usagef("--begin must be at least 1 byte")
	case end < begin:
		return nil, usagef("--end %s is less than --begin %s", shortBytes(end), shortBytes(begin))
	case step == 0 && (factor <= 1 || math.IsNaN(factor) || math.IsInf(factor, 0)):
		return nil, usagef("--factor must be more than 1")
	}
	var sizes []int
	for at := begin; at <= end; {
		sizes = append(sizes, at)
		if len(sizes) > 10_000 {
			return nil, usagef("more than 10000 sizes from %s to %s", shortBytes(begin), shortBytes(end))
		}
		if step > 0 {
			at += step
		} else {
			at = max(at+1, int(min(float64(at)*factor, maxSize+1)))
		}
	}
	return sizes, nil
}

// shortBytes is a size as it would be typed: 64K, 100, 1G.
func shortBytes(n int) string {
	for i, suffix := range "TGMK" {
		unit := 1 << (10 * (4 - i))
		if n >= unit && n%unit == 0 {
			return strconv.Itoa(n/unit) + string(suffix)
		}
	}
	return strconv.Itoa(n)
}

// formatBytes is a size to be read: 1.5 GiB.
func formatBytes(n uint64) string {
	for i, suffix := range []string{"TiB", "GiB", "MiB", "KiB"} {
		unit := uint64(1) << (10 * (4 - i))
		if n >= unit {
			return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(n)/float64(unit)), ".0") + " " + suffix
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
