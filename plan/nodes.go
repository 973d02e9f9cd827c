package plan

import "slices"

// Nodes is a grouping of ranks: Nodes[r] is the node of rank r. Ranks of one
// node map each other's memory; those of different nodes reach each other only
// by puts into scratch. Nodes are numbered in the order in which they first
// appear, and their ranks need not be contiguous.
type Nodes []int

// NodesOf returns the grouping of ranks by whatever identifies their nodes.
func NodesOf[T comparable](of []T) Nodes {
	number := map[T]int{}
	nodes := make(Nodes, len(of))
	for r, id := range of {
		k, ok := number[id]
		if !ok {
			k = len(number)
			number[id] = k
		}
		nodes[r] = k
	}
	return nodes
}

// OneNode returns the grouping in which all ranks map each other's memory.
func OneNode(ranks int) Nodes { return make(Nodes, max(ranks, 0)) }

// Apart returns the grouping in which nobody maps anybody's memory.
func Apart(ranks int) Nodes {
	nodes := OneNode(ranks)
	for r := range nodes {
		nodes[r] = r
	}
	return nodes
}

// Count returns the number of nodes.
func (n Nodes) Count() int {
	count := 0
	for _, k := range n {
		count = max(count, k+1)
	}
	return count
}

// Members returns the ranks of each node, in ascending order.
func (n Nodes) Members() [][]int {
	members := make([][]int, n.Count())
	for r, k := range n {
		members[k] = append(members[k], r)
	}
	return members
}

// Together reports whether two ranks are of one node.
func (n Nodes) Together(a, b int) bool { return n[a] == n[b] }

// fault returns what is wrong with a grouping of so many ranks, or "".
func (n Nodes) fault(ranks int) string {
	switch {
	case len(n) != ranks:
		return "the grouping is not one of as many ranks"
	case !slices.Equal(n, NodesOf(n)):
		return "the nodes are not numbered in the order in which they appear"
	}
	return ""
}
