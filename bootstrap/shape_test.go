package bootstrap

import (
	"math/bits"
	"slices"
	"testing"
)

// TestShape: parents and children agree, everybody is below rank 0, and what
// is below a rank is the range that spanOf says, child by child.
func TestShape(t *testing.T) {
	for size := 1; size <= 130; size++ {
		for r := range size {
			next := r + 1
			for _, c := range childrenOf(r, size) {
				if parentOf(c) != r || c != next {
					t.Fatalf("%d ranks: child %d of %d has parent %d; want it to be %d", size, c, r, parentOf(c), next)
				}
				next += spanOf(c, size)
			}
			if next != r+spanOf(r, size) {
				t.Fatalf("%d ranks: below %d are those up to %d, not %d", size, r, next, r+spanOf(r, size))
			}
			if r > 0 && !slices.Contains(childrenOf(parentOf(r), size), r) {
				t.Fatalf("%d ranks: %d is no child of its parent", size, r)
			}
			depth := 0
			for q := r; q != 0; q = parentOf(q) {
				depth++
			}
			if depth > bits.Len(uint(size-1)) {
				t.Fatalf("%d ranks: %d is %d deep", size, r, depth)
			}
		}
	}
}
