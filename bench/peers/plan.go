package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

var (
	defaultRanks = []int{2, 4}
	defaultSizes = []int64{8, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20}
	quickRanks   = []int{2}
	quickSizes   = []int64{8, 64 << 10, 1 << 20, 16 << 20}
)

// A group is the points of one collective and number of ranks: a table of the
// report, and what is calibrated together.
type group struct {
	op    Op
	ranks int
	sizes []int64
}

// A barrier has one size, which is none.
func groupsOf(ops []Op, ranks []int, sizes []int64) []group {
	var gs []group
	for _, o := range ops {
		of := slices.Compact(slices.Sorted(slices.Values(sizes)))
		if o.Name == barrierOp {
			of = []int64{0}
		}
		for _, n := range ranks {
			gs = append(gs, group{o, n, of})
		}
	}
	return gs
}

// bands splits sizes into those that share a peer's launch in a round. Small
// ones cost less than starting the ranks does; from 1 MiB on a launch's time
// is the measurement's own, and sharing one would only put the peer's run of a
// size further from Tutti's.
func bands(sizes []int64) [][]int64 {
	var small []int64
	var all [][]int64
	for _, b := range sizes {
		if b <= smallSize {
			small = append(small, b)
		} else {
			all = append(all, []int64{b})
		}
	}
	if len(small) > 0 {
		all = append([][]int64{small}, all...)
	}
	return all
}

const (
	smallSize = 64 << 10
	// Above this only the variants that were near the best at this size,
	// where it is measured, are calibrated: a run takes seconds there.
	everyVariant = 16 << 20
)

// footprint is the memory a point takes, with room for the library's own.
func footprint(o Op, ranks int, bytes int64, inPlace bool) int64 {
	return int64(float64(o.buffers(ranks, bytes, inPlace)) * 1.3)
}

// skipReason says why a point is left out, or nothing.
func skipReason(o Op, ranks int, bytes int64, inPlace bool, available int64) string {
	if need := footprint(o, ranks, bytes, inPlace); need > available {
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

// guess is about how long a group takes, for the estimate that is printed.
func (c *campaign) guess(g group) time.Duration {
	const (
		start     = 0.7  // seconds to start and end a peer's ranks, and
		tutti     = 0.25 // commbench's
		calibrate = 0.1  // a calibrating run's iterations at a size
		perByte   = 6e-9 // setting up, filling and checking
	)
	most := c.cap.Seconds()
	variants := 0.0
	for _, r := range c.runners {
		variants += float64(len(c.usable(r.Peer, g.op, g.ranks)))
	}
	contenders := float64(max(1, min(c.work.Contenders, len(c.runners))))
	runs := contenders * float64(len(c.work.Memory)) // of commbench, in a round at a size
	if c.tutti == "" {
		runs = 0
	}
	if len(c.runners) == 0 {
		contenders = 0
	}
	seconds := variants * start
	for _, b := range g.sizes {
		bytes := float64(int64(g.ranks)*b) * perByte
		if b > everyVariant {
			seconds += min(variants, mostAbove) * (start + calibrate + bytes)
		} else {
			seconds += variants * (calibrate + bytes)
		}
		seconds += float64(c.rounds) * (contenders*(most+bytes) + runs*(tutti+most+bytes))
	}
	seconds += float64(c.rounds*len(bands(g.sizes))) * contenders * start
	return time.Duration(seconds * float64(time.Second))
}
