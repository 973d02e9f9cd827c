package engine

import (
	"errors"
	"math"
	"testing"

	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/plan"
)

// TestLargeBlocks: the arithmetic of sizes beyond what 32 bits hold. The pieces
// of a block make up the block, and tiles cover each piece.
func TestLargeBlocks(t *testing.T) {
	for _, block := range []int{1<<31 - 4, 1 << 31, 1<<32 + 12, 5<<40 + 4} {
		for _, chunks := range []int{1, 2, 7, 64} {
			p := program{chunks: chunks, depth: 4, tileBytes: 128 << 10, pieceUnit: WireFull.unit()}
			var s shape
			s.uniform(block)
			sum := 0
			for i := range chunks {
				n := p.pieceBytes(&s, 0, i)
				if tiles := p.tilesFor(block); n > 0 && (tiles-1)*p.tileBytes >= p.pieceOf(block) || tiles*p.tileBytes < n {
					t.Errorf("block of %d in %d: %d tiles of %d for a piece of %d", block, chunks, tiles, p.tileBytes, n)
				}
				sum += n
			}
			if sum != block {
				t.Errorf("%d pieces of a block of %d have %d bytes", chunks, block, sum)
			}
		}
	}
	// Rows of a v form.
	const each = 3 << 30
	rows := [][]uint64{{each, each, each, each}, {each, each, each, each}}
	var s shape
	k := call{collective: plan.AllToAll, vector: true, dtype: mem.U8}
	if err := s.read(&k, rows); err != nil || s.largest != each || s.offset(plan.Out, 1, 1) != each {
		t.Errorf("%v; the largest block is %d, the second at %d", err, s.largest, s.offset(plan.Out, 1, 1))
	}
	// Counts whose sum, or bytes, no int holds.
	for _, counts := range [][]int{{math.MaxInt, math.MaxInt}, {math.MaxInt / 4, math.MaxInt / 4}, {math.MinInt, 1}} {
		var arg *ArgumentError
		if err := k.checkCounts("send", 0, counts, 2); !errors.As(err, &arg) {
			t.Errorf("counts %v: %v", counts, err)
		}
	}
}
