// Command commbench measures collectives between the ranks of this machine and
// checks their results:
//
//	commbench --op allreduce --size 1G
//
// It starts its own ranks as processes, or is a rank where a launcher has set
// TUTTI_RANK. It prints the table of nccl-tests, JSON lines or CSV.
// commbench roofline measures what the memory of the machine allows at most.
//
// The parent checks what was asked for, launches and prints (flags.go, parse.go,
// launch.go, table.go, lines.go). What an operation is stands in one table
// (ops.go), and what it means for a rank in shape.go. The ranks measure (rank.go,
// timing.go, overlap.go), with data that every rank can compute of every other
// (data.go, check.go, verify.go). Rank 0 reports to the parent by events over an
// inherited pipe (event.go).
//
// Exit status: 0 all good, 1 wrong results, 2 bad usage, 3 could not run, 130
// after an interrupt.
package main
