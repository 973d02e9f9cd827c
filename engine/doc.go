// Package engine is the public Go API of Tutti's collectives and the executor
// beneath it.
//
// A Comm is one rank's membership in a job. It is handed a medium
// (link.Fabric), a source of plans and a chooser, and knows none of them by
// name; package tutti puts the usual ones together.
//
// # How a call runs
//
// A rank that enters a collective writes an announcement (what it calls, where
// its buffers are) and raises its progress counter: it has arrived. When all
// have, everybody knows the same about everybody and chooses the same plan.
// The plan was lowered to a program for each rank and bound to addresses; the
// executor runs the program tile by tile: wait for a counter, copy or reduce,
// raise the own counter. It returns when no peer touches its buffers any more.
//
// Small messages take a door of their own, see oneshot.go.
//
// # Goroutines
//
// A Comm starts Threads-1 goroutines that help with large reductions, and the
// fabric has its own. Close stops them all. One goroutine at a time may be
// inside a collective of a Comm; a second most likely gets ErrBusy.
package engine
