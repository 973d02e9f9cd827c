package main

import (
	"slices"
	"time"
)

// times are of the slowest rank in each sample, in microseconds a call.
type times struct {
	Min float64 `json:"min"`
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
	Avg float64 `json:"avg"`
}

// summarize takes samples of batch calls each, and sorts them.
func summarize(samples []time.Duration, batch int) times {
	if len(samples) == 0 {
		return times{}
	}
	slices.Sort(samples)
	us := func(d time.Duration) float64 { return float64(d) / 1e3 / float64(batch) }
	var sum time.Duration
	for _, d := range samples {
		sum += d
	}
	n := len(samples)
	p50 := us(samples[n/2])
	if n%2 == 0 {
		p50 = (us(samples[n/2-1]) + p50) / 2
	}
	return times{
		Min: us(samples[0]),
		P50: p50,
		P99: us(samples[min(n-1, (n*99+99)/100-1)]), // nearest rank
		Max: us(samples[n-1]),
		Avg: us(sum) / float64(n),
	}
}

// result is what was found at one size, type and operator, in place or out of
// place: one line of JSON.
type result struct {
	Op      string  `json:"op"`
	Path    string  `json:"path"`
	Algo    string  `json:"algo"`
	Ranks   int     `json:"ranks"`
	Bytes   int     `json:"bytes"`
	Count   int     `json:"count"`
	DType   string  `json:"dtype"`
	RedOp   string  `json:"redop"`
	Root    int     `json:"root"` // -1: none
	InPlace bool    `json:"in_place"`
	Memory  string  `json:"memory"`
	Iters   int     `json:"iters"`
	Time    times   `json:"time_us"`
	AlgBW   float64 `json:"algbw_gbs"`
	BusBW   float64 `json:"busbw_gbs"`
	// Wrong counts elements on all ranks; null where they were not checked.
	Wrong *int64 `json:"wrong"`
	// Ratio is the floor's time over the measured time, with --vs-roofline.
	Ratio *float64 `json:"roofline_ratio,omitempty"`
	// Uneven: a v form whose counts differ; count is then the mean.
	Uneven bool `json:"uneven,omitempty"`
	// Wire is the form of the elements on their way, where it is not their own.
	Wire    string   `json:"wire,omitempty"`
	Overlap *overlap `json:"overlap,omitempty"`

	factor float64 // from AlgBW to BusBW
}

// bandwidths fills in the rates that follow from size and time.
func (r *result) bandwidths() {
	if r.Time.P50 <= 0 || r.Bytes == 0 {
		return
	}
	r.AlgBW = float64(r.Bytes) / (r.Time.P50 * 1e3)
	r.BusBW = r.AlgBW * r.factor
}

// point is a row of the table: the same work out of place and in place, either
// of which may be missing.
type point struct {
	OutOfPlace *result `json:"out_of_place,omitempty"`
	InPlace    *result `json:"in_place,omitempty"`
}

// results are the point's, in the order they are printed.
func (p *point) results() []*result {
	var all []*result
	for _, r := range []*result{p.OutOfPlace, p.InPlace} {
		if r != nil {
			all = append(all, r)
		}
	}
	return all
}

// floor is a line of commbench roofline.
type floor struct {
	Op      string  `json:"op"` // "roofline"
	Kernel  string  `json:"kernel"`
	Ranks   int     `json:"ranks"`
	Bytes   int     `json:"bytes"`
	Count   int     `json:"count"`
	DType   string  `json:"dtype"`
	RedOp   string  `json:"redop"`
	Iters   int     `json:"iters"`
	Time    times   `json:"time_us"`
	AlgBW   float64 `json:"algbw_gbs"`
	BusBW   float64 `json:"busbw_gbs"`
	Traffic float64 `json:"traffic_gbs"` // loads and stores of all ranks
	Read    float64 `json:"read_gbs"`    // loads, all ranks at once
	Copy    float64 `json:"copy_gbs"`    // loads and stores
	Reduce  float64 `json:"reduce_gbs"`  // loads of all buffers and stores to one
}
