package linktest

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
)

// Run holds a medium against the contract. open returns the fabrics of n
// ranks that can reach each other; Run closes them. Each test opens its own.
func Run(t *testing.T, open func(t *testing.T, n int) []link.Fabric) {
	tests := []struct {
		name string
		test func(t *testing.T, a, b end)
	}{
		{"PutThenNotify", putThenNotify},
		{"PutOutOfRange", putOutOfRange},
		{"CounterPingPong", counterPingPong},
		{"WaitHonoursDeadline", waitHonoursDeadline},
		{"WaitHonoursFault", waitHonoursFault},
		{"ReachedCountBeatsFault", reachedCountBeatsFault},
		{"SleeperIsWoken", sleeperIsWoken},
		{"ConnectIsStable", connectIsStable},
		{"ConnectOutOfRange", connectOutOfRange},
		{"MapIsTheSameMemory", mapIsTheSameMemory},
		{"MapUnknownRegion", mapUnknownRegion},
		{"CloseTellsPeer", closeTellsPeer},
		{"ClosedRefuses", closedRefuses},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fabrics := open(t, 2)
			t.Cleanup(func() {
				for _, f := range fabrics {
					if err := f.Close(); err != nil {
						t.Errorf("close: %v", err)
					}
				}
			})
			a, b := connect(t, fabrics)
			tt.test(t, a, b)
		})
	}
}

// end is one rank's side of a connected pair.
type end struct {
	rank   int
	fabric link.Fabric
	link.Link
}

func connect(t *testing.T, fabrics []link.Fabric) (a, b end) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var ends [2]end
	errs := make(chan error, 2)
	for r := range ends {
		go func() {
			l, err := fabrics[r].Connect(ctx, 1-r)
			ends[r] = end{r, fabrics[r], l}
			errs <- err
		}()
	}
	for range ends {
		if err := <-errs; err != nil {
			t.Fatalf("connect: %v", err)
		}
	}
	return ends[0], ends[1]
}

func waiter(f *link.Fault) *link.Waiter {
	return &link.Waiter{Patience: link.PatienceFor(2, runtime.GOMAXPROCS(0)), Fault: f}
}

func alloc(t *testing.T, e end, n int) *mem.Buffer {
	t.Helper()
	b, err := e.fabric.Alloc(n)
	if err != nil {
		t.Fatalf("alloc %d: %v", n, err)
	}
	if len(b.Bytes()) != n {
		t.Fatalf("alloc %d gave %d bytes", n, len(b.Bytes()))
	}
	for i, x := range b.Bytes() {
		if x != 0 {
			t.Fatalf("fresh memory holds %d at %d", x, i)
		}
	}
	return b
}

// putThenNotify streams numbered messages of awkward sizes through one
// region; the receiver must find each whole when its count is there.
func putThenNotify(t *testing.T, a, b end) {
	const messages = 300
	size := func(i uint64) int { return int(i*i*37%9000) + 1 }
	buf := alloc(t, b, 9001)
	ctx := t.Context()
	sent := make(chan error, 1)
	go func() {
		w := waiter(new(link.Fault))
		for i := uint64(1); i <= messages; i++ {
			msg := bytes.Repeat([]byte{byte(i)}, size(i))
			if err := a.Put(mem.Remote{Region: buf.Region(), Offset: int(i % 2)}, msg); err != nil {
				sent <- err
				return
			}
			clear(msg) // the contract: ours again as soon as Put returned
			if err := errors.Join(a.Notify(i), w.Wait(ctx, a.Seen(), i)); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	w := waiter(new(link.Fault))
	for i := uint64(1); i <= messages; i++ {
		if err := w.Wait(ctx, b.Seen(), i); err != nil {
			t.Fatal(err)
		}
		for j, x := range buf.Bytes()[i%2:][:size(i)] {
			if x != byte(i) {
				t.Fatalf("message %d: byte %d is %d", i, j, x)
			}
		}
		if err := b.Notify(i); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
}

func putOutOfRange(t *testing.T, a, b end) {
	buf := alloc(t, b, 100)
	for _, tt := range []struct {
		dst mem.Remote
		n   int
	}{
		{mem.Remote{Region: buf.Region(), Offset: 100}, 1},
		{mem.Remote{Region: buf.Region(), Offset: 99}, 2},
		{mem.Remote{Region: buf.Region(), Offset: -1}, 1},
		{mem.Remote{Region: buf.Region(), Offset: 0}, 101},
		{mem.Remote{Region: buf.Region() + 1000, Offset: 0}, 1},
	} {
		if err := a.Put(tt.dst, make([]byte, tt.n)); !errors.Is(err, link.ErrRange) {
			t.Errorf("put %d bytes at %+v: %v, want ErrRange", tt.n, tt.dst, err)
		}
	}
	if err := a.Put(mem.Remote{Region: buf.Region(), Offset: 99}, []byte{1}); err != nil {
		t.Errorf("put of the last byte: %v", err)
	}
}

func counterPingPong(t *testing.T, a, b end) {
	const rounds = 2000
	errs := make(chan error, 2)
	play := func(e end, first bool) {
		w := waiter(new(link.Fault))
		for i := uint64(1); i <= rounds; i++ {
			var err error
			if first {
				err = errors.Join(e.Notify(i), w.Wait(t.Context(), e.Seen(), i))
			} else {
				err = errors.Join(w.Wait(t.Context(), e.Seen(), i), e.Notify(i))
			}
			if err != nil {
				errs <- err
				return
			}
		}
		errs <- nil
	}
	go play(a, true)
	go play(b, false)
	for range 2 {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
}

func waitHonoursDeadline(t *testing.T, a, _ end) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := waiter(new(link.Fault)).Wait(ctx, a.Seen(), a.Seen().Load()+1)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	cause := errors.New("had enough")
	cancelled, stop := context.WithCancelCause(t.Context())
	stop(cause)
	if err := waiter(new(link.Fault)).Wait(cancelled, a.Seen(), a.Seen().Load()+1); !errors.Is(err, cause) {
		t.Errorf("got %v, want the cause of the cancellation", err)
	}
}

func waitHonoursFault(t *testing.T, a, _ end) {
	f := new(link.Fault)
	got := make(chan error, 1)
	go func() { got <- waiter(f).Wait(t.Context(), a.Seen(), a.Seen().Load()+1) }()
	time.Sleep(30 * time.Millisecond) // long enough to be asleep; not needed for the test to hold
	if !f.Fail(link.ErrAborted) || f.Fail(errors.New("a later error")) {
		t.Error("the first fault must win")
	}
	select {
	case err := <-got:
		if !errors.Is(err, link.ErrAborted) {
			t.Errorf("got %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("an aborted wait goes on")
	}
}

func reachedCountBeatsFault(t *testing.T, a, b end) {
	f := new(link.Fault)
	if err := b.Notify(1); err != nil {
		t.Fatal(err)
	}
	if err := waiter(f).Wait(t.Context(), a.Seen(), 1); err != nil {
		t.Fatal(err)
	}
	f.Fail(link.ErrAborted)
	if err := waiter(f).Wait(t.Context(), a.Seen(), 1); err != nil {
		t.Errorf("a count that has been reached: %v", err)
	}
}

func sleeperIsWoken(t *testing.T, a, b end) {
	w := &link.Waiter{Patience: link.Patience{Nap: time.Hour}, Fault: new(link.Fault)}
	if _, mapped := a.Link.(link.Mapper); !mapped {
		w.Nap = 10 * time.Millisecond // a medium that cannot wake may make sleepers look
	}
	got := make(chan error, 1)
	go func() { got <- w.Wait(t.Context(), a.Seen(), 1) }()
	time.Sleep(30 * time.Millisecond)
	if err := b.Notify(1); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("nobody woke the sleeper")
	}
}

func connectIsStable(t *testing.T, a, b end) {
	again, err := a.fabric.Connect(t.Context(), b.rank)
	if err != nil {
		t.Fatal(err)
	}
	if again.Seen() != a.Seen() {
		t.Error("a second Connect gave another link")
	}
}

func connectOutOfRange(t *testing.T, a, _ end) {
	for _, peer := range []int{-1, a.rank, 2} {
		if _, err := a.fabric.Connect(t.Context(), peer); !errors.Is(err, link.ErrRange) {
			t.Errorf("connect to rank %d of 2 from rank %d: %v, want ErrRange", peer, a.rank, err)
		}
	}
}

func mapIsTheSameMemory(t *testing.T, a, b end) {
	m, ok := a.Link.(link.Mapper)
	if !ok {
		if _, board := a.fabric.(link.Board); board {
			t.Error("a Board whose links are not Mappers")
		}
		return // the power is optional; there is nothing to hold it against
	}
	buf := alloc(t, b, 70_000)
	view, err := m.Map(t.Context(), buf.Region())
	if err != nil {
		t.Fatal(err)
	}
	if len(view) < 70_000 {
		t.Fatalf("mapped %d bytes of 70000", len(view))
	}
	buf.Bytes()[69_999] = 7
	view[0] = 8
	if view[69_999] != 7 || buf.Bytes()[0] != 8 {
		t.Error("not the same memory")
	}
	again, err := m.Map(t.Context(), buf.Region())
	if err != nil || &again[0] != &view[0] {
		t.Errorf("a second Map gave another place: %v", err)
	}
	if err := buf.Free(); err != nil {
		t.Error(err)
	}
}

func mapUnknownRegion(t *testing.T, a, _ end) {
	if m, ok := a.Link.(link.Mapper); ok {
		if _, err := m.Map(t.Context(), 123_456); !errors.Is(err, link.ErrRange) {
			t.Errorf("got %v, want ErrRange", err)
		}
	}
}

func closeTellsPeer(t *testing.T, a, b end) {
	type loss struct {
		peer int
		err  error
	}
	told := make(chan loss, 2)
	a.fabric.Lost(func(peer int, err error) { told <- loss{peer, err} })
	if err := b.fabric.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case l := <-told:
		if l.peer != b.rank || !errors.Is(l.err, link.ErrClosed) {
			t.Errorf("told of rank %d: %v", l.peer, l.err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("not told within 10 s")
	}
}

func closedRefuses(t *testing.T, a, b end) {
	buf := alloc(t, b, 8)
	if err := a.fabric.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.fabric.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if err := a.Put(mem.Remote{Region: buf.Region()}, []byte{1}); !errors.Is(err, link.ErrClosed) {
		t.Errorf("Put: %v", err)
	}
	if err := a.Notify(1 << 40); !errors.Is(err, link.ErrClosed) {
		t.Errorf("Notify: %v", err)
	}
	if _, err := a.fabric.Alloc(8); !errors.Is(err, link.ErrClosed) {
		t.Errorf("Alloc: %v", err)
	}
	if _, err := a.fabric.Connect(t.Context(), b.rank); !errors.Is(err, link.ErrClosed) {
		t.Errorf("Connect: %v", err)
	}
}
