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

	// What a rank stands for: by itself for itself alone, see [hierarchy]
	// for its node.
	brings func(rank, block int) []plan.Place              // to the sum of a block, in order of reduction
	ends   func(rank, block int) []plan.Place              // where the sum goes
	keep   func(rank, block int, at plan.Place) plan.Place // copies a block to where it ends at the rank; returns where others find it
	pass   func(rank, block int, at plan.Place)            // lets others copy it from there; or nil
}

func newExchange(b *plan.Builder, ranks, blocks int, out func(rank, block int) plan.Place) *exchange {
	return &exchange{
		Builder: b, ranks: ranks, blocks: blocks, out: out, used: make([]int, ranks),
		brings: func(r, c int) []plan.Place { return []plan.Place{plan.In.At(r, c)} },
		ends:   func(r, c int) []plan.Place { return []plan.Place{out(r, c)} },
		keep:   func(r, c int, at plan.Place) plan.Place { b.Copy(r, at, out(r, c)); return at },
	}
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
			s.at[r][c] = s.keep(r, c, s.at[r][c])
		}
	}
	for r, blocks := range s.fresh {
		for _, c := range blocks {
			if s.pass != nil {
				s.pass(r, c, s.at[r][c])
			}
			s.at[r][c] = s.out(r, c)
		}
		s.fresh[r] = nil
	}
}

// A partial is what a rank has of the sum of a block.
type partial struct {
	at   []plan.Place // what it has brought, or what it has summed up; nil: not yet
	came []plan.Place // from peers, to be added
	due  int          // how many parts are still to be added
	sent bool         // a peer gets the sum in the end
}

// A combining is the state of a reduce-scatter.
type combining struct {
	*exchange
	sums [][]partial // by rank and block
}

// combine is a reduce-scatter: every rank contributes to every block that it
// sends or gets, and a move hands the sender's sum of a block to a rank that
// adds it to its own. The sum of a block is complete, and where it ends, at the
// rank that never sends it. combine returns where that is.
func (x *exchange) combine(rounds [][]move) []holding {
	s := &combining{x, table[partial](x)}
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
	var done []holding
	for r := range s.sums {
		for c := range s.sums[r] {
			if p := &s.sums[r][c]; p.at != nil && !p.sent {
				done = append(done, holding{c, p.at[0]})
			}
		}
	}
	return done
}

// round puts what the moves say, and returns where each arrives. A rank adds
// up a block just before it puts it, and goes on to the next: the receiver of
// the first need not wait for the last. What a rank keeps it adds up later.
func (s *combining) round(moves []move) []plan.Place {
	var came []plan.Place
	for len(moves) > 0 {
		n := together(moves)
		for _, m := range moves[:n] {
			s.bring(m.from, m.block)
		}
		for _, m := range moves[:n] {
			s.add(m.from, m.block)
		}
		for _, m := range moves[:n] {
			came = append(came, s.put(s.sums[m.from][m.block].at[0], m.to))
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
	got := received(s.ranks, moves)
	for r, blocks := range got {
		for _, c := range blocks {
			s.bring(r, c)
		}
	}
	for r, blocks := range got {
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

// bring lets a rank have what it contributes to a block. All ranks do so before
// any of them adds up.
func (s *combining) bring(r, c int) {
	if p := &s.sums[r][c]; p.at == nil {
		p.at = s.brings(r, c)
	}
}

// add adds to the rank's sum of a block what has come, if anything. A sum that
// goes to a peer next stays where its last part came in. One that waits for
// another part moves to new scratch, as does one to which nothing has come but
// several parts were brought: parts come in at the pace of the tiles, so that
// the place of this one is needed before the next one is here.
func (s *combining) add(r, c int) {
	p := &s.sums[r][c]
	srcs := append(p.came, p.at...)
	if len(srcs) == 1 {
		return
	}
	var to []plan.Place
	p.due -= len(p.came)
	switch {
	case p.due > 0 || len(p.came) == 0:
		to = []plan.Place{s.scratch(r)}
	case p.sent:
		to = p.came[:1]
	default:
		to = s.ends(r, c)
	}
	s.Reduce(r, to, srcs...)
	p.at, p.came = to[:1], nil
}

// own returns what each rank has at the start of an allgather: its In.
func own(ranks int) []holding {
	hs := make([]holding, ranks)
	for r := range hs {
		hs[r] = holding{r, plan.In.At(r, 0)}
	}
	return hs
}
