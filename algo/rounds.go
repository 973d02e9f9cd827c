package algo

import "github.com/tutti-go/tutti/plan"

// A move takes one block from a rank to another.
type move struct{ from, to, block int }

// A holding is a block and where a rank has it.
type holding struct {
	block int
	at    plan.Place
}

// An exchange authors a plan in which the ranks move blocks in rounds. Every
// move is a put into a scratch chunk of its own that is free again after one
// hop, so that a tile follows the one before as soon as that has moved on.
type exchange struct {
	*plan.Builder
	ranks, blocks int
	out           func(rank, block int) plan.Place // where a block ends
	used          []int                            // scratch chunks of each rank
}

func newExchange(b *plan.Builder, ranks, blocks int, out func(rank, block int) plan.Place) *exchange {
	return &exchange{b, ranks, blocks, out, make([]int, ranks)}
}

// scratch returns a scratch chunk of the rank that nothing has used.
func (x *exchange) scratch(rank int) plan.Place {
	x.used[rank]++
	return plan.Scratch.At(rank, x.used[rank]-1)
}

// put lets a rank send what it has at src, and returns where it arrives.
func (x *exchange) put(src plan.Place, to int) plan.Place {
	at := x.scratch(to)
	x.Copy(src.Rank, src, at)
	return at
}

// table returns a value for each rank and block.
func table[T any](x *exchange) [][]T {
	t := make([][]T, x.ranks)
	for r := range t {
		t[r] = make([]T, x.blocks)
	}
	return t
}

// A spreading is the state of an allgather.
type spreading struct {
	*exchange
	at    [][]plan.Place // by rank and block
	fresh [][]int        // by rank: blocks that are not in Out yet
}

// spread is an allgather: what the ranks hold goes wherever the rounds take
// it, and into the Out of all who come to have it. A rank puts on straight
// from scratch what came in the round before, and copies it to Out then: the
// next rank waits for the put, nobody for the copy. Later puts read Out.
func (x *exchange) spread(start []holding, rounds [][]move) {
	s := &spreading{x, table[plan.Place](x), make([][]int, x.ranks)}
	s.arrive(start)
	for _, round := range rounds {
		came := make([]holding, len(round))
		for i, m := range round {
			came[i] = holding{m.block, x.put(s.at[m.from][m.block], m.to)}
		}
		s.settle()
		s.arrive(came)
	}
	s.settle()
}

func (s *spreading) arrive(came []holding) {
	for _, h := range came {
		r := h.at.Rank
		s.at[r][h.block] = h.at
		if h.at != s.out(r, h.block) {
			s.fresh[r] = append(s.fresh[r], h.block)
		}
	}
}

func (s *spreading) settle() {
	for r, blocks := range s.fresh {
		for _, c := range blocks {
			s.Copy(r, s.at[r][c], s.out(r, c))
			s.at[r][c] = s.out(r, c)
		}
		s.fresh[r] = nil
	}
}

// A partial is what a rank has of the sum of a block.
type partial struct {
	at   plan.Place
	came []plan.Place // from peers, to be added
	due  int          // how many parts are still to be added
	sent bool         // a peer gets the sum in the end
}

// A combining is the state of a reduce-scatter.
type combining struct {
	*exchange
	sums [][]partial // by rank and block
}

// combine is a reduce-scatter: every rank contributes to every block, and a
// move hands the sender's sum of a block to a rank that adds it to its own.
// The sum of a block is complete, and in Out, at the rank that never sends it.
func (x *exchange) combine(rounds [][]move) {
	s := &combining{x, table[partial](x)}
	for r := range s.sums {
		for c := range s.sums[r] {
			s.sums[r][c].at = plan.In.At(r, c)
		}
	}
	for _, round := range rounds {
		for _, m := range round {
			s.sums[m.from][m.block].sent = true
			s.sums[m.to][m.block].due++
		}
	}
	var before []move
	for _, round := range rounds {
		came := s.round(round)
		s.addAll(before)
		for i, m := range round {
			to := &s.sums[m.to][m.block]
			to.came = append(to.came, came[i])
		}
		before = round
	}
	s.addAll(before)
}

// round puts what the moves say, and returns where each arrives. A rank adds
// up a block just before it puts it, and goes on to the next: the receiver of
// the first need not wait for the last. What a rank keeps it adds up later.
func (s *combining) round(moves []move) []plan.Place {
	var came []plan.Place
	for len(moves) > 0 {
		n := together(moves)
		for _, m := range moves[:n] {
			s.add(m.from, m.block)
		}
		for _, m := range moves[:n] {
			came = append(came, s.put(s.sums[m.from][m.block].at, m.to))
		}
		moves = moves[n:]
	}
	return came
}

// together returns how many of the first moves have different senders.
func together(moves []move) int {
	seen := map[int]bool{}
	for i, m := range moves {
		if seen[m.from] {
			return i
		}
		seen[m.from] = true
	}
	return len(moves)
}

// addAll adds up what the moves have brought and nobody has put on.
func (s *combining) addAll(moves []move) {
	for r, blocks := range received(s.ranks, moves) {
		for _, c := range blocks {
			s.add(r, c)
		}
	}
}

// received returns the blocks that the moves bring to each rank.
func received(ranks int, moves []move) [][]int {
	blocks := make([][]int, ranks)
	for _, m := range moves {
		blocks[m.to] = append(blocks[m.to], m.block)
	}
	return blocks
}

// add adds to the rank's sum of a block what has come, if anything. A sum that
// goes to a peer next stays where its last part came in. One that waits for
// another part moves to new scratch: parts come in at the pace of the tiles,
// so that the place of this one is needed before the next one is here.
func (s *combining) add(r, c int) {
	p := &s.sums[r][c]
	if len(p.came) == 0 {
		return
	}
	to, srcs := p.came[0], append(p.came, p.at)
	p.due -= len(p.came)
	switch {
	case p.due > 0:
		to = s.scratch(r)
	case !p.sent:
		to = s.out(r, c)
	}
	s.Reduce(r, []plan.Place{to}, srcs...)
	p.at, p.came = to, nil
}

// own returns what each rank has at the start of an allgather: its In.
func own(ranks int) []holding {
	hs := make([]holding, ranks)
	for r := range hs {
		hs[r] = holding{r, plan.In.At(r, 0)}
	}
	return hs
}
