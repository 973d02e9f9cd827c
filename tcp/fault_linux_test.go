package tcp

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/internal/mesh"
	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
)

func init() {
	roles["target"] = func(ctx context.Context, ex *pipes) error { return target(ctx, ex, false) }
	roles["source"] = func(ctx context.Context, ex *pipes) error { return target(ctx, ex, true) }
}

// targetBytes is the memory of a target.
const targetBytes = 64 << 20

// target is rank 1, whose memory rank 0 puts to. A source also puts to rank 0,
// until its process ends.
func target(ctx context.Context, ex *pipes, puts bool) error {
	e, err := openEnd(ctx, ex, configured())
	if err != nil {
		return err
	}
	defer e.Close()
	if err := ex.sayNumbers(0); err != nil {
		return err
	}
	for i := uint64(1); puts; i++ {
		if err := e.put(0, e.data()); err != nil {
			return err
		}
		if err := e.notify(i); err != nil {
			return err
		}
	}
	// Rank 0 says up to which count it wants to hear whether all is right.
	said, err := ex.hearNumbers()
	if err != nil {
		return err
	}
	if err := e.wait(ctx, said[0], true); err != nil {
		return err
	}
	if !bytes.Equal(e.data(), noise(said[0], targetBytes)) {
		return errors.New("other bytes than were put")
	}
	return nil
}

// openEnd opens one of two ranks and connects it, when both have allocated.
func openEnd(ctx context.Context, ex Exchanger, cfg Config) (*end, error) {
	f, err := Open(ctx, ex, cfg)
	if err != nil {
		return nil, err
	}
	e := &end{Fabric: f, peer: 1}
	if e.buffer, err = f.Alloc(dataAt + targetBytes); err == nil {
		_, err = ex.AllGather(ctx, nil)
	}
	if err == nil {
		e.link, err = f.Connect(ctx, 1-f.rank)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return e, nil
}

// beside starts rank 1 in a role, and opens rank 0 here.
func openBeside(t *testing.T, role string, at []place, cfg Config) (*end, *rank) {
	t.Helper()
	r := spawn(t, role, 1, at)[0]
	e, err := openEnd(t.Context(), beside{r}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	r.said()
	return e, r
}

// lostTo is who a fabric says is lost.
func lostTo(t *testing.T, e *end) func() error {
	t.Helper()
	told := make(chan error, 9)
	e.Lost(func(_ int, err error) { told <- err })
	return func() error { return within(t, "Lost", func() error { return <-told }) }
}

func isLost(err error, rank int) bool {
	var lost *link.PeerLostError
	return errors.As(err, &lost) && lost.Rank == rank
}

// TestKilledPeer: whatever this rank is doing when its peer dies ends at once,
// and says so.
func TestKilledPeer(t *testing.T) {
	for _, role := range []string{"target", "source"} {
		t.Run(role, func(t *testing.T) {
			checkLeaks(t)
			e, r := openBeside(t, role, loopback(1), Config{})
			lost := lostTo(t, e)
			ended := make(chan error, 1)
			go func() {
				var err error
				for i := uint64(1); err == nil; i++ {
					if role == "target" {
						if err = e.put(0, e.data()); err == nil {
							err = e.notify(i)
						}
					} else {
						err = e.wait(t.Context(), i, true)
					}
				}
				ended <- err
			}()
			time.Sleep(50 * time.Millisecond)
			r.kill()
			if err := within(t, "what it did", func() error { return <-ended }); !isLost(err, 1) {
				t.Errorf("it ended with %v", err)
			}
			if err := lost(); !isLost(err, 1) {
				t.Errorf("Lost was told %v", err)
			}
			for name, err := range map[string]error{"put": e.put(0, []byte{1}), "notify": e.notify(1 << 40)} {
				if !isLost(err, 1) {
					t.Errorf("%s: %v", name, err)
				}
			}
			if err := within(t, "Close", e.Close); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestStoppedPeer: it is waited for, and finds everything in order when it goes
// on.
func TestStoppedPeer(t *testing.T) {
	checkLeaks(t)
	e, r := openBeside(t, "target", loopback(1), Config{})
	r.signal(unix.SIGSTOP)
	const last = 5
	sent := make(chan error, 1)
	go func() {
		for i := uint64(1); i <= last; i++ {
			if err := e.put(0, noise(i, targetBytes)); err != nil {
				sent <- err
				return
			}
			if err := e.notify(i); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	time.Sleep(100 * time.Millisecond)
	if len(sent) != 0 {
		t.Errorf("the sockets took 320 MiB, or: %v", <-sent)
	}
	r.signal(unix.SIGCONT)
	if err := within(t, "the puts", func() error { return <-sent }); err != nil {
		t.Fatal(err)
	}
	r.told(last)
	r.end()
}

// TestCloseWithStoppedPeer: Close waits for a second and no more, also where a
// Put is under way, which ends.
func TestCloseWithStoppedPeer(t *testing.T) {
	checkLeaks(t)
	e, r := openBeside(t, "target", loopback(1), Config{})
	r.signal(unix.SIGSTOP)
	putting := make(chan error, 1)
	go func() {
		for {
			if err := e.put(0, e.data()); err != nil {
				putting <- err
				return
			}
		}
	}()
	time.Sleep(50 * time.Millisecond)
	if err := within(t, "Close", e.Close); err != nil {
		t.Error(err)
	}
	if err := within(t, "Put", func() error { return <-putting }); !errors.Is(err, link.ErrClosed) {
		t.Errorf("the Put ended with %v", err)
	}
	r.kill()
}

// TestCloseIsHeard: all that was put before Close arrives, and then the bye, in
// that order; also if the other puts too, which fails without its being lost.
func TestCloseIsHeard(t *testing.T) {
	for name, cfg := range map[string]Config{"one stripe": {}, "stripes": {Stripes: 4}} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			const size = 8 << 20
			a, b := pair(t, size, cfg)
			lost := lostTo(t, b)
			ended := make(chan error, 1)
			go func() {
				for {
					if err := b.put(0, b.data()); err != nil {
						ended <- err
						return
					}
				}
			}()
			want := noise(1, size)
			// b puts to a meanwhile, but not what a puts to b.
			from := append([]byte(nil), want...)
			if err := errors.Join(a.put(0, from), a.notify(1), a.Close()); err != nil {
				t.Fatal(err)
			}
			if err := lost(); !errors.Is(err, link.ErrClosed) || isLost(err, 0) {
				t.Errorf("told %v", err)
			}
			if n := link.CounterAt(b.buffer.Bytes()).Load(); n != 1 {
				t.Errorf("the count is %d", n)
			}
			if err := within(t, "Put", func() error { return <-ended }); !errors.Is(err, link.ErrClosed) || isLost(err, 0) {
				t.Errorf("a put to who has closed: %v", err)
			}
		})
	}
}

// TestFreed: what comes for a region that was freed meanwhile does no harm, and
// what comes later is refused by the sender itself.
func TestFreed(t *testing.T) {
	checkLeaks(t)
	a, b := pair(t, 8, Config{Stripes: 2})
	const size = 8 << 20
	for range 5 {
		buffer, err := b.Alloc(size)
		if err != nil {
			t.Fatal(err)
		}
		at := mem.Remote{Region: buffer.Region()}
		ended := make(chan error, 1)
		src := make([]byte, size)
		go func() {
			for {
				if err := errors.Join(a.link.Put(at, src), a.link.Notify(at, 1), a.link.Put(at, src[:8])); err != nil {
					ended <- err
					return
				}
			}
		}()
		time.Sleep(5 * time.Millisecond)
		if err := buffer.Free(); err != nil {
			t.Error(err)
		}
		if err := within(t, "Put", func() error { return <-ended }); !errors.Is(err, link.ErrRange) {
			t.Fatalf("a put into what was freed: %v", err)
		}
	}
	if err := errors.Join(a.put(0, []byte{1}), a.notify(1), b.wait(t.Context(), 1, true)); err != nil {
		t.Errorf("the link has suffered: %v", err)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if n := len(*b.regions.Load()); n == 1 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("%d regions are remembered", n)
		}
	}
}

// strange is rank 0, which knows the key and then says what no rank says.
func strange(t *testing.T, stripes int) (f *Fabric, region mem.RegionID, memory []byte, say func(stripe int) *net.TCPConn) {
	t.Helper()
	ex := bootstrap.Memory(2)
	var m *mesh.Mesh
	var wg sync.WaitGroup
	wg.Go(func() {
		var err error
		if m, err = mesh.Open(t.Context(), ex[0], mesh.Config{}); err != nil {
			t.Error(err)
		}
	})
	f, err := Open(t.Context(), ex[1], Config{})
	if err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	t.Cleanup(func() { m.Close(); f.Close() })
	b, err := f.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	var conns []*net.TCPConn
	for stripe := range stripes {
		c, err := m.Dial(t.Context(), 1, forStripes)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		start := frame{kind: kindStart, region: mem.RegionID(stripes), offset: uint64(stripe), value: 7}
		if _, err := c.Write(start.append(nil)); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	if ready, err := readFrame(conns[0]); err != nil || ready.kind != kindReady {
		t.Fatalf("not ready: %+v, %v", ready, err)
	}
	return f, b.Region(), b.Bytes(), func(stripe int) *net.TCPConn { return conns[stripe] }
}

// TestBadFrames: a frame that cannot be right ends the connection, and names who
// sent it; the memory is as it was.
func TestBadFrames(t *testing.T) {
	put := func(region mem.RegionID, offset, bytes uint64) frame {
		return frame{kind: kindPut, region: region, offset: offset, value: bytes}
	}
	for name, tt := range map[string]struct {
		stripe int
		say    frame
		raw    []byte
	}{
		"unknown kind":          {say: frame{kind: 77}},
		"no kind":               {say: frame{}},
		"put nowhere":           {say: put(9, 0, 1)},
		"put in region 0":       {say: put(0, 0, 1)},
		"put nothing":           {say: put(1, 0, 0)},
		"put past the end":      {say: put(1, 4096, 1)},
		"put across the end":    {say: put(1, 4090, 7)},
		"put very much":         {say: put(1, 0, 1<<64-1)},
		"put that wraps":        {say: put(1, 1<<64-8, 16)},
		"put far away":          {say: put(1, 1<<63, 1)},
		"put before":            {say: put(1, 1<<64-1, 1)},
		"notify nowhere":        {say: frame{kind: kindNotify, region: 9}},
		"notify past the end":   {say: frame{kind: kindNotify, region: 1, offset: 4096}},
		"notify across the end": {say: frame{kind: kindNotify, region: 1, offset: 4096 - 64}},
		"notify far away":       {say: frame{kind: kindNotify, region: 1, offset: 1 << 63}},
		"notify askew":          {say: frame{kind: kindNotify, region: 1, offset: 4}},
		"too many marks":        {say: frame{kind: kindNotify, region: 1, marks: 2}},
		"marks of a put":        {say: frame{kind: kindPut, region: 1, value: 1, marks: 1}},
		"notify on a stripe":    {stripe: 1, say: frame{kind: kindNotify, region: 1}},
		"want on a stripe":      {stripe: 1, say: frame{kind: kindWant, region: 1}},
		"a second start":        {say: frame{kind: kindStart, region: 2, value: 7}},
		"a second ready":        {say: frame{kind: kindReady}},
		"bytes in want":         {say: frame{kind: kindWant, region: 1, value: 1}},
		"a huge region":         {say: frame{kind: kindHave, region: 1, value: 1 << 63}},
		"noise":                 {raw: noise(9, 1<<16)},
		"noise on a stripe":     {stripe: 1, raw: noise(9, 1<<16)},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			f, _, memory, conn := strange(t, 2)
			lost := lostTo(t, &end{Fabric: f})
			raw := tt.raw
			if raw == nil {
				raw = tt.say.append(nil)
				raw = append(raw, make([]byte, 8*int(tt.say.marks)+64)...)
			}
			_, _ = conn(tt.stripe).Write(raw)
			err := lost()
			var bad *FrameError
			if !isLost(err, 0) || !errors.As(err, &bad) || bad.Peer != 0 {
				t.Errorf("lost: %v", err)
			}
			_ = conn(0).SetReadDeadline(time.Now().Add(10 * time.Second))
			if _, err := io.ReadAll(conn(0)); err != nil && !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("the connection lives on: %v", err)
			}
			if !bytes.Equal(memory, make([]byte, len(memory))) {
				t.Error("the memory has changed")
			}
		})
	}
}

// TestTornConnection: a stream that ends without a bye, wherever, is a loss; one
// of several stripes is enough.
func TestTornConnection(t *testing.T) {
	some := frame{kind: kindPut, region: 1, offset: 0, value: 4096}
	for name, tt := range map[string]struct {
		stripe int
		say    []byte
	}{
		"between frames": {0, nil},
		"in a header":    {0, some.append(nil)[:11]},
		"in a payload":   {0, append(some.append(nil), make([]byte, 100)...)},
		"on a stripe":    {1, append(some.append(nil), make([]byte, 100)...)},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			f, _, _, conn := strange(t, 2)
			lost := lostTo(t, &end{Fabric: f})
			_, _ = conn(tt.stripe).Write(tt.say)
			conn(tt.stripe).Close()
			if err := lost(); !isLost(err, 0) {
				t.Errorf("lost: %v", err)
			}
		})
	}
}

// TestAsksAndDoesNotRead: its answers are not collected without end.
func TestAsksAndDoesNotRead(t *testing.T) {
	checkLeaks(t)
	f, _, _, conn := strange(t, 1)
	lost := lostTo(t, &end{Fabric: f})
	want := frame{kind: kindWant, region: 1}
	many := bytes.Repeat(want.append(nil), 10_000)
	go func() {
		for {
			if _, err := conn(0).Write(many); err != nil {
				return
			}
		}
	}()
	if err := lost(); !isLost(err, 0) {
		t.Errorf("lost: %v", err)
	}
}

// TestFarewellNamesTheCause: of a rank that closes because it lost another, the
// others hear whom it lost.
func TestFarewellNamesTheCause(t *testing.T) {
	checkLeaks(t)
	fabrics := openAll(t, 3, Config{})
	for _, f := range fabrics {
		defer f.Close()
	}
	for _, to := range []int{1, 2} {
		if _, err := fabrics[0].Connect(t.Context(), to); err != nil {
			t.Fatal(err)
		}
	}
	seen := lostTo(t, &end{Fabric: fabrics[0].(*Fabric)})
	heard := lostTo(t, &end{Fabric: fabrics[1].(*Fabric)})
	for _, c := range *fabrics[2].(*Fabric).conns.Load() {
		_ = unix.Shutdown(c.fd, unix.SHUT_RDWR) // as if rank 2 had died
	}
	if err := seen(); !isLost(err, 2) {
		t.Errorf("rank 0 saw %v", err)
	}
	fabrics[0].Close()
	if err := heard(); !isLost(err, 2) {
		t.Errorf("rank 1 heard %v", err)
	}
}

// TestConnectEnds: by its context, with Close, and at once where the peer has
// left; in both directions, for one dials and the other calls.
func TestConnectEnds(t *testing.T) {
	cause := errors.New("had enough")
	for _, me := range []int{0, 1} {
		for _, how := range []string{"context", "close", "left"} {
			t.Run(fmt.Sprintf("rank %d, %s", me, how), func(t *testing.T) {
				checkLeaks(t)
				stopped, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, nobody answers
				if err != nil {
					t.Fatal(err)
				}
				defer stopped.Close()
				if how == "left" {
					stopped.Close()
				}
				f, err := Open(t.Context(), elsewhere{me, stopped.Addr().String()}, Config{})
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				switch how {
				case "context":
					time.AfterFunc(5*time.Millisecond, func() { cancel(cause) })
				case "close":
					time.AfterFunc(5*time.Millisecond, func() { f.Close() })
				}
				err = within(t, "Connect", func() error { _, err := f.Connect(ctx, 1-me); return err })
				var e *mesh.DialError
				var closed *ClosedError
				switch {
				case how == "context" && !errors.Is(err, cause),
					how == "close" && !errors.As(err, &closed),
					how == "left" && (!errors.As(err, &e) || !errors.Is(err, unix.ECONNREFUSED)):
					t.Errorf("got %v", err)
				}
			})
		}
	}
}

// elsewhere is the Exchanger of one of two ranks, where the other is only an
// address.
type elsewhere struct {
	rank    int
	address string
}

func (e elsewhere) Rank() int { return e.rank }
func (elsewhere) Size() int   { return 2 }

func (e elsewhere) AllGather(_ context.Context, mine []byte) ([][]byte, error) {
	theirs := append(append([]byte(nil), mine[:4]...), make([]byte, 32)...) // version, share
	rand.Read(theirs[4:])
	blobs := [][]byte{mine, append(theirs, e.address...)}
	if e.rank == 1 {
		blobs[0], blobs[1] = blobs[1], blobs[0]
	}
	return blobs, nil
}

// TestConnectFromBothSides: whoever connects, and when, there is one link.
func TestConnectFromBothSides(t *testing.T) {
	checkLeaks(t)
	for _, who := range [][]int{{0}, {1}, {0, 1}, {0, 0, 1, 1}} {
		for range 10 {
			fabrics := openAll(t, 2, Config{Stripes: 2})
			var wg sync.WaitGroup
			for _, me := range who {
				wg.Go(func() {
					if _, err := fabrics[me].Connect(t.Context(), 1-me); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			for me, f := range fabrics {
				l, err := f.Connect(t.Context(), 1-me)
				if err != nil {
					t.Fatal(err)
				}
				again, err := f.Connect(t.Context(), 1-me)
				if err != nil || again != l {
					t.Errorf("another link the second time: %v", err)
				}
				if n := len(*f.(*Fabric).conns.Load()); n != 2 {
					t.Errorf("%d connections", n)
				}
			}
			for _, f := range fabrics {
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// TestClosedIsNamed: what is asked of a closed fabric says whose it was.
func TestClosedIsNamed(t *testing.T) {
	a, b := pair(t, 8, Config{})
	_ = a
	b.Close()
	_, alloc := b.Alloc(8)
	_, connect := b.Connect(t.Context(), 0)
	_, expose := b.Expose(5, b.buffer.Bytes())
	for op, err := range map[string]error{
		"alloc": alloc, "connect": connect, "expose": expose, "put": b.put(0, nil), "notify": b.notify(1),
	} {
		var e *ClosedError
		if !errors.As(err, &e) || e.Rank != 1 || e.Op != op || !errors.Is(err, link.ErrClosed) {
			t.Errorf("%s: %v", op, err)
		}
	}
	b.Progress()
	b.Await(time.Millisecond)
}

// TestExpose: memory of somebody else's is a region like any other, under the
// number that it was given.
func TestExpose(t *testing.T) {
	checkLeaks(t)
	fabrics := openAll(t, 2, Config{})
	for _, f := range fabrics {
		defer f.Close()
	}
	f := fabrics[1].(*Fabric)
	memory, err := unix.Mmap(-1, 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(memory)
	withdraw, err := f.Expose(77, memory[:5000])
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]error{
		"the same number": second(f.Expose(77, memory[4096:])),
		"no number":       second(f.Expose(0, memory)),
		"nothing":         second(f.Expose(78, nil)),
		"askew":           second(f.Expose(78, memory[8:])),
	} {
		if !errors.Is(bad, link.ErrRange) {
			t.Errorf("%s: %v", name, bad)
		}
	}
	if _, err := f.Alloc(8); err == nil {
		t.Error("it allocates as well")
	}
	l, err := fabrics[0].Connect(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	src := noise(1, 4000)
	if err := errors.Join(l.Put(mem.Remote{Region: 77, Offset: 1000}, src), l.Notify(mem.Remote{Region: 77}, 3)); err != nil {
		t.Fatal(err)
	}
	w := link.Waiter{Patience: link.PatienceFor(2, 2), Fault: new(link.Fault), Progress: f}
	if err := w.Wait(t.Context(), link.CounterAt(memory), 3); err != nil || !bytes.Equal(memory[1000:5000], src) {
		t.Errorf("other bytes than were put, or %v", err)
	}
	if err := l.Put(mem.Remote{Region: 77, Offset: 5000}, src[:1]); !errors.Is(err, link.ErrRange) {
		t.Errorf("past the end of what was exposed: %v", err)
	}
	if err := errors.Join(withdraw(), withdraw()); err != nil {
		t.Error(err)
	}
	for end := time.Now().Add(10 * time.Second); !errors.Is(err, link.ErrRange); err = l.Put(mem.Remote{Region: 77}, src[:1]) {
		if time.Now().After(end) {
			t.Fatalf("put into what was withdrawn: %v", err)
		}
	}
	if other, err := fabrics[0].Alloc(8); err != nil {
		t.Error(err)
	} else if _, err := fabrics[0].(*Fabric).Expose(9, memory); err == nil {
		t.Errorf("it exposes as well as it allocates: region %d", other.Region())
	}
}

func second[T any](_ T, err error) error { return err }

func TestConfig(t *testing.T) {
	for _, cfg := range []Config{{Stripes: -1}, {Stripes: MaxStripes + 1}, {SocketBytes: -1}, {SocketBytes: 1 << 31}, {Congestion: "no such"}} {
		_, err := Open(t.Context(), bootstrap.Single(), cfg)
		var e *ConfigError
		if !errors.As(err, &e) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	_, err := Open(t.Context(), bootstrap.Single(), Config{Listen: "example.org"})
	var e *mesh.ConfigError
	if !errors.As(err, &e) || !strings.Contains(err.Error(), "example.org") {
		t.Errorf("got %v", err)
	}
}

// TestSilentMachine: a peer whose machine falls silent is lost when its time is
// up, whether this rank puts or waits.
func TestSilentMachine(t *testing.T) {
	for _, role := range []string{"target", "source"} {
		t.Run(role, func(t *testing.T) {
			at := namespaces(t, 2)
			ranks := spawn(t, "survivor", 0, at, "TUTTI_TCP_TEST_PUTS="+role)
			allGather(t, ranks)
			allGather(t, ranks)
			for _, r := range ranks {
				r.said() // they are connected
			}
			time.Sleep(50 * time.Millisecond)
			out, err := exec.Command("ip", "-n", at[1].namespace, "link", "set", "veth0", "down").CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			ranks[0].end()
			ranks[1].kill()
		})
	}
}

func init() { roles["survivor"] = survivor }

// survivor is one of two ranks, of which rank 0 is content when it has lost the
// other because nothing more came from its machine.
func survivor(ctx context.Context, ex *pipes) error {
	cfg := configured()
	cfg.Silence = 3 * time.Second
	e, err := openEnd(ctx, ex, cfg)
	if err != nil {
		return err
	}
	defer e.Close()
	if err := ex.sayNumbers(0); err != nil {
		return err
	}
	puts := os.Getenv("TUTTI_TCP_TEST_PUTS") == "target"
	for i := uint64(1); err == nil; i++ {
		if puts == (ex.rank == 0) {
			if err = e.put(0, e.data()); err == nil {
				err = e.notify(i)
			}
		} else {
			err = e.wait(ctx, i, true)
		}
	}
	if !isLost(err, 1-ex.rank) || !errors.Is(err, unix.ETIMEDOUT) {
		return err
	}
	return nil
}

// FuzzConn: whatever bytes come on whichever stripe, in whatever pieces, nothing
// but the region is written to, and the reader ends or wants more.
func FuzzConn(f *testing.F) {
	put := frame{kind: kindPut, region: 1, offset: 64, value: 100}
	notify := frame{kind: kindNotify, region: 1, offset: 0, value: 5, marks: 1}
	f.Add(append(append(put.append(nil), noise(1, 100)...), notify.append(nil)...), uint8(3), false)
	f.Add((&frame{kind: kindPut, region: 2, value: 1 << 40}).append(nil), uint8(1), true)
	for kind := range uint8(11) {
		f.Add((&frame{kind: kind, region: 1}).append(nil), uint8(7), false)
	}
	f.Fuzz(func(t *testing.T, b []byte, piece uint8, second bool) {
		fabric := &Fabric{epoll: -1, told: map[mem.RegionID]map[*tcpLink]struct{}{}, gone: map[int]error{}, peers: make([]peer, 3), rank: 2}
		fabric.regions.Store(new(map[mem.RegionID]*region))
		around := make([]uint64, (64+4096+64)/8)
		memory := mem.Bytes(around)
		fabric.setRegion(1, &region{memory: memory[64:][:4096:4096]})
		fabric.setRegion(2, &region{freed: true})
		l := &tcpLink{fabric: fabric, rank: 1, out: make([]byte, 0, outBytes), marked: true}
		l.sizes.Store(new(map[mem.RegionID]int))
		for stripe := range 2 {
			l.conns = append(l.conns, &conn{fd: -1, link: l, stripe: stripe, ahead: make([]byte, aheadBytes)})
		}
		c := l.conns[0]
		if second {
			c = l.conns[1]
		}
		for len(b) > 0 && !c.over.Load() {
			if c.from > 0 {
				c.to = copy(c.ahead, c.ahead[c.from:c.to])
				c.from = 0
			}
			n := copy(c.ahead[c.to:], b[:min(len(b), int(piece)+1)])
			if n == 0 {
				if !c.waiting.Load() {
					t.Fatalf("%d bytes are there and are not taken", c.to-c.from)
				}
				return
			}
			b = b[n:]
			c.to += n
			c.take()
		}
		for _, edge := range [][]byte{memory[:64], memory[64+4096:]} {
			if !bytes.Equal(edge, make([]byte, 64)) {
				t.Error("bytes beside the region have changed")
			}
		}
		if l.gone.Load() != nil != c.over.Load() && l.byes.Load() == 0 {
			t.Error("the end of the connection is not that of the link")
		}
	})
}
