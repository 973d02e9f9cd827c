package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/tutti-go/tutti/mem"
)

// guardBytes follow the data in every buffer. They must survive.
const guardBytes = 4096

const guardByte = 0xa5

// checkTile is how many bytes are checked at a time: all there is of it stays
// in the first-level cache.
const checkTile = 4 << 10

// verdict is what one rank found.
type verdict struct {
	// Elements of the result: those of the rank's share, or all there are.
	Elements findings `json:"elements"`
	// Rest is what must not have changed: the guards, and the input.
	Rest findings `json:"rest"`
	// Sum is of the result's bytes: all ranks must have the same.
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

// checker checks one rank's result of an allreduce against every rank's input.
//
// To compute every rank's input for every element on every rank would take far
// longer than what is measured. All ranks promise the same bits, so each
// compares its share of the elements with what they should be, and all of them
// with the other ranks' by a checksum of 64 bits: as far as that can tell,
// every element of every rank is checked. Where checksums differ, every rank
// compares all of its elements.
type checker struct {
	task
	rank    int
	sources []source // by rank

	exact  exactness
	approx *approximation // nil where results are exact

	input [checkTile / 8]uint64
	want  [checkTile / 8]uint64
}

// onePass are the algorithms that reduce all ranks' inputs at once.
var onePass = []string{"oneshot", "direct", "staged"}

func newChecker(seed uint64, rank, ranks int, t task, algo string) *checker {
	c := &checker{task: t, rank: rank, sources: make([]source, ranks)}
	for i := range c.sources {
		c.sources[i] = newSource(seed, i, ranks, t.dtype, t.redop)
	}
	if t.dtype.Float() && (t.redop == mem.Sum || t.redop == mem.Prod || t.redop == mem.Avg) {
		c.approx = newApproximation(t.dtype, t.redop, ranks, slices.Contains(onePass, algo))
	} else {
		c.exact = exactFor(t.dtype, t.redop, ranks)
	}
	return c
}

// mine is this rank's input.
func (c *checker) mine() source { return c.sources[c.rank] }

// prepare fills the buffers for a run that will be checked. Each is larger
// than the data by guardBytes. In place, send and recv are the same.
func (c *checker) prepare(send, recv []byte) {
	c.mine().fillBytes(send[:c.bytes])
	if &send[0] != &recv[0] {
		// What was there before must not pass for a result.
		fillWith(recv[:c.bytes], 0x7b)
		fillWith(recv[c.bytes:c.bytes+guardBytes], guardByte)
	}
	fillWith(send[c.bytes:c.bytes+guardBytes], guardByte)
}

// verify looks at every byte that the run may have touched.
func (c *checker) verify(send, recv []byte) verdict {
	begin, end := c.share()
	v := verdict{Elements: c.compare(recv, begin, end), Sum: checksum(recv[:c.bytes])}
	checkGuard(&v.Rest, "receive", recv[c.bytes:c.bytes+guardBytes])
	if &send[0] != &recv[0] {
		c.unchanged(&v.Rest, send[:c.bytes])
		checkGuard(&v.Rest, "send", send[c.bytes:c.bytes+guardBytes])
	}
	return v
}

// share is the part of the result that this rank compares, in whole tiles.
func (c *checker) share() (begin, end int) {
	tiles, ranks := (c.bytes+checkTile-1)/checkTile, len(c.sources)
	return tiles * c.rank / ranks * checkTile, min(c.bytes, tiles*(c.rank+1)/ranks*checkTile)
}

// compare checks the reduction from begin, where a tile begins, to end.
func (c *checker) compare(recv []byte, begin, end int) findings {
	var f findings
	width := c.dtype.Size()
	for at := begin; at < end; at += checkTile {
		got := recv[at:min(at+checkTile, end)]
		words := (len(got) + 7) / 8
		if c.approx != nil {
			c.approx.reset(len(got) / width)
			for _, s := range c.sources {
				s.fill(c.input[:words], at/8)
				c.approx.add(mem.Bytes(c.input[:words]))
			}
			wrong, first := c.approx.compare(got)
			f.blame(int64(wrong), "element %d is %s", at/width+first.index, first)
			continue
		}
		for i, s := range c.sources {
			if i == 0 {
				s.fill(c.want[:words], at/8)
				continue
			}
			s.fill(c.input[:words], at/8)
			c.exact.combine(c.want[:words], c.input[:words])
		}
		if c.exact.finish != nil {
			c.exact.finish(c.want[:words])
		}
		c.same(&f, "element %d is %s, not %s", at, got, mem.Bytes(c.want[:words]))
	}
	return f
}

// unchanged checks that the input is as it was.
func (c *checker) unchanged(f *findings, send []byte) {
	for at := 0; at < len(send); at += checkTile {
		got := send[at:min(at+checkTile, len(send))]
		words := (len(got) + 7) / 8
		c.mine().fill(c.input[:words], at/8)
		c.same(f, "input element %d was changed to %s from %s", at, got, mem.Bytes(c.input[:words]))
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

// judge adds up all ranks' verdicts: where they agree, what is wrong in a share
// is wrong on every rank; where not, each has compared all elements.
func judge(all []verdict) (total int64, notes []string) {
	count := func(who string, f findings, times int) {
		if f.Wrong > 0 {
			notes = append(notes, fmt.Sprintf("%s: %d wrong: %s", who, f.Wrong, f.First))
			total += f.Wrong * int64(times)
		}
	}
	if agree(all) {
		var shares findings
		for _, v := range all {
			shares.blame(v.Elements.Wrong, "%s", v.Elements.First)
		}
		count("every rank", shares, len(all))
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
