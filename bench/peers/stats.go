package main

import "slices"

// A Spread is what several rounds gave: their median, and how far apart they were.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Rounds int     `json:"rounds"`
}

// spread summarises rounds; it is nil when there were none.
func spread(v []float64) *Spread {
	if len(v) == 0 {
		return nil
	}
	s := slices.Sorted(slices.Values(v))
	n := len(s)
	return &Spread{Median: (s[(n-1)/2] + s[n/2]) / 2, Min: s[0], Max: s[n-1], Rounds: n}
}

// A Pair is one round: a peer's time and, taken right after it, Tutti's. Zero
// means that side gave none.
type Pair struct {
	Peer, Alloc, User float64
}

// ratios divides within each round, so that a slow spell of the machine, which
// hits both sides of a pair, drops out; only then is the median taken.
func ratios(pairs []Pair, tutti func(Pair) float64) []float64 {
	var r []float64
	for _, p := range pairs {
		if t := tutti(p); t > 0 && p.Peer > 0 {
			r = append(r, p.Peer/t)
		}
	}
	return r
}

func column(pairs []Pair, side func(Pair) float64) []float64 {
	var v []float64
	for _, p := range pairs {
		if x := side(p); x > 0 {
			v = append(v, x)
		}
	}
	return v
}

func sidePeer(p Pair) float64  { return p.Peer }
func sideAlloc(p Pair) float64 { return p.Alloc }
func sideUser(p Pair) float64  { return p.User }
