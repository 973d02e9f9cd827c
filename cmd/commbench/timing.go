package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/tutti-go/tutti/plan"
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
	p := &point{}
	if r.collective == plan.Barrier {
		res, err := r.measure(ctx, t, nil, nil, pointTime, say)
		if err != nil {
			return err
		}
		p.OutOfPlace = res
	} else {
		limit := pointTime
		if !r.inPlace {
			limit /= 2
			res, err := r.measure(ctx, t, r.send, r.recv, limit, say)
			if err != nil {
				return err
			}
			p.OutOfPlace = res
		}
		res, err := r.measure(ctx, t, r.send, r.send, limit, say)
		if err != nil {
			return err
		}
		p.InPlace = res
	}
	if r.ex.Rank() != 0 {
		return nil
	}
	return r.report(event{Point: p})
}

// measure times one kind of call, and then checks a call of its own, so that
// nothing that is timed is spent on checking.
func (r *rank) measure(ctx context.Context, t task, send, recv []byte, limit time.Duration, say func(string) error) (*result, error) {
	res := &result{
		Op: r.collective.String(), Ranks: r.ex.Size(), Bytes: t.bytes, Root: -1,
		DType: "none", RedOp: "none", Memory: "none",
	}
	res.Path, res.Algo = r.howAt(t.bytes)
	call := r.comm.Barrier
	var check *checker
	if r.collective == plan.AllReduce {
		res.Count, res.DType, res.RedOp = t.bytes/t.dtype.Size(), t.dtype.String(), t.redop.String()
		res.Memory, res.InPlace = r.memory, &send[0] == &recv[0]
		in, out := send[:t.bytes], recv[:t.bytes]
		call = func(ctx context.Context) error { return r.comm.AllReduce(ctx, in, out, t.dtype, t.redop) }
		check = newChecker(r.seed, r.ex.Rank(), r.ex.Size(), t, res.Algo)
		check.prepare(send, recv)
	}
	if err := say("timing"); err != nil {
		return nil, err
	}
	var err error
	if res.Iters, res.Time, res.Ratio, err = r.time(ctx, t, call, limit); err != nil {
		return nil, rankError(r.ex.Rank(), err)
	}
	res.bandwidths()
	if check == nil || !r.check {
		return res, nil
	}
	if err := say("checking"); err != nil {
		return nil, err
	}
	res.Wrong, err = r.verify(ctx, check, call, send, recv)
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

// verify makes one call on fresh data, and counts what is wrong on all ranks.
func (r *rank) verify(ctx context.Context, c *checker, call callFunc, send, recv []byte) (*int64, error) {
	c.prepare(send, recv)
	within, cancel := r.deadline(ctx)
	defer cancel()
	if err := call(within); err != nil {
		return nil, rankError(r.ex.Rank(), err)
	}
	mine := c.verify(send, recv)
	all, err := r.verdicts(ctx, mine)
	if err != nil {
		return nil, err
	}
	if !agree(all) {
		mine.Elements = c.compare(recv, 0, c.bytes)
		if all, err = r.verdicts(ctx, mine); err != nil {
			return nil, err
		}
	}
	total, notes := judge(all)
	r.wrong += total
	if r.ex.Rank() == 0 {
		for _, note := range notes {
			if err := r.report(event{Note: note}); err != nil {
				return nil, err
			}
		}
	}
	return &total, nil
}

// verdicts exchanges them.
func (r *rank) verdicts(ctx context.Context, mine verdict) ([]verdict, error) {
	b, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	blobs, err := r.gather(ctx, b)
	if err != nil {
		return nil, err
	}
	all := make([]verdict, len(blobs))
	for rank, b := range blobs {
		if err := json.Unmarshal(b, &all[rank]); err != nil {
			return nil, fmt.Errorf("rank %d sent a verdict that is none: %w", rank, err)
		}
	}
	return all, nil
}
