// Package fence lets the seldom side of a handshake pay for the often one.
//
// In Dekker's pattern two sides each store a word of their own and then look at
// the other's; one of them is sure to see the other if neither look can overtake
// its store. A processor keeps it from doing so with a full fence: it waits until
// the store, and all stores before it, are visible, which is most of the cost of
// a short message that nobody answers.
//
// Where one side comes far less often, it can do so for both: its Heavy makes
// every core that runs the other side pass a full fence at this moment
// (membarrier(2), MEMBARRIER_CMD_GLOBAL_EXPEDITED, which reaches other processes
// too), and the other side's store is a plain one, Light. Known as asymmetric
// fences; Dice, Huang and Yang, "Asymmetric Dekker synchronization", 2001.
package fence

import (
	"sync"
	"sync/atomic"
)

var (
	once   sync.Once
	usable bool
)

// Usable reports whether Light may take the place of an atomic store in this
// process. Its first call asks the kernel, which can take milliseconds.
func Usable() bool {
	once.Do(ask)
	return usable
}

func ask() { usable = register() }

// Light stores v: what was written before is visible to who sees it, but a load
// that follows may come first, unless the other side's Heavy is between the two.
// Only for processes in which Usable is true.
func Light(word *atomic.Uint64, v uint64) { light(word, v) }

// Heavy is a full fence for the caller, and for every thread that now runs in a
// process in which Usable has been true, the caller's own among them. It is a
// system call of a few microseconds that interrupts their cores. Where the kernel
// refuses it, it does nothing.
func Heavy() { heavy() }
