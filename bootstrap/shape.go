package bootstrap

// The ranks of a job that joined by a rendezvous are the nodes of a binomial
// tree with rank 0 at its root: the parent of a rank is the rank with its
// lowest bit cleared.
//
//	0 ── 1
//	├─── 2 ── 3
//	└─── 4 ── 5
//	     └─── 6 ── 7
//
// Gathering up and sending down takes 2⌈log₂ n⌉ rounds in which every rank
// sends or receives one message, the fewest that there can be over n-1
// connections. What lies below a rank is a range of ranks, so what is gathered
// needs no index; and ranks that are neighbours in number, which mostly share
// a node, are neighbours in the tree.

// parentOf is the parent of a rank other than 0.
func parentOf(rank int) int { return rank & (rank - 1) }

// childrenOf lists the children of a rank in rising order. What is below each
// follows what is below the one before it.
func childrenOf(rank, size int) []int {
	var children []int
	for step := 1; rank+step < size && (rank == 0 || step < rank&-rank); step <<= 1 {
		children = append(children, rank+step)
	}
	return children
}

// spanOf counts a rank and all that is below it: the ranks from it on.
func spanOf(rank, size int) int {
	if rank == 0 {
		return size
	}
	return min(rank&-rank, size-rank)
}
