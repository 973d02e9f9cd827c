package main

import (
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
	runners  []runner
	launcher *launcher
	tutti    string // commbench; empty: peers only
	extra    []string
	say      func(format string, args ...any)
}

// A try is a variant's outcome in the calibrating run.
type try struct {
	variant Variant
	us      float64
	wrong   int64
}

// choices holds, by peer and point, what calibration chose; errs why not.
type choices struct {
	best map[string]map[Point]try
	errs map[string]map[Point]string
}

// measure runs the points of one number of ranks and returns their outcome.
func (c *campaign) measure(ctx context.Context, points []Point, done func(PointState)) error {
	if len(points) == 0 {
		return nil
	}
	chosen, err := c.calibrate(ctx, points)
	if err != nil {
		return err
	}
	for _, p := range points {
		s, err := c.point(ctx, p, chosen)
		if err != nil {
			return err
		}
		done(s)
	}
	return nil
}

// calibrate tries every variant at every size and keeps the fastest right one.
// A variant that hangs here (some do on too few cores) is given up sooner than
// a run that is measured: the others are still to be tried.
func (c *campaign) calibrate(ctx context.Context, points []Point) (choices, error) {
	ch := choices{best: map[string]map[Point]try{}, errs: map[string]map[Point]string{}}
	ranks := points[0].Ranks
	var sizes []int64
	for _, p := range points {
		sizes = append(sizes, p.Bytes)
	}
	for _, r := range c.runners {
		ch.best[r.Name], ch.errs[r.Name] = map[Point]try{}, map[Point]string{}
		for _, v := range c.usable(r.Peer) {
			began := time.Now()
			lines, err := c.runPeer(ctx, c.limit/3, r, v, ranks, sizes, "-n", "5", "-w", "1", "--cap-ms", "150", "--least", "2", "-c")
			if ctx.Err() != nil {
				return ch, ctx.Err()
			}
			c.say("calibrate %s, %d ranks, %s: %d of %d sizes in %.1f s%s", r.Name, ranks, v.Name, len(lines), len(sizes), time.Since(began).Seconds(), because(err))
			for _, l := range lines {
				ch.consider(r.Name, Point{ranks, l.Bytes}, try{v, l.TimeUS.P50, l.Wrong})
			}
			for _, b := range sizes[min(len(lines), len(sizes)):] {
				if err != nil && ch.errs[r.Name][Point{ranks, b}] == "" {
					ch.errs[r.Name][Point{ranks, b}] = fmt.Sprintf("%s: %v", v.Name, err)
				}
			}
		}
	}
	return ch, nil
}

func (ch choices) consider(peer string, p Point, t try) {
	old, ok := ch.best[peer][p]
	better := !ok || (old.wrong > 0 && t.wrong == 0) || (t.us < old.us && (t.wrong == 0) == (old.wrong == 0))
	if better {
		ch.best[peer][p] = t
	}
}

// usable are the variants of a peer that do what is asked.
func (c *campaign) usable(p Peer) []Variant {
	var vs []Variant
	for _, v := range p.Variants {
		if v.Ops != nil && !slices.Contains(v.Ops, c.work.Op) || v.InPlaceOnly && !c.work.InPlace {
			continue
		}
		vs = append(vs, v)
		if !c.variants {
			break
		}
	}
	return vs
}

// point runs the rounds of one point: peer, Tutti, peer, Tutti, ...
func (c *campaign) point(ctx context.Context, p Point, ch choices) (PointState, error) {
	s := PointState{Ranks: p.Ranks, Bytes: p.Bytes}
	pairs := make([][]Pair, len(c.runners))
	for _, r := range c.runners {
		t, ok := ch.best[r.Name][p]
		o := PeerOutcome{Name: r.Name, Variant: t.variant.Name, Wrong: t.wrong}
		if !ok {
			o.Error = ch.errs[r.Name][p]
		}
		s.Peers = append(s.Peers, o)
	}
	alloc, user := &tuttiRuns{memory: "alloc"}, &tuttiRuns{memory: "user"}
	for round := range c.rounds {
		for i, r := range c.runners {
			o := &s.Peers[i]
			t, ok := ch.best[r.Name][p]
			if !ok || t.wrong > 0 || o.Error != "" {
				continue
			}
			var pair Pair
			lines, err := c.runPeer(ctx, c.limit, r, t.variant, p.Ranks, []int64{p.Bytes}, "-n", "1000", "-w", "5", "--cap-ms", strconv.FormatInt(c.cap.Milliseconds(), 10))
			if ctx.Err() != nil {
				return s, ctx.Err()
			}
			if err != nil {
				o.Error = err.Error()
				continue
			}
			pair.Peer = lines[0].TimeUS.P50
			pair.Alloc = c.runTutti(ctx, p, alloc)
			pair.User = c.runTutti(ctx, p, user)
			if ctx.Err() != nil {
				return s, ctx.Err()
			}
			pairs[i] = append(pairs[i], pair)
			c.say("%d ranks, %s, round %d of %d: %s %s µs%s%s", p.Ranks, sizeName(p.Bytes), round+1, c.rounds,
				r.Name, number(pair.Peer), beside("alloc", pair.Alloc, alloc.err), beside("user", pair.User, user.err))
		}
		if !slices.ContainsFunc(pairs, func(v []Pair) bool { return len(v) > round }) {
			// No peer answered: Tutti's own time is still worth having.
			c.runTutti(ctx, p, alloc)
			c.runTutti(ctx, p, user)
			if ctx.Err() != nil {
				return s, ctx.Err()
			}
		}
	}
	for i := range s.Peers {
		s.Peers[i].US = spread(column(pairs[i], sidePeer))
		s.Peers[i].RatioAlloc = spread(ratios(pairs[i], sideAlloc))
		s.Peers[i].RatioUser = spread(ratios(pairs[i], sideUser))
	}
	if c.tutti != "" {
		s.Alloc, s.User = alloc.outcome(), user.outcome()
	}
	return s, nil
}

// runPeer runs one peer over some sizes. Results that came before an error are
// returned with it.
func (c *campaign) runPeer(ctx context.Context, limit time.Duration, r runner, v Variant, ranks int, sizes []int64, how ...string) ([]Line, error) {
	var names []string
	for _, b := range sizes {
		names = append(names, strconv.FormatInt(b, 10))
	}
	prog := append([]string{r.prog, "--path", r.Name, "--op", c.work.Op, "-d", c.work.Dtype, "-b", strings.Join(names, ",")}, how...)
	if c.work.InPlace {
		prog = append(prog, "--in-place")
	}
	if v.Algo != "" {
		prog = append(prog, "--variant", v.Algo)
	}
	out, err := c.launcher.run(ctx, runLimit(limit, ranks, sizes...), r.Leftovers, func(tmp string) []Command {
		return r.Launch(place{venv: r.venv, tmp: tmp}, v, ranks, prog)
	})
	lines, perr := parseLines(out)
	if err = errors.Join(err, perr); err == nil && len(lines) != len(sizes) {
		err = fmt.Errorf("%d results for %d sizes", len(lines), len(sizes))
	}
	return lines, err
}

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
// returns its time, or 0.
func (c *campaign) runTutti(ctx context.Context, p Point, t *tuttiRuns) float64 {
	if c.tutti == "" || t.err != nil || ctx.Err() != nil {
		return 0
	}
	if t.last == 0 { // a first run, unrecorded
		l, err := c.commbench(ctx, p, t.memory, itersFor(c.cap, 0, p.Bytes, 1000))
		if err != nil {
			t.err = err
			return 0
		}
		t.last = l.TimeUS.P50
	}
	l, err := c.commbench(ctx, p, t.memory, itersFor(c.cap, t.last, p.Bytes, 1000))
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

func (c *campaign) commbench(ctx context.Context, p Point, memory string, iters int) (Line, error) {
	size := strconv.FormatInt(p.Bytes, 10)
	args := []string{
		c.tutti, "--op", c.work.Op, "-b", size, "-e", size, "-f", "2", "--ranks", strconv.Itoa(p.Ranks),
		"--memory", memory, "-n", strconv.Itoa(iters), "-w", strconv.Itoa(min(iters, 5)),
		"--format", "json", "-d", c.work.Dtype, "-o", c.work.Redop,
	}
	if c.work.InPlace {
		args = append(args, "--in-place")
	}
	if memory == "alloc" {
		args = append(args, "--vs-roofline")
	}
	args = append(args, c.extra...)
	out, err := c.launcher.run(ctx, runLimit(c.limit, p.Ranks, p.Bytes), nil, func(string) []Command {
		return []Command{{Args: args}}
	})
	lines, perr := parseLines(out)
	if err := errors.Join(err, perr); err != nil {
		return Line{}, fmt.Errorf("%s: %w", filepath.Base(c.tutti), err)
	}
	if len(lines) != 1 {
		return Line{}, fmt.Errorf("%s: %d results for one size", filepath.Base(c.tutti), len(lines))
	}
	return lines[0], nil
}

// beside is Tutti's part of a progress line.
func beside(memory string, us float64, err error) string {
	switch {
	case err != nil:
		return fmt.Sprintf(", tutti %s failed: %v", memory, err)
	case us == 0:
		return ""
	default:
		return fmt.Sprintf(", tutti %s %s", memory, number(us))
	}
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}
