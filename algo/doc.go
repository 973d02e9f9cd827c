// Package algo holds the algorithms: one file for each way of moving data,
// each algorithm a pure function from the number of ranks, and the root where
// there is one, to a plan. Each opens with the picture, the cost and the
// source.
//
// Costs are for n ranks and b bytes in the α-β-γ model: α for a wait for
// another rank, β for a byte moved between ranks, γ for a byte combined.
// Copies inside a rank count as β too. With tiles in flight the terms of
// different steps overlap; the formulas are for one tile. [Cost] says exactly
// what is counted, and a test counts it.
//
// Hierarchical algorithms are functions of how the ranks are grouped into nodes.
// Their costs tell the two levels apart: α and β are those within a node, α′ and
// β′ those of puts to other nodes, and a node's copies are all within. [LevelCost]
// says what is counted. The formulas in the comments are for K nodes of m ranks
// each; [CostOver] has them for any grouping.
//
// [New] and [NewOver] find an algorithm by name, [Names] lists them, [CostFor] and
// [CostOver] have the formula.
package algo
