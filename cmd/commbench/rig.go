package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/internal/spin"
	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/reduce"
)

// envFloor names the shared memory, "fd:N", in which the floor is measured.
const envFloor = "COMMBENCH_FLOOR"

// The floor is what an in-place allreduce costs when there is nothing but
// memory: every rank has everybody's buffer mapped, owns a share of the
// elements, and between two barriers loads its share of all buffers, reduces,
// and stores the result to all. It is the time of the fastest of several loops
// (candidates), measured where the ranks themselves are measured: in the same
// processes, pinned to the same cores.
//
// The shared memory, from its start:
//
//	one line for each rank   the rank's epoch, for the barrier
//	two slots for each rank  small inputs, by turns
//	one buffer for each rank
const (
	rigLine      = 128 // two cache lines: neighbours are fetched in pairs
	rigSlotBytes = 64 << 10
	rigPage      = 4096
)

func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }

func rigHeader(ranks int) int {
	return roundUp(ranks*rigLine, rigPage) + 2*ranks*rigSlotBytes
}

// rigBytes is the shared memory for buffers of the given size.
func rigBytes(ranks, largest int) int {
	return rigHeader(ranks) + ranks*roundUp(largest, rigPage)
}

// rig is one rank's view of it.
type rig struct {
	rank, ranks int
	memory      []byte
	stride      int
	crowded     bool // more ranks than cores
	epoch       uint64
	turn        int
}

// newRig maps the shared memory. cores is how many all ranks have together.
func newRig(ex bootstrap.Exchanger, largest, cores int) (*rig, error) {
	f, err := inheritedFile(envFloor)
	if err != nil {
		return nil, err
	}
	if f == nil {
		return nil, errors.New("the floor can only be measured by ranks that commbench has started itself")
	}
	defer f.Close()
	memory, err := mapShared(f, rigBytes(ex.Size(), largest))
	if err != nil {
		return nil, rankError(ex.Rank(), err)
	}
	return &rig{
		rank: ex.Rank(), ranks: ex.Size(), memory: memory, stride: roundUp(largest, rigPage),
		crowded: ex.Size() > cores,
	}, nil
}

func (g *rig) close() {
	_ = unmapShared(g.memory)
	g.memory = nil
}

func (g *rig) epochOf(rank int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&g.memory[rank*rigLine]))
}

func (g *rig) slot(rank, turn int) []byte {
	at := roundUp(g.ranks*rigLine, rigPage) + (2*rank+turn)*rigSlotBytes
	return g.memory[at : at+rigSlotBytes]
}

func (g *rig) buffer(rank int) []byte {
	at := rigHeader(g.ranks) + rank*g.stride
	return g.memory[at : at+g.stride]
}

// barrier is as simple as can be: raise the own word, wait for all others'.
func (g *rig) barrier(ctx context.Context) error {
	g.epoch++
	g.epochOf(g.rank).Store(g.epoch)
	for rank := range g.ranks {
		for spins := 1; g.epochOf(rank).Load() < g.epoch; spins++ {
			if g.crowded || spins%1024 == 0 {
				spin.Yield()
			} else {
				spin.Pause(1)
			}
			if spins%4096 == 0 && ctx.Err() != nil {
				return fmt.Errorf("roofline: waiting for rank %d: %w", rank, context.Cause(ctx))
			}
		}
	}
	return nil
}

// candidate is one way to do the work.
type candidate struct {
	name string
	call callFunc
}

// floorBlock is what one kernel call of a blocked loop handles: of a size
// that stays in the first-level cache with that of some other ranks.
const floorBlock = 8 << 10

// candidates are the loops for a task. All of them keep elements in whole
// lines, so that ranks share none.
func (g *rig) candidates(t task) ([]*candidate, error) {
	kernel, err := reduce.Lookup(t.redop, t.dtype)
	if err != nil {
		return nil, err
	}
	width := t.dtype.Size()
	divisor := 1
	if t.redop == mem.Avg {
		divisor = g.ranks
	}
	begin, end := g.share(t.bytes)
	at := func(offset int) []unsafe.Pointer {
		all := make([]unsafe.Pointer, g.ranks)
		for rank := range all {
			all[rank] = unsafe.Add(unsafe.Pointer(unsafe.SliceData(g.buffer(rank))), offset)
		}
		return all
	}
	bracket := func(work func()) callFunc {
		return func(ctx context.Context) error {
			if err := g.barrier(ctx); err != nil {
				return err
			}
			work()
			return g.barrier(ctx)
		}
	}
	whole := at(begin)
	moving, own := make([]unsafe.Pointer, g.ranks), make([]unsafe.Pointer, 1)
	// blocks calls f for one block after another, with moving set to it.
	blocks := func(f func(from, to int)) {
		for from := begin; from < end; from += floorBlock {
			for rank, p := range whole {
				moving[rank] = unsafe.Add(p, from-begin)
			}
			f(from, min(from+floorBlock, end))
		}
	}
	list := []*candidate{
		{"fused", bracket(func() {
			if end > begin {
				kernel(whole, whole, (end-begin)/width, divisor)
			}
		})},
		{"fused in blocks", bracket(func() {
			blocks(func(from, to int) { kernel(moving, moving, (to-from)/width, divisor) })
		})},
		{"reduce, then copy", bracket(func() {
			blocks(func(from, to int) {
				own[0] = moving[g.rank]
				kernel(own, moving, (to-from)/width, divisor)
				result := g.buffer(g.rank)[from:to]
				for rank := range g.ranks {
					if rank != g.rank {
						copy(g.buffer(rank)[from:to], result)
					}
				}
			})
		})},
	}
	if t.bytes <= rigSlotBytes {
		list = append(list, g.everybody(t, kernel, divisor))
	}
	return list, nil
}

// everybody is the loop for small messages: every rank shows its input and
// reduces all ranks' inputs for itself. It needs one barrier only, since the
// next call uses the other slot.
func (g *rig) everybody(t task, kernel reduce.Func, divisor int) *candidate {
	own := []unsafe.Pointer{unsafe.Pointer(unsafe.SliceData(g.buffer(g.rank)))}
	var slots [2][]unsafe.Pointer
	for turn := range slots {
		for rank := range g.ranks {
			slots[turn] = append(slots[turn], unsafe.Pointer(unsafe.SliceData(g.slot(rank, turn))))
		}
	}
	return &candidate{"everybody", func(ctx context.Context) error {
		g.turn ^= 1
		copy(g.slot(g.rank, g.turn), g.buffer(g.rank)[:t.bytes])
		if err := g.barrier(ctx); err != nil {
			return err
		}
		kernel(own, slots[g.turn], t.bytes/t.dtype.Size(), divisor)
		return nil
	}}
}

// share is this rank's part of a buffer, in whole lines.
func (g *rig) share(bytes int) (begin, end int) {
	each := roundUp((bytes+g.ranks-1)/g.ranks, 64)
	return min(bytes, g.rank*each), min(bytes, (g.rank+1)*each)
}

// choose finds the fastest candidate; all ranks choose the same.
func (g *rig) choose(ctx context.Context, r *rank, t task) (*candidate, error) {
	list, err := g.candidates(t)
	if err != nil {
		return nil, err
	}
	newSource(r.seed, g.rank, g.ranks, t.dtype, t.redop).fillBytes(g.buffer(g.rank)[:t.bytes])
	defer quiet()()
	s := &sampler{r, g.barrier, batchFor(r.options, t.bytes)}
	var best *candidate
	var bestTime time.Duration
	for _, c := range list {
		samples, err := s.take(ctx, c.call, 4, nil) // the first warms up
		if err != nil {
			return nil, err
		}
		if samples, err = r.slowest(ctx, samples[1:]); err != nil {
			return nil, err
		}
		if least := min(samples[0], samples[1], samples[2]); best == nil || least < bestTime {
			best, bestTime = c, least
		}
	}
	return best, nil
}

// floorAt is one row of commbench roofline.
func (r *rank) floorAt(ctx context.Context, t task, say func(string) error) (*floor, error) {
	g := r.rig
	if err := say("choosing"); err != nil {
		return nil, err
	}
	c, err := g.choose(ctx, r, t)
	if err != nil {
		return nil, err
	}
	if err := say("timing"); err != nil {
		return nil, err
	}
	f := &floor{
		Op: "roofline", Kernel: c.name, Ranks: g.ranks, Bytes: t.bytes, Count: t.bytes / t.dtype.Size(),
		DType: t.dtype.String(), RedOp: t.redop.String(),
	}
	if f.Iters, f.Time, err = r.sampleFloor(ctx, t, c.call, pointTime); err != nil {
		return nil, err
	}
	res := result{Bytes: t.bytes, Time: f.Time, factor: t.op.factor(float64(g.ranks))}
	res.bandwidths()
	f.AlgBW, f.BusBW = res.AlgBW, res.BusBW
	n := float64(g.ranks)
	f.Traffic = f.AlgBW * 2 * n
	for _, rate := range g.rates(t) {
		_, took, err := r.sampleFloor(ctx, t, rate.call, pointTime/8)
		if err != nil {
			return nil, err
		}
		if took.P50 > 0 {
			*rate.of(f) = max(*rate.of(f), float64(rate.bytes)*n/(took.P50*1e3))
		}
	}
	return f, nil
}

func (r *rank) sampleFloor(ctx context.Context, t task, call callFunc, limit time.Duration) (int, times, error) {
	s := &sampler{r, r.rig.barrier, batchFor(r.options, t.bytes)}
	sample, err := s.warm(ctx, call, warmupFor(r.options, t.bytes))
	if err != nil {
		return 0, times{}, err
	}
	iters := itersFor(r.options, s.batch, sample, limit)
	defer quiet()()
	samples, err := s.take(ctx, call, iters, make([]time.Duration, 0, iters))
	if err != nil {
		return 0, times{}, err
	}
	if samples, err = r.slowest(ctx, samples); err != nil {
		return 0, times{}, err
	}
	return iters, summarize(samples, s.batch), nil
}

// rate is one of the plain memory rates; the best loop counts.
type rate struct {
	of    func(*floor) *float64
	bytes int // of traffic, one rank's call
	call  callFunc
}

// rates are measured on all ranks at once, each with its own memory.
func (g *rig) rates(t task) []rate {
	own := g.buffer(g.rank)[:t.bytes]
	half := len(own) / 2
	words := mem.Slice[uint64](own)
	plain := func(f func()) callFunc {
		return func(context.Context) error { f(); return nil }
	}
	read := func(f *floor) *float64 { return &f.Read }
	list := []rate{
		{read, len(own), plain(func() { readWords(words) })},
		{read, len(own), plain(func() { bytes.Count(own, []byte{0x5c}) })},
	}
	if half > 0 {
		list = append(list, rate{func(f *floor) *float64 { return &f.Copy }, 2 * half,
			plain(func() { copy(own[half:2*half], own[:half]) })})
	}
	kernel, err := reduce.Lookup(t.redop, t.dtype)
	begin, end := g.share(t.bytes)
	if err != nil {
		return list
	}
	srcs := make([]unsafe.Pointer, g.ranks)
	for rank := range srcs {
		srcs[rank] = unsafe.Add(unsafe.Pointer(unsafe.SliceData(g.buffer(rank))), begin)
	}
	dst := srcs[g.rank : g.rank+1]
	// A rank without a share takes part with nothing to do: barriers are for
	// all.
	return append(list, rate{func(f *floor) *float64 { return &f.Reduce }, (g.ranks + 1) * t.bytes / g.ranks,
		plain(func() {
			if end > begin {
				kernel(dst, srcs, (end-begin)/t.dtype.Size(), 1)
			}
		})})
}

// readWords is a plain loop of loads. Were it inlined, the compiler could see
// that nobody wants the result.
//
//go:noinline
func readWords(w []uint64) uint64 {
	var a, b, c, d uint64
	for ; len(w) >= 8; w = w[8:] {
		a += w[0] + w[4]
		b += w[1] + w[5]
		c += w[2] + w[6]
		d += w[3] + w[7]
	}
	return a + b + c + d
}
