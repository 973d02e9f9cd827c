package tcp

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
)

// end is one rank's side of a pair, with a counter for the peer to raise at the
// start of its memory, and data behind it.
type end struct {
	*Fabric
	link   link.Link
	buffer *mem.Buffer
	peer   mem.RegionID
}

// dataAt is where in an end's memory the data begins.
const dataAt = 4096

func (e *end) data() []byte { return e.buffer.Bytes()[dataAt:] }

func (e *end) put(at int, src []byte) error {
	return e.link.Put(mem.Remote{Region: e.peer, Offset: dataAt + at}, src)
}

func (e *end) notify(v uint64) error { return e.link.Notify(mem.Remote{Region: e.peer}, v) }

// wait lets the caller wait as a rank does, if polls, and otherwise leaves the
// work to the fabric.
func (e *end) wait(ctx context.Context, v uint64, polls bool) error {
	fault := new(link.Fault)
	defer e.Lost(func(_ int, err error) { fault.Fail(err) })()
	w := link.Waiter{Patience: link.PatienceFor(2, runtime.GOMAXPROCS(0)), Fault: fault}
	if polls {
		w.Progress = e.Fabric
	}
	return w.Wait(ctx, link.CounterAt(e.buffer.Bytes()), v)
}

// pair opens two ranks in this process and connects them.
func pair(t *testing.T, bytes int, cfg Config) (a, b *end) {
	t.Helper()
	fabrics := openAll(t, 2, cfg)
	var ends [2]*end
	for r, f := range fabrics {
		t.Cleanup(func() { f.Close() })
		buffer, err := f.Alloc(dataAt + bytes)
		if err != nil {
			t.Fatal(err)
		}
		ends[r] = &end{Fabric: f.(*Fabric), buffer: buffer}
	}
	for r, e := range ends {
		e.peer = ends[1-r].buffer.Region()
		var err error
		if e.link, err = e.Connect(t.Context(), 1-r); err != nil {
			t.Fatal(err)
		}
	}
	return ends[0], ends[1]
}

// within fails the test if f takes longer than anything here may.
func within[T any](t *testing.T, what string, f func() T) T {
	t.Helper()
	done := make(chan T, 1)
	go func() { done <- f() }()
	select {
	case got := <-done:
		return got
	case <-time.After(60 * time.Second):
		stacks := make([]byte, 1<<16)
		t.Fatalf("%s takes more than 60 s\n%s", what, stacks[:runtime.Stack(stacks, true)])
		panic("unreachable")
	}
}

func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = rng.Read(b)
	return b
}

// TestBothPutMuch: neither reads before its Put has returned, and sockets hold
// far less.
func TestBothPutMuch(t *testing.T) {
	size := 64 << 20
	if testing.Short() {
		size = 8 << 20
	}
	for name, cfg := range map[string]Config{
		"one stripe":    {},
		"three stripes": {Stripes: 3},
		"small sockets": {SocketBytes: 64 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			a, b := pair(t, size, cfg)
			want := map[*end][]byte{a: noise(1, size), b: noise(2, size)}
			errs := make(chan error, 2)
			for me, other := range map[*end]*end{a: b, b: a} {
				go func() {
					err := me.put(0, want[other])
					if err == nil {
						err = me.notify(1)
					}
					if err == nil {
						err = me.wait(t.Context(), 1, me == a)
					}
					errs <- err
				}()
			}
			for range 2 {
				if err := within(t, "the exchange", func() error { return <-errs }); err != nil {
					t.Fatal(err)
				}
			}
			for e, w := range want {
				if !bytes.Equal(e.data(), w) {
					t.Errorf("rank %d has other bytes than were put", e.rank)
				}
			}
		})
	}
}

// TestAnyPuts: whatever is put in whatever order, sizes around every limit, the
// memory is what a copy would have made of it when the count is there; also
// where sockets take a little at a time.
func TestAnyPuts(t *testing.T) {
	const size = 1 << 20
	sizes := []int{1, 7, 8, 5000, headerBytes, holdBytes - 1, holdBytes, holdBytes + 1, sendAbove, aheadBytes - headerBytes,
		aheadBytes, aheadBytes + 1, outBytes, outBytes + 1, stripeAbove - 1, stripeAbove, stripeAbove + 1, mostPerCall + 1, size}
	for name, cfg := range map[string]Config{
		"one stripe":    {},
		"stripes":       {Stripes: MaxStripes},
		"small sockets": {SocketBytes: 16 << 10, Stripes: 2},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			a, b := pair(t, size, cfg)
			rounds := 60
			if testing.Short() || cfg.SocketBytes != 0 {
				rounds = 8
			}
			rng := rand.New(rand.NewPCG(1, uint64(len(name))))
			want := make([]byte, size)
			from := noise(3, 2*size)
			for round := range rounds {
				var puts [][3]int // at, from, bytes
				for range rng.IntN(12) {
					n := sizes[rng.IntN(len(sizes))]
					puts = append(puts, [3]int{rng.IntN(size - n + 1), rng.IntN(size), n})
				}
				if cfg.Stripes > 1 {
					puts = apart(puts)
				}
				for _, p := range puts {
					copy(want[p[0]:], from[p[1]:][:p[2]])
				}
				sent := make(chan error, 1)
				go func() {
					for _, p := range puts {
						if err := a.put(p[0], from[p[1]:][:p[2]]); err != nil {
							sent <- err
							return
						}
					}
					sent <- a.notify(uint64(round + 1))
				}()
				err := within(t, "a round", func() error { return b.wait(t.Context(), uint64(round+1), round%2 == 0) })
				if err := errors.Join(err, <-sent); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(b.data(), want) {
					t.Fatalf("round %d: other bytes than were put: %v", round, puts)
				}
			}
		})
	}
}

// apart keeps of puts those that do not touch bytes of an earlier one: without a
// notification between, stripes may deliver in any order.
func apart(puts [][3]int) (kept [][3]int) {
next:
	for _, p := range puts {
		for _, q := range kept {
			if p[0] < q[0]+q[2] && q[0] < p[0]+p[2] {
				continue next
			}
		}
		kept = append(kept, p)
	}
	return kept
}

// TestManyLinks: all ranks put to all, more connections than are read without
// asking epoll.
func TestManyLinks(t *testing.T) {
	checkLeaks(t)
	const ranks, rounds = 7, 20
	fabrics := openAll(t, ranks, Config{Stripes: 2})
	var regions []mem.RegionID
	var buffers []*mem.Buffer
	for _, f := range fabrics {
		defer f.Close()
		b, err := f.Alloc(ranks * (link.CounterBytes + 8))
		if err != nil {
			t.Fatal(err)
		}
		regions, buffers = append(regions, b.Region()), append(buffers, b)
	}
	var wg sync.WaitGroup
	for me, f := range fabrics {
		wg.Go(func() {
			w := link.Waiter{Patience: link.PatienceFor(ranks, 2), Fault: new(link.Fault), Progress: f.(*Fabric)}
			for round := uint64(1); round <= rounds; round++ {
				for to := range ranks {
					if to == me {
						continue
					}
					l, err := f.Connect(t.Context(), to)
					if err == nil {
						err = l.Put(mem.Remote{Region: regions[to], Offset: ranks*link.CounterBytes + 8*me}, mem.Bytes([]uint64{round<<8 + uint64(me)}))
					}
					if err == nil {
						err = l.Notify(mem.Remote{Region: regions[to], Offset: link.CounterBytes * me}, round)
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
				for from := range ranks {
					if from == me {
						continue
					}
					if err := w.Wait(t.Context(), link.CounterAt(buffers[me].Bytes()[link.CounterBytes*from:]), round); err != nil {
						t.Error(err)
						return
					}
					// A fast rank may be a round ahead, but not more.
					got := mem.Slice[uint64](buffers[me].Bytes()[ranks*link.CounterBytes:])[from]
					if got&0xff != uint64(from) || got>>8 < round || got>>8 > round+1 {
						t.Errorf("round %d, rank %d from rank %d: %#x", round, me, from, got)
					}
				}
			}
		})
	}
	wg.Wait()
}

// TestOneSegment: a small put and the notification behind it make one segment,
// which is to say one system call; and a put that none follows goes out too.
func TestOneSegment(t *testing.T) {
	checkLeaks(t)
	a, b := pair(t, 8, Config{})
	if err := errors.Join(a.put(0, []byte{1}), a.notify(1), b.wait(t.Context(), 1, true)); err != nil {
		t.Fatal(err)
	}
	before := segments(t, a)
	for i := uint64(2); i <= 101; i++ {
		if err := errors.Join(a.put(0, []byte{byte(i)}), a.notify(i), b.wait(t.Context(), i, true)); err != nil {
			t.Fatal(err)
		}
	}
	if n := segments(t, a) - before; n > 105 { // the fabric's goroutine may come between
		t.Errorf("100 puts with notifications made %d segments", n)
	}
	before = segments(t, a)
	if err := a.put(0, []byte{1}); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); segments(t, a) == before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a put that no notification follows is not sent")
		}
	}
}

// segments is how many segments with data an end has sent.
func segments(t *testing.T, e *end) uint32 {
	t.Helper()
	info, err := unix.GetsockoptTCPInfo(e.link.(*tcpLink).conns[0].fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		t.Fatal(err)
	}
	return info.Data_segs_out
}

// TestNoAllocations: neither small nor large puts, nor notifications, nor looking
// for what has arrived.
func TestNoAllocations(t *testing.T) {
	a, b := pair(t, 1<<20, Config{Stripes: 2})
	small, large := make([]byte, 8), make([]byte, 1<<20)
	w := link.Waiter{Patience: link.PatienceFor(2, runtime.GOMAXPROCS(0)), Fault: new(link.Fault), Progress: b.Fabric}
	ctx, counter, v := t.Context(), link.CounterAt(b.buffer.Bytes()), uint64(0)
	round := func(src []byte) func() {
		return func() {
			v++
			if a.put(0, src) != nil || a.notify(v) != nil || w.Wait(ctx, counter, v) != nil {
				t.Error("a round failed")
			}
			b.Await(time.Millisecond)
		}
	}
	for name, f := range map[string]func(){"small": round(small), "large": round(large)} {
		f()
		if n := testing.AllocsPerRun(200, f); n >= 1 {
			t.Errorf("%s: %v allocations a round", name, n)
		}
	}
}

// TestTakesOver: what arrives reaches memory while nobody of the rank looks.
func TestTakesOver(t *testing.T) {
	a, b := pair(t, 1<<20, Config{})
	counter := link.CounterAt(b.buffer.Bytes())
	for v := uint64(1); v <= 20; v++ {
		b.Progress() // the goroutine leaves it to us, and finds that it should not
		if err := errors.Join(a.put(0, noise(v, 1<<20)), a.notify(v)); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(10 * time.Second); counter.Load() < v; time.Sleep(100 * time.Microsecond) {
			if time.Now().After(end) {
				t.Fatal("nobody has taken it in")
			}
		}
	}
}

// TestAwait: it ends with what arrives, and with its time, and lets nothing lie.
func TestAwait(t *testing.T) {
	a, b := pair(t, 8, Config{})
	counter := link.CounterAt(b.buffer.Bytes())
	for v := uint64(1); v <= 200; v++ {
		done := make(chan error, 1)
		go func() { done <- errors.Join(a.put(0, []byte{1}), a.notify(v)) }()
		for counter.Load() < v {
			b.Await(time.Hour)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	_ = within(t, "Await", func() error { b.Await(5 * time.Millisecond); return nil })
}

// TestFullSocket: notifications that a full socket did not take go out when it
// has room, while nobody of the rank looks.
func TestFullSocket(t *testing.T) {
	checkLeaks(t)
	a, b := pair(t, 8, Config{SocketBytes: 4096})
	counter := link.CounterAt(b.buffer.Bytes())
	if err := errors.Join(a.put(0, []byte{1}), a.notify(1)); err != nil {
		t.Fatal(err)
	}
	b.link.(*tcpLink).conns[0].mu.Lock() // b does not read
	const last = 2000
	full := false
	for v := uint64(2); v <= last; v++ {
		if err := a.notify(v); err != nil {
			t.Fatal(err)
		}
		full = full || a.link.(*tcpLink).pending.Load()
	}
	if !full {
		t.Error("the socket took it all; the test shows nothing")
	}
	b.link.(*tcpLink).conns[0].mu.Unlock()
	for end := time.Now().Add(30 * time.Second); counter.Load() < last; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the count is %d", counter.Load())
		}
	}
}
