package main

import (
	"context"
	"encoding/binary"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/tutti-go/tutti/engine"
)

// How samples are taken. A sample is the time of batch calls in a row, behind
// a barrier that is not timed; calls that take less than the clock is good for
// are timed together.
const (
	manyBytes, many = 4 << 10, 100
	someBytes, some = 64 << 10, 10

	pointTime  = 500 * time.Millisecond // for all samples of a row
	leastIters = 5
	mostCalls  = 20_000
	mostIters  = 1_000 // above someBytes

	// Points and floor are measured in turn this often.
	turns = 5

	// The collector, switched off meanwhile, runs after so many samples.
	gcEvery = 1 << 14
)

func batchFor(o *options, bytes int) int {
	switch {
	case o.batch > 0:
		return o.batch
	case bytes <= manyBytes:
		return many
	case bytes <= someBytes:
		return some
	}
	return 1
}

func warmupFor(o *options, bytes int) int {
	switch {
	case o.warmup >= 0:
		return o.warmup
	case bytes > 64<<20:
		return 2
	}
	return 5
}

// itersFor is how many samples of the given duration to take.
func itersFor(o *options, batch int, sample, limit time.Duration) int {
	if o.iters > 0 {
		return o.iters
	}
	most := mostIters
	if batch > 1 {
		most = mostCalls / batch
	}
	return max(leastIters, min(most, int(limit/max(1, sample))))
}

type callFunc func(context.Context) error

// sampler times calls between barriers.
type sampler struct {
	rank    *rank
	barrier callFunc
	batch   int
}

// take appends n samples.
func (s *sampler) take(ctx context.Context, call callFunc, n int, samples []time.Duration) ([]time.Duration, error) {
	for i := range n {
		if i%gcEvery == gcEvery-1 {
			runtime.GC() // what the deadlines leave behind
		}
		d, err := s.one(ctx, call)
		if err != nil {
			return samples, err
		}
		samples = append(samples, d)
	}
	return samples, nil
}

func (s *sampler) one(ctx context.Context, call callFunc) (time.Duration, error) {
	ctx, cancel := s.rank.deadline(ctx)
	defer cancel()
	if err := s.barrier(ctx); err != nil {
		return 0, err
	}
	began := time.Now()
	for range s.batch {
		if err := call(ctx); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

// warm makes untimed calls, and returns how long a sample takes with all that
// is around it, on the slowest rank.
func (s *sampler) warm(ctx context.Context, call callFunc, calls int) (time.Duration, error) {
	warm := &sampler{s.rank, s.barrier, 1}
	for range calls {
		if _, err := warm.one(ctx, call); err != nil {
			return 0, err
		}
	}
	began := time.Now()
	if _, err := s.one(ctx, call); err != nil {
		return 0, err
	}
	all, err := s.rank.slowest(ctx, []time.Duration{time.Since(began)})
	if err != nil {
		return 0, err
	}
	return all[0], nil
}

// gatherMost is how many samples fit in one blob.
const gatherMost = 64 << 10

// slowest takes, for each sample, the longest among all ranks.
func (r *rank) slowest(ctx context.Context, mine []time.Duration) ([]time.Duration, error) {
	slowest := make([]time.Duration, len(mine))
	for at := 0; at < len(mine); at += gatherMost {
		part := mine[at:min(at+gatherMost, len(mine))]
		blob := make([]byte, 0, 8*len(part))
		for _, d := range part {
			blob = binary.LittleEndian.AppendUint64(blob, uint64(d))
		}
		all, err := r.gather(ctx, blob)
		if err != nil {
			return nil, err
		}
		for _, b := range all {
			for i := range min(len(part), len(b)/8) {
				slowest[at+i] = max(slowest[at+i], time.Duration(binary.LittleEndian.Uint64(b[8*i:])))
			}
		}
	}
	return slowest, nil
}

// task measures one row, and reports it.
func (r *rank) task(ctx context.Context, t task, say func(string) error) error {
	if r.roofline {
		f, err := r.floorAt(ctx, t, say)
		if err != nil || r.ex.Rank() != 0 {
			return err
		}
		return r.report(event{Floor: f})
	}
	p, limit := &point{}, pointTime
	if r.outOfPlace(t.op) && r.within(t.op) {
		limit /= 2
	}
	s := newShape(t, r.ex.Rank(), r.root, t.counts(r.ex.Size(), r.uneven))
	var err error
	if r.outOfPlace(t.op) {
		if p.OutOfPlace, err = r.measure(ctx, s, s.outOfPlace(r.send, r.recv), limit, say); err != nil {
			return err
		}
	}
	if r.within(t.op) {
		if p.InPlace, err = r.measure(ctx, s, s.within(r.send), limit, say); err != nil {
			return err
		}
	}
	if r.ex.Rank() != 0 {
		return nil
	}
	return r.report(event{Point: p})
}

// resultOf is a result but for what is measured.
func (r *rank) resultOf(s *shape, inPlace bool) *result {
	res := &result{
		Op: s.op.name, Ranks: s.ranks, Bytes: s.bytes, Count: s.count(s.ranks), Root: -1,
		DType: s.dtypeName(), RedOp: s.redopName(), InPlace: inPlace, Memory: "none",
		Uneven: r.uneven && s.op.vector, factor: s.op.factor(float64(s.ranks)),
	}
	res.Path, res.Algo = r.howAt(s.task)
	if s.op.rooted() {
		res.Root = s.root
	}
	if s.op.moves() {
		res.Memory = r.memory
	}
	if w := r.wireOf(s.op); w != engine.WireFull {
		res.Wire = w.String()
	}
	return res
}

// measure times one kind of call, and then checks a call of its own, so that
// nothing that is timed is spent on checking.
func (r *rank) measure(ctx context.Context, s *shape, g *ground, limit time.Duration, say func(string) error) (*result, error) {
	res := r.resultOf(s, g.inPlace)
	b := &binding{shape: s, comm: r.comm, send: g.in, recv: g.out, wire: r.wireOf(s.op), exchange: r.comm.NewExchange()}
	call := func(ctx context.Context) error { return s.op.run(ctx, b) }
	var check *checker
	if s.op.moves() {
		check = newChecker(r.seed, s, res.Algo, b.wire)
		check.prepare(g)
	}
	if err := say("timing"); err != nil {
		return nil, err
	}
	var err error
	if res.Iters, res.Time, res.Ratio, err = r.time(ctx, s.task, call, limit); err != nil {
		return nil, rankError(r.ex.Rank(), err)
	}
	res.bandwidths()
	if r.overlap {
		if err := say("overlapping"); err != nil {
			return nil, err
		}
		if res.Overlap, err = r.besides(ctx, b, limit); err != nil {
			return nil, rankError(r.ex.Rank(), err)
		}
		call = b.async // is checked in the place of the other
	}
	if !r.check {
		return res, nil
	}
	if err := say("checking"); err != nil {
		return nil, err
	}
	if check == nil {
		res.Wrong, err = r.verifyBarrier(ctx, call)
	} else {
		res.Wrong, err = r.verify(ctx, check, call, g)
	}
	return res, err
}

// time takes the samples, in turn with those of the floor if that is wanted.
func (r *rank) time(ctx context.Context, t task, call callFunc, limit time.Duration) (int, times, *float64, error) {
	fail := func(err error) (int, times, *float64, error) { return 0, times{}, nil, err }
	s := &sampler{r, r.comm.Barrier, batchFor(r.options, t.bytes)}
	sample, err := s.warm(ctx, call, warmupFor(r.options, t.bytes))
	if err != nil {
		return fail(err)
	}
	iters := itersFor(r.options, s.batch, sample, limit)

	var f *candidate
	var floor *sampler
	parts := 1
	if r.rig != nil {
		if f, err = r.rig.choose(ctx, r, t); err != nil {
			return fail(err)
		}
		floor = &sampler{r, r.rig.barrier, s.batch}
		parts = min(turns, iters)
	}
	defer quiet()()
	samples, floors := make([]time.Duration, 0, iters), []time.Duration(nil)
	for part := range parts {
		n := iters*(part+1)/parts - iters*part/parts
		if samples, err = s.take(ctx, call, n, samples); err != nil {
			return fail(err)
		}
		if floor != nil {
			if floors, err = floor.take(ctx, f.call, n, floors); err != nil {
				return fail(err)
			}
		}
	}
	if samples, err = r.slowest(ctx, samples); err != nil {
		return fail(err)
	}
	if floors, err = r.slowest(ctx, floors); err != nil {
		return fail(err)
	}
	sum := summarize(samples, s.batch)
	var ratio *float64
	if len(floors) > 0 && sum.P50 > 0 {
		x := summarize(floors, s.batch).P50 / sum.P50
		ratio = &x
	}
	return iters, sum, ratio, nil
}

// quiet keeps the garbage collector out of the samples until the function it
// returns is called.
func quiet() func() {
	runtime.GC()
	percent := debug.SetGCPercent(-1)
	return func() { debug.SetGCPercent(percent) }
}
