// Package plan holds a collective as data: which rank combines which chunks
// into which places, and what must have happened before. A plan has no
// sizes, no pointers and no medium; it moves no bytes.
//
// The life of a plan:
//
//   - author: a [Builder] takes a global view and two verbs, copy and
//     reduce, and derives the dependencies;
//   - check: [Plan.Check] runs the plan symbolically and shows that every
//     output holds exactly the contributions it must;
//   - lower: [Lower] cuts the plan into one [Program] for each rank, with
//     software pipelining and the waits between ranks;
//   - verify: [Lowered.Verify] proves for every number of tiles that the
//     programs neither deadlock nor race and compute what the plan says.
//
// A plan is for any medium on which it is within reach: all ranks map each
// other's memory, or none does, or only those of one node do. In the last case
// [Nodes] groups the ranks; [NewOver] authors over a grouping, [Plan.ReachOver]
// asks, and [LowerOver] lowers.
//
// Everything here is a pure function of its arguments and safe for
// concurrent use; a [Builder] belongs to one goroutine. [Plan.String] and
// [Parse] are the text form, described in docs/plan-format.md.
package plan
