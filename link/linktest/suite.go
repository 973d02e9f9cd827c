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
		{"NotifyOutOfRange", notifyOutOfRange},
		{"CounterPingPong", counterPingPong},
		{"WaitHonoursDeadline", waitHonoursDeadline},
		{"WaitHonoursFault", waitHonoursFault},
		{"ReachedCountBeatsFault", reachedCountBeatsFault},
		{"SleeperIsWoken", sleeperIsWoken},
		{"ConnectIsStable", connectIsStable},
		{"ConnectOutOfRange", connectOutOfRange},
		{"MapIsTheSameMemory", mapIsTheSameMemory},
		{"MapUnknownRegion", mapUnknownRegion},
		{"KeepOutlivesFree", keepOutlivesFree},
		{"CopyByAddress", copyByAddress},
		{"CloseTellsPeer", closeTellsPeer},
		{"LostTellsLateComers", lostTellsLateComers},
		{"ForgottenIsNotTold", forgottenIsNotTold},
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

// end is one rank's side of a connected pair, with a counter for the peer to
// raise.
type end struct {
	rank   int
	fabric link.Fabric
	link.Link
	seen *link.Counter // in a region of ours
	at   mem.Remote    // the peer's, for us to raise
}

// raise notifies the peer's counter.
func (e end) raise(v uint64) error { return e.Notify(e.at, v) }

// counterOffset is where connect puts the counters: anywhere but at the start.
const counterOffset = 3 * link.LineBytes

func connect(t *testing.T, fabrics []link.Fabric) (a, b end) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var ends [2]end
	for r := range ends {
		ends[r] = end{rank: r, fabric: fabrics[r]}
	}
	for r := range ends {
		b := alloc(t, ends[r], 4096)
		ends[r].seen = link.CounterAt(b.Bytes()[counterOffset:])
		ends[1-r].at = mem.Remote{Region: b.Region(), Offset: counterOffset}
	}
	errs := make(chan error, 2)
	for r := range ends {
		go func() {
			l, err := fabrics[r].Connect(ctx, 1-r)
			ends[r].Link = l
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
			if err := errors.Join(a.raise(i), w.Wait(ctx, a.seen, i)); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	w := waiter(new(link.Fault))
	for i := uint64(1); i <= messages; i++ {
		if err := w.Wait(ctx, b.seen, i); err != nil {
			t.Fatal(err)
		}
		for j, x := range buf.Bytes()[i%2:][:size(i)] {
			if x != byte(i) {
				t.Fatalf("message %d: byte %d is %d", i, j, x)
			}
		}
		if err := b.raise(i); err != nil {
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

func notifyOutOfRange(t *testing.T, a, b end) {
	buf := alloc(t, b, 1000)
	for _, dst := range []mem.Remote{
		{Region: buf.Region(), Offset: -8},
		{Region: buf.Region(), Offset: 4},
		{Region: buf.Region(), Offset: 1000 - link.CounterBytes + 8},
		{Region: buf.Region(), Offset: 1000},
		{Region: buf.Region() + 1000},
	} {
		if err := a.Notify(dst, 1); !errors.Is(err, link.ErrRange) {
			t.Errorf("notify at %+v: %v, want ErrRange", dst, err)
		}
	}
	last := mem.Remote{Region: buf.Region(), Offset: 1000 - link.CounterBytes}
	if err := a.Notify(last, 9); err != nil {
		t.Fatal(err)
	}
	if err := waiter(new(link.Fault)).Wait(t.Context(), link.CounterAt(buf.Bytes()[last.Offset:]), 9); err != nil {
		t.Error(err)
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
				err = errors.Join(e.raise(i), w.Wait(t.Context(), e.seen, i))
			} else {
				err = errors.Join(w.Wait(t.Context(), e.seen, i), e.raise(i))
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
	err := waiter(new(link.Fault)).Wait(ctx, a.seen, a.seen.Load()+1)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	cause := errors.New("had enough")
	cancelled, stop := context.WithCancelCause(t.Context())
	stop(cause)
	if err := waiter(new(link.Fault)).Wait(cancelled, a.seen, a.seen.Load()+1); !errors.Is(err, cause) {
		t.Errorf("got %v, want the cause of the cancellation", err)
	}
}

func waitHonoursFault(t *testing.T, a, _ end) {
	f := new(link.Fault)
	got := make(chan error, 1)
	go func() { got <- waiter(f).Wait(t.Context(), a.seen, a.seen.Load()+1) }()
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
	if err := b.raise(1); err != nil {
		t.Fatal(err)
	}
	if err := waiter(f).Wait(t.Context(), a.seen, 1); err != nil {
		t.Fatal(err)
	}
	f.Fail(link.ErrAborted)
	if err := waiter(f).Wait(t.Context(), a.seen, 1); err != nil {
		t.Errorf("a count that has been reached: %v", err)
	}
}

func sleeperIsWoken(t *testing.T, a, b end) {
	w := &link.Waiter{Patience: link.Patience{Nap: time.Hour}, Fault: new(link.Fault)}
	if _, mapped := a.Link.(link.Mapper); !mapped {
		w.Nap = 10 * time.Millisecond // a medium that cannot wake may make sleepers look
	}
	got := make(chan error, 1)
	go func() { got <- w.Wait(t.Context(), a.seen, 1) }()
	time.Sleep(30 * time.Millisecond)
	if err := b.raise(1); err != nil {
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
	if again != a.Link {
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

// keepOutlivesFree: what is kept stays readable and in reach when its owner has
// freed it, until the last keeper lets go.
func keepOutlivesFree(t *testing.T, a, b end) {
	m, ok := a.Link.(link.Mapper)
	if !ok {
		return
	}
	buf := alloc(t, b, 10_000)
	view, err := m.Map(t.Context(), buf.Region())
	if err != nil {
		t.Fatal(err)
	}
	first, release, err := m.Keep(t.Context(), buf.Region())
	if err != nil {
		t.Fatal(err)
	}
	second, releaseSecond, err := m.Keep(t.Context(), buf.Region())
	if err != nil {
		t.Fatal(err)
	}
	if &first[0] != &view[0] || &second[0] != &view[0] {
		t.Error("mapped more than once")
	}
	buf.Bytes()[9_999] = 5
	if err := buf.Free(); err != nil {
		t.Fatal(err)
	}
	settle(t, a, m)
	if err := errors.Join(release(), release()); err != nil {
		t.Error(err)
	}
	settle(t, a, m)
	if second[9_999] != 5 {
		t.Error("what was kept has changed")
	}
	if err := a.Notify(mem.Remote{Region: buf.Region()}, 3); err != nil || link.CounterAt(second).Load() != 3 {
		t.Errorf("a kept region is out of reach: %v", err)
	}
	if err := releaseSecond(); err != nil {
		t.Error(err)
	}
	for end := time.Now().Add(10 * time.Second); !errors.Is(err, link.ErrRange); _, err = m.Map(t.Context(), buf.Region()) {
		if time.Now().After(end) {
			t.Fatalf("mapping what was freed and let go: %v, want ErrRange", err)
		}
	}
	if _, _, err := m.Keep(t.Context(), 123_456); !errors.Is(err, link.ErrRange) {
		t.Errorf("keeping an unknown region: %v, want ErrRange", err)
	}
	if _, release, err = m.Keep(t.Context(), a.at.Region); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.fabric.Close(), release()); err != nil { // in this order it must be harmless
		t.Error(err)
	}
}

// copyByAddress: both ranks are in this process, so an address is one.
func copyByAddress(t *testing.T, a, _ end) {
	c, ok := a.Link.(link.Copier)
	if !ok {
		return
	}
	if err := c.Attach(); err != nil {
		var e *link.AttachError
		if !errors.As(err, &e) || e.Why == "" {
			t.Errorf("a reason that does not say much: %v", err)
		}
		t.Skip("NOT TESTED here: ", err)
	}
	theirs, ours := bytes.Repeat([]byte{1}, 100_000), make([]byte, 70_000)
	if err := c.ReadFrom(ours, address(theirs)+5); err != nil || !bytes.Equal(ours, theirs[:len(ours)]) {
		t.Errorf("ReadFrom: %v", err)
	}
	if err := c.WriteTo(address(theirs)+20_000, make([]byte, 30_000)); err != nil {
		t.Errorf("WriteTo: %v", err)
	}
	for i, x := range theirs {
		if written := i >= 20_000 && i < 50_000; (x == 0) != written {
			t.Fatalf("byte %d is %d", i, x)
		}
	}
	var e *link.CopyError
	if err := c.ReadFrom(ours, 8); !errors.As(err, &e) || e.Rank != a.rank || e.Peer != 1-a.rank || e.Write || e.Address != 8 {
		t.Errorf("an address where nothing is: %v", err)
	}
}

// settle gives a fabric the occasion to unmap what it may.
func settle(t *testing.T, e end, m link.Mapper) {
	t.Helper()
	time.Sleep(5 * time.Millisecond) // the peer's notice is under way
	if _, err := m.Map(t.Context(), e.at.Region); err != nil {
		t.Error(err)
	}
	if err := alloc(t, e, 8).Free(); err != nil {
		t.Error(err)
	}
}

// loss is what a function given to Lost was told.
type loss struct {
	peer int
	err  error
}

// watch registers a function with a fabric's Lost.
func watch(f link.Fabric) (told chan loss, forget func()) {
	told = make(chan loss, 9)
	return told, f.Lost(func(peer int, err error) { told <- loss{peer, err} })
}

func expectLoss(t *testing.T, told chan loss, peer int) {
	t.Helper()
	select {
	case l := <-told:
		if l.peer != peer || !errors.Is(l.err, link.ErrClosed) {
			t.Errorf("told of rank %d: %v", l.peer, l.err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("not told within 10 s")
	}
}

// closeTellsPeer: every function is told, and once.
func closeTellsPeer(t *testing.T, a, b end) {
	first, _ := watch(a.fabric)
	second, _ := watch(a.fabric)
	if err := b.fabric.Close(); err != nil {
		t.Fatal(err)
	}
	expectLoss(t, first, b.rank)
	expectLoss(t, second, b.rank)
	time.Sleep(5 * time.Millisecond)
	if len(first)+len(second) != 0 {
		t.Error("told twice")
	}
}

// lostTellsLateComers: who registers when a peer has gone is told at once.
func lostTellsLateComers(t *testing.T, a, b end) {
	early, _ := watch(a.fabric)
	if err := b.fabric.Close(); err != nil {
		t.Fatal(err)
	}
	expectLoss(t, early, b.rank)
	late, _ := watch(a.fabric)
	expectLoss(t, late, b.rank)
	if len(early) != 0 {
		t.Error("the first function was told again")
	}
}

func forgottenIsNotTold(t *testing.T, a, b end) {
	forgotten, forget := watch(a.fabric)
	told, _ := watch(a.fabric)
	forget()
	forget()
	if err := b.fabric.Close(); err != nil {
		t.Fatal(err)
	}
	expectLoss(t, told, b.rank)
	if len(forgotten) != 0 {
		t.Error("told a function that was forgotten")
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
	if err := a.raise(1 << 40); !errors.Is(err, link.ErrClosed) {
		t.Errorf("Notify: %v", err)
	}
	if _, err := a.fabric.Alloc(8); !errors.Is(err, link.ErrClosed) {
		t.Errorf("Alloc: %v", err)
	}
	if _, err := a.fabric.Connect(t.Context(), b.rank); !errors.Is(err, link.ErrClosed) {
		t.Errorf("Connect: %v", err)
	}
}
