//go:build !noasm && !race

package fence

import "sync/atomic"

// register asks that heavy, of any process, reaches this one.
func register() bool { return membarrier(registerGlobalExpedited) }

// light stores *word = v with nothing but the order that every store has here.
//
//go:noescape
func light(word *atomic.Uint64, v uint64)
