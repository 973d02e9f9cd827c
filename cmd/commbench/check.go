package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/tutti-go/tutti/engine"
	"github.com/tutti-go/tutti/mem"
)

const (
	guardByte = 0xa5
	stale     = 0x7b
)

// checkTile is how many bytes are checked at a time: all there is of it stays
// in the first-level cache.
const checkTile = 4 << 10

// verdict is what one rank found.
type verdict struct {
	// Elements of the result: those of the rank's share, or all there are.
	Elements findings `json:"elements"`
	// Rest is what must not have changed: the guards, and the input.
	Rest findings `json:"rest"`
	// Sum is of the result's bytes where all ranks must have the same, else 0.
	Sum uint64 `json:"sum"`
}

// findings are things that are wrong.
type findings struct {
	Wrong int64  `json:"wrong"`
	First string `json:"first,omitempty"` // described
}

func (f *findings) blame(count int64, format string, args ...any) {
	if count == 0 {
		return
	}
	if f.Wrong == 0 {
		f.First = fmt.Sprintf(format, args...)
	}
	f.Wrong += count
}

// checker checks one rank's result against every rank's input.
//
// Where all ranks have the same reduction, to compute every rank's input for
// every element on every rank would take far longer than what is measured. All
// ranks promise the same bits, so each compares its share of the elements with
// what they should be, and all of them with the other ranks' by a checksum of
// 64 bits: as far as that can tell, every element of every rank is checked.
// Where checksums differ, every rank compares all of its elements. In all other
// operations every rank compares all it has.
type checker struct {
	*shape
	sources []source // by rank
	result  []piece  // all of it

	exact  exactness
	approx *approximation // nil where results are exact

	input [checkTile/8 + 1]uint64
	want  [checkTile/8 + 1]uint64
}

// onePass are the algorithms that reduce all ranks' inputs at once.
var onePass = []string{"oneshot", "direct", "staged"}

func newChecker(seed uint64, s *shape, algo string, wire engine.Wire) *checker {
	c := &checker{shape: s, sources: make([]source, s.ranks), result: s.op.want(s)}
	for i := range c.sources {
		c.sources[i] = s.source(seed, i, s.ranks)
	}
	switch t := s.task; {
	case !t.op.reduces():
	case t.dtype.Float() && (t.redop == mem.Sum || t.redop == mem.Prod || t.redop == mem.Avg):
		c.approx = newApproximation(t.dtype, t.redop, s.ranks, slices.Contains(onePass, algo))
		c.approx.over(wire)
	default:
		c.exact = exactFor(t.dtype, t.redop, s.ranks)
	}
	return c
}

// mine is this rank's input.
func (c *checker) mine() source { return c.sources[c.rank] }

// prepare fills the buffers for a run that will be checked.
func (c *checker) prepare(g *ground) {
	// What was there before must not pass for a result.
	fillWith(g.out, stale)
	if g.inPlace {
		fillWith(g.whole, stale)
	}
	c.mine().fillBytes(g.in)
	fillWith(g.sendGuard, guardByte)
	fillWith(g.recvGuard, guardByte)
}

// verify looks at every byte that the run may have touched.
func (c *checker) verify(g *ground) verdict {
	v := verdict{Elements: c.compare(g.out, c.share())}
	if c.op.alike() {
		v.Sum = checksum(g.out)
	}
	checkGuard(&v.Rest, "receive", g.recvGuard)
	checkGuard(&v.Rest, "send", g.sendGuard)
	switch {
	case !g.inPlace || len(g.out) == 0:
		c.unchanged(&v.Rest, g.in, 0, len(g.in))
	case len(g.in) > len(g.out) && !c.op.reduces(): // in place, the other ranks' blocks
		_, own := c.inPlace()
		c.unchanged(&v.Rest, g.in, 0, own)
		c.unchanged(&v.Rest, g.in, own+len(g.out), len(g.in))
	}
	return v
}

// share is the part of the result that this rank compares.
func (c *checker) share() []piece {
	if !c.op.alike() {
		return c.result
	}
	bytes := c.outBytes() // in whole tiles
	tiles := (bytes + checkTile - 1) / checkTile
	begin, end := tiles*c.rank/c.ranks*checkTile, min(bytes, tiles*(c.rank+1)/c.ranks*checkTile)
	return []piece{{begin, everyone, begin, end - begin}}
}

// compare checks pieces of the result.
func (c *checker) compare(recv []byte, pieces []piece) findings {
	var f findings
	for _, p := range pieces {
		for done := 0; done < p.bytes; done += checkTile {
			got := recv[p.at+done:][:min(checkTile, p.bytes-done)]
			c.compareTile(&f, got, p.at+done, p.source, p.from+done)
		}
	}
	return f
}

// compareTile checks what lies at an offset of the receive buffer and comes
// from an offset of a source.
func (c *checker) compareTile(f *findings, got []byte, at, of, from int) {
	if of != everyone {
		c.same(f, "element %d is %s, not %s", at, got, c.sources[of].part(c.want[:], from, len(got)))
		return
	}
	width := c.dtype.Size()
	if c.approx != nil {
		c.approx.reset(len(got) / width)
		for _, s := range c.sources {
			c.approx.add(s.part(c.input[:], from, len(got)))
		}
		wrong, first := c.approx.compare(got)
		f.blame(int64(wrong), "element %d is %s", at/width+first.index, first)
		return
	}
	want := c.sources[0].part(c.want[:], from, len(got))
	words := (from%8 + len(got) + 7) / 8
	for _, s := range c.sources[1:] {
		s.part(c.input[:], from, len(got))
		c.exact.combine(c.want[:words], c.input[:words])
	}
	if c.exact.finish != nil {
		c.exact.finish(c.want[:words])
	}
	c.same(f, "element %d is %s, not %s", at, got, want)
}

// unchanged checks that the input is as it was, from begin to end.
func (c *checker) unchanged(f *findings, send []byte, begin, end int) {
	for at := begin; at < end; at += checkTile {
		got := send[at:min(at+checkTile, end)]
		c.same(f, "input element %d was changed to %s from %s", at, got, c.mine().part(c.input[:], at, len(got)))
	}
}

// same blames the elements of the tile at the given offset that are not what
// they should be.
func (c *checker) same(f *findings, format string, at int, got, want []byte) {
	if want = want[:len(got)]; bytes.Equal(got, want) {
		return
	}
	width, first, wrong := c.dtype.Size(), 0, int64(0)
	for i := len(got) - width; i >= 0; i -= width {
		if !bytes.Equal(got[i:i+width], want[i:i+width]) {
			first = i
			wrong++
		}
	}
	f.blame(wrong, format, (at+first)/width, show(c.dtype, got[first:]), show(c.dtype, want[first:]))
}

func checkGuard(f *findings, which string, guard []byte) {
	for i, b := range guard {
		if b != guardByte {
			f.blame(1, "byte %d beyond the %s buffer was changed to %#x", i, which, b)
		}
	}
}

func fillWith(b []byte, x byte) {
	if len(b) == 0 {
		return
	}
	b[0] = x
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// checksum adds up a hash of every word and its place: words that are wrong,
// stale or out of place change it, whatever they have in common.
func checksum(b []byte) uint64 {
	words := mem.Slice[uint64](b)
	sum := uint64(0)
	for i, w := range words {
		sum += scatter(w ^ uint64(i)*mulA)
	}
	var last [8]byte
	copy(last[:], b[len(words)*8:])
	return sum + scatter(binary.NativeEndian.Uint64(last[:])^uint64(len(words))*mulA)
}

// scatter is what SplitMix64 ends with. With mix, which does less, two flipped
// signs would cancel far more often than once in 2⁶⁴.
func scatter(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// agree says whether all ranks have the same result.
func agree(all []verdict) bool {
	return !slices.ContainsFunc(all, func(v verdict) bool { return v.Sum != all[0].Sum })
}

// judge adds up all ranks' verdicts. Where each has compared a share only and
// they agree, what is wrong in a share is wrong on every rank; where not, each
// has compared all elements.
func judge(all []verdict, shares bool) (total int64, notes []string) {
	count := func(who string, f findings, times int) {
		if f.Wrong > 0 {
			notes = append(notes, fmt.Sprintf("%s: %d wrong: %s", who, f.Wrong, f.First))
			total += f.Wrong * int64(times)
		}
	}
	if shares && agree(all) {
		var together findings
		for _, v := range all {
			together.blame(v.Elements.Wrong, "%s", v.Elements.First)
		}
		count("every rank", together, len(all))
	} else {
		for rank, v := range all {
			if v.Sum != all[0].Sum && v.Elements.Wrong+all[0].Elements.Wrong == 0 {
				// Within the bounds, but not what was promised.
				v.Elements = findings{1, "its result is not bit for bit that of rank 0"}
			}
			count(fmt.Sprintf("rank %d", rank), v.Elements, 1)
		}
	}
	for rank, v := range all {
		count(fmt.Sprintf("rank %d", rank), v.Rest, 1)
	}
	return total, notes
}
