package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A runner is a peer that is installed and built.
type runner struct {
	Peer
	venv string
	prog string
}

// A campaign measures points: first a calibrating run of every variant of
// every peer, with the answers checked, then the rounds.
type campaign struct {
	work     Work
	limit    time.Duration // start-up allowance of a run
	rounds   int
	cap      time.Duration
	variants bool // false: only each peer's first
	cores    int
	runners  []runner
	launcher *launcher
	net      *network // nil: all ranks on the one machine
	tutti    string   // commbench; empty: peers only
	extra    []string
	say      func(format string, args ...any)
}

// A try is a variant's outcome at a size in the calibrating run.
type try struct {
	peer    string
	variant Variant
	bytes   int64
	us      float64
	wrong   int64
}

// choices are what calibration found for a group.
type choices struct {
	tries []try
	errs  map[string]map[int64]string // by peer and size, the first
}

const (
	// nearEnough is how far from the best, in a calibrating run, a peer may be
	// and still be measured: runs of the same thing differ that much.
	nearEnough = 1.5
	// A variant this far from the best at everyVariant is not tried above it,
	// nor are more than so many.
	nearAbove = 2
	mostAbove = 4
)

func (ch *choices) fail(peer string, bytes int64, why string) {
	if ch.errs[peer] == nil {
		ch.errs[peer] = map[int64]string{}
	}
	if ch.errs[peer][bytes] == "" {
		ch.errs[peer][bytes] = why
	}
}

// right are the tries at a size with right answers, the fastest first.
func (ch *choices) right(bytes int64) []try {
	var v []try
	for _, t := range ch.tries {
		if t.bytes == bytes && t.wrong == 0 {
			v = append(v, t)
		}
	}
	slices.SortStableFunc(v, func(a, b try) int { return cmp.Compare(a.us, b.us) })
	return v
}

// of is a peer's best try at a size: the fastest right one, or else a wrong one.
func (ch *choices) of(peer string, bytes int64) (best try, ok bool) {
	for _, t := range ch.tries {
		if t.peer != peer || t.bytes != bytes {
			continue
		}
		if !ok || (best.wrong > 0 && t.wrong == 0) || (t.us < best.us && (t.wrong == 0) == (best.wrong == 0)) {
			best, ok = t, true
		}
	}
	return best, ok
}

// contenders are the peers worth measuring at a size, each with its best
// variant: at most so many, none far from the best.
func (ch *choices) contenders(bytes int64, most int) []try {
	var v []try
	for _, t := range ch.right(bytes) {
		if len(v) == most || len(v) > 0 && t.us > v[0].us*nearEnough {
			break
		}
		if !slices.ContainsFunc(v, func(o try) bool { return o.peer == t.peer }) {
			v = append(v, t)
		}
	}
	return v
}

// near says whether a variant did well enough at a size to be tried above it,
// among those that can be.
func (ch *choices) near(peer, variant string, bytes int64) bool {
	v := slices.DeleteFunc(ch.right(bytes), func(t try) bool { return len(t.variant.upTo([]int64{everyVariant + 1})) == 0 })
	for i, t := range v[:min(len(v), mostAbove)] {
		if t.peer == peer && t.variant.Name == variant {
			return i == 0 || t.us <= v[0].us*nearAbove
		}
	}
	return len(v) == 0
}

// measure runs a group and hands out its points' outcome.
func (c *campaign) measure(ctx context.Context, g group, done func(PointState)) error {
	if len(g.sizes) == 0 {
		return nil
	}
	chosen, err := c.calibrate(ctx, g)
	if err != nil {
		return err
	}
	for _, sizes := range bands(g.sizes) {
		b := c.newBand(g, sizes, chosen)
		for round := range c.rounds {
			if err := b.round(ctx, round); err != nil {
				return err
			}
		}
		for _, s := range b.states() {
			done(s)
		}
	}
	return nil
}

// calibrate tries every variant at every size up to everyVariant, and at the
// sizes above those that did well there, or all where it is not measured.
func (c *campaign) calibrate(ctx context.Context, g group) (*choices, error) {
	ch := &choices{errs: map[string]map[int64]string{}}
	i := len(g.sizes)
	for i > 0 && g.sizes[i-1] > everyVariant {
		i--
	}
	for _, sizes := range [][]int64{g.sizes[:i], g.sizes[i:]} {
		if len(sizes) == 0 {
			continue
		}
		// What is best far below it says little of a size.
		above := i > 0 && sizes[0] > everyVariant && g.sizes[i-1] == everyVariant
		for _, r := range c.runners {
			for _, v := range c.usable(r.Peer, g.op, g.ranks) {
				fits := v.upTo(sizes)
				if len(fits) == 0 || above && !ch.near(r.Name, v.Name, g.sizes[i-1]) {
					continue
				}
				c.try(ctx, ch, g, r, v, fits)
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
			}
		}
	}
	return ch, nil
}

// try makes a calibrating run of one variant. One that hangs here (some do on
// too few cores) is given up sooner than a run that is measured: the others
// are still to be tried.
func (c *campaign) try(ctx context.Context, ch *choices, g group, r runner, v Variant, sizes []int64) {
	began := time.Now()
	lines, err := c.runPeer(ctx, c.limit/3, r, v, g, sizes, "-n", "20", "-w", "5", "--cap-ms", "60", "--least", "2", "-c")
	c.say("calibrate %s, %d ranks: %s, %s: %d of %d sizes in %.1f s%s", g.op.Name, g.ranks, r.Name, v.Name, len(lines), len(sizes), time.Since(began).Seconds(), because(err))
	for _, l := range lines {
		ch.tries = append(ch.tries, try{r.Name, v, l.Bytes, l.TimeUS.P50, l.Wrong})
	}
	for _, b := range sizes[min(len(lines), len(sizes)):] {
		if err != nil {
			ch.fail(r.Name, b, fmt.Sprintf("%s: %v", v.Name, err))
		}
	}
}

// usable are the variants of a peer that do what is asked.
func (c *campaign) usable(p Peer, op Op, ranks int) []Variant {
	if !slices.Contains(p.Ops, op.Name) {
		return nil
	}
	var vs []Variant
	for _, v := range p.Variants {
		if v.Ops != nil && !slices.Contains(v.Ops, op.Name) || v.InPlaceOnly && !op.inPlace(c.work.InPlace) || v.Spins && ranks > c.cores {
			continue
		}
		vs = append(vs, v)
		if !c.variants {
			break
		}
	}
	return vs
}

// A unit is one launch of a peer in a round: the sizes of a band at which this
// variant of it is measured.
type unit struct {
	runner
	variant Variant
	sizes   []int64
}

// A band is sizes measured together, and what came of it so far.
type band struct {
	c      *campaign
	g      group
	sizes  []int64
	units  []unit
	points map[int64]*PointState
	pairs  map[int64]map[string][]Pair // by size and peer
	tutti  map[int64][]*tuttiRuns      // by size, one for each kind of memory
}

func (c *campaign) newBand(g group, sizes []int64, ch *choices) *band {
	b := &band{c: c, g: g, sizes: sizes, points: map[int64]*PointState{}, pairs: map[int64]map[string][]Pair{}, tutti: map[int64][]*tuttiRuns{}}
	for _, size := range sizes {
		b.pairs[size] = map[string][]Pair{}
		p := &PointState{Op: g.op.Name, Ranks: g.ranks, Bytes: size}
		b.points[size] = p
		contenders := ch.contenders(size, c.work.Contenders)
		for _, r := range c.runners {
			if t, ok := ch.of(r.Name, size); ok {
				p.Peers = append(p.Peers, PeerOutcome{Name: r.Name, Variant: t.variant.Name, CalibratedUS: t.us, Wrong: t.wrong})
			} else if why := ch.errs[r.Name][size]; why != "" {
				p.Peers = append(p.Peers, PeerOutcome{Name: r.Name, Error: why})
			}
		}
		for _, t := range contenders {
			b.add(t)
		}
		// Peers' times tell how many iterations of Tutti fit, to begin with.
		guess := 0.0
		if len(contenders) > 0 {
			guess = contenders[0].us
		}
		for _, m := range c.work.Memory {
			b.tutti[size] = append(b.tutti[size], &tuttiRuns{memory: m, last: guess})
		}
	}
	return b
}

// add has a try's variant measured at its size.
func (b *band) add(t try) {
	i := slices.IndexFunc(b.units, func(u unit) bool { return u.Name == t.peer && u.variant.Name == t.variant.Name })
	if i < 0 {
		r := slices.IndexFunc(b.c.runners, func(r runner) bool { return r.Name == t.peer })
		b.units = append(b.units, unit{runner: b.c.runners[r], variant: t.variant})
		i = len(b.units) - 1
	}
	b.units[i].sizes = append(b.units[i].sizes, t.bytes)
}

// round runs every unit beside Tutti. Who of a pair runs first changes from
// round to round, so that what drifts hits both sides.
func (b *band) round(ctx context.Context, round int) error {
	alone := slices.Clone(b.sizes) // Tutti's own time is worth having without a peer
	for _, u := range b.units {
		var times map[int64]float64
		if round%2 == 0 {
			times = b.runUnit(ctx, u)
		}
		tutti := map[int64][2]float64{}
		for _, size := range u.sizes {
			tutti[size] = b.runTutti(ctx, size)
			alone = slices.DeleteFunc(alone, func(s int64) bool { return s == size })
		}
		if round%2 != 0 {
			times = b.runUnit(ctx, u)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for _, size := range u.sizes {
			pair := Pair{times[size], tutti[size][0], tutti[size][1]}
			b.pairs[size][u.Name] = append(b.pairs[size][u.Name], pair)
			b.c.say("%s, %d ranks, %s, round %d of %d: %s (%s) %s µs%s", b.g.op.Name, b.g.ranks, sizeName(size), round+1, b.c.rounds,
				u.Name, u.variant.Name, number(pair.Peer), b.beside(size))
		}
	}
	for _, size := range alone {
		b.runTutti(ctx, size)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		b.c.say("%s, %d ranks, %s, round %d of %d: no peer%s", b.g.op.Name, b.g.ranks, sizeName(size), round+1, b.c.rounds, b.beside(size))
	}
	return nil
}

// runUnit is a peer's time at each size; those it failed at are noted.
func (b *band) runUnit(ctx context.Context, u unit) map[int64]float64 {
	lines, err := b.c.runPeer(ctx, b.c.limit, u.runner, u.variant, b.g, u.sizes, "-n", "1000", "-w", "5", "--cap-ms", strconv.FormatInt(b.c.cap.Milliseconds(), 10))
	times := map[int64]float64{}
	for _, l := range lines {
		times[l.Bytes] = l.TimeUS.P50
	}
	for _, size := range u.sizes {
		if o := b.points[size].peer(u.Name); times[size] == 0 && err != nil {
			o.Error = err.Error()
		}
	}
	return times
}

// runTutti is Tutti's time with memory from alloc and with the user's.
func (b *band) runTutti(ctx context.Context, size int64) (alloc [2]float64) {
	for _, t := range b.tutti[size] {
		us := b.c.runTutti(ctx, b.g, size, t)
		if t.memory == memoryAlloc {
			alloc[0] = us
		} else {
			alloc[1] = us
		}
	}
	return alloc
}

// states are the points' outcome.
func (b *band) states() []PointState {
	var all []PointState
	for _, size := range b.sizes {
		p := b.points[size]
		for i := range p.Peers {
			o := &p.Peers[i]
			pairs := b.pairs[size][o.Name]
			o.US = spread(column(pairs, sidePeer))
			o.RatioAlloc = spread(ratios(pairs, sideAlloc))
			o.RatioUser = spread(ratios(pairs, sideUser))
		}
		for _, t := range b.tutti[size] {
			if b.c.tutti == "" {
				continue
			}
			if t.memory == memoryAlloc {
				p.Alloc = t.outcome()
			} else {
				p.User = t.outcome()
			}
		}
		all = append(all, *p)
	}
	return all
}

// beside is Tutti's part of a progress line.
func (b *band) beside(size int64) string {
	var s strings.Builder
	for _, t := range b.tutti[size] {
		if t.err != nil {
			fmt.Fprintf(&s, ", tutti %s failed: %v", t.memory, t.err)
		} else if len(t.us) > 0 {
			fmt.Fprintf(&s, ", tutti %s %s", t.memory, number(t.us[len(t.us)-1]))
		}
	}
	return s.String()
}

// runPeer runs one peer over some sizes. Results that came before an error are
// returned with it.
func (c *campaign) runPeer(ctx context.Context, limit time.Duration, r runner, v Variant, g group, sizes []int64, how ...string) ([]Line, error) {
	var names []string
	for _, b := range sizes {
		names = append(names, strconv.FormatInt(b, 10))
	}
	prog := append([]string{r.prog, "--path", r.Name, "--op", g.op.Name, "-d", c.work.Dtype, "-b", strings.Join(names, ",")}, how...)
	if g.op.inPlace(c.work.InPlace) {
		prog = append(prog, "--in-place")
	}
	if v.Algo != "" {
		prog = append(prog, "--variant", v.Algo)
	}
	out, err := c.launcher.run(ctx, runLimit(limit, g.ranks, sizes...), r.Leftovers, func(tmp string) []Command {
		return r.Launch(place{venv: r.venv, tmp: tmp, net: c.net}, v, g.ranks, prog)
	})
	lines, perr := parseLines(out)
	if err = errors.Join(err, perr); err == nil && len(lines) != len(sizes) {
		err = fmt.Errorf("%d results for %d sizes", len(lines), len(sizes))
	}
	return lines, err
}

const (
	memoryAlloc = "alloc"
	memoryUser  = "user"
)

// tuttiRuns collects commbench's results at one point with one kind of memory.
type tuttiRuns struct {
	memory   string
	last     float64 // the latest time, which tells how many iterations fit
	us, roof []float64
	wrong    int64
	err      error
}

func (t *tuttiRuns) outcome() *TuttiOutcome {
	o := &TuttiOutcome{US: spread(t.us), Roofline: spread(t.roof), Wrong: t.wrong}
	if t.err != nil {
		o.Error = t.err.Error()
	}
	return o
}

// runTutti runs commbench once, unless it has failed at this point before, and
// returns its time, or 0. The first run checks the answers.
func (c *campaign) runTutti(ctx context.Context, g group, size int64, t *tuttiRuns) float64 {
	if c.tutti == "" || t.err != nil || ctx.Err() != nil {
		return 0
	}
	l, err := c.commbench(ctx, g, size, t.memory, itersFor(c.cap, t.last, size, 1000), len(t.us) == 0)
	if err != nil {
		t.err = err
		return 0
	}
	t.last = l.TimeUS.P50
	t.us = append(t.us, l.TimeUS.P50)
	t.wrong = max(t.wrong, l.Wrong)
	if l.Roofline > 0 {
		t.roof = append(t.roof, l.Roofline)
	}
	return l.TimeUS.P50
}

func (c *campaign) commbench(ctx context.Context, g group, bytes int64, memory string, iters int, check bool) (Line, error) {
	args := []string{
		c.tutti, "--op", g.op.Name, "--memory", memory, "-n", strconv.Itoa(iters), "-w", strconv.Itoa(min(iters, 5)),
		"--format", "json", "-d", c.work.Dtype, "-c", map[bool]string{true: "1", false: "0"}[check],
	}
	if g.op.Name != barrierOp {
		args = append(args, "--size", strconv.FormatInt(bytes, 10))
	}
	if g.op.Reduces {
		args = append(args, "-o", c.work.Redop)
	}
	inPlace := g.op.inPlace(c.work.InPlace)
	if inPlace {
		args = append(args, "--in-place")
	}
	args = append(args, c.extra...)
	start := func(string) []Command {
		if c.net != nil {
			return c.net.tutti(g.ranks, args)
		}
		return []Command{{Args: append(args, "--ranks", strconv.Itoa(g.ranks))}}
	}
	out, err := c.launcher.run(ctx, runLimit(c.limit, g.ranks, bytes), nil, start)
	lines, perr := parseLines(out)
	if err := errors.Join(err, perr); err != nil {
		return Line{}, err
	}
	// Without --in-place it measures out of place and in place.
	if len(lines) > 1 {
		lines = slices.DeleteFunc(lines, func(l Line) bool { return l.InPlace != inPlace })
	}
	if len(lines) != 1 {
		return Line{}, fmt.Errorf("%s: %d results for one size", filepath.Base(c.tutti), len(lines))
	}
	return lines[0], nil
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}
