package rc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
)

// What a rank does to the other in the property tests: batches of puts of any
// size to any place, from memory that the devices know and from memory that they
// do not, and notifications of several counters between them. Both sides know
// the seed, so the receiver keeps a model of its region, and looks whether the two
// agree each time that it has seen the last notification of a batch.

const (
	wordCounters = 5
	wordData     = (wordCounters + 1) * 2 * link.LineBytes // where the data begins; the last counter is for acknowledgements
)

// script is what one direction does.
type script struct {
	random *rand.Rand
	room   int
	counts [wordCounters]uint64
	serial byte
}

func newScript(seed uint64, room int) *script {
	return &script{random: rand.New(rand.NewPCG(seed, 9)), room: room}
}

// act is a put, or, if bytes is 0, a notification.
type act struct {
	offset, bytes int
	known         bool // from memory that the devices know
	fill          byte
	counter       int
	count         uint64
}

// batch returns the next batch, which ends with a notification.
func (s *script) batch() (acts []act) {
	r := s.random
	for range 1 + r.IntN(6) {
		for range r.IntN(5) {
			most := []int{16, 300, 9000, 70_000, s.room}[min(r.IntN(12)/2, 4)]
			n := 1 + r.IntN(min(most, s.room))
			s.serial++
			acts = append(acts, act{offset: r.IntN(s.room - n + 1), bytes: n, known: r.IntN(2) == 0, fill: s.serial})
		}
		c := r.IntN(wordCounters)
		s.counts[c] += []uint64{1, 1, 1, 0, 1000, 1 << 20, 1 << 33}[r.IntN(7)]
		acts = append(acts, act{counter: c, count: s.counts[c]})
	}
	return acts
}

// fill writes the bytes of a put: no two of a word are alike.
func fill(b []byte, seed byte) {
	for i := range b {
		b[i] = seed + byte(i*7)
	}
}

// player is a rank of a property test.
type player struct {
	fabric *Fabric
	link   link.Link
	mine   []byte
	theirs mem.RegionID
	mu     sync.Mutex // of the link
	waiter link.Waiter
}

func counterOfWord(i int) int { return i * 2 * link.LineBytes }

func (p *player) acked() *link.Counter { return link.CounterAt(p.mine[counterOfWord(wordCounters):]) }

// send plays batches to the peer.
func (p *player) send(ctx context.Context, seed uint64, room, batches int) error {
	known, err := mapMemory(room)
	if err != nil {
		return err
	}
	release, err := p.fabric.Register(known)
	if err != nil {
		return err
	}
	unknown := make([]byte, room)
	s := newScript(seed, room)
	for i := 1; i <= batches; i++ {
		for _, a := range s.batch() {
			p.mu.Lock()
			if a.bytes == 0 {
				err = p.link.Notify(mem.Remote{Region: p.theirs, Offset: counterOfWord(a.counter)}, a.count)
			} else {
				src := unknown[:a.bytes]
				if a.known {
					src = known[:a.bytes]
				}
				fill(src, a.fill)
				err = p.link.Put(mem.Remote{Region: p.theirs, Offset: wordData + a.offset}, src)
				clear(src) // it is ours again
			}
			p.mu.Unlock()
			if err != nil {
				return fmt.Errorf("batch %d: %w", i, err)
			}
		}
		if err := p.waiter.Wait(ctx, p.acked(), uint64(i)); err != nil {
			return fmt.Errorf("batch %d, waiting for its acknowledgement: %w", i, err)
		}
	}
	return errors.Join(release(), unmapMemory(known))
}

// check plays the other side.
func (p *player) check(ctx context.Context, seed uint64, room, batches int) error {
	model := make([]byte, room)
	s := newScript(seed, room)
	for i := 1; i <= batches; i++ {
		last := 0
		acts := s.batch()
		for _, a := range acts {
			if a.bytes != 0 {
				fill(model[a.offset:][:a.bytes], a.fill)
			} else {
				last = a.counter
			}
		}
		// The last notification comes behind everything, unless its count is
		// nothing new: then there is none to tell by but all of them.
		for c := range wordCounters {
			counter := link.CounterAt(p.mine[counterOfWord(c):])
			if err := p.waiter.Wait(ctx, counter, s.counts[c]); err != nil {
				return fmt.Errorf("batch %d, counter %d (last: %d) at %d of %d: %w", i, c, last, counter.Load(), s.counts[c], err)
			}
			if got := counter.Load(); got != s.counts[c] {
				return fmt.Errorf("batch %d: counter %d is %d, not %d", i, c, got, s.counts[c])
			}
		}
		if end := acts[len(acts)-1]; !increases(acts, end) {
			// Puts before a notification that raises nothing are not waited for:
			// ask again by the acknowledgement of the next batch.
			if err := p.settle(ctx, model); err != nil {
				return fmt.Errorf("batch %d: %w", i, err)
			}
		} else if !bytes.Equal(p.mine[wordData:][:room], model) {
			for at := range model {
				if got := p.mine[wordData+at]; got != model[at] {
					return fmt.Errorf("batch %d: byte %d is %#x, not %#x", i, at, got, model[at])
				}
			}
		}
		p.mu.Lock()
		err := p.link.Notify(mem.Remote{Region: p.theirs, Offset: counterOfWord(wordCounters)}, uint64(i))
		p.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// increases reports whether a notification is the first of its count.
func increases(acts []act, end act) bool {
	before := uint64(0)
	seen := false
	for _, a := range acts[:len(acts)-1] {
		if a.bytes == 0 && a.counter == end.counter {
			before, seen = a.count, true
		}
	}
	return seen && end.count > before
}

// settle waits until the region is as the model has it.
func (p *player) settle(ctx context.Context, model []byte) error {
	for !bytes.Equal(p.mine[wordData:][:len(model)], model) {
		if err := p.waiter.Fault.Err(); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return errors.New("the region does not become what was put")
		}
		p.fabric.Progress()
		runtime.Gosched()
	}
	return nil
}

// play plays both directions at a time.
func (p *player) play(ctx context.Context, rank int, seed uint64, room, batches int) error {
	errs := make(chan error, 2)
	go func() { errs <- p.send(ctx, seed+uint64(rank), room, batches) }()
	go func() { errs <- p.check(ctx, seed+uint64(1-rank), room, batches) }()
	return errors.Join(<-errs, <-errs)
}

func newPlayer(ctx context.Context, f *Fabric, peer, room int) (*player, error) {
	b, err := f.Alloc(wordData + room)
	if err != nil {
		return nil, err
	}
	p := &player{fabric: f, mine: b.Bytes(), theirs: b.Region()}
	p.waiter = link.Waiter{Patience: link.PatienceFor(2, runtime.GOMAXPROCS(0)), Fault: new(link.Fault), Progress: f}
	f.Lost(func(_ int, err error) { p.waiter.Fault.Fail(err) })
	p.link, err = f.Connect(ctx, peer)
	return p, err
}

func TestPutsAndNotifications(t *testing.T) {
	for name, cfg := range settings() {
		t.Run(name, func(t *testing.T) {
			if cfg.Signal == Direct && simulated == nil {
				t.Log("on a device that does not place writes in order this may fail")
			}
			checkLeaks(t)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			const room = 700_000
			batches := 60
			if testing.Short() {
				batches = 15
			}
			seed := rand.Uint64()
			t.Logf("seed %#x", seed)
			var wg sync.WaitGroup
			fabrics := openAll(t, 2, cfg)
			for rank, f := range fabrics {
				wg.Go(func() {
					p, err := newPlayer(ctx, f, 1-rank, room)
					if err == nil {
						err = p.play(ctx, rank, seed, room, batches)
					}
					if err != nil {
						t.Errorf("rank %d: %v", rank, err)
					}
				})
			}
			wg.Wait()
			for _, f := range fabrics {
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func waiter(f *Fabric) *link.Waiter {
	return &link.Waiter{Patience: link.PatienceFor(2, runtime.GOMAXPROCS(0)), Fault: new(link.Fault), Progress: f}
}
