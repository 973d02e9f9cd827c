package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tutti-go/tutti/engine"
	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/plan"
)

// inputs are what all ranks send in an operation, as elements.
func inputs(seed uint64, shapes []*shape) [][]uint32 {
	var all [][]uint32
	for rank, s := range shapes {
		b := mem.Bytes(make([]uint64, s.inBytes()/8+1))[:s.inBytes()]
		s.source(seed, rank, s.ranks).fillBytes(b)
		all = append(all, mem.Slice[uint32](b))
	}
	return all
}

// result does an operation for one rank, by its definition and nothing else.
func resultFor(op *operation, rank, root int, counts []int, in [][]uint32) []uint32 {
	n := len(counts)
	block := func(of, number int) []uint32 { // of a buffer with a block for each rank
		at := 0
		for _, c := range counts[:number] {
			at += c
		}
		return in[of][at:][:counts[number]]
	}
	sum := func(f func(of int) []uint32) []uint32 {
		total := slices.Clone(f(0))
		for of := 1; of < n; of++ {
			for i, x := range f(of) {
				total[i] += x
			}
		}
		return total
	}
	all := func(of int) []uint32 { return in[of] }
	switch strings.TrimSuffix(op.name, "v") {
	case "allreduce":
		return sum(all)
	case "reduce":
		if rank == root {
			return sum(all)
		}
		return nil
	case "broadcast":
		return in[root]
	case "gather":
		if rank != root {
			return nil
		}
		return slices.Concat(in...)
	case "allgather":
		return slices.Concat(in...)
	case "scatter":
		return block(root, rank)
	case "reduce_scatter":
		return sum(func(of int) []uint32 { return block(of, rank) })
	case "alltoall":
		var out []uint32
		for of := range n {
			out = append(out, block(of, rank)...)
		}
		return out
	case "sendrec": // v
		return in[(rank+n-1)%n]
	}
	panic(op.name)
}

// TestCheckerKnowsEveryOperation: what is right passes, and one bit that is
// wrong, wherever, does not.
func TestCheckerKnowsEveryOperation(t *testing.T) {
	for _, op := range operations {
		for _, ranks := range []int{1, 2, 3, 5} {
			for _, bytes := range []int{4, 100, 3*checkTile + 12} {
				for _, uneven := range []bool{false, true} {
					for _, inPlace := range []bool{false, true} {
						if !op.moves() || uneven && !op.vector || inPlace && op.apart {
							continue
						}
						name := fmt.Sprintf("%v, %d ranks, %d bytes, uneven %v, in place %v", op, ranks, bytes, uneven, inPlace)
						tryChecker(t, name, task{bytes, mem.U32, mem.Sum, op}, ranks, uneven, inPlace)
					}
				}
			}
		}
	}
}

func tryChecker(t *testing.T, name string, w task, ranks int, uneven, inPlace bool) {
	t.Helper()
	counts, root := w.counts(ranks, uneven), ranks-1
	var shapes []*shape
	for rank := range ranks {
		shapes = append(shapes, newShape(w, rank, root, counts))
	}
	in := inputs(3, shapes)
	for rank, s := range shapes {
		c := newChecker(3, s, "direct", engine.WireFull)
		send, recv := buffer(s.wholeBytes()), buffer(s.outBytes())
		g := s.outOfPlace(send, recv)
		if inPlace {
			g = s.within(send)
		}
		want := mem.Bytes(resultFor(w.op, rank, root, counts, in))
		if len(want) != len(g.out) {
			t.Fatalf("%s: rank %d has %d bytes, want %d", name, rank, len(g.out), len(want))
		}
		wrong := func() int64 {
			return c.compare(g.out, c.result).Wrong + c.verify(g).Rest.Wrong
		}
		fresh := func() { c.prepare(g); copy(g.out, want) }
		if fresh(); wrong() != 0 {
			t.Errorf("%s: rank %d: a right result is wrong: %+v %+v", name, rank, c.compare(g.out, c.result), c.verify(g))
		}
		places := [][]byte{g.out, g.recvGuard, g.sendGuard}
		if !inPlace {
			places = append(places, g.in)
		}
		for _, b := range places {
			if len(b) == 0 {
				continue
			}
			for _, at := range []int{0, len(b) - 1, rand.IntN(len(b))} {
				fresh()
				b[at] ^= 1 << rand.IntN(8)
				if n := wrong(); n != 1 {
					t.Errorf("%s: rank %d: one bit is %d wrong", name, rank, n)
				}
			}
		}
	}
}

// TestWhatIsInPlace: a single block is the own block of the other buffer, and
// what is around a result that was scattered stays.
func TestWhatIsInPlace(t *testing.T) {
	counts := []int{1, 2, 3}
	for name, want := range map[string][2]int{
		"allreduce": {0, 0}, "allgatherv": {12, 0}, "gatherv": {12, 0}, "scatterv": {0, 12}, "reduce_scatterv": {0, 12},
	} {
		op, err := parseOperation(name)
		if err != nil {
			t.Fatal(err)
		}
		s := newShape(task{24, mem.F32, mem.Sum, op}, 2, 2, counts)
		if in, out := s.inPlace(); in != want[0] || out != want[1] {
			t.Errorf("%s: %d and %d, want %v", name, in, out, want)
		}
		if s = newShape(s.task, 0, 2, counts); op.rooted() && (s.inBytes() == 0) == (s.outBytes() == 0) {
			t.Errorf("%s: beside the root %d and %d bytes", name, s.inBytes(), s.outBytes())
		}
	}
	op, _ := parseOperation("scatter")
	s := newShape(task{64, mem.U32, mem.Sum, op}, 1, 1, []int{8, 8})
	c, g := newChecker(1, s, "", engine.WireFull), s.within(buffer(64))
	c.prepare(g)
	g.in[3]++
	if v := c.verify(g); v.Rest.Wrong != 1 {
		t.Errorf("another rank's block was changed: %+v", v)
	}
}

func TestUnevenCounts(t *testing.T) {
	op, _ := parseOperation("allgatherv")
	for _, tt := range []struct {
		bytes, ranks int
		want         []int
	}{
		{24, 3, []int{1, 2, 3}}, {4, 1, []int{1}}, {4, 2, []int{0, 1}}, {400, 4, []int{10, 20, 30, 40}}, {4, 5, []int{0, 0, 0, 0, 1}},
	} {
		if got := (task{tt.bytes, mem.F32, mem.Sum, op}).counts(tt.ranks, true); !slices.Equal(got, tt.want) {
			t.Errorf("%d bytes, %d ranks: %v, want %v", tt.bytes, tt.ranks, got, tt.want)
		}
	}
	if got := (task{100, mem.F32, mem.Sum, op}).counts(3, false); !slices.Equal(got, []int{8, 8, 8}) {
		t.Errorf("even: %v", got)
	}
}

func TestBusBandwidth(t *testing.T) {
	for name, want := range map[string]float64{
		"allreduce": 1.5, "broadcast": 1, "reduce": 1, "gather": 0.75, "allgatherv": 0.75, "scatter": 0.75,
		"reduce_scatter": 0.75, "alltoall": 0.75, "sendrecv": 1, "barrier": 1,
	} {
		op, err := parseOperation(name)
		if err != nil || op.factor(4) != want {
			t.Errorf("%s: %v, %v", name, op.factor(4), err)
		}
	}
}

// TestEveryCollectiveIsThere: as one operation at least.
func TestEveryCollectiveIsThere(t *testing.T) {
	for _, form := range plan.Collectives() {
		if _, err := parseOperation(form.String()); err != nil {
			t.Error(err)
		}
	}
}

func TestBarrierCheck(t *testing.T) {
	at := func(machine string, times ...time.Duration) visit {
		return visit{machine, times[0], times[1], times[2], times[3]}
	}
	for name, tt := range map[string]struct {
		all   []visit
		early int64
		note  string
	}{
		"together":  {[]visit{at("a", 0, 1, 1, 9), at("a", 0, 1, 8, 10), at("a", 0, 1, 3, 8)}, 0, ""},
		"two early": {[]visit{at("a", 0, 1, 1, 9), at("a", 0, 1, 10, 11), at("a", 0, 1, 3, 8)}, 2, "rank 0 left the barrier 1ns before rank 1"},
		// Machine b is 1000 ahead.
		"other clocks":        {[]visit{at("a", 5, 6, 10, 21), at("b", 1005, 1006, 1020, 1022)}, 0, ""},
		"other clocks, early": {[]visit{at("a", 5, 6, 10, 12), at("b", 1005, 1006, 1020, 1022)}, 1, "rank 0 left the barrier 7ns before rank 1"},
		"nobody can tell":     {[]visit{at("a", 0, 10, 12, 14), at("b", 1000, 1010, 1020, 1022)}, 0, ""},
	} {
		early, notes := tooEarly(tt.all)
		if early != tt.early || (early > 0) != (len(notes) > 0) || early > 0 && !strings.Contains(notes[0], tt.note) {
			t.Errorf("%s: %d %q", name, early, notes)
		}
	}
}

// TestCodingBound: the bound is that of package reduce/codec, no less than what
// rounding may do, and no more than a few times that.
func TestCodingBound(t *testing.T) {
	const ranks = 3
	w := work(4096, mem.F32, mem.Avg)
	for wire := range codings {
		for _, redop := range []mem.Op{mem.Sum, mem.Avg} {
			w.redop = redop
			c := newChecker(5, newShape(w, 1, 0, w.counts(ranks, false)), "staged", wire)
			send, recv := buffer(w.bytes), buffer(w.bytes)
			g := c.outOfPlace(send, recv)
			c.prepare(g)
			reduced(t, 5, ranks, w, recv)
			if f := c.compare(g.out, c.result); f.Wrong != 0 {
				t.Errorf("%v: an exact result is wrong: %+v", wire, f)
			}
			worst := c.approx.coding.relative * greatest * 2 * ranks
			x := mem.Slice[float32](g.out)
			x[7] += float32(worst / ranks / 20)
			if f := c.compare(g.out, c.result); f.Wrong != 0 {
				t.Errorf("%v: a little off is wrong: %+v", wire, f)
			}
			x[7] += float32(worst * 1.1)
			if f := c.compare(g.out, c.result); f.Wrong != 1 {
				t.Errorf("%v: far off is %d wrong", wire, f.Wrong)
			}
		}
	}
}

func TestHidden(t *testing.T) {
	us := func(list ...int) []time.Duration {
		var all []time.Duration
		for _, x := range list {
			all = append(all, time.Duration(x)*time.Microsecond)
		}
		return all
	}
	got := hidden(us(100, 100, 100, 100, 100), us(100, 100, 100, 100, 100), us(100, 150, 200, 250, 90), 10)
	if want := (overlap{Comm: 10, Compute: 10, Both: 15, Hidden: 0.5, Low: 0, High: 1}); *got != want {
		t.Errorf("got %+v, want %+v", *got, want)
	}
	if got := hidden(us(100), us(110), us(100), 1); got.Hidden != 1.1 {
		t.Errorf("more than all: %+v", got)
	}
	if got := hidden(us(0), us(0), us(0), 1); got.Hidden != 0 {
		t.Errorf("of nothing: %+v", got)
	}
}

// TestComputation takes time in proportion to its units, and leaves results.
func TestComputation(t *testing.T) {
	c := newComputation()
	units := c.unitsFor(time.Millisecond)
	if units < 2 {
		t.Fatalf("%d units in a millisecond", units)
	}
	before := slices.Clone(c.x)
	c.run(len(c.x) / computeUnit)
	for i, x := range c.x {
		if x == before[i] && x < 499 {
			t.Fatalf("element %d stays %v", i, x)
		}
	}
	if again := c.unitsFor(20 * time.Millisecond); again < 3*units {
		t.Errorf("%d units in 1 ms, %d in 20 ms", units, again)
	}
}

func TestPartOfASource(t *testing.T) {
	s := newSource(1, 0, 2, mem.U64, mem.Sum)
	whole := make([]byte, 256)
	s.fillBytes(whole)
	var words [40]uint64
	for from := range 100 {
		for _, n := range []int{0, 1, 7, 8, 9, 100} {
			if got := s.part(words[:], from, n); !bytes.Equal(got, whole[from:from+n]) {
				t.Fatalf("%d bytes from %d", n, from)
			}
		}
	}
}
