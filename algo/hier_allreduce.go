package algo

import "github.com/tutti-go/tutti/plan"

// hierGenerators are the hierarchical algorithms, in the order in which [Names]
// lists them.
var hierGenerators = []overGenerator{
	{"allreduce/hier-ring", plan.AllReduce, unrootedOver(AllReduceHierRing)},
	{"allreduce/hier-ring-direct", plan.AllReduce, unrootedOver(AllReduceHierRingDirect)},
	{"allreduce/hier-halving-doubling", plan.AllReduce, unrootedOver(AllReduceHierHalvingDoubling)},
	{"allreduce/hier-halving-doubling-direct", plan.AllReduce, unrootedOver(AllReduceHierHalvingDoublingDirect)},
}

// AllReduceHierRing is allreduce/hier-ring: ring or halving among the owners of each lane, see [hierarchy].
func AllReduceHierRing(nodes plan.Nodes) (*plan.Plan, error) {
	return hierAllReduce("allreduce/hier-ring", nodes, false, ringRounds)
}

// AllReduceHierRingDirect is allreduce/hier-ring-direct: ring or halving among the owners of each lane, see [hierarchy].
func AllReduceHierRingDirect(nodes plan.Nodes) (*plan.Plan, error) {
	return hierAllReduce("allreduce/hier-ring-direct", nodes, true, ringRounds)
}

// AllReduceHierHalvingDoubling is allreduce/hier-halving-doubling: ring or halving among the owners of each lane, see [hierarchy].
func AllReduceHierHalvingDoubling(nodes plan.Nodes) (*plan.Plan, error) {
	return hierAllReduce("allreduce/hier-halving-doubling", nodes, false, halvingRounds)
}

// AllReduceHierHalvingDoublingDirect is allreduce/hier-halving-doubling-direct: ring or halving among the owners of each lane, see [hierarchy].
func AllReduceHierHalvingDoublingDirect(nodes plan.Nodes) (*plan.Plan, error) {
	return hierAllReduce("allreduce/hier-halving-doubling-direct", nodes, true, halvingRounds)
}

// A pattern returns the rounds of a reduce-scatter among nodes, in which the sum
// of block k is complete at node k, and those of an allgather from there.
type pattern func(nodes int) (scatter, gather [][]move)

func ringRounds(nodes int) (scatter, gather [][]move) {
	return around(nodes, -1), around(nodes, 0)
}

func halvingRounds(nodes int) (scatter, gather [][]move) {
	rounds := halving(nodes)
	return rounds, backwards(rounds)
}

// hierAllReduce returns the allreduce in which the owners of a lane reduce and
// gather it along the rounds of a pattern, a share of it for each node.
func hierAllReduce(name string, nodes plan.Nodes, direct bool, among pattern) (*plan.Plan, error) {
	if len(nodes) == 1 {
		return alone(name, plan.AllReduce)
	}
	var lots []lot
	for lane := range lanes(nodes) {
		for home := range nodes.Count() {
			lots = append(lots, lot{lane, home})
		}
	}
	b := plan.NewOver(name, plan.AllReduce, nodes, 0, max(1, len(lots)))
	h := newHierarchy(b, nodes, len(lots), direct, plan.Out.At)
	scatter, gather := among(nodes.Count())
	h.spread(h.reduceScatter(scatter, lots), h.among(gather, lots))
	return b.Plan()
}
