package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A body is one kernel being written. It has three loops: two sources into
// one destination, two into two, and any number into any number, with inner loops
// over the tables of pointers. Each runs on blocks of vectors; single vectors
// and what is less than one are left to the last form for all of them.
type body struct {
	kernel
	consts             consts
	dsts, srcs, nd, ns reg.GPVirtual
	off, end           reg.GPVirtual
	divide             bool // the general loop divides if divisor > 1
	divisor            reg.GPVirtual
	divVec             vec
	label              string // of the loop being written, for labels inside it
}

func newBody(k kernel) *body { return &body{kernel: k} }

func (b *body) emit() {
	b.dsts, b.srcs = GP64(), GP64()
	b.nd, b.ns = GP64(), GP64()
	b.off, b.end = GP64(), GP64()
	Load(Param("dsts"), b.dsts)
	Load(Param("srcs"), b.srcs)
	Load(Param("nd"), b.nd)
	Load(Param("ns"), b.ns)
	Load(Param("from"), b.off)
	Load(Param("to"), b.end)
	b.consts = makeConsts(b.kind.consts | b.op.consts)
	b.divide = b.op.name == "sum" && b.kind.div != nil

	if b.divide {
		b.divisor = GP64()
		Load(Param("divisor"), b.divisor)
		b.divVec = newVec()
		CMPQ(b.divisor, Imm(1))
		JLE(LabelRef("plain"))
		b.kind.broadcast(b.divisor, b.divVec)
		JMP(LabelRef("many"))
		Label("plain")
	}
	CMPQ(b.ns, Imm(2))
	JNE(LabelRef("many"))
	CMPQ(b.nd, Imm(2))
	JA(LabelRef("many"))
	src0, src1, dst0, dst1 := GP64(), GP64(), GP64(), GP64()
	MOVQ(Mem{Base: b.srcs}, src0)
	MOVQ(Mem{Base: b.srcs, Disp: 8}, src1)
	MOVQ(Mem{Base: b.dsts}, dst0)
	JE(LabelRef("twotwo"))
	b.loop("one", b.kind.pair, func(units int, m mode) { b.pair(src0, src1, units, m, dst0) })
	JMP(LabelRef("rest"))

	Label("twotwo")
	MOVQ(Mem{Base: b.dsts, Disp: 8}, dst1)
	b.loop("two", b.kind.pair, func(units int, m mode) { b.pair(src0, src1, units, m, dst0, dst1) })
	JMP(LabelRef("rest"))

	Label("many")
	b.loop("block", b.kind.block, b.many)
	Label("rest")
	b.loop("single", 1, b.many)
	b.tail()
	VZEROUPPER()
	RET()
}

// loop runs step on as many blocks of units vectors as there are between off
// and end.
func (b *body) loop(name string, units int, step func(units int, m mode)) {
	b.steps(name, units*b.kind.unit(), units > 1, func() { step(units, mode{bytes: b.kind.unit()}) })
}

// steps runs step while there are that many bytes between off and end.
func (b *body) steps(name string, bytes int, aligned bool, step func()) {
	next := GP64()
	LEAQ(Mem{Base: b.off, Disp: bytes}, next)
	CMPQ(next, b.end)
	JA(LabelRef(name + "_done"))
	if aligned {
		align(64)
	}
	Label(name)
	b.label = name
	step()
	MOVQ(next, b.off)
	ADDQ(U32(bytes), next)
	CMPQ(next, b.end)
	JBE(LabelRef(name))
	Label(name + "_done")
}

// tail combines what is less than a vector, by halves of one, then by 8 bytes,
// then by single elements. Vectors are as wide as ever, but only their first
// bytes are loaded and stored. A masked store would do it at once, but whoever
// reads the result right after it, as the next of many small calls does, would
// have to wait until it is in the cache: masked stores are not forwarded.
func (b *body) tail() {
	for bytes := b.kind.unit() / 2; bytes >= 8; bytes /= 2 {
		b.steps(fmt.Sprint("tail", bytes), bytes, false, func() { b.many(1, mode{bytes: bytes}) })
	}
	switch {
	case b.kind.size == 8:
	case wide && b.kind.size < 4:
		b.maskedTail() // not worth up to seven steps
	default:
		b.steps("tail", b.kind.size, false, func() { b.many(1, mode{bytes: b.kind.size}) })
	}
}

// maskedTail combines what is less than a vector through a mask.
func (b *body) maskedTail() {
	rest, ones, mask := GP64(), GP64(), K()
	MOVQ(b.end, rest)
	SUBQ(b.off, rest)
	JE(LabelRef("end"))
	if b.kind.size == 2 {
		SHRQ(Imm(1), rest)
	}
	MOVQ(I32(-1), ones)
	BZHIQ(rest, ones, ones)
	KMOVQ(ones, mask)
	b.label = "tail"
	b.many(1, mode{bytes: b.kind.unit(), mask: mask})
	Label("end")
}

// at is the place of the i-th vector from off in a buffer.
func (b *body) at(p reg.Register, i int) Mem {
	return Mem{Base: p, Index: b.off, Scale: 1, Disp: i * b.kind.unit()}
}

// pair combines two sources. Destinations may be sources, but then element by
// element, so each vector is finished before the next if registers are short.
func (b *body) pair(src0, src1 reg.Register, units int, m mode, dsts ...reg.Register) {
	if b.kind.plain && b.op.direct != nil {
		// Each vector is stored as soon as it is there: this keeps the store
		// queue busy, which is what limits these loops.
		acc := make([]vec, units)
		for i := range acc {
			acc[i] = b.kind.loadBits(b.at(src0, i), m)
		}
		for i, v := range acc {
			b.op.direct(b.at(src1, i), v)
			for _, d := range dsts {
				b.kind.store(v, b.at(d, i), m)
			}
		}
		return
	}
	var out []vec
	first := 0
	flush := func() {
		for _, d := range dsts {
			for i, v := range out {
				b.kind.store(v, b.at(d, first+i), m)
			}
		}
		first += len(out)
		out = nil
	}
	for i := range units {
		acc := b.kind.load(b, b.at(src0, i), m)
		b.combine(acc, b.kind.load(b, b.at(src1, i), m))
		out = append(out, b.kind.finish(b, acc))
		if len(acc) > 1 {
			flush()
		}
	}
	flush()
}

// many walks the tables of pointers once for units vectors.
func (b *body) many(units int, m mode) {
	label := b.label
	p, j := GP64(), GP64()
	acc := make([][]vec, units)
	MOVQ(Mem{Base: b.srcs}, p)
	for i := range units {
		acc[i] = b.kind.load(b, b.at(p, i), m)
	}
	MOVQ(U32(1), j)
	CMPQ(b.ns, Imm(1))
	JE(LabelRef(label + "_read"))
	Label(label + "_src")
	MOVQ(Mem{Base: b.srcs, Index: j, Scale: 8}, p)
	for i := range units {
		b.combine(acc[i], b.kind.load(b, b.at(p, i), m))
	}
	INCQ(j)
	CMPQ(j, b.ns)
	JB(LabelRef(label + "_src"))
	Label(label + "_read")
	if b.divide {
		CMPQ(b.divisor, Imm(1))
		JLE(LabelRef(label + "_divided"))
		for _, a := range acc {
			for _, v := range a {
				b.kind.div(b.divVec, v)
			}
		}
		Label(label + "_divided")
	}
	out := make([]vec, units)
	for i := range units {
		out[i] = b.kind.finish(b, acc[i])
	}
	XORQ(j, j)
	Label(label + "_dst")
	MOVQ(Mem{Base: b.dsts, Index: j, Scale: 8}, p)
	for i := range units {
		b.kind.store(out[i], b.at(p, i), m)
	}
	INCQ(j)
	CMPQ(j, b.nd)
	JB(LabelRef(label + "_dst"))
}

// combine folds x into acc. It may destroy x.
func (b *body) combine(acc, x []vec) {
	for i := range acc {
		b.op.fold(b, acc[i], x[i])
	}
}
