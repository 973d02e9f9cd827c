package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tutti-go/tutti/internal/cpu"
)

// verify makes one call on fresh data, and counts what is wrong on all ranks.
func (r *rank) verify(ctx context.Context, c *checker, call callFunc, g *ground) (*int64, error) {
	c.prepare(g)
	within, cancel := r.deadline(ctx)
	defer cancel()
	if err := call(within); err != nil {
		return nil, rankError(r.ex.Rank(), err)
	}
	mine := c.verify(g)
	all, err := r.verdicts(ctx, mine)
	if err != nil {
		return nil, err
	}
	if !agree(all) {
		mine.Elements = c.compare(g.out, c.result)
		if all, err = r.verdicts(ctx, mine); err != nil {
			return nil, err
		}
	}
	total, notes := judge(all, c.op.alike())
	return r.count(total, notes)
}

// count counts what is wrong, and says what it is.
func (r *rank) count(total int64, notes []string) (*int64, error) {
	r.wrong += total
	if r.ex.Rank() == 0 {
		for _, note := range notes {
			if err := r.report(event{Note: note}); err != nil {
				return nil, err
			}
		}
	}
	return &total, nil
}

// verdicts exchanges them.
func (r *rank) verdicts(ctx context.Context, mine verdict) ([]verdict, error) {
	b, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	blobs, err := r.gather(ctx, b)
	if err != nil {
		return nil, err
	}
	all := make([]verdict, len(blobs))
	for rank, b := range blobs {
		if err := json.Unmarshal(b, &all[rank]); err != nil {
			return nil, fmt.Errorf("rank %d sent a verdict that is none: %w", rank, err)
		}
	}
	return all, nil
}

// verifyBarrier has the ranks come one after the other, rank 0 last: none may
// leave before. Machines have clocks of their own, so the ranks meet outside of
// Tutti first, see visit.
func (r *rank) verifyBarrier(ctx context.Context, call callFunc) (*int64, error) {
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	v := visit{Machine: cpu.Machine(), Ready: sinceBoot()}
	if _, err := r.gather(ctx, nil); err != nil {
		return nil, err
	}
	v.Met = sinceBoot()
	time.Sleep(time.Duration(r.ex.Size()-r.ex.Rank()) * 300 * time.Microsecond)
	v.Came = sinceBoot()
	if err := call(ctx); err != nil {
		return nil, rankError(r.ex.Rank(), err)
	}
	v.Left = sinceBoot()
	mine, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	blobs, err := r.gather(ctx, mine)
	if err != nil {
		return nil, err
	}
	all := make([]visit, len(blobs))
	for rank, b := range blobs {
		if err := json.Unmarshal(b, &all[rank]); err != nil {
			return nil, fmt.Errorf("rank %d says nonsense of its barrier: %w", rank, err)
		}
	}
	return r.count(tooEarly(all))
}

// visit is when a rank came to a barrier and left it, by the clock of its
// machine; and when it was ready for a meeting of all ranks before, and knew that
// they had met. Nobody knows that before all are ready: that bounds by how much
// two clocks can differ.
type visit struct {
	Machine                string
	Ready, Met, Came, Left time.Duration
}

// least is the least that has to be added to a time of v's clock to make it one
// of w's.
func (v visit) least(w visit) time.Duration {
	if v.Machine == w.Machine {
		return 0
	}
	return w.Ready - v.Met
}

// tooEarly counts the ranks that left before another came, whatever their
// clocks say.
func tooEarly(all []visit) (early int64, notes []string) {
	for rank, v := range all {
		last, ahead := 0, time.Duration(0)
		for other, w := range all {
			if a := w.Came + w.least(v) - v.Left; a > ahead {
				last, ahead = other, a
			}
		}
		if ahead > 0 {
			early++
			notes = append(notes, fmt.Sprintf("rank %d left the barrier %v before rank %d came", rank, ahead, last))
		}
	}
	return early, notes
}
