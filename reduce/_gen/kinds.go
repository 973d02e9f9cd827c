package main

import (
	"github.com/mmcloughlin/avo/ir"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

type vec = reg.VecVirtual

// mode says how much of a vector is loaded and stored: all of it, what a mask
// selects, or only the first bytes.
type mode struct {
	bytes int
	mask  reg.Register
}

// A kind is a class of elements: how they become accumulators and back.
type kind struct {
	name      string
	about     string
	size      int
	plain     bool // accumulators are what lies in memory
	half      bool // f16: a vector of memory is half as wide as its accumulator
	pair      int  // vectors in a block of the loops of two sources
	block     int  // vectors in a block of the general loop
	consts    constSet
	load      func(b *body, m Mem, md mode) []vec
	finish    func(b *body, acc []vec) vec
	div       func(d, v vec)
	broadcast func(divisor reg.GPVirtual, v vec)
}

// unit is the bytes of memory in a vector.
func (k *kind) unit() int {
	n := 32
	if wide {
		n = 64
	}
	if k.half {
		n /= 2
	}
	return n
}

func newVec() vec {
	if wide {
		return ZMM()
	}
	return YMM()
}

// align starts a loop on a boundary.
func align(n uint64) {
	Instruction(&ir.Instruction{Opcode: "PCALIGN", Operands: []Op{Imm(n)}})
}

// loadBits loads a vector as it lies in memory.
func (k *kind) loadBits(m Mem, md mode) vec {
	v := newVec()
	if md.mask == nil && md.bytes < 32 && !wide {
		// The loads below clear the rest of v, which avo does not know: it
		// would keep the register from the start of the kernel on.
		VPXOR(v, v, v)
	}
	switch {
	case md.mask != nil:
		var to Op = v
		if k.half {
			to = v.AsY()
		}
		switch k.size {
		case 1:
			VMOVDQU8_Z(m, md.mask, to)
		case 2:
			VMOVDQU16_Z(m, md.mask, to)
		case 4:
			VMOVDQU32_Z(m, md.mask, to)
		case 8:
			VMOVDQU64_Z(m, md.mask, to)
		}
	case md.bytes == 64:
		VMOVDQU64(m, v)
	case md.bytes == 32:
		VMOVDQU(m, v.AsY())
	case md.bytes == 16:
		VMOVDQU(m, v.AsX())
	case md.bytes == 8:
		VMOVQ(m, v.AsX())
	case md.bytes == 4:
		VMOVD(m, v.AsX())
	case md.bytes == 2:
		VPBROADCASTW(m, v.AsX())
	case md.bytes == 1:
		VPBROADCASTB(m, v.AsX())
	}
	return v
}

// store stores what finish returned.
func (k *kind) store(v vec, m Mem, md mode) {
	switch {
	case md.mask != nil:
		var from Op = v
		if k.half {
			from = v.AsY()
		}
		switch k.size {
		case 1:
			VMOVDQU8(from, md.mask, m)
		case 2:
			VMOVDQU16(from, md.mask, m)
		case 4:
			VMOVDQU32(from, md.mask, m)
		case 8:
			VMOVDQU64(from, md.mask, m)
		}
	case md.bytes == 64:
		VMOVDQU64(v, m)
	case md.bytes == 32:
		VMOVDQU(v.AsY(), m)
	case md.bytes == 16:
		VMOVDQU(v.AsX(), m)
	case md.bytes == 8:
		VMOVQ(v.AsX(), m)
	case md.bytes == 4:
		VMOVD(v.AsX(), m)
	case md.bytes == 2:
		VPEXTRW(Imm(0), v.AsX(), m)
	case md.bytes == 1:
		VPEXTRB(Imm(0), v.AsX(), m)
	}
}

// plain is a kind whose accumulators are what lies in memory.
func plain(name, about string, size int) *kind {
	k := &kind{name: name, about: about, size: size, plain: true, pair: 4, block: 4}
	if wide {
		k.pair, k.block = 2, 8
	}
	k.load = func(_ *body, m Mem, md mode) []vec { return []vec{k.loadBits(m, md)} }
	k.finish = func(_ *body, acc []vec) vec { return acc[0] }
	return k
}

func f32Kind() *kind {
	k := plain("F32", "f32", 4)
	k.div, k.broadcast = divPS, broadcastPS
	return k
}

func f64Kind() *kind {
	k := plain("F64", "f64", 8)
	k.div = func(d, v vec) { VDIVPD(d, v, v) }
	k.broadcast = func(divisor reg.GPVirtual, v vec) {
		x := XMM()
		VXORPD(x, x, x)
		VCVTSI2SDQ(divisor, x, x)
		VBROADCASTSD(x, v)
	}
	return k
}

func divPS(d, v vec) { VDIVPS(d, v, v) }

func broadcastPS(divisor reg.GPVirtual, v vec) {
	x := XMM()
	VXORPS(x, x, x)
	VCVTSI2SSQ(divisor, x, x)
	VBROADCASTSS(x, v)
}

// f16Kind converts as it loads and stores.
func f16Kind() *kind {
	k := &kind{name: "F16", about: "f16, combined in 32 bits", size: 2, half: true, pair: 4, block: 4}
	if wide {
		k.block = 8
	}
	k.div, k.broadcast = divPS, broadcastPS
	k.load = func(_ *body, m Mem, md mode) []vec {
		v := newVec()
		switch {
		case md.mask == nil && md.bytes == k.unit():
			VCVTPH2PS(m, v)
		case wide:
			VCVTPH2PS(k.loadBits(m, md).AsY(), v)
		default:
			VCVTPH2PS(k.loadBits(m, md).AsX(), v)
		}
		return []vec{v}
	}
	k.finish = func(_ *body, acc []vec) vec {
		v := newVec()
		if wide {
			VCVTPS2PH(Imm(0), acc[0], v.AsY())
		} else {
			VCVTPS2PH(Imm(0), acc[0], v.AsX())
		}
		return v
	}
	return k
}

// bf16Kind splits a vector into its odd elements, which are floats once the
// even ones are cleared, and its even elements, shifted up. exact says that
// the result needs no rounding, as of min and max.
func bf16Kind(exact bool) *kind {
	k := &kind{name: "BF16", about: "bf16, combined in 32 bits", size: 2, pair: 2, block: 2}
	if wide {
		k.block = 4
	}
	k.div, k.broadcast = divPS, broadcastPS
	k.consts = cHigh
	if !exact {
		k.consts |= cRound | cOne | cQuiet
	}
	k.load = func(b *body, m Mem, md mode) []vec {
		odd, even := k.loadBits(m, md), newVec()
		VPSLLD(Imm(16), odd, even)
		and(b.consts[cHigh], odd, odd)
		return []vec{odd, even}
	}
	k.finish = func(b *body, acc []vec) vec {
		odd, even := acc[0], acc[1]
		if !exact {
			odd, even = roundBF16(b, odd), roundBF16(b, even)
		}
		low := newVec()
		VPSRLD(Imm(16), even, low)
		if wide {
			VPTERNLOGD(Imm(0xea), low, b.consts[cHigh], odd) // odd&high | low
			return odd
		}
		VPAND(b.consts[cHigh], odd, odd)
		VPOR(low, odd, odd)
		return odd
	}
	return k
}

// roundBF16 is v rounded to its upper 16 bits; the lower ones are rubbish.
func roundBF16(b *body, v vec) vec {
	t := newVec()
	VPSRLD(Imm(16), v, t)
	and(b.consts[cOne], t, t)
	VPADDD(b.consts[cRound], t, t)
	VPADDD(v, t, t)
	if wide {
		nan := K()
		VCMPPS(Imm(3), v, v, nan)
		VPORD(b.consts[cQuiet], v, nan, t)
		return t
	}
	nan, quiet := newVec(), newVec()
	VCMPPS(Imm(3), v, v, nan)
	VPOR(b.consts[cQuiet], v, quiet)
	VPBLENDVB(nan, quiet, t, t)
	return t
}
