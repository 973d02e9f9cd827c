package engine_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti/algo"
	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/engine"
	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/plan"
	"github.com/tutti-go/tutti/reduce"
	"github.com/tutti-go/tutti/tune"
)

var (
	propertySeed   = flag.Uint64("property.seed", 0, "seed of TestProperty; 0 takes one from the clock")
	propertyMedium = flag.String("property.medium", "", "the only medium that TestProperty takes; empty for all")
	propertyTime   = flag.Duration("property.time", 20*time.Second, "how long TestProperty draws cases")
)

// A trial is one collective on all ranks, drawn at random.
type trial struct {
	collective plan.Collective
	vector     bool
	root       int
	dtype      mem.DType
	op         mem.Op
	sizes      [][]int // elements of the block from a to b, by [a][b]; see sizeOf
	inPlace    []bool  // by rank
	memory     []string
	algo       string // forced, or ""
	tile       int
	depth      int
	async      bool
	seed       uint64
}

func (tr *trial) String() string {
	name := tr.collective.String()
	if tr.vector {
		name += "v"
	}
	return fmt.Sprintf("%s root %d %v %v in place %v memory %v algo %q tile %d depth %d async %v blocks %v",
		name, tr.root, tr.dtype, tr.op, tr.inPlace, tr.memory, tr.algo, tr.tile, tr.depth, tr.async, tr.sizes)
}

// sizeOf returns the elements of a block of data, numbered as plans do.
func (tr *trial) sizeOf(block int) int {
	n := len(tr.sizes)
	return tr.sizes[block/n][block%n]
}

// block is the number of the block of data at a position of a buffer.
func (tr *trial) block(buf plan.Buf, rank, position int) int {
	p := plan.Plan{Collective: tr.collective, Ranks: len(tr.sizes), Root: tr.root, Chunks: 1}
	block, _ := p.Datum(buf.At(rank, position))
	return block
}

// counts returns the elements of each block of a rank's buffer.
func (tr *trial) counts(buf plan.Buf, rank int) []int {
	var counts []int
	for i := range tr.collective.Blocks(buf, rank, tr.root, len(tr.sizes)) {
		counts = append(counts, tr.sizeOf(tr.block(buf, rank, i)))
	}
	return counts
}

func sum(counts []int) int {
	s := 0
	for _, n := range counts {
		s += n
	}
	return s
}

const (
	arenaBytes = 1 << 20
	guardBytes = 64
)

// arenas is the memory of one rank, by kind.
type arenas map[string][2][]byte

var memoryKinds = []string{"alloc", "go", "mmap", "register"}

// lab is a job whose next call is dictated.
type lab struct {
	medium medium
	job    job
	next   trial
	arenas []arenas
	attach bool
}

func newLab(t *testing.T, m medium, n int) *lab {
	l := &lab{medium: m}
	choose := func(r tune.Request) tune.Choice {
		c := tune.Choose(r)
		if l.next.algo != "" && r.Collective == l.next.collective {
			c = tune.For(l.next.algo, r)
		}
		if c.Algo != "" && !c.IsOneShot() {
			c.TileBytes, c.Depth = l.next.tile, l.next.depth
		}
		return c
	}
	ex := bootstrap.Memory(n)
	fabrics := m.open(t, ex)
	l.job = make(job, n)
	onEveryRank(t, n, func(r int) error {
		c, err := engine.New(t.Context(), engine.Config{
			Rank: r, Size: n, Nodes: m.grouping(n), Exchanger: ex[r], Fabric: fabrics[r], Plan: algo.NewOver, Choose: choose,
			Cores: runtime.GOMAXPROCS(0), Threads: 1,
			FetchByAddress: n%2 == 0,  // both ways of long messages
			CacheBytes:     128 << 10, // results stay in the cache, or go past it
		})
		l.job[r] = c
		return err
	})
	for _, c := range l.job {
		a := arenas{}
		for _, kind := range memoryKinds {
			var pair [2][]byte
			for i := range pair {
				switch kind {
				case "alloc":
					b, err := c.Alloc(arenaBytes)
					if err != nil {
						t.Fatal(err)
					}
					pair[i] = b.Bytes()
				case "go":
					pair[i] = mem.Bytes(make([]uint64, arenaBytes/8))
				case "mmap":
					pair[i] = anonymous(t, arenaBytes)
				case "register":
					// Not whole pages: both ends are shadowed.
					b := anonymous(t, arenaBytes+8192)[64:][:arenaBytes]
					if err := c.Register(b); err != nil && m.name == "shm" {
						t.Fatal(err)
					}
					pair[i] = b
				}
			}
			a[kind] = pair
		}
		l.arenas = append(l.arenas, a)
	}
	_, why := l.job[0].Attachable()
	l.attach = n > 1 && why == nil
	return l
}

func (l *lab) close(t *testing.T) {
	for _, c := range l.job {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}

// draw makes the next trial.
func (l *lab) draw(rng *rand.Rand) {
	n := len(l.job)
	tr := trial{
		collective: plan.Collective(rng.IntN(int(plan.Barrier))), seed: rng.Uint64(),
		tile: 64 << rng.IntN(8), depth: 1 + rng.IntN(4), async: rng.IntN(5) == 0,
	}
	types := mem.DTypes()
	tr.dtype = types[rng.IntN(len(types))]
	if tr.collective.Reduces() {
		for tr.op = mem.Op(rng.IntN(len(mem.Ops()))); !tr.op.Supports(tr.dtype); {
			tr.op = mem.Op(rng.IntN(len(mem.Ops())))
		}
	}
	if tr.collective.Rooted() {
		tr.root = rng.IntN(n)
	}
	switch tr.collective {
	case plan.Gather, plan.AllGather, plan.Scatter, plan.ReduceScatter, plan.AllToAll:
		tr.vector = rng.IntN(3) == 0
	}
	l.drawSizes(&tr, rng)
	kind := memoryKinds[rng.IntN(len(memoryKinds))]
	for range n {
		if rng.IntN(8) == 0 { // now and then, ranks bring different kinds
			kind = memoryKinds[rng.IntN(len(memoryKinds))]
		}
		tr.memory = append(tr.memory, kind)
		tr.inPlace = append(tr.inPlace, tr.collective != plan.AllToAll && rng.IntN(2) == 0)
	}
	if rng.IntN(3) > 0 || l.remembers(&tr) {
		tr.algo = l.drawAlgo(&tr, rng)
	}
	l.next = tr
}

func (l *lab) drawSizes(tr *trial, rng *rand.Rand) {
	n := len(l.job)
	most := (arenaBytes/2 - 2*guardBytes) / tr.dtype.Size() / n
	draw := func() int {
		switch rng.IntN(8) {
		case 0:
			return 0
		case 1, 2:
			return rng.IntN(9)
		case 3:
			return rng.IntN(most)
		}
		return rng.IntN(min(3000, most))
	}
	same := draw()
	for range n {
		row := make([]int, n)
		for i := range row {
			row[i] = same
			if tr.vector {
				row[i] = draw()
			}
		}
		tr.sizes = append(tr.sizes, row)
	}
}

// remembers reports whether ranks remember how the last call of this kind went,
// each by its own block: v forms from or to a root where all are mapped. In one
// job these are messages always, or, in jobs of an odd size, never.
func (l *lab) remembers(tr *trial) bool {
	return l.medium.mapped && tr.vector && (tr.collective == plan.Gather || tr.collective == plan.Scatter)
}

// drawAlgo picks an algorithm that can run on these buffers, or none.
func (l *lab) drawAlgo(tr *trial, rng *rand.Rand) string {
	names := algo.Names(tr.collective)
	name := names[rng.IntN(len(names))]
	_, reach, runs := l.medium.planOf(name, len(l.job), tr.root)
	registered := true
	for _, kind := range tr.memory {
		registered = registered && (kind == "alloc" || kind == "register" && l.medium.name == "shm")
	}
	choice := tune.Choice{Algo: name}
	payload := 0
	for rank := range l.job {
		payload = max(payload, sum(tr.counts(plan.In, rank))*tr.dtype.Size())
	}
	if l.remembers(tr) {
		if len(l.job)%2 == 0 {
			return ""
		}
		if choice.IsOneShot() || !runs || reach.PeerData && !registered && (!reach.AttachOnly() || !l.attach) {
			return tr.collective.String() + "/staged"
		}
		return name
	}
	switch {
	case choice.IsOneShot() && (!l.medium.mapped || tr.vector || payload > tune.OneShotBytes):
	case !runs:
	case reach.PeerData && !registered && (!reach.AttachOnly() || !l.attach):
	default:
		return name
	}
	return ""
}

// fill makes a block of elements that any order of reduction combines to the
// same bits: small whole numbers, and for products ones and minus ones.
func fill(b []byte, tr *trial, rng *rand.Rand) {
	size := tr.dtype.Size()
	for i := 0; i+size <= len(b); i += size {
		x := rng.IntN(8)
		if tr.op == mem.Prod {
			x = 1
		}
		if (tr.dtype.Float() || tr.dtype.Signed()) && rng.IntN(2) == 0 {
			x = -x
		}
		putElement(b[i:], tr.dtype, x)
	}
}

// putElement writes a small whole number.
func putElement(b []byte, t mem.DType, x int) {
	switch t {
	case mem.F32:
		*(*float32)(unsafe.Pointer(&b[0])) = float32(x)
	case mem.F64:
		*(*float64)(unsafe.Pointer(&b[0])) = float64(x)
	case mem.BF16:
		f := float32(x)
		*(*uint16)(unsafe.Pointer(&b[0])) = uint16(*(*uint32)(unsafe.Pointer(&f)) >> 16)
	case mem.F16:
		// Half precision of -8 to 8, by hand.
		half := [...]uint16{0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600, 0x4700, 0x4800}
		h := half[max(x, -x)]
		if x < 0 {
			h |= 0x8000
		}
		*(*uint16)(unsafe.Pointer(&b[0])) = h
	default:
		for i := range t.Size() { // two's complement, little endian
			b[i] = byte(int64(x) >> (8 * i))
		}
	}
}

// bench is one rank's buffers in a trial.
type bench struct {
	in, out     []byte
	before      []byte // what in held
	whole       []byte // the memory around out
	wholeBefore []byte
	outFrom     int // where out begins in whole
}

// lay places a rank's buffers in its memory and fills them.
func (l *lab) lay(rank int, rng *rand.Rand) *bench {
	tr := &l.next
	size := tr.dtype.Size()
	ins, outs := tr.counts(plan.In, rank), tr.counts(plan.Out, rank)
	inBytes, outBytes := sum(ins)*size, sum(outs)*size
	pair := l.arenas[rank][tr.memory[rank]]
	offset := func() int { return guardBytes + rng.IntN(32)*size }
	place := func(arena []byte, bytes int) []byte { return arena[offset():][:bytes:bytes] }
	b := &bench{}
	own := func(counts []int) int { return sum(counts[:rank]) * size }
	if tr.inPlace[rank] && len(ins) > 0 && len(outs) > 0 {
		switch {
		case len(ins) == len(outs):
			b.in = place(pair[0], inBytes)
			b.out = b.in
		case len(ins) < len(outs):
			b.out = place(pair[0], outBytes)
			b.in = b.out[own(outs):][:inBytes]
		default:
			b.in = place(pair[0], inBytes)
			b.out = b.in[own(ins):][:outBytes]
		}
	} else {
		b.in, b.out = place(pair[0], inBytes), place(pair[1], outBytes)
	}
	b.whole = pair[1]
	if len(b.out) > 0 {
		if at := uintptr(unsafe.Pointer(&b.out[0])) - uintptr(unsafe.Pointer(&pair[0][0])); at < arenaBytes {
			b.whole, b.outFrom = pair[0], int(at)
		} else {
			b.outFrom = int(uintptr(unsafe.Pointer(&b.out[0])) - uintptr(unsafe.Pointer(&pair[1][0])))
		}
	}
	near := b.whole[:min(arenaBytes, b.outFrom+len(b.out)+guardBytes)]
	for i := range near {
		near[i] = byte(rng.Uint32())
	}
	fill(b.in, tr, rng)
	b.before, b.wholeBefore, b.whole = bytes.Clone(b.in), bytes.Clone(near), near
	return b
}

// want computes what a rank must receive, from everybody's inputs alone.
func (tr *trial) want(benches []*bench, rank int) []byte {
	size, n := tr.dtype.Size(), len(benches)
	// inputs finds the contributions to a block of data, in rank order.
	inputs := func(block int) [][]byte {
		var found [][]byte
		for r, b := range benches {
			at := 0
			for i, count := range tr.counts(plan.In, r) {
				if tr.block(plan.In, r, i) == block {
					found = append(found, b.before[at*size:][:count*size])
				}
				at += count
			}
		}
		return found
	}
	var out []byte
	for i := range tr.counts(plan.Out, rank) {
		from := inputs(tr.block(plan.Out, rank, i))
		if !tr.collective.Reduces() {
			out = append(out, from[0]...)
			continue
		}
		result := make([]byte, len(from[0]))
		if len(result) > 0 {
			kernel, err := reduce.Lookup(tr.op, tr.dtype)
			if err != nil {
				panic(err)
			}
			divisor := 1
			if tr.op == mem.Avg {
				divisor = n
			}
			var srcs []unsafe.Pointer
			for _, b := range from {
				srcs = append(srcs, unsafe.Pointer(&b[0]))
			}
			kernel([]unsafe.Pointer{unsafe.Pointer(&result[0])}, srcs, len(result)/size, divisor)
		}
		out = append(out, result...)
	}
	return out
}

// issue makes one rank's call.
func (tr *trial) issue(ctx context.Context, c *engine.Comm, b *bench) error {
	ins, outs := tr.counts(plan.In, c.Rank()), tr.counts(plan.Out, c.Rank())
	var w engine.Work
	var err error
	switch {
	case tr.vector && tr.async:
		switch tr.collective {
		case plan.Gather:
			w, err = c.GatherVAsync(ctx, b.in, b.out, outs, tr.dtype, tr.root)
		case plan.AllGather:
			w, err = c.AllGatherVAsync(ctx, b.in, b.out, outs, tr.dtype)
		case plan.Scatter:
			w, err = c.ScatterVAsync(ctx, b.in, ins, b.out, tr.dtype, tr.root)
		case plan.ReduceScatter:
			w, err = c.ReduceScatterVAsync(ctx, b.in, b.out, ins, tr.dtype, tr.op)
		case plan.AllToAll:
			w, err = c.AllToAllVAsync(ctx, b.in, ins, b.out, outs, tr.dtype)
		}
	case tr.vector:
		switch tr.collective {
		case plan.Gather:
			return c.GatherV(ctx, b.in, b.out, outs, tr.dtype, tr.root)
		case plan.AllGather:
			return c.AllGatherV(ctx, b.in, b.out, outs, tr.dtype)
		case plan.Scatter:
			return c.ScatterV(ctx, b.in, ins, b.out, tr.dtype, tr.root)
		case plan.ReduceScatter:
			return c.ReduceScatterV(ctx, b.in, b.out, ins, tr.dtype, tr.op)
		case plan.AllToAll:
			return c.AllToAllV(ctx, b.in, ins, b.out, outs, tr.dtype)
		}
	case tr.async:
		switch tr.collective {
		case plan.AllReduce:
			w, err = c.AllReduceAsync(ctx, b.in, b.out, tr.dtype, tr.op)
		case plan.Broadcast:
			w, err = c.BroadcastAsync(ctx, b.in, b.out, tr.dtype, tr.root)
		case plan.Reduction:
			w, err = c.ReduceAsync(ctx, b.in, b.out, tr.dtype, tr.op, tr.root)
		case plan.Gather:
			w, err = c.GatherAsync(ctx, b.in, b.out, tr.dtype, tr.root)
		case plan.AllGather:
			w, err = c.AllGatherAsync(ctx, b.in, b.out, tr.dtype)
		case plan.Scatter:
			w, err = c.ScatterAsync(ctx, b.in, b.out, tr.dtype, tr.root)
		case plan.ReduceScatter:
			w, err = c.ReduceScatterAsync(ctx, b.in, b.out, tr.dtype, tr.op)
		case plan.AllToAll:
			w, err = c.AllToAllAsync(ctx, b.in, b.out, tr.dtype)
		}
	default:
		switch tr.collective {
		case plan.AllReduce:
			return c.AllReduce(ctx, b.in, b.out, tr.dtype, tr.op)
		case plan.Broadcast:
			return c.Broadcast(ctx, b.in, b.out, tr.dtype, tr.root)
		case plan.Reduction:
			return c.Reduce(ctx, b.in, b.out, tr.dtype, tr.op, tr.root)
		case plan.Gather:
			return c.Gather(ctx, b.in, b.out, tr.dtype, tr.root)
		case plan.AllGather:
			return c.AllGather(ctx, b.in, b.out, tr.dtype)
		case plan.Scatter:
			return c.Scatter(ctx, b.in, b.out, tr.dtype, tr.root)
		case plan.ReduceScatter:
			return c.ReduceScatter(ctx, b.in, b.out, tr.dtype, tr.op)
		case plan.AllToAll:
			return c.AllToAll(ctx, b.in, b.out, tr.dtype)
		}
	}
	return errors.Join(err, w.Wait(ctx))
}

// run makes the trial on all ranks and judges it.
func (l *lab) run(t *testing.T, rng *rand.Rand) error {
	benches := make([]*bench, len(l.job))
	for r := range benches {
		benches[r] = l.lay(r, rng)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for r, err := range errorsOf(len(l.job), func(r int) error { return l.next.issue(ctx, l.job[r], benches[r]) }) {
		if err != nil {
			return fmt.Errorf("rank %d: %w", r, err)
		}
	}
	for r, b := range benches {
		want := l.next.want(benches, r)
		if !bytes.Equal(b.out, want) {
			at := 0
			for at < len(want) && b.out[at] == want[at] {
				at++
			}
			return fmt.Errorf("rank %d: byte %d of %d is wrong", r, at, len(want))
		}
		if !l.next.inPlace[r] && !bytes.Equal(b.in, b.before) {
			return fmt.Errorf("rank %d: the send buffer has changed", r)
		}
		from, to := b.outFrom, b.outFrom+len(b.out)
		if l.next.inPlace[r] && len(b.in) > len(b.out) {
			continue // what is around out is the send buffer
		}
		if !bytes.Equal(b.whole[:from], b.wholeBefore[:from]) || !bytes.Equal(b.whole[to:], b.wholeBefore[to:]) {
			return fmt.Errorf("rank %d: something was written beside the receive buffer", r)
		}
	}
	return nil
}

// TestProperty draws collectives, ranks, roots, counts, types, operators,
// buffers in place or not and of any kind, media and algorithms at random, and
// compares what every rank receives with a plain reference. A failure names
// the seed; -property.seed runs it again, -property.time more of it.
func TestProperty(t *testing.T) {
	seed := *propertySeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	budget := *propertyTime
	if testing.Short() {
		budget /= 10
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	cases, kinds := 0, map[string]int{}
	for start := time.Now(); time.Since(start) < budget; {
		m := media[rng.IntN(len(media))]
		if *propertyMedium != "" && m.name != *propertyMedium {
			continue
		}
		l := newLab(t, m, 1+rng.IntN(9))
		for i := 0; i < 120 && time.Since(start) < budget; i++ {
			l.draw(rng)
			if err := l.run(t, rng); err != nil {
				t.Fatalf("seed %d, case %d, %s, %d ranks: %v: %v", seed, cases, m.name, len(l.job), &l.next, err)
			}
			cases++
			kinds[l.next.collective.String()]++
		}
		l.close(t)
	}
	t.Logf("seed %d: %d cases: %v", seed, cases, kinds)
	for _, c := range plan.Collectives() {
		if c != plan.Barrier && kinds[c.String()] == 0 && cases > 500 {
			t.Errorf("no case of %v among %d", c, cases)
		}
	}
}
