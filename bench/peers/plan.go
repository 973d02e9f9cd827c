package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Point is one thing to measure: so many ranks, so many bytes.
type Point struct {
	Ranks int
	Bytes int64
}

var (
	defaultRanks = []int{2, 4, 8}
	defaultSizes = []int64{8, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20, 1 << 30}
	quickRanks   = []int{2, 4}
	quickSizes   = []int64{8, 64 << 10, 1 << 20, 16 << 20}
)

// footprint is the memory a point takes, with room for the library's own.
func footprint(p Point, inPlace bool) int64 {
	buffers := int64(1)
	if !inPlace {
		buffers = 2
	}
	return int64(float64(int64(p.Ranks)*p.Bytes*buffers) * 1.3)
}

// skipReason says why a point is left out, or nothing. Above 256 MiB the
// default matrix has two ranks only: more would take minutes a peer.
func skipReason(p Point, inPlace, explicit bool, available int64) string {
	if !explicit && p.Bytes > 256<<20 && p.Ranks > 2 {
		return "over 256 MiB the default matrix has two ranks only (name --sizes to have it)"
	}
	if need := footprint(p, inPlace); need > available {
		return fmt.Sprintf("needs %s of memory, %s are available", sizeName(need), sizeName(available))
	}
	return ""
}

// batchOf is how many calls one iteration times; bench.h has the same rule.
func batchOf(bytes int64) int {
	switch {
	case bytes <= 4<<10:
		return 100
	case bytes <= 64<<10:
		return 10
	default:
		return 1
	}
}

// itersFor is how many iterations fit a cap when one call takes callUS; bench.h
// has the same rule. An unknown time gets few.
func itersFor(limit time.Duration, callUS float64, bytes int64, most int) int {
	if callUS <= 0 {
		return 5
	}
	fit := float64(limit.Microseconds()) / (callUS * float64(batchOf(bytes)))
	least := 5
	if fit < 6 {
		least = 3
	}
	return min(max(int(min(fit, float64(most))), least), most)
}

// runLimit is when a run is given up: start-up, plus far more than the bytes need.
func runLimit(base time.Duration, ranks int, sizes ...int64) time.Duration {
	d := base
	for _, b := range sizes {
		d += time.Second + time.Duration(float64(int64(ranks)*b)/1e9*float64(15*time.Second))
	}
	return d
}

func parseInts(s string) ([]int, error) {
	var v []int
	for _, f := range strings.Split(s, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(f))
		if err != nil || n < 2 {
			return nil, fmt.Errorf("%q is not a number of ranks", f)
		}
		v = append(v, n)
	}
	return v, nil
}

func parseSizes(s string) ([]int64, error) {
	var v []int64
	for _, f := range strings.Split(s, ",") {
		f = strings.TrimSpace(f)
		digits, shift := f, 0
		if f != "" {
			if i := strings.IndexByte("KMG", f[len(f)-1]&^0x20); i >= 0 {
				digits, shift = f[:len(f)-1], 10*(i+1)
			}
		}
		n, err := strconv.ParseInt(digits, 10, 32)
		if err != nil || n <= 0 {
			return nil, fmt.Errorf("%q is not a size (bytes, or with K, M or G)", f)
		}
		v = append(v, n<<shift)
	}
	return v, nil
}

func sizeName(b int64) string {
	switch {
	case b >= 1<<30 && b%(1<<30) == 0:
		return fmt.Sprintf("%d GiB", b>>30)
	case b >= 10<<30:
		return fmt.Sprintf("%.1f GiB", float64(b)/(1<<30))
	case b >= 1<<20:
		return fmt.Sprintf("%d MiB", b>>20)
	case b >= 1<<10 && b%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", b>>10)
	default:
		return fmt.Sprintf("%d B", b)
	}
}
