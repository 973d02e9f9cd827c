package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// A constSet names vectors that a kernel keeps in registers.
type constSet uint

const (
	cHigh  constSet = 1 << iota // the upper halves of 32 bits
	cRound                      // just less than half a last place of bf16
	cOne                        // the lowest bit of 32
	cQuiet                      // what makes a NaN quiet
	cByte                       // the even bytes
	cSign                       // the top bits of 64
	cAbs                        // all but the top bits of 32
)

type consts map[constSet]vec

func makeConsts(set constSet) consts {
	c := consts{}
	for _, k := range []struct {
		set  constSet
		bits uint32
	}{{cHigh, 0xffff0000}, {cRound, 0x7fff}, {cOne, 1}, {cQuiet, 0x400000}, {cByte, 0x00ff00ff}, {cSign, 0}, {cAbs, 0x7fffffff}} {
		if set&k.set == 0 {
			continue
		}
		v := newVec()
		if k.set == cSign {
			VPCMPEQD(v, v, v)
			VPSLLQ(Imm(63), v, v)
		} else {
			g, x := GP32(), XMM()
			MOVL(U32(k.bits), g)
			VMOVD(g, x)
			VPBROADCASTD(x, v)
		}
		c[k.set] = v
	}
	return c
}

// An op folds x into acc and may destroy x. One that is a single instruction
// also takes x from memory.
type op struct {
	name   string
	goOps  []string // mem's names
	consts constSet
	fold   func(b *body, acc, x vec)
	direct func(x Mem, acc vec)
}

// A kernel is an operator on a kind of elements; types are mem's names of
// those it serves.
type kernel struct {
	op    op
	kind  *kind
	types []string
}

func kernels() []kernel {
	var ks []kernel
	sum, prod, lo, hi := []string{"Sum", "Avg"}, []string{"Prod"}, []string{"Min"}, []string{"Max"}

	// Floats.
	for _, k := range []*kind{f16Kind(), bf16Kind(false), f32Kind()} {
		t := []string{k.name}
		exact := k
		if k.name == "BF16" {
			exact = bf16Kind(true)
		}
		ks = append(ks,
			kernel{simple("sum", sum, VADDPS), k, t},
			kernel{simple("prod", prod, VMULPS), k, t},
			kernel{op{name: "min", goOps: lo, fold: singles.minimum}, exact, t},
			kernel{op{name: "max", goOps: hi, fold: singles.maximum}, exact, t})
	}
	f64 := f64Kind()
	ks = append(ks,
		kernel{simple("sum", sum, VADDPD), f64, []string{"F64"}},
		kernel{simple("prod", prod, VMULPD), f64, []string{"F64"}},
		kernel{op{name: "min", goOps: lo, fold: doubles.minimum}, f64, []string{"F64"}},
		kernel{op{name: "max", goOps: hi, fold: doubles.maximum}, f64, []string{"F64"}})

	// Integers: the bits of sums and products do not depend on the sign.
	mulB := op{name: "prod", goOps: prod, consts: cByte, fold: mulBytes}
	mulQ := op{name: "prod", goOps: prod, fold: mulQuads}
	if wide {
		mulQ = simple("prod", prod, VPMULLQ)
	}
	for _, w := range []struct {
		bits       string
		size       int
		sum        op
		prod       op
		minS, minU func(...Op)
		maxS, maxU func(...Op)
	}{
		{"8", 1, simple("sum", sum, VPADDB), mulB, VPMINSB, VPMINUB, VPMAXSB, VPMAXUB},
		{"16", 2, simple("sum", sum, VPADDW), simple("prod", prod, VPMULLW), VPMINSW, VPMINUW, VPMAXSW, VPMAXUW},
		{"32", 4, simple("sum", sum, VPADDD), simple("prod", prod, VPMULLD), VPMINSD, VPMINUD, VPMAXSD, VPMAXUD},
		{"64", 8, simple("sum", sum, VPADDQ), mulQ, VPMINSQ, VPMINUQ, VPMAXSQ, VPMAXUQ},
	} {
		s, u := "I"+w.bits, "U"+w.bits
		both := plain("Int"+w.bits, "integers of "+w.bits+" bits", w.size)
		ks = append(ks,
			kernel{w.sum, both, []string{s, u}},
			kernel{w.prod, both, []string{s, u}})
		signed := plain(s, "signed integers of "+w.bits+" bits", w.size)
		unsigned := plain(u, "unsigned integers of "+w.bits+" bits", w.size)
		minS, minU := simple("min", lo, w.minS), simple("min", lo, w.minU)
		maxS, maxU := simple("max", hi, w.maxS), simple("max", hi, w.maxU)
		if w.size == 8 && !wide {
			minS, maxS = quads("min", lo, 0), quads("max", hi, 0)
			minU, maxU = quads("min", lo, cSign), quads("max", hi, cSign)
		}
		ks = append(ks,
			kernel{minS, signed, []string{s}}, kernel{maxS, signed, []string{s}},
			kernel{minU, unsigned, []string{u}}, kernel{maxU, unsigned, []string{u}})
	}
	ints := []string{"I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64"}
	bits := plain("Bits", "integers of any width", 1)
	ks = append(ks,
		kernel{simple("band", []string{"Band"}, and), bits, ints},
		kernel{simple("bor", []string{"Bor"}, or), bits, ints},
		kernel{simple("bxor", []string{"Bxor"}, xor), bits, ints})
	return ks
}

// simple is an operator with an instruction of its own.
func simple(name string, goOps []string, ins func(...Op)) op {
	return op{
		name: name, goOps: goOps,
		fold:   func(_ *body, acc, x vec) { ins(x, acc, acc) },
		direct: func(x Mem, acc vec) { ins(x, acc, acc) },
	}
}

func either(narrow func(y, y1, y2 Op), wideIns func(...Op)) func(...Op) {
	return func(ops ...Op) {
		if wide {
			wideIns(ops...)
		} else {
			narrow(ops[0], ops[1], ops[2])
		}
	}
}

var (
	and = either(VPAND, VPANDD)
	or  = either(VPOR, VPORD)
	xor = either(VPXOR, VPXORD)
)

const (
	rangeMin  = 0x04 // the lesser, with its sign
	rangeMax  = 0x05
	unordered = 3
)

// floats is the instructions for one width of float.
type floats struct {
	cmp, rng, add, mov, min, max, and, or func(...Op)
}

var (
	singles = floats{VCMPPS, VRANGEPS, VADDPS, VMOVAPS, VMINPS, VMAXPS, VANDPS, VORPS}
	doubles = floats{VCMPPD, VRANGEPD, VADDPD, VMOVAPD, VMINPD, VMAXPD, VANDPD, VORPD}
)

// minimum orders zeros by sign and propagates NaN. Without VRANGE there are
// both orders of VMIN, which returns its second source if it cannot decide:
// or-ing the two gives -0 of zeros, and of a NaN and anything a NaN.
func (f *floats) minimum(_ *body, a, x vec) {
	if wide {
		f.ranged(rangeMin, a, x)
		return
	}
	t := newVec()
	f.min(x, a, t)
	f.min(a, x, x)
	f.or(x, t, a)
}

// maximum is like minimum; and-ing keeps +0 but not NaN, so that is put in.
func (f *floats) maximum(_ *body, a, x vec) {
	if wide {
		f.ranged(rangeMax, a, x)
		return
	}
	t, nan := newVec(), newVec()
	f.max(x, a, t)
	f.cmp(Imm(unordered), x, a, nan)
	f.max(a, x, x)
	f.and(x, t, a)
	f.or(nan, a, a)
}

// ranged is VRANGE, which orders zeros, and a masked addition, which makes NaN
// of NaN.
func (f *floats) ranged(which uint64, a, x vec) {
	k := K()
	f.cmp(Imm(unordered), x, a, k)
	t := newVec()
	f.rng(Imm(which), x, a, t)
	f.add(x, a, k, t)
	f.mov(t, a)
}

// mulBytes multiplies even and odd bytes as words: the low byte of a product
// depends only on the low bytes of its factors.
func mulBytes(b *body, a, x vec) {
	even := newVec()
	VPMULLW(x, a, even)
	and(b.consts[cByte], even, even)
	// (a>>8)·x with x's low bytes cleared has the odd product in its high byte.
	VPSRLW(Imm(8), a, a)
	if wide {
		VPANDND(x, b.consts[cByte], x)
	} else {
		VPANDN(x, b.consts[cByte], x)
	}
	VPMULLW(x, a, a)
	or(even, a, a)
}

// mulQuads is VPMULLQ for those who lack it: the full product of the low
// halves, plus both crosswise products moved up.
func mulQuads(_ *body, a, x vec) {
	cross, t := newVec(), newVec()
	VPSHUFD(Imm(0xb1), x, cross)
	VPMULLD(a, cross, cross)
	VPSRLQ(Imm(32), cross, t)
	VPADDD(t, cross, cross)
	VPSLLQ(Imm(32), cross, cross)
	VPMULUDQ(x, a, a)
	VPADDQ(cross, a, a)
}

// quads is min and max of 64 bits by comparing; unsigned with the top bits
// flipped.
func quads(name string, goOps []string, flip constSet) op {
	return op{name: name, goOps: goOps, consts: flip, fold: func(b *body, a, x vec) {
		greater := newVec()
		if flip != 0 {
			t, u := newVec(), newVec()
			VPXOR(b.consts[cSign], a, t)
			VPXOR(b.consts[cSign], x, u)
			VPCMPGTQ(u, t, greater)
		} else {
			VPCMPGTQ(x, a, greater)
		}
		if name == "min" {
			VPBLENDVB(greater, x, a, a)
		} else {
			VPBLENDVB(greater, a, x, a)
		}
	}}
}
