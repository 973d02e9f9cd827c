package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"
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
// leave before.
func (r *rank) verifyBarrier(ctx context.Context, call callFunc) (*int64, error) {
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	time.Sleep(time.Duration(r.ex.Size()-r.ex.Rank()) * 300 * time.Microsecond)
	came := sinceBoot()
	if err := call(ctx); err != nil {
		return nil, rankError(r.ex.Rank(), err)
	}
	blob := binary.LittleEndian.AppendUint64(nil, uint64(came))
	blobs, err := r.gather(ctx, binary.LittleEndian.AppendUint64(blob, uint64(sinceBoot())))
	if err != nil {
		return nil, err
	}
	var all []visit
	for rank, b := range blobs {
		if len(b) != 16 {
			return nil, fmt.Errorf("rank %d says nonsense of its barrier", rank)
		}
		all = append(all, visit{time.Duration(binary.LittleEndian.Uint64(b)), time.Duration(binary.LittleEndian.Uint64(b[8:]))})
	}
	return r.count(tooEarly(all))
}

// visit is when a rank came to a barrier and left it.
type visit struct{ came, left time.Duration }

// tooEarly counts the ranks that left before the last one came.
func tooEarly(all []visit) (early int64, notes []string) {
	last := 0
	for rank, v := range all {
		if v.came > all[last].came {
			last = rank
		}
	}
	for rank, v := range all {
		if ahead := all[last].came - v.left; ahead > 0 {
			early++
			notes = append(notes, fmt.Sprintf("rank %d left the barrier %v before rank %d came", rank, ahead, last))
		}
	}
	return early, notes
}
