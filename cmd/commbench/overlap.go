package main

import (
	"context"
	"slices"
	"time"
)

// overlap says how much of a call's time hides behind computing. Times are
// medians, in microseconds a call.
type overlap struct {
	Comm    float64 `json:"comm_us"`    // issued, and waited for at once
	Compute float64 `json:"compute_us"` // the computation alone
	Both    float64 `json:"both_us"`    // issued, computed, waited for

	// Hidden is the share of Comm that both together save of the sum, taken in
	// each iteration: the median and the quartiles. Less than nothing counts
	// as nothing. More than all is as it was measured: something else made
	// one of the two alone slower.
	Hidden float64 `json:"hidden"`
	Low    float64 `json:"hidden_p25"`
	High   float64 `json:"hidden_p75"`
}

// computation is arithmetic on memory of the rank's own, which stays in the
// first-level cache: it takes a core, and nothing of what a call needs besides.
type computation struct {
	x    []float64
	next int
}

const (
	computeElements = 2048
	computeUnit     = 64 // elements that are computed at a time
)

func newComputation() *computation { return &computation{x: make([]float64, computeElements)} }

// run computes some units. Its results are kept, in memory that the compiler
// knows nothing of.
//
//go:noinline
func (c *computation) run(units int) {
	for range units {
		x := c.x[c.next:][:computeUnit]
		for i := range x {
			x[i] = x[i]*0.999 + 0.5 // towards 500
		}
		c.next = (c.next + computeUnit) % len(c.x)
	}
}

// unitsFor is how many units take about so long. All ranks measure at once.
func (c *computation) unitsFor(d time.Duration) int {
	const enough = 2 * time.Millisecond
	for units := 1 << 10; ; units *= 2 {
		took := time.Duration(1 << 62)
		for range 3 {
			began := time.Now()
			c.run(units)
			took = min(took, time.Since(began))
		}
		if took >= enough || units >= 1<<30 {
			return max(1, int(float64(units)*float64(d)/float64(took)))
		}
	}
}

// async is the operation issued, and waited for.
func (b *binding) async(ctx context.Context) error { return b.beside(ctx, func() {}) }

// beside does something else meanwhile.
func (b *binding) beside(ctx context.Context, work func()) error {
	w, err := b.op.issue(ctx, b)
	if err != nil {
		return err
	}
	work()
	return w.Wait(ctx)
}

// besides measures how much of an operation hides behind a computation that
// takes as long. The three samples of an iteration are taken in turn.
func (r *rank) besides(ctx context.Context, b *binding, limit time.Duration) (*overlap, error) {
	s := &sampler{r, r.comm.Barrier, batchFor(r.options, b.bytes)}
	sample, err := s.warm(ctx, b.async, warmupFor(r.options, b.bytes))
	if err != nil {
		return nil, err
	}
	defer quiet()()
	first, err := s.take(ctx, b.async, leastIters, nil)
	if err != nil {
		return nil, err
	}
	if first, err = r.slowest(ctx, first); err != nil {
		return nil, err
	}
	c := newComputation()
	units := c.unitsFor(time.Duration(summarize(first, s.batch).P50 * 1e3))
	work := func() { c.run(units) }
	parts := [3]callFunc{
		b.async,
		func(context.Context) error { work(); return nil },
		func(ctx context.Context) error { return b.beside(ctx, work) },
	}
	var samples [3][]time.Duration
	for range itersFor(r.options, s.batch, 3*sample, limit) {
		for i, call := range parts {
			if samples[i], err = s.take(ctx, call, 1, samples[i]); err != nil {
				return nil, err
			}
		}
	}
	for i := range samples {
		if samples[i], err = r.slowest(ctx, samples[i]); err != nil {
			return nil, err
		}
	}
	return hidden(samples[0], samples[1], samples[2], s.batch), nil
}

// hidden is what samples of batch calls each amount to.
func hidden(comm, compute, both []time.Duration, batch int) *overlap {
	shares := make([]float64, len(comm))
	for i := range comm {
		shares[i] = max(0, float64(comm[i]+compute[i]-both[i])/float64(max(1, comm[i])))
	}
	slices.Sort(shares)
	at := func(quantile float64) float64 {
		place := quantile * float64(len(shares)-1)
		low := int(place)
		high := min(low+1, len(shares)-1)
		return shares[low] + (shares[high]-shares[low])*(place-float64(low))
	}
	return &overlap{
		Comm: summarize(comm, batch).P50, Compute: summarize(compute, batch).P50, Both: summarize(both, batch).P50,
		Hidden: at(0.5), Low: at(0.25), High: at(0.75),
	}
}
