package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// The door once more, as a machine of small steps that a schedule interleaves:
// door.call without bytes. What a rank shows is the number of the call; a rank
// that reads another number has read too late or too early. The ring of lines is
// shorter than the door's, so that short rows of calls go round it; an annex
// belongs to its line and needs no rule of its own.

const modelLines = 8

type modelCall struct {
	rooted, slot bool // in a slot, not in the line
	shows, needs []bool
	root         int
}

type modelRank struct {
	calls, entered uint64
	used           [doorSlots]uint64
	counters       [modelLines]uint64
	stamps         [modelLines]uint64
	slots          [doorSlots]uint64
	todo           []func(m *model) (done bool, err error) // of the present call
}

type model struct {
	ranks []modelRank
	row   []modelCall
	// Rules that are a call too early, where 1: for lines and slots, and for the
	// write that fetches the next line.
	earlyFree, earlyTouch uint64
}

// steps are those of one call of one rank, in the order of door.call.
func (m *model) steps(rank int) []func(*model) (bool, error) {
	type step = func(*model) (bool, error)
	d := &m.ranks[rank]
	d.calls++
	number := d.calls
	k := &m.row[number-1]
	line, slot := number%modelLines, number%2
	if k.rooted {
		slot = number % doorSlots
	}
	var steps []step
	do := func(f func()) { steps = append(steps, func(*model) (bool, error) { f(); return true, nil }) }
	until := func(peer int, call uint64) {
		steps = append(steps, func(m *model) (bool, error) { return m.ranks[peer].counters[call%modelLines] >= call, nil })
	}
	ahead := uint64(modelLines / 2)
	free := uint64(0)
	if number > modelLines {
		free = number - modelLines + 1
	}
	if k.slot {
		if d.used[slot] > 0 && d.used[slot] >= free {
			free, ahead = d.used[slot]+1, doorSlots/2
		}
		d.used[slot] = number
	}
	if free > 0 {
		free -= m.earlyFree
	}
	entered := d.entered
	if entered < free {
		enough := max(free, min(free+ahead-1, number-1))
		for peer := range m.ranks {
			if peer != rank {
				until(peer, enough)
			}
		}
		do(func() { d.entered = enough })
		entered = enough
	}
	if k.shows[rank] && k.slot {
		do(func() { d.slots[slot] = number })
	}
	do(func() { d.stamps[line] = number })
	do(func() { d.counters[line] = number })
	if entered+modelLines-1+m.earlyTouch > number {
		do(func() { d.stamps[(number+1)%modelLines] = 0 })
	}
	var reads []step
	for peer := range m.ranks {
		if peer == rank || !k.needs[rank] || k.rooted && rank != k.root && peer != k.root {
			continue
		}
		until(peer, number)
		read := func(m *model) (bool, error) {
			p := &m.ranks[peer]
			if p.stamps[line] != number || k.slot && k.shows[peer] && p.slots[slot] != number {
				return false, fmt.Errorf("rank %d in call %d reads what rank %d shows: stamp %d, slot %d",
					rank, number, peer, p.stamps[line], p.slots[slot])
			}
			return true, nil
		}
		steps = append(steps, read)
		reads = append(reads, read) // the payloads, once all have come
	}
	if !k.rooted {
		do(func() { d.entered = number })
	}
	return append(steps, reads...)
}

// run interleaves the ranks' steps at random. Now and then one of them is held
// up for long.
func (m *model) run(rng *rand.Rand) error {
	slow, idle := -1, 0
	for {
		if rng.IntN(60) == 0 {
			slow = rng.IntN(2*len(m.ranks)) - len(m.ranks)
		}
		rank := rng.IntN(len(m.ranks))
		d := &m.ranks[rank]
		if rank == slow && idle < 100 {
			idle++
			continue
		}
		if len(d.todo) == 0 {
			if int(d.calls) == len(m.row) {
				left := false
				for r := range m.ranks {
					left = left || int(m.ranks[r].calls) < len(m.row) || len(m.ranks[r].todo) > 0
				}
				if !left {
					return nil
				}
			} else {
				d.todo = m.steps(rank)
			}
		}
		moved := false
		if len(d.todo) > 0 {
			done, err := d.todo[0](m)
			if err != nil {
				return err
			}
			if moved = done; done {
				d.todo = d.todo[1:]
			}
		}
		if idle++; moved {
			idle = 0
		}
		if idle > 10_000 {
			return fmt.Errorf("nothing moves: rank %d is in call %d", rank, d.calls)
		}
	}
}

func drawModel(rng *rand.Rand) *model {
	n := 2 + rng.IntN(3)
	m := &model{ranks: make([]modelRank, n)}
	var k modelCall
	for range 40 {
		if rng.IntN(5) == 0 || k.needs == nil {
			k = modelCall{rooted: rng.IntN(3) > 0, root: rng.IntN(n), shows: make([]bool, n), needs: make([]bool, n)}
			fromRoot := rng.IntN(2) == 0
			for r := range n {
				k.shows[r] = !k.rooted || (r == k.root) == fromRoot
				k.needs[r] = !k.rooted || (r == k.root) != fromRoot
			}
		}
		k.slot = rng.IntN(2) == 0
		m.row = append(m.row, k)
	}
	return m
}

// TestDoorModel: whatever the order of the ranks' steps, each reads what was
// shown in its call, and nobody waits forever; and rules that free a line or a
// slot one call earlier are found to be wrong.
func TestDoorModel(t *testing.T) {
	const schedules = 3000
	var wrong [2]int
	for seed := range uint64(schedules) {
		if err := drawModel(rand.New(rand.NewPCG(seed, 1))).run(rand.New(rand.NewPCG(seed, 2))); err != nil {
			t.Fatalf("schedule %d: %v", seed, err)
		}
		for rule := range wrong {
			m := drawModel(rand.New(rand.NewPCG(seed, 1)))
			m.earlyFree, m.earlyTouch = uint64(1-rule), uint64(rule)
			if m.run(rand.New(rand.NewPCG(seed, 2))) != nil {
				wrong[rule]++
			}
		}
	}
	if wrong[0] == 0 || wrong[1] == 0 {
		t.Error("the model does not find what is wrong with rules that are a call too early")
	}
	t.Logf("of %d schedules, %v find the wrong rules", schedules, wrong)
}
