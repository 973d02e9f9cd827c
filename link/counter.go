package link

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti/internal/fence"
	"github.com/tutti-go/tutti/internal/futex"
	"github.com/tutti-go/tutti/internal/spin"
)

// LineBytes is the unit in which shared words are laid out, so that two
// writers never share a cache line.
const LineBytes = 64

// CounterBytes is the size of a Counter: two lines.
const CounterBytes = 2 * LineBytes

// Counter is a signal: a 64-bit count in a cache line of its own, with room
// for a little data that travels with it, and a second line for those who
// sleep on it. It is laid over memory that several processes map; all zeros
// is a counter at 0.
//
// Who writes, who reads:
//
//   - value has one writer, the rank that raises it, and any number of
//     readers. It only grows. The raiser writes Data, and whatever else the
//     count stands for, before value; a reader that has seen value reads them
//     after. Go's atomics are sequentially consistent, so a store releases
//     and a load acquires.
//   - sleepers is changed by readers that are about to sleep and read by the
//     raiser after it stored value. Store-then-load on one side against
//     add-then-load on the other is Dekker's pattern: either the raiser sees
//     the sleeper or the sleeper sees the value. Between the two come a full
//     fence of each, or one of the sleeper that counts for both (package
//     fence), as RaiseAhead asks. A process that dies asleep leaves sleepers
//     too high; the only consequence is a futile wake for each raise.
//   - wake is the futex word, bumped by the raiser between value and the
//     wake-up, so that a sleeper who checked too early does not fall asleep.
//
// The raiser should not look at the first line once it has raised the value:
// peers that poll are fetching it by then, and to read it costs its way there
// and back, half the time of a small allreduce. That is why sleepers have a
// line of their own, which stays with the raiser as long as nobody sleeps.
type Counter struct {
	value atomic.Uint64

	// Data is carried along by Raise: bytes stored before it are visible to
	// whoever has seen the value.
	Data [LineBytes - 8]byte

	sleepers atomic.Uint32
	wake     atomic.Uint32
	_        [LineBytes - 8]byte
}

// CounterAt lays a counter over the first CounterBytes bytes of memory, which
// must start on a multiple of 8 and should start on one of LineBytes.
func CounterAt(memory []byte) *Counter {
	return (*Counter)(unsafe.Pointer(&memory[:CounterBytes][0]))
}

// CounterIn is CounterAt for media that are told a place by a peer: the counter
// at offset in a region's memory. An error is ErrRange: there is no room for a
// counter, or offset is not a multiple of 8.
func CounterIn(memory []byte, offset int) (*Counter, error) {
	if offset < 0 || offset > len(memory)-CounterBytes || offset%8 != 0 {
		return nil, fmt.Errorf("a counter at %d of %d bytes: %w", offset, len(memory), ErrRange)
	}
	return CounterAt(memory[offset:]), nil
}

// Load returns the count.
func (c *Counter) Load() uint64 { return c.value.Load() }

// Raise sets the count to v, which must not be below the present count, and
// wakes whoever sleeps on it. Only the counter's one writer may call it. It
// makes a system call only when somebody sleeps.
//
// Who raises a counter mostly waits for somebody else's next. A core that
// reads ahead fetches that one too early: it gets the old value, and the other
// side, which needs the line to itself to raise it, must ask for it back. The
// fence lets the first look come after the raise, which takes a whole way
// between cores out of an exchange.
func (c *Counter) Raise(v uint64) {
	c.value.Store(v)
	spin.Fence()
	if c.sleepers.Load() != 0 {
		c.rouse()
	}
}

// RaiseAhead is Raise for a rank that does not next wait for those who wait for
// this count: it goes on before the count, and what it stands for, is visible.
// So the raiser's look at sleepers may come before its store; the sleeper's
// heavy fence keeps the pattern whole.
func (c *Counter) RaiseAhead(v uint64) {
	if !fence.Usable() {
		c.Raise(v)
		return
	}
	fence.Light(&c.value, v)
	if c.sleepers.Load() != 0 {
		c.rouse()
	}
}

// rouse wakes every sleeper, to look at the count (or at a Fault) again.
func (c *Counter) rouse() {
	c.wake.Add(1)
	futex.Wake(&c.wake)
}

// lieDown tells the raiser of a sleeper, until getUp. It makes the fence for
// both, once for all naps in between.
func (c *Counter) lieDown() {
	c.sleepers.Add(1)
	fence.Heavy()
}

func (c *Counter) getUp() { c.sleepers.Add(^uint32(0)) }

// nap lets the thread sleep until the count has reached v, a rouse, or the end
// of timeout, whichever is first. It is for who has lain down.
func (c *Counter) nap(v uint64, timeout time.Duration) {
	word := c.wake.Load()
	if c.value.Load() < v {
		futex.Wait(&c.wake, word, timeout)
	}
}
