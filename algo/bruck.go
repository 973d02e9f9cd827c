package algo

import (
	"math/bits"

	"github.com/tutti-go/tutti/plan"
)

// AllGatherBruck is allgather/bruck: in round k every rank puts all it knows,
// 2^k blocks from its own on, to the rank 2^k before it, and thus knows twice
// as many. In the last round it puts only what is missing there.
//
//	n = 5     knows     round 0    round 1       round 2
//	rank 0    0         0 ─► 4     0 1 ─► 3      0 ─► 1
//	rank 1    1         1 ─► 0     1 2 ─► 4      1 ─► 2
//	rank 2    2         2 ─► 1     2 3 ─► 0      2 ─► 3
//	rank 3    3         3 ─► 2     3 4 ─► 1      3 ─► 4
//	rank 4    4         4 ─► 3     4 0 ─► 2      4 ─► 0
//
// Cost for each rank, with b the bytes of n blocks: ⌊log2 n⌋·α + (2n-1)/n·b·β,
// in 2n-1 steps, for any rank count: n-1 puts, and n copies to Out. There are
// ⌈log2 n⌉ rounds, but block r+j takes only as many hops to rank r as j has
// ones in binary. Nothing needs to be mapped or exposed.
//
// Source: J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby, "Efficient
// Algorithms for All-to-All Communications in Multiport Message-Passing
// Systems", IEEE Trans. Parallel and Distributed Systems 8(11), 1997. The
// rotation that it ends with is not needed where each block has an address.
func AllGatherBruck(ranks int) (*plan.Plan, error) {
	const name = "allgather/bruck"
	if ranks == 1 {
		return alone(name, plan.AllGather)
	}
	n := ranks
	x := newExchange(plan.NewBuilder(name, plan.AllGather, n, 1), n, n, plan.Out.At)
	var rounds [][]move
	for dist := 1; dist < n; dist *= 2 {
		var round []move
		for r := range n {
			for j := range min(dist, n-dist) {
				round = append(round, move{r, (r - dist + n) % n, (r + j) % n})
			}
		}
		rounds = append(rounds, round)
	}
	x.spread(own(n), rounds)
	return x.Plan()
}

// AllToAllBruck is alltoall/bruck: a block for the rank j to the right goes
// there in steps of powers of two, the ones of j in binary. In round k every
// rank puts to the one 2^k to its right all blocks it has for which bit k is
// set, its own and those that came by.
//
//	j for n = 8   0   1   2   3   4   5   6   7
//	round 0           1       1       1       1     to r+1
//	round 1               2   2           2   2     to r+2
//	round 2                       4   4   4   4     to r+4
//
// Cost for each rank, with b the bytes of n blocks: ⌊log2 n⌋·α + (1 + s/n)·b·β,
// where s is the number of ones in 0, 1, ..., n-1 in binary. For powers of two
// s/n is log2(n)/2: half of the blocks move in each round, and each is copied
// to Out in the end. A rank talks to ⌈log2 n⌉ others, where in
// [AllToAllPairwise] it talks to all, and moves more bytes: for short
// messages. Nothing needs to be mapped or exposed.
//
// Source: as [AllGatherBruck]. The rotations at both ends are not needed where
// each block has an address.
func AllToAllBruck(ranks int) (*plan.Plan, error) {
	n := ranks
	x := newExchange(plan.NewBuilder("alltoall/bruck", plan.AllToAll, n, 1), n, n, plan.Out.At)
	at := table[plan.Place](x) // by origin and distance
	for r := range n {
		for j := range n {
			at[r][j] = plan.In.At(r, (r+j)%n)
		}
	}
	// settle copies what has arrived to Out: behind the next round's puts,
	// for which others wait.
	settled := 0
	settle := func(dist int) {
		for ; settled < min(dist, n); settled++ {
			for r := range n {
				q := at[r][settled]
				x.Copy(q.Rank, q, plan.Out.At(q.Rank, r))
			}
		}
	}
	for dist := 1; dist < n; dist *= 2 {
		for j := range n {
			for r := 0; r < n && j&dist != 0; r++ {
				at[r][j] = x.put(at[r][j], (at[r][j].Rank+dist)%n)
			}
		}
		settle(dist)
	}
	settle(n)
	return x.Plan()
}

// ones returns how many ones the numbers below n have in binary.
func ones(n int) int {
	sum := 0
	for j := range n {
		sum += bits.OnesCount(uint(j))
	}
	return sum
}
