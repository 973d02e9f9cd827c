package link

import (
	"testing"

	"github.com/tutti-go/tutti/internal/spin"
)

// TestNeighbourBehind: a rank gives its core away for those that share it and
// have not come as far, and for nobody else.
func TestNeighbourBehind(t *testing.T) {
	const here, elsewhere, unknown = 0, 1, 2
	for name, tt := range map[string]struct {
		where int
		count uint64
		want  bool
	}{
		"neighbour behind":       {here, 4, true},
		"neighbour as far":       {here, 5, false},
		"neighbour further":      {here, 6, false},
		"behind on another core": {elsewhere, 4, false},
		"behind, nobody knows":   {unknown, 4, true},
		"further, nobody knows":  {unknown, 6, false},
	} {
		t.Run(name, func(t *testing.T) {
			seats := []*Seat{new(Seat), new(Seat)}
			counters := []*Counter{new(Counter), new(Counter)}
			c := NewCrowd(0, seats)
			counters[1].Raise(tt.count)
			c.At(counters, 5)
			// The thread may move in between; then the seat is another.
			for range 100 {
				before := spin.Core()
				seats[1].core.Store([...]int64{here: int64(before) + 1, elsewhere: int64(before) + 2, unknown: 0}[tt.where])
				got := c.neighbourBehind()
				if spin.Core() != before {
					continue
				}
				if got != tt.want {
					t.Errorf("neighbourBehind() = %v", got)
				}
				if own := seats[0].core.Load(); own != int64(before)+1 {
					t.Errorf("on core %d our seat says %d", before, own-1)
				}
				return
			}
			t.Fatal("the thread never stayed on a core")
		})
	}
}

// TestNoCrowd: where every rank has a core there is no crowd to tell anything.
func TestNoCrowd(t *testing.T) {
	var c *Crowd
	c.At(nil, 1)
}
