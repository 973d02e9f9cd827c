package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// codecBlock is codec.Block: how many elements every step of a kernel covers.
const codecBlock = 256

// writeCodecs writes the kernels of package codec. Each converts a number of
// whole blocks, which is at least one.
func writeCodecs(suffix string) {
	for _, k := range []struct {
		name, about string
		encode      bool
		bytes       int // of an encoded block
		consts      constSet
		block       func(c *codecBody)
	}{
		{"encodeF16", "rounds blocks of f32 to f16", true, 2 * codecBlock, 0, (*codecBody).encodeF16},
		{"decodeF16", "widens blocks of f16 to f32", false, 2 * codecBlock, 0, (*codecBody).decodeF16},
		{"encodeBF16", "rounds blocks of f32 to bf16", true, 2 * codecBlock, cRound | cOne | cQuiet, (*codecBody).encodeBF16},
		{"decodeBF16", "widens blocks of bf16 to f32", false, 2 * codecBlock, 0, (*codecBody).decodeBF16},
		{"encodeQ8", "quantises blocks of f32 to a scale and 8 bits each", true, 4 + codecBlock, cAbs, (*codecBody).encodeQ8},
		{"decodeQ8", "multiplies blocks of 8 bits by their scales", false, 4 + codecBlock, 0, (*codecBody).decodeQ8},
	} {
		name := k.name + suffix
		TEXT(name, attr.NOSPLIT, "func(dst, src *byte, blocks int)")
		Pragma("noescape")
		Doc(fmt.Sprintf("%s %s.", name, k.about))
		c := &codecBody{dst: GP64(), src: GP64()}
		Load(Param("dst"), c.dst)
		Load(Param("src"), c.src)
		blocks := GP64()
		Load(Param("blocks"), blocks)
		c.consts = makeConsts(k.consts)
		from, to := k.bytes, 4*codecBlock
		if k.encode {
			from, to = to, from
		}
		c.prepare(k.name)
		align(64)
		Label("block")
		k.block(c)
		Label("next")
		ADDQ(U32(from), c.src)
		ADDQ(U32(to), c.dst)
		DECQ(blocks)
		JNZ(LabelRef("block"))
		VZEROUPPER()
		RET()
	}
}

// A codecBody is one of these kernels being written.
type codecBody struct {
	dst, src reg.GPVirtual
	consts   consts

	// Of encodeQ8.
	levels, most reg.VecVirtual // 127, and the greatest scale
	order        vec            // what undoes the lanes of packing
}

// units is how many vectors of f32 a block has.
func units() int { return 4 * codecBlock / vecBytes() }

func vecBytes() int {
	if wide {
		return 64
	}
	return 32
}

func (c *codecBody) from(offset int) Mem { return Mem{Base: c.src, Disp: offset} }
func (c *codecBody) to(offset int) Mem   { return Mem{Base: c.dst, Disp: offset} }

// moveVec loads or stores a whole vector.
func moveVec(from, to Op) {
	if wide {
		VMOVDQU64(from, to)
	} else {
		VMOVDQU(from, to)
	}
}

// halfOf is the lower half of v.
func halfOf(v vec) reg.VecVirtual {
	if wide {
		return v.AsY().(reg.VecVirtual)
	}
	return v.AsX().(reg.VecVirtual)
}

func (c *codecBody) encodeF16() {
	for i := range units() {
		v := newVec()
		moveVec(c.from(i*vecBytes()), v)
		VCVTPS2PH(Imm(0), v, halfOf(v))
		VMOVDQU(halfOf(v), c.to(i*vecBytes()/2))
	}
}

func (c *codecBody) decodeF16() {
	for i := range units() {
		v := newVec()
		VCVTPH2PS(c.from(i*vecBytes()/2), v)
		moveVec(v, c.to(i*vecBytes()))
	}
}

// encodeBF16 rounds as the kernels do, then drops the lower halves.
func (c *codecBody) encodeBF16() {
	b := &body{consts: c.consts}
	rounded := func(i int) vec {
		v := newVec()
		moveVec(c.from(i*vecBytes()), v)
		v = roundBF16(b, v)
		VPSRLD(Imm(16), v, v)
		return v
	}
	if wide {
		for i := range units() {
			VPMOVDW(rounded(i), c.to(i*vecBytes()/2))
		}
		return
	}
	for i := 0; i < units(); i += 2 {
		low, high := rounded(i), rounded(i+1)
		VPACKUSDW(high, low, low)
		VPERMQ(Imm(0b11_01_10_00), low, low) // packing interleaves the lanes
		VMOVDQU(low, c.to(i*vecBytes()/2))
	}
}

func (c *codecBody) decodeBF16() {
	for i := range units() {
		v := newVec()
		VPMOVZXWD(c.from(i*vecBytes()/2), v)
		VPSLLD(Imm(16), v, v)
		moveVec(v, c.to(i*vecBytes()))
	}
}

// Bits of f32 that encodeQ8 uses; codec/q8.go says why these.
const (
	q8Levels   = 0x42fe0000 // 127
	q8Least    = 0x04000000 // 2⁻¹¹⁹
	q8Most     = 0x7c010203 // the greatest scale
	q8Infinity = 0x7f800000
	q8NaN      = 0x7fc00000
)

// prepare loads what only encodeQ8 needs.
func (c *codecBody) prepare(name string) {
	if name != "encodeQ8" {
		return
	}
	g := GP32()
	c.levels, c.most = XMM(), XMM()
	MOVL(U32(q8Levels), g)
	VMOVD(g, c.levels)
	MOVL(U32(q8Most), g)
	VMOVD(g, c.most)
	if wide {
		return
	}
	// 0 4 1 5 2 6 3 7, from bytes.
	g64, x := GP64(), XMM()
	c.order = YMM()
	MOVQ(U64(0x0703060205010400), g64)
	VMOVQ(g64, x)
	VPMOVZXBD(x, c.order)
}

// encodeQ8 finds the greatest magnitude as an integer: the bits of magnitudes
// have the order of their values, with infinity and NaN above all of them.
func (c *codecBody) encodeQ8() {
	const lanes = 4 // maxima on the way at once
	n := units()
	max := make([]vec, lanes)
	all := make([]vec, n)
	for i := range n {
		x := newVec()
		if wide {
			all[i] = x // a block fits in the registers
		}
		t := newVec()
		if wide {
			moveVec(c.from(i*vecBytes()), x)
			VPANDD(x, c.consts[cAbs], t)
		} else {
			VPAND(c.from(i*vecBytes()), c.consts[cAbs], t)
		}
		if i < lanes {
			max[i] = t
		} else {
			VPMAXUD(t, max[i%lanes], max[i%lanes])
		}
	}
	VPMAXUD(max[1], max[0], max[0])
	VPMAXUD(max[3], max[2], max[2])
	VPMAXUD(max[2], max[0], max[0])
	m := max[0]
	if wide {
		upper := YMM()
		VEXTRACTI64X4(Imm(1), m, upper)
		VPMAXUD(upper, m.AsY(), m.AsY())
	}
	x, upper := m.AsX(), XMM()
	VEXTRACTI128(Imm(1), m.AsY(), upper)
	VPMAXUD(upper, x, x)
	VPSHUFD(Imm(0b01_00_11_10), x, upper)
	VPMAXUD(upper, x, x)
	VPSHUFD(Imm(0b10_11_00_01), x, upper)
	VPMAXUD(upper, x, x)

	bits := GP32()
	VMOVD(x, bits)
	CMPL(bits, U32(q8Infinity))
	JAE(LabelRef("nan"))
	CMPL(bits, U32(q8Least))
	JB(LabelRef("zero"))

	scale, inverse := XMM(), newVec()
	VDIVSS(c.levels, x, scale)
	VMINSS(c.most, scale, scale)
	VMOVSS(scale, c.to(0))
	VDIVSS(x, c.levels, x)
	VBROADCASTSS(x, inverse)
	if wide {
		for i, v := range all {
			VMULPS(inverse, v, v)
			VCVTPS2DQ(v, v)
			VPMOVSDB(v, c.to(4+16*i))
		}
	} else {
		for i := 0; i < n; i += 4 {
			var q [4]vec
			for j := range q {
				q[j] = YMM()
				VMULPS(c.from((i+j)*32), inverse, q[j])
				VCVTPS2DQ(q[j], q[j])
			}
			VPACKSSDW(q[1], q[0], q[0])
			VPACKSSDW(q[3], q[2], q[2])
			VPACKSSWB(q[2], q[0], q[0])
			VPERMD(q[0], c.order, q[0])
			VMOVDQU(q[0], c.to(4+8*i))
		}
	}
	JMP(LabelRef("next"))

	// Rare: the scale alone says what the block is.
	Label("nan")
	MOVL(U32(q8NaN), bits)
	JMP(LabelRef("fill"))
	Label("zero")
	XORL(bits, bits)
	Label("fill")
	MOVL(bits, c.to(0))
	zero := newVec()
	VPXOR(zero.AsX(), zero.AsX(), zero.AsX())
	for i := 0; i < codecBlock; i += 32 {
		VMOVDQU(zero.AsY(), c.to(4+i))
	}
}

func (c *codecBody) decodeQ8() {
	scale := newVec()
	VBROADCASTSS(c.from(0), scale)
	for i := range units() {
		v := newVec()
		VPMOVSXBD(c.from(4+i*vecBytes()/4), v)
		VCVTDQ2PS(v, v)
		VMULPS(scale, v, v)
		moveVec(v, c.to(i*vecBytes()))
	}
}
