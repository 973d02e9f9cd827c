package neon

// A kind is a class of elements: how they become accumulators and back. A
// vector of memory is always one register.
type kind struct {
	name  string
	about string
	size  int
	regs  int                  // of the accumulator of a vector
	setup func(a *asm)         // puts constants into registers
	widen func(a *asm, v vec)  // v to the accumulator in v and what follows it
	round func(b *body, v vec) // and back
	div   three                // by the divisor; nil: there is no division
	from  string               // converts the divisor to a scalar
}

func plain(name, about string, size int) *kind {
	return &kind{name: name, about: about, size: size, regs: 1}
}

func f32Kind() *kind {
	k := plain("F32", "f32", 4)
	k.div, k.from = fdiv(4), "SCVTFS"
	return k
}

func f64Kind() *kind {
	k := plain("F64", "f64", 8)
	k.div, k.from = fdiv(8), "SCVTFD"
	return k
}

func f16Kind() *kind {
	return &kind{
		name: "F16", about: "f16, combined in 32 bits", size: 2, regs: 2,
		div: fdiv(4), from: "SCVTFS",
		widen: func(a *asm, v vec) {
			fcvtl2(a, v+1, v)
			fcvtl(a, v, v)
		},
		round: func(b *body, v vec) {
			fcvtn(b.asm, v, v)
			fcvtn2(b.asm, v, v+1)
		},
	}
}

// bf16Kind puts zeros below the elements to make them floats, and takes the
// upper halves of those. exact says that the result needs no rounding, as of
// min and max.
func bf16Kind(exact bool) *kind {
	return &kind{
		name: "BF16", about: "bf16, combined in 32 bits", size: 2, regs: 2,
		div: fdiv(4), from: "SCVTFS",
		setup: func(a *asm) {
			goThree("VEOR", 1)(a, zero, zero, zero)
			if !exact {
				a.line("MOVD $0x7fff, R8")
				a.line("VDUP R8, V%d.S4", bias)
			}
		},
		widen: func(a *asm, v vec) {
			goThree("VZIP2", 2)(a, v+1, zero, v)
			goThree("VZIP1", 2)(a, v, zero, v)
		},
		round: func(b *body, v vec) {
			if !exact {
				roundBF16(b, v)
				roundBF16(b, v+1)
			}
			goThree("VUZP2", 2)(b.asm, v, v, v+1)
		},
	}
}

// roundBF16 rounds v to its upper 16 bits, to nearest even; the lower ones are
// rubbish. A NaN stays: arithmetic made it quiet, which is an upper bit.
func roundBF16(b *body, v vec) {
	odd, sum, number := b.temp(), b.temp(), b.temp()
	b.line("VSHL $15, V%d.S4, V%d.S4", v, odd)
	goThree("VADD", 4)(b.asm, sum, v, bias)
	b.line("VUSRA $31, V%d.S4, V%d.S4", odd, sum)
	fcmeq(4)(b.asm, number, v, v)
	goThree("VBIT", 1)(b.asm, v, sum, number)
}

// An op folds x into acc and may destroy x.
type op struct {
	name  string
	goOps []string // mem's names
	fold  func(b *body, acc, x vec)
}

// A Kernel is an operator on a kind of elements.
type Kernel struct {
	Name  string
	GoOps []string // mem's names of the operators and types it serves
	Types []string
	op    op
	kind  *kind
}

// simple is an operator with an instruction of its own.
func simple(name string, goOps []string, ins three) op {
	return op{name, goOps, func(b *body, acc, x vec) { ins(b.asm, acc, acc, x) }}
}

// Kernels is all there are.
func Kernels() []Kernel {
	var ks []Kernel
	add := func(o op, k *kind, types ...string) {
		ks = append(ks, Kernel{o.name + k.name + "NEON", o.goOps, types, o, k})
	}
	sum, prod, lo, hi := []string{"Sum", "Avg"}, []string{"Prod"}, []string{"Min"}, []string{"Max"}

	// Floats. FMIN and FMAX propagate NaN and order zeros.
	for _, f := range []struct{ rounded, exact *kind }{
		{f16Kind(), f16Kind()}, {bf16Kind(false), bf16Kind(true)}, {f32Kind(), f32Kind()}, {f64Kind(), f64Kind()},
	} {
		size, t := max(f.exact.size, 4), f.exact.name
		add(simple("sum", sum, fadd(size)), f.rounded, t)
		add(simple("prod", prod, fmul(size)), f.rounded, t)
		add(simple("min", lo, fmin(size)), f.exact, t)
		add(simple("max", hi, fmax(size)), f.exact, t)
	}

	// Integers: the bits of sums and products do not depend on the sign.
	for _, w := range []struct {
		bits string
		size int
	}{{"8", 1}, {"16", 2}, {"32", 4}, {"64", 8}} {
		s, u := "I"+w.bits, "U"+w.bits
		both := plain("Int"+w.bits, "integers of "+w.bits+" bits", w.size)
		signed := plain(s, "signed integers of "+w.bits+" bits", w.size)
		unsigned := plain(u, "unsigned integers of "+w.bits+" bits", w.size)
		product := simple("prod", prod, mul(w.size))
		minS, maxS := simple("min", lo, smin(w.size)), simple("max", hi, smax(w.size))
		minU, maxU := simple("min", lo, goThree("VUMIN", w.size)), simple("max", hi, goThree("VUMAX", w.size))
		if w.size == 8 {
			product = op{"prod", prod, mulLongs}
			minS, maxS = lesser(lo, cmgt(8)), greater(hi, cmgt(8))
			minU, maxU = lesser(lo, cmhi(8)), greater(hi, cmhi(8))
		}
		add(simple("sum", sum, goThree("VADD", w.size)), both, s, u)
		add(product, both, s, u)
		add(minS, signed, s)
		add(maxS, signed, s)
		add(minU, unsigned, u)
		add(maxU, unsigned, u)
	}
	ints := []string{"I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64"}
	bits := plain("Bits", "integers of any width", 1)
	add(simple("band", []string{"Band"}, goThree("VAND", 1)), bits, ints...)
	add(simple("bor", []string{"Bor"}, goThree("VORR", 1)), bits, ints...)
	add(simple("bxor", []string{"Bxor"}, goThree("VEOR", 1)), bits, ints...)
	return ks
}

// lesser is min by comparing.
func lesser(goOps []string, more three) op {
	return op{"min", goOps, func(b *body, acc, x vec) {
		t := b.temp()
		more(b.asm, t, acc, x)
		goThree("VBIT", 1)(b.asm, acc, x, t)
	}}
}

// greater is max by comparing.
func greater(goOps []string, more three) op {
	return op{"max", goOps, func(b *body, acc, x vec) {
		t := b.temp()
		more(b.asm, t, x, acc)
		goThree("VBIT", 1)(b.asm, acc, x, t)
	}}
}

// mulLongs multiplies 64 bits, for which there is no instruction: the full
// product of the low halves, plus both crosswise products moved up.
func mulLongs(b *body, acc, x vec) {
	cross, low := b.temp(), b.temp()
	b.line("VREV64 V%d.S4, V%d.S4", x, cross)
	mul(4)(b.asm, cross, cross, acc)
	uaddlp(b.asm, cross, cross)
	xtn(b.asm, low, acc)
	xtn(b.asm, x, x)
	b.line("VSHL $32, V%d.D2, V%d.D2", cross, acc)
	umlal(b.asm, acc, low, x)
}
