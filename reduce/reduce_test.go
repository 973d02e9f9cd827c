package reduce

import (
	"errors"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/tutti-go/tutti/mem"
)

// TestCounts goes through every length of the tails and a few blocks.
func TestCounts(t *testing.T) {
	eachKernel(t, func(t *testing.T, f Func, op mem.Op, dt mem.DType) {
		rng := rand.New(rand.NewPCG(1, uint64(op)<<8|uint64(dt)))
		step := 1
		if testing.Short() {
			step = 7
		}
		// The largest block is 512 bytes; 64 elements of a byte each follow it.
		for count := rng.IntN(step); count*dt.Size() <= 1200; count += step {
			// Two sources have loops of their own: take them often.
			n, m := 2, 1+count%3
			if rng.IntN(2) == 0 {
				n, m = 1+rng.IntN(9), 1+rng.IntN(9)
			}
			r := newReduction(rng, op, dt, count, n, m)
			if err := r.run(f); err != nil {
				t.Fatalf("%v: %v", r, err)
			}
		}
	})
}

// TestShapes goes through every number of sources and destinations.
func TestShapes(t *testing.T) {
	eachKernel(t, func(t *testing.T, f Func, op mem.Op, dt mem.DType) {
		rng := rand.New(rand.NewPCG(2, uint64(op)<<8|uint64(dt)))
		step := 1
		if testing.Short() {
			step = 3
		}
		for n := 1; n <= 9; n++ {
			for m := 1 + rng.IntN(step); m <= 9; m += step {
				r := newReduction(rng, op, dt, rng.IntN(700), n, m)
				if err := r.run(f); err != nil {
					t.Fatalf("%v: %v", r, err)
				}
			}
		}
	})
}

// TestChunks goes over the lengths at which long reductions are cut.
func TestChunks(t *testing.T) {
	eachKernel(t, func(t *testing.T, f Func, op mem.Op, dt mem.DType) {
		rng := rand.New(rand.NewPCG(4, uint64(op)<<8|uint64(dt)))
		for _, cut := range []int{4 << 10, 128 << 10} {
			count := cut/dt.Size() + rng.IntN(3) - 1
			r := newReduction(rng, op, dt, count, 2, 1+rng.IntN(2))
			if err := r.run(f); err != nil {
				t.Fatalf("%v: %v", r, err)
			}
		}
	})
}

// TestOffsets goes through every place of a buffer within a cache line.
func TestOffsets(t *testing.T) {
	eachKernel(t, func(t *testing.T, f Func, op mem.Op, dt mem.DType) {
		rng := rand.New(rand.NewPCG(3, uint64(op)<<8|uint64(dt)))
		step := 1
		if testing.Short() {
			step = 7
		}
		for offset := 0; offset < 64; offset += step {
			r := newReduction(rng, op, dt, 65+offset, 2+offset%2, 1+offset/2%2)
			for i := range r.offsets {
				r.offsets[i] = (offset * (1 + i)) % 64
			}
			if err := r.run(f); err != nil {
				t.Fatalf("%v: %v", r, err)
			}
		}
	})
}

// TestSpecials meets every special value with every other one, in both orders.
func TestSpecials(t *testing.T) {
	eachKernel(t, func(t *testing.T, f Func, op mem.Op, dt mem.DType) {
		special := specials[dt]
		if special == nil {
			t.Skip("an integer has no special values")
		}
		count := len(special) * len(special)
		r := &reduction{op: op, t: dt, count: count, divisor: 1, offsets: make([]int, 3), alias: []int{-1}}
		for i := range 2 {
			s := make([]byte, count*dt.Size())
			for j := range count {
				bits := special[j%len(special)]
				if i == 1 {
					bits = special[j/len(special)]
				}
				for k := range dt.Size() {
					s[j*dt.Size()+k] = byte(bits >> (8 * k))
				}
			}
			r.srcs = append(r.srcs, s)
		}
		if divides(op) {
			r.divisor = 3
		}
		if err := r.run(f); err != nil {
			t.Fatalf("%v: %v", r, err)
		}
	})
}

func TestLookup(t *testing.T) {
	for _, op := range mem.Ops() {
		for _, dt := range mem.DTypes() {
			f, err := Lookup(op, dt)
			if op.Supports(dt) {
				if f == nil || err != nil {
					t.Errorf("Lookup(%v, %v) = %v", op, dt, err)
				}
				continue
			}
			var unsupported *UnsupportedError
			if !errors.Is(err, errors.ErrUnsupported) || !errors.As(err, &unsupported) || unsupported.Op != op || unsupported.Type != dt {
				t.Errorf("Lookup(%v, %v): error %v", op, dt, err)
			}
		}
	}
	if _, err := Lookup(mem.Op(200), mem.F32); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("an operator that is none: error %v", err)
	}
	if _, err := Lookup(mem.Sum, mem.DType(200)); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a type that is none: error %v", err)
	}
	// The tables are sized by names, as mem does not tell how many there are.
	if len(mem.Ops()) != numOps || len(mem.DTypes()) != numTypes {
		t.Error("mem has operators or types that the tables have no room for")
	}
}

func TestChoose(t *testing.T) {
	machine := []isa{{name: "avx512"}, {name: "avx2"}, {name: "generic"}}
	for _, test := range []struct{ asked, got string }{
		{"", "avx512"},
		{"avx512", "avx512"},
		{"avx2", "avx2"},
		{"generic", "generic"},
		{"neon", "generic"}, // not here: the best below it
		{"AVX2", "avx512"},  // no such name
	} {
		if got := choose(machine, test.asked).name; got != test.got {
			t.Errorf("asked for %q, got %s, want %s", test.asked, got, test.got)
		}
	}
	if got := choose(machine[1:], "avx512").name; got != "avx2" {
		t.Errorf("asked for what the machine has not, got %s", got)
	}
	if isas[len(isas)-1].name != "generic" {
		t.Error("portable Go is not the last resort")
	}
}

func TestCallsAllocateNothing(t *testing.T) {
	const count = 5001
	memory := make([]byte, 4*8*count)
	var at []unsafe.Pointer
	for i := range 4 {
		at = append(at, unsafe.Pointer(&memory[i*8*count]))
	}
	for _, s := range isas {
		for _, op := range mem.Ops() {
			for _, dt := range mem.DTypes() {
				f := s.funcs[op][dt]
				if f == nil {
					continue
				}
				if n := testing.AllocsPerRun(2, func() { f(at[2:], at[:2], count, 3) }); n != 0 {
					t.Errorf("%s: %v of %v allocates %v times", s.name, op, dt, n)
				}
			}
		}
	}
	if n := testing.AllocsPerRun(10, func() { _, _ = Lookup(mem.Sum, mem.F32) }); n != 0 {
		t.Errorf("Lookup allocates %v times", n)
	}
}
