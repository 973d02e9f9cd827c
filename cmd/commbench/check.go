package main

import (
	"bytes"
	"encoding/json"
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
	Wrong int64  `json:"wrong"`
	First string `json:"first,omitempty"` // the first wrong thing, described
	// Sum is of the result's bytes: all ranks must have the same.
	Sum uint64 `json:"sum"`
}

func (v *verdict) blame(count int, format string, args ...any) {
	if count == 0 {
		return
	}
	if v.Wrong == 0 {
		v.First = fmt.Sprintf(format, args...)
	}
	v.Wrong += int64(count)
}

// checker checks one rank's result of an allreduce against every rank's input.
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
	var v verdict
	c.results(&v, recv[:c.bytes])
	checkGuard(&v, "receive", recv[c.bytes:c.bytes+guardBytes])
	if &send[0] != &recv[0] {
		c.unchanged(&v, send[:c.bytes])
		checkGuard(&v, "send", send[c.bytes:c.bytes+guardBytes])
	}
	return v
}

// results checks the reduction, tile by tile.
func (c *checker) results(v *verdict, recv []byte) {
	width := c.dtype.Size()
	sum := uint64(len(recv))
	for at := 0; at < len(recv); at += checkTile {
		got := recv[at:min(at+checkTile, len(recv))]
		sum = checksum(sum, got)
		words := (len(got) + 7) / 8
		count := len(got) / width
		if c.approx != nil {
			c.approx.reset(count)
			for _, s := range c.sources {
				s.fill(c.input[:words], at/8)
				c.approx.add(mem.Bytes(c.input[:words]))
			}
			wrong, first := c.approx.compare(got)
			if wrong > 0 {
				v.blame(wrong, "element %d is %s", at/width+first.index, first)
			}
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
		want := mem.Bytes(c.want[:words])[:len(got)]
		if bytes.Equal(got, want) {
			continue
		}
		for i := 0; i < count; i++ {
			g, w := got[i*width:(i+1)*width], want[i*width:(i+1)*width]
			if !bytes.Equal(g, w) {
				v.blame(1, "element %d is %s, not %s", at/width+i, show(c.dtype, g), show(c.dtype, w))
			}
		}
	}
	v.Sum = sum
}

// unchanged checks that the input is as it was.
func (c *checker) unchanged(v *verdict, send []byte) {
	width := c.dtype.Size()
	for at := 0; at < len(send); at += checkTile {
		got := send[at:min(at+checkTile, len(send))]
		words := (len(got) + 7) / 8
		c.mine().fill(c.input[:words], at/8)
		want := mem.Bytes(c.input[:words])[:len(got)]
		if bytes.Equal(got, want) {
			continue
		}
		for i := 0; i < len(got); i += width {
			if !bytes.Equal(got[i:i+width], want[i:i+width]) {
				v.blame(1, "input element %d was changed to %s from %s", (at+i)/width,
					show(c.dtype, got[i:i+width]), show(c.dtype, want[i:i+width]))
			}
		}
	}
}

func checkGuard(v *verdict, which string, guard []byte) {
	for i, b := range guard {
		if b != guardByte {
			v.blame(1, "byte %d beyond the %s buffer was changed to %#x", i, which, b)
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

// checksum mixes b into h.
func checksum(h uint64, b []byte) uint64 {
	words := mem.Slice[uint64](b)
	for _, w := range words {
		h = (h ^ w) * mulA
		h ^= h >> 32
	}
	for _, x := range b[len(words)*8:] {
		h = (h ^ uint64(x)) * mulA
	}
	return h
}

// judge adds up all ranks' verdicts.
func judge(blobs [][]byte) (total int64, notes []string, err error) {
	var first verdict
	for rank, b := range blobs {
		var v verdict
		if err := json.Unmarshal(b, &v); err != nil {
			return 0, nil, fmt.Errorf("rank %d sent a verdict that is none: %w", rank, err)
		}
		if rank == 0 {
			first = v
		}
		if v.Wrong > 0 {
			notes = append(notes, fmt.Sprintf("rank %d: %d wrong: %s", rank, v.Wrong, v.First))
		} else if v.Sum != first.Sum && first.Wrong == 0 {
			// Within the bounds, but not what was promised.
			v.Wrong = 1
			notes = append(notes, fmt.Sprintf("rank %d: its result is not bit for bit that of rank 0", rank))
		}
		total += v.Wrong
	}
	return total, notes, nil
}
