package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/engine"
	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/reduce"
)

// reduced computes what an allreduce would leave, with the kernels.
func reduced(t testing.TB, seed uint64, ranks int, w task, recv []byte) {
	t.Helper()
	kernel, err := reduce.Lookup(w.redop, w.dtype)
	if err != nil {
		t.Fatal(err)
	}
	srcs := make([]unsafe.Pointer, ranks)
	for rank := range srcs {
		words := make([]uint64, w.bytes/8+1)
		newSource(seed, rank, ranks, w.dtype, w.redop).fillBytes(mem.Bytes(words)[:w.bytes])
		srcs[rank] = unsafe.Pointer(&words[0])
	}
	divisor := 1
	if w.redop == mem.Avg {
		divisor = ranks
	}
	kernel([]unsafe.Pointer{unsafe.Pointer(&recv[0])}, srcs, w.bytes/w.dtype.Size(), divisor)
}

// work is a row of an allreduce.
func work(bytes int, t mem.DType, op mem.Op) task { return task{bytes, t, op, operations[0]} }

// checkerOf checks a rank of so many.
func checkerOf(seed uint64, rank, ranks int, t task, algo string) *checker {
	return newChecker(seed, newShape(t, rank, 0, t.counts(ranks, false)), algo, engine.WireFull)
}

// groundOf lays out a call: in place where the buffers are the same.
func groundOf(c *checker, send, recv []byte) *ground {
	if &send[0] == &recv[0] {
		return c.within(send)
	}
	return c.outOfPlace(send, recv)
}

func buffer(bytes int) []byte {
	return mem.Bytes(make([]uint64, (bytes+guardBytes)/8+1))[:bytes+guardBytes]
}

// everything is what is wrong on a rank that compares all elements.
func everything(c *checker, send, recv []byte) findings {
	f := c.compare(recv[:c.bytes], c.result)
	rest := c.verify(groundOf(c, send, recv)).Rest
	f.blame(rest.Wrong, "%s", rest.First)
	return f
}

// everyTask calls f for every type and operator.
func everyTask(t *testing.T, bytes int, f func(t *testing.T, w task)) {
	for _, dt := range mem.DTypes() {
		for _, op := range mem.Ops() {
			if op.Supports(dt) {
				t.Run(fmt.Sprintf("%v %v", dt, op), func(t *testing.T) { f(t, work(bytes/dt.Size()*dt.Size(), dt, op)) })
			}
		}
	}
}

func TestCheckerAcceptsTheKernels(t *testing.T) {
	everyTask(t, 3*checkTile+56, func(t *testing.T, w task) {
		for _, ranks := range []int{1, 2, 3, 8, 17, 64, 200} {
			c := checkerOf(5, ranks/2, ranks, w, "direct")
			send, recv := buffer(w.bytes), buffer(w.bytes)
			c.prepare(groundOf(c, send, recv))
			reduced(t, 5, ranks, w, recv)
			if v := everything(c, send, recv); v.Wrong != 0 {
				t.Errorf("%d ranks, out of place: %+v", ranks, v)
			}
			c.prepare(groundOf(c, send, send))
			reduced(t, 5, ranks, w, send)
			if v := everything(c, send, send); v.Wrong != 0 {
				t.Errorf("%d ranks, in place: %+v", ranks, v)
			}
		}
	})
}

// TestCheckerSeesOneBadElement corrupts elements, and other things that a
// collective must not touch, one at a time.
func TestCheckerSeesOneBadElement(t *testing.T) {
	everyTask(t, checkTile+256, func(t *testing.T, w task) {
		const ranks = 3
		c := checkerOf(5, 1, ranks, w, "direct")
		send, recv := buffer(w.bytes), buffer(w.bytes)
		fresh := func() {
			c.prepare(groundOf(c, send, recv))
			reduced(t, 5, ranks, w, recv)
		}
		width := w.dtype.Size()
		for _, index := range []int{0, 1, checkTile / width, w.bytes/width - 1} {
			fresh()
			// The top byte but for the sign: off by a factor in any format.
			recv[index*width+width-1] ^= 0x04
			v := everything(c, send, recv)
			if v.Wrong != 1 || !strings.Contains(v.First, fmt.Sprintf("element %d is", index)) {
				t.Errorf("element %d: %+v", index, v)
			}
		}
		for where, b := range map[string]*byte{
			"input": &send[w.bytes/2], "beyond the receive": &recv[w.bytes], "beyond the send": &send[w.bytes+guardBytes-1],
		} {
			fresh()
			*b ^= 1
			if v := everything(c, send, recv); v.Wrong != 1 || !strings.Contains(v.First, where) {
				t.Errorf("%s: %+v", where, v)
			}
		}
		c.prepare(groundOf(c, send, recv)) // nothing was done at all
		if v := everything(c, send, recv); v.Wrong < int64(w.bytes/width/2) {
			t.Errorf("no call: %+v", v)
		}
	})
}

// TestBoundIsTight moves elements away from zero, unit by unit in the last
// place: few may pass, and the next one is counted.
func TestBoundIsTight(t *testing.T) {
	for _, dt := range []mem.DType{mem.F16, mem.BF16, mem.F32, mem.F64} {
		for _, op := range []mem.Op{mem.Sum, mem.Prod, mem.Avg} {
			for _, ranks := range []int{2, 8} {
				w := work(512, dt, op)
				c := checkerOf(9, 0, ranks, w, "direct")
				send, recv := buffer(w.bytes), buffer(w.bytes)
				c.prepare(groundOf(c, send, recv))
				reduced(t, 9, ranks, w, recv)
				least := math.MaxInt
				for at := 0; at < w.bytes; at += dt.Size() {
					before := bytes.Clone(recv[at : at+dt.Size()])
					units := 0
					for ; everything(c, send, recv).Wrong == 0 && units < 1000; units++ {
						nudge(dt, recv[at:], 1)
					}
					if units > 0 && units < 1000 && everything(c, send, recv).Wrong != 1 {
						t.Errorf("%v %v, %d ranks: one bad element is not counted once", dt, op, ranks)
					}
					least = min(least, units)
					copy(recv[at:], before)
				}
				if least < 1 || least > ranks+1 {
					t.Errorf("%v %v, %d ranks: the first to be wrong is %d units in the last place off", dt, op, ranks, least)
				}
			}
		}
	}
}

// TestPartialResults: a 16-bit type that is rounded before every rank may be
// further off, but only where the algorithm does that.
func TestPartialResults(t *testing.T) {
	const ranks = 8
	for _, dt := range []mem.DType{mem.F16, mem.BF16, mem.F32, mem.F64} {
		for _, op := range []mem.Op{mem.Sum, mem.Prod, mem.Avg} {
			w := work(4096, dt, op)
			ring, direct := checkerOf(9, 0, ranks, w, "ring"), checkerOf(9, 0, ranks, w, "direct")
			kernel, err := reduce.Lookup(op, dt)
			if err != nil {
				t.Fatal(err)
			}
			send, recv := buffer(w.bytes), buffer(w.bytes)
			ring.prepare(groundOf(ring, send, recv))
			copy(recv[:w.bytes], send)
			for rank := 1; rank < ranks; rank++ {
				next := buffer(w.bytes)
				newSource(9, rank, ranks, dt, op).fillBytes(next[:w.bytes])
				divisor := 1
				if op == mem.Avg && rank == ranks-1 {
					divisor = ranks
				}
				sofar := unsafe.Pointer(&recv[0])
				kernel([]unsafe.Pointer{sofar}, []unsafe.Pointer{sofar, unsafe.Pointer(&next[0])}, w.bytes/dt.Size(), divisor)
			}
			if v := everything(ring, send, recv); v.Wrong != 0 {
				t.Errorf("%v %v: %+v", dt, op, v)
			}
			if v := everything(direct, send, recv); v.Wrong == 0 && dt.Size() == 2 {
				t.Errorf("%v %v: rounded %d times passes for rounded once", dt, op, ranks)
			}
		}
	}
}

// TestNearZero: a third of the least number is 0, as near as can be told, and
// not the least number.
func TestNearZero(t *testing.T) {
	for _, dt := range []mem.DType{mem.F16, mem.BF16, mem.F32, mem.F64} {
		a := newApproximation(dt, mem.Avg, 3, true)
		least, zero := make([]byte, dt.Size()), make([]byte, dt.Size())
		nudge(dt, least, 1)
		a.reset(1)
		for _, input := range [][]byte{least, zero, zero} {
			a.add(input)
		}
		if wrong, first := a.compare(zero); wrong != 0 {
			t.Errorf("%v: %v", dt, first)
		}
		if dt == mem.F64 {
			nudge(dt, least, 1) // the reference itself is no finer
		}
		if wrong, _ := a.compare(least); wrong != 1 {
			t.Errorf("%v: the least number passes for a third of it", dt)
		}
	}
}

// nudge moves a float by some units in the last place.
func nudge(t mem.DType, b []byte, units int) {
	switch t.Size() {
	case 2:
		mem.Slice[uint16](b)[0] += uint16(units)
	case 4:
		mem.Slice[uint32](b)[0] += uint32(units)
	default:
		mem.Slice[uint64](b)[0] += uint64(units)
	}
}

func TestNaNIsWrong(t *testing.T) {
	w := work(64, mem.F32, mem.Sum)
	c := checkerOf(1, 0, 2, w, "direct")
	send, recv := buffer(w.bytes), buffer(w.bytes)
	c.prepare(groundOf(c, send, recv))
	reduced(t, 1, 2, w, recv)
	mem.Slice[float32](recv)[3] = float32(math.NaN())
	if v := everything(c, send, recv); v.Wrong != 1 {
		t.Errorf("%+v", v)
	}
}

// verified is what all ranks find together where spoil has been at the buffers
// of some.
func verified(t *testing.T, w task, ranks int, some func(rank int) bool, spoil func(recv []byte)) (total int64, notes string) {
	t.Helper()
	totals := make([]int64, ranks)
	var all sync.WaitGroup
	for i, ex := range bootstrap.Memory(ranks) {
		all.Go(func() {
			send, recv := buffer(w.bytes), buffer(w.bytes)
			call := func(context.Context) error {
				reduced(t, 5, ranks, w, recv)
				if some(i) {
					spoil(recv)
				}
				return nil
			}
			c := checkerOf(5, i, ranks, w, "direct")
			r := &rank{options: &options{timeout: time.Minute}, ex: ex}
			r.report = func(ev event) error { notes += ev.Note + "\n"; return nil } // rank 0 only
			total, err := r.verify(t.Context(), c, call, groundOf(c, send, recv))
			if err != nil {
				t.Error(err)
				return
			}
			totals[i] = *total
		})
	}
	all.Wait()
	if slices.Max(totals) != slices.Min(totals) {
		t.Errorf("ranks count %d", totals)
	}
	return totals[0], notes
}

// TestShares: what is wrong is counted on all ranks, whoever compares it.
func TestShares(t *testing.T) {
	for _, ranks := range []int{1, 3, 8} {
		for _, w := range []task{
			work(16, mem.F16, mem.Sum), work(checkTile+8, mem.U8, mem.Sum), work(2*checkTile-8, mem.F32, mem.Avg),
			work(9*checkTile+42, mem.F16, mem.Sum), work(9*checkTile+43, mem.U8, mem.Sum), work(16*checkTile, mem.F64, mem.Prod),
		} {
			odd, width := ranks/2, w.dtype.Size()
			try := func(what string, wrong int64, says string, spoil func(recv []byte)) {
				everyone := func(int) bool { return true }
				if total, notes := verified(t, w, ranks, everyone, spoil); total != wrong*int64(ranks) || !strings.Contains(notes, says) {
					t.Errorf("%d ranks, %+v, %s: %d wrong, want %d times %d with %q\n%s", ranks, w, what, total, ranks, wrong, says, notes)
				}
				one := func(rank int) bool { return rank == odd }
				if total, notes := verified(t, w, ranks, one, spoil); total != wrong || !strings.Contains(notes, says) {
					t.Errorf("%d ranks, %+v, %s on one rank: %d wrong, want %d with %q\n%s", ranks, w, what, total, wrong, says, notes)
				} else if ranks > 1 && wrong > 0 && !strings.HasPrefix(notes, fmt.Sprintf("rank %d: %d wrong: ", odd, wrong)) {
					t.Errorf("%d ranks, %+v, %s on one rank:\n%s", ranks, w, what, notes)
				}
			}
			try("nothing", 0, "", func([]byte) {})
			last := w.bytes/width - 1
			for _, element := range []int{0, last / 2, last} {
				try("an element", 1, fmt.Sprintf("1 wrong: element %d is", element), func(recv []byte) {
					recv[(element+1)*width-1] ^= 0x04
				})
			}
			for _, at := range []int{0, guardBytes - 1} {
				try("a guard", 1, fmt.Sprintf("byte %d beyond", at), func(recv []byte) { recv[w.bytes+at] ^= 1 })
			}
			if w.bytes < 5*checkTile {
				continue
			}
			for what, spoil := range map[string]func(recv []byte){
				"swapped tiles": func(recv []byte) {
					a, b := recv[checkTile:2*checkTile], recv[4*checkTile:5*checkTile]
					old := bytes.Clone(a)
					copy(a, b)
					copy(b, old)
				},
				"a stale tile": func(recv []byte) { fillWith(recv[4*checkTile:5*checkTile], 0x7b) },
			} {
				recv := buffer(w.bytes)
				reduced(t, 5, ranks, w, recv)
				spoil(recv)
				c := checkerOf(5, 0, ranks, w, "direct")
				wrong := c.compare(recv, c.result).Wrong
				if wrong < checkTile/int64(width)/2 {
					t.Errorf("%d ranks, %+v, %s: %d wrong", ranks, w, what, wrong)
				}
				try(what, wrong, "wrong: element", spoil)
			}
		}
	}
}

func TestJudge(t *testing.T) {
	good := verdict{Sum: 1 << 63}
	if total, notes := judge([]verdict{good, good}, true); total != 0 || notes != nil {
		t.Errorf("good: %d %v", total, notes)
	}
	total, notes := judge([]verdict{good, {Elements: findings{4, "this"}}, {Sum: 2}}, true)
	if total != 5 || len(notes) != 2 || !strings.Contains(notes[0], "this") || !strings.Contains(notes[1], "bit for bit") {
		t.Errorf("bad: %d %q", total, notes)
	}
	total, notes = judge([]verdict{{}, {Elements: findings{4, "this"}}, {Elements: findings{1, "that"}, Rest: findings{2, "guard"}}}, true)
	if total != 17 || len(notes) != 2 || !strings.Contains(notes[0], "every rank: 5 wrong: this") || !strings.Contains(notes[1], "rank 2: 2 wrong: guard") {
		t.Errorf("bad alike: %d %q", total, notes)
	}
	r := &rank{options: &options{timeout: time.Minute}, ex: nonsense{bootstrap.Single()}}
	if _, err := r.verdicts(t.Context(), good); err == nil {
		t.Error("nonsense passes")
	}
}

// nonsense is what it exchanges.
type nonsense struct{ bootstrap.Exchanger }

func (nonsense) AllGather(context.Context, []byte) ([][]byte, error) {
	return [][]byte{[]byte("?")}, nil
}

// TestChecksum: changes that have something in common do not cancel, nor do
// swaps, however near.
func TestChecksum(t *testing.T) {
	words := make([]uint64, 64)
	newSource(1, 0, 2, mem.F16, mem.Sum).fill(words, 0)
	b := mem.Bytes(words)[:len(words)*8-2]
	seen := map[uint64]string{checksum(b): "nothing"}
	try := func(what string, f func()) {
		before := bytes.Clone(b)
		f()
		sum := checksum(b)
		if other, ok := seen[sum]; ok {
			t.Errorf("%s: the same as %s", what, other)
		}
		seen[sum] = what
		copy(b, before)
	}
	flip := func(bit int) { b[bit/8] ^= 1 << (bit % 8) }
	for i := range len(b) * 8 {
		try(fmt.Sprint("bit ", i), func() { flip(i) })
	}
	for i := 15; i < len(b)*8; i += 16 {
		for j := 15; j < i; j += 16 {
			try(fmt.Sprint("signs ", i, j), func() { flip(i); flip(j) })
		}
	}
	for i := range words[:63] {
		for j := range i {
			try(fmt.Sprint("words ", i, j), func() { words[i], words[j] = words[j], words[i] })
		}
	}
	clear(words)
	seen[checksum(b)] = "zeros"
	for i := range words[:63] {
		try(fmt.Sprint("ones in ", i), func() { words[i] = ^words[i] })
	}
}

func TestDataIsFit(t *testing.T) {
	for _, dt := range []mem.DType{mem.F16, mem.BF16, mem.F32, mem.F64} {
		for _, op := range []mem.Op{mem.Sum, mem.Prod, mem.Max} {
			for _, ranks := range []int{2, 16, 1000} {
				b := buffer(4096)[:4096]
				newSource(3, 1, ranks, dt, op).fillBytes(b)
				x := make([]float64, len(b)/dt.Size())
				decode(dt, b, x)
				low, high := math.Inf(1), 0.0
				for _, f := range x {
					low, high = min(low, math.Abs(f)), max(high, math.Abs(f))
				}
				if op == mem.Prod && (low < 1 || math.Pow(high, float64(ranks)) > 64) || op != mem.Prod && (low < 1.0/8 || high >= 2) {
					t.Errorf("%v %v for %d ranks: magnitudes from %g to %g", dt, op, ranks, low, high)
				}
			}
		}
	}
	// Ranks, seeds and places differ.
	a, b, c := newSource(1, 0, 2, mem.U64, mem.Sum), newSource(1, 1, 2, mem.U64, mem.Sum), newSource(2, 0, 2, mem.U64, mem.Sum)
	seen := map[uint64]bool{}
	for i := range 1000 {
		seen[a.word(i)], seen[b.word(i)], seen[c.word(i)] = true, true, true
	}
	if len(seen) != 3000 {
		t.Errorf("%d different words of 3000", len(seen))
	}
}

func TestFromF16(t *testing.T) {
	for bits, want := range map[uint16]float64{
		0x3c00: 1, 0xc000: -2, 0x0001: math.Ldexp(1, -24), 0x7bff: 65504, 0x7c00: math.Inf(1), 0xfc00: math.Inf(-1), 0x8000: 0, 0x0400: math.Ldexp(1, -14),
	} {
		if got := fromF16(bits); got != want {
			t.Errorf("%#x: %g, want %g", bits, got, want)
		}
	}
	if !math.IsNaN(fromF16(0x7e00)) {
		t.Error("a NaN is a number")
	}
}

func BenchmarkCheck(b *testing.B) {
	const ranks = 8
	for _, w := range []task{
		work(1<<20, mem.F16, mem.Sum), work(1<<20, mem.BF16, mem.Sum), work(1<<20, mem.F32, mem.Sum), work(1<<20, mem.F64, mem.Sum),
		work(1<<20, mem.F16, mem.Prod), work(1<<20, mem.F16, mem.Avg), work(1<<20, mem.F16, mem.Max), work(1<<20, mem.U8, mem.Sum), work(1<<20, mem.I32, mem.Sum),
	} {
		b.Run(fmt.Sprintf("%v %v", w.dtype, w.redop), func(b *testing.B) {
			c := checkerOf(1, 0, ranks, w, "direct")
			recv := buffer(w.bytes)
			reduced(b, 1, ranks, w, recv)
			b.SetBytes(int64(w.bytes))
			for b.Loop() {
				if f := c.compare(recv[:w.bytes], c.result); f.Wrong != 0 {
					b.Fatal(f)
				}
			}
		})
	}
	b.Run("sum", func(b *testing.B) {
		recv := buffer(1 << 20)
		b.SetBytes(1 << 20)
		for b.Loop() {
			checksum(recv)
		}
	})
}
