package engine

import (
	"fmt"
	"unsafe"

	"github.com/tutti-go/tutti/internal/move"
	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/plan"
	"github.com/tutti-go/tutti/reduce/codec"
)

// Wire is the form in which the elements of a call travel between ranks.
type Wire uint8

// The forms: as they are, or, for allreduce of f32 on request, in fewer bits.
const (
	WireFull Wire = iota
	WireF16
	WireBF16
	WireQ8 // 8 bits, with a scale for each block of 256 elements

	numWires
)

var wireNames = [numWires]string{"full", "f16", "bf16", "q8"}

// String is the name that ParseWire reads.
func (w Wire) String() string {
	if w < numWires {
		return wireNames[w]
	}
	return fmt.Sprintf("Wire(%d)", uint8(w))
}

// ParseWire reads a form by its name: full, f16, bf16, q8.
func ParseWire(s string) (Wire, error) {
	for w, name := range wireNames {
		if s == name {
			return Wire(w), nil
		}
	}
	return 0, fmt.Errorf("unknown wire format %q (known: %v)", s, wireNames)
}

// check refuses a form for calls that it does not suit.
func (w Wire) check(k *call) error {
	switch {
	case w == WireFull:
		return nil
	case w >= numWires:
		return k.bad("unknown wire format %v", w)
	case k.collective != plan.AllReduce || k.dtype != mem.F32 || k.op != mem.Sum && k.op != mem.Avg:
		return k.bad("only sums and averages of f32 by allreduce are compressed, not %v of %v by %v", k.op, k.dtype, k.collective)
	}
	return nil
}

// codec is the coding of a form that is not full.
func (w Wire) codec() codec.Codec {
	return [numWires]codec.Codec{WireF16: codec.F16, WireBF16: codec.BF16, WireQ8: codec.Q8}[w]
}

// codedUnit is the bytes of f32 that are coded together: pieces and tiles of a
// compressed call are whole multiples of it, so that each is a message of its
// own to the codec.
const codedUnit = codec.Block * 4

// unit is what pieces of a block are whole multiples of, in bytes, so that no
// two of them share what is written as one.
func (w Wire) unit() int {
	if w == WireFull {
		return link.LineBytes
	}
	return codedUnit
}

// coder is what compressed calls work with.
type coder struct {
	dsts, srcs []codec.Operand
	scratch    codec.Scratch
	parcel     []byte // what is put to a peer, coded
}

// performCoded is the work of one action on bytes of f32 where scratch holds
// them coded and the callers' buffers as they are. Copies between scratch and
// scratch move the code; a contribution is coded once, when it first goes to
// scratch, and a sum once, when it is made.
func (c *Comm) performCoded(k *call, a *action, bytes, divisor int) {
	if c.coder == nil {
		c.coder = new(coder)
	}
	form, count := k.wire.codec(), bytes/4
	if !a.reduces {
		for i, dst := range a.dstAt {
			recode(form, dst, a.dsts[i].scratch, a.srcAt[0], a.srcs[0].scratch, count)
		}
		return
	}
	w := c.coder
	w.dsts, w.srcs = w.dsts[:0], w.srcs[:0]
	for i, p := range a.dstAt {
		w.dsts = append(w.dsts, codec.Operand{P: p, Encoded: a.dsts[i].scratch})
	}
	for i, p := range a.srcAt {
		w.srcs = append(w.srcs, codec.Operand{P: p, Encoded: a.srcs[i].scratch})
	}
	form.Reduce(k.kernel, w.dsts, w.srcs, count, divisor, &w.scratch)
	clear(w.dsts)
	clear(w.srcs)
}

// recode copies count elements that are coded or not to where they are to be
// coded or not.
func recode(form codec.Codec, dst unsafe.Pointer, dstCoded bool, src unsafe.Pointer, srcCoded bool, count int) {
	switch {
	case dst == src:
	case dstCoded && !srcCoded:
		form.Encode(dst, src, count)
	case srcCoded && !dstCoded:
		form.Decode(dst, src, count)
	default:
		bytes := 4 * count
		if srcCoded {
			bytes = form.EncodedBytes(count)
		}
		move.Bytes(unsafe.Slice((*byte)(dst), bytes), unsafe.Slice((*byte)(src), bytes))
	}
}

// parcelOf is what goes over the wire for the first source of an action.
func (c *Comm) parcelOf(k *call, o *operand, src []byte) []byte {
	if k.wire == WireFull {
		return src
	}
	form, count := k.wire.codec(), len(src)/4
	if o.scratch {
		// A code may be longer than so few elements, but not than their tile.
		return unsafe.Slice(unsafe.SliceData(src), form.EncodedBytes(count))
	}
	if c.coder == nil {
		c.coder = new(coder)
	}
	if n := form.EncodedBytes(count); len(c.coder.parcel) < n {
		c.coder.parcel = make([]byte, n)
	}
	form.Encode(pointer(c.coder.parcel), pointer(src), count)
	return c.coder.parcel[:form.EncodedBytes(count)]
}
