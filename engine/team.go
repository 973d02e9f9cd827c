package engine

import (
	"context"
	"math"
	"sync"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/reduce"
)

// teamBytes is the least that a thread of a team should have to do: below it,
// waking another thread costs more than it brings.
const teamBytes = 128 << 10

// team is the threads of one rank that share its large reductions. The caller
// is the first of them; each of the others is a goroutine that waits for work
// on a counter of its own.
//
// job is written by the caller before it raises a helper's work counter, and
// read by helpers after they saw the count. A helper raises done when it is
// finished, and the caller waits for it before it returns.
type team struct {
	helpers []*helper
	job     job
	turn    uint64
	waiter  link.Waiter
	fault   link.Fault
	running sync.WaitGroup
}

type job struct {
	kernel            reduce.Func
	dsts, srcs        []unsafe.Pointer
	count, size, each int // elements in all, bytes of one, elements for each thread
	divisor           int
}

type helper struct {
	work, done link.Counter
	dsts, srcs []unsafe.Pointer
}

// newTeam starts a team of the given number of threads.
func newTeam(threads int) *team {
	t := &team{}
	t.waiter = link.Waiter{Patience: link.PatienceFor(1, 1), Fault: &t.fault}
	t.waiter.Nap = time.Minute // nothing to look for: close wakes them
	for i := 1; i < threads; i++ {
		h := new(helper)
		t.helpers = append(t.helpers, h)
		t.running.Go(func() { t.serve(h, i) })
	}
	return t
}

// close ends the helpers. No reduction may be running.
func (t *team) close() {
	t.fault.Fail(link.ErrClosed)
	for _, h := range t.helpers {
		h.work.Raise(math.MaxUint64) // wakes it to see the fault
	}
	t.running.Wait()
}

// serve does thread number's share of every job that it is called to, until
// the team is closed.
func (t *team) serve(h *helper, number int) {
	for turn := uint64(0); ; {
		if t.waiter.Wait(context.Background(), &h.work, turn+1) != nil || t.fault.Err() != nil {
			return
		}
		turn = h.work.Load() // small jobs may have gone by without this thread
		h.dsts = appendShifted(h.dsts[:0], t.job.dsts, number*t.job.each*t.job.size)
		h.srcs = appendShifted(h.srcs[:0], t.job.srcs, number*t.job.each*t.job.size)
		t.job.kernel(h.dsts, h.srcs, min(t.job.each, t.job.count-number*t.job.each), t.job.divisor)
		h.done.Raise(turn)
	}
}

func appendShifted(to, from []unsafe.Pointer, bytes int) []unsafe.Pointer {
	for _, p := range from {
		to = append(to, unsafe.Add(p, bytes))
	}
	return to
}

// reduce combines srcs into dsts, with as many threads as the size deserves.
// It returns when all of it is done.
func (t *team) reduce(kernel reduce.Func, dsts, srcs []unsafe.Pointer, bytes, size, divisor int) {
	count := bytes / size
	threads := min(len(t.helpers)+1, bytes/teamBytes)
	if threads < 2 {
		kernel(dsts, srcs, count, divisor)
		return
	}
	// Whole cache lines for each, so that no two threads write to one.
	perLine := link.LineBytes / size
	each := ((count+threads-1)/threads + perLine - 1) / perLine * perLine
	threads = (count + each - 1) / each
	t.turn++
	t.job = job{kernel, dsts, srcs, count, size, each, divisor}
	helpers := t.helpers[:threads-1]
	for _, h := range helpers {
		h.work.Raise(t.turn)
	}
	kernel(dsts, srcs, each, divisor)
	for _, h := range helpers {
		// Background and a team that is not closed: the wait cannot fail.
		_ = t.waiter.Wait(context.Background(), &h.done, t.turn)
	}
}
