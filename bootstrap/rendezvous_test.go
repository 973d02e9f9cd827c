package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// joining is a Join under way.
type joining struct {
	x    Exchanger
	err  error
	done chan struct{}
}

func joinSoon(ctx context.Context, o Options) *joining {
	j := &joining{done: make(chan struct{})}
	go func() {
		j.x, j.err = Join(ctx, o)
		close(j.done)
	}()
	return j
}

func (j *joining) wait(t *testing.T, what string) error {
	t.Helper()
	within(t, what, j.done)
	return j.err
}

// goodJob waits for joins that must succeed, and uses and closes what they made.
func goodJob(t *testing.T, joins ...*joining) {
	t.Helper()
	var all []Exchanger
	for _, j := range joins {
		if err := j.wait(t, "a join"); err != nil {
			t.Errorf("a rank did not get in: %v", err)
		} else {
			all = append(all, j.x)
		}
	}
	if !t.Failed() {
		if err := everywhere(all, func(x Exchanger) error { _, err := x.AllGather(t.Context(), []byte("hello")); return err }); err != nil {
			t.Error(err)
		}
	}
	closeAll(all)
}

// badJob waits for joins of which all must fail for a cause, and name a rank.
func badJob(t *testing.T, cause error, rank int, joins ...*joining) {
	t.Helper()
	for i, j := range joins {
		err := j.wait(t, "a join that fails")
		var join *JoinError
		if !errors.Is(err, cause) || !errors.As(err, &join) || join.Rank != rank {
			t.Errorf("join %d: %v, want %v of rank %d", i, err, cause, rank)
		}
		if j.x != nil {
			j.x.Close()
		}
	}
}

// both runs a test with a secret and without.
func both(t *testing.T, f func(t *testing.T, secret Secret)) {
	t.Run("open", func(t *testing.T) { f(t, nil) })
	t.Run("secret", func(t *testing.T) { f(t, testSecret) })
}

func TestLateRanks(t *testing.T) {
	both(t, func(t *testing.T, secret Secret) {
		o := options(t, 4, "127.0.0.1")
		o.Secret = secret
		o.listener[0].Close() // nobody is there yet
		o.listener = nil
		var joins []*joining
		for _, r := range []int{3, 1, 0, 2} { // rank 0 comes late, and it is not the last
			joins = append(joins, joinSoon(t.Context(), o.as(r)))
			time.Sleep(30 * time.Millisecond)
		}
		goodJob(t, joins...)
	})
}

func TestMissingRanksAreNamed(t *testing.T) {
	for _, byContext := range []bool{false, true} {
		o := options(t, 7, "127.0.0.1")
		ctx := t.Context()
		if byContext {
			var cancel func()
			ctx, cancel = context.WithTimeout(ctx, 300*time.Millisecond)
			defer cancel()
		} else {
			o.Timeout = 300 * time.Millisecond
		}
		var joins []*joining
		for _, r := range []int{6, 1, 0, 2} {
			joins = append(joins, joinSoon(ctx, o.as(r)))
		}
		for i, j := range joins {
			err := j.wait(t, "missing ranks")
			var missing *MissingError
			if !errors.As(err, &missing) || !slices.Equal(missing.Ranks, []int{3, 4, 5}) || missing.Size != 7 ||
				!errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "ranks 3-5 of 7") {
				t.Errorf("join %d, by context: %t: %v", i, byContext, err)
			}
			var job *JobError
			if told := errors.As(err, &job); told != (i != 2) {
				t.Errorf("join %d was told: %t: %v", i, told, err)
			}
		}
	}
}

func TestCancelWhileForming(t *testing.T) {
	for who := range 3 {
		o := options(t, 4, "127.0.0.1")
		var joins []*joining
		var cancels []func()
		w := watch(&o)
		for r := range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			cancels = append(cancels, cancel)
			joins = append(joins, joinSoon(ctx, o.as(r)))
		}
		w.came(2)
		cancels[who]()
		var wait *WaitError
		if err := joins[who].wait(t, "a cancelled join"); !errors.Is(err, context.Canceled) {
			t.Errorf("rank %d, cancelled: %v", who, err)
		} else if who == 0 && (!errors.As(err, &wait) || !strings.Contains(err.Error(), "3")) {
			t.Errorf("rank 0 was cancelled: %v", err)
		}
		for r, j := range joins {
			if r != who {
				var job *JobError
				if err := j.wait(t, "a join with a cancelled rank"); !errors.As(err, &job) || job.Rank != who {
					t.Errorf("rank %d when %d was cancelled: %v", r, who, err)
				}
			}
		}
		for _, cancel := range cancels {
			cancel()
		}
	}
}

func TestDeathWhileForming(t *testing.T) {
	o := options(t, 5, "127.0.0.1")
	w := watch(&o)
	root := joinSoon(t.Context(), o.as(0))
	doomed := make(chan *node, 1)
	dead := o.as(3)
	dead.joined = func(n *node) { doomed <- n }
	dying := joinSoon(t.Context(), dead)
	other := joinSoon(t.Context(), o.as(1))
	w.came(2)
	n := <-doomed
	for linked := false; !linked; time.Sleep(time.Millisecond) {
		n.mu.Lock()
		linked = len(n.links) > 0
		n.mu.Unlock()
	}
	cut(n)
	for _, j := range []*joining{root, other} {
		var lost *LostError
		if err := j.wait(t, "a death while the job forms"); !errors.As(err, &lost) || lost.Rank != 3 {
			t.Errorf("got %v", err)
		}
	}
	n.fail(io.EOF, nil)
	_ = dying.wait(t, "the dead")
}

func TestWrongSecret(t *testing.T) {
	for name, secret := range map[string]Secret{"another": []byte("another sixteen bytes"), "none": nil} {
		t.Run(name, func(t *testing.T) {
			o := options(t, 3, "127.0.0.1")
			o.Secret = testSecret
			joins := []*joining{joinSoon(t.Context(), o.as(0)), joinSoon(t.Context(), o.as(1))}
			wrong := o.as(2)
			wrong.Secret = secret
			badJob(t, ErrSecret, 2, joinSoon(t.Context(), wrong))
			goodJob(t, append(joins, joinSoon(t.Context(), o.as(2)))...)
		})
	}
	t.Run("rank 0 has none", func(t *testing.T) {
		o := options(t, 2, "127.0.0.1")
		root := joinSoon(t.Context(), o.as(0))
		wrong := o.as(1)
		wrong.Secret = testSecret
		badJob(t, ErrSecret, 1, joinSoon(t.Context(), wrong))
		goodJob(t, root, joinSoon(t.Context(), o.as(1)))
	})
	t.Run("is told when ranks are missing", func(t *testing.T) {
		o := options(t, 2, "127.0.0.1")
		o.Secret, o.Timeout = testSecret, 300*time.Millisecond
		root := joinSoon(t.Context(), o.as(0))
		wrong := o.as(1)
		wrong.Secret = []byte("another sixteen bytes")
		badJob(t, ErrSecret, 1, joinSoon(t.Context(), wrong))
		var missing *MissingError
		err := root.wait(t, "missing ranks")
		if !errors.As(err, &missing) || len(missing.Notes) != 1 || !strings.Contains(err.Error(), "rank 1 at ") || !strings.Contains(err.Error(), "secret") {
			t.Errorf("rank 0: %v", err)
		}
		if strings.Contains(err.Error(), string(testSecret)) {
			t.Errorf("the secret is in %v", err)
		}
	})
}

// TestImpostor: a server that does not know the secret cannot let anybody in.
func TestImpostor(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _, _ = readHello(conn, wireVersion)
			_, _ = conn.Write((&answer{version: wireVersion, hasSecret: true, nonce: newNonce()}).encode())
			_, _, mac, _ := readProof(conn)
			_, _ = conn.Write((&verdict{mac: mac}).encode()) // the caller's own, back
			_, _ = io.Copy(io.Discard, conn)
			conn.Close()
		}
	}()
	o := Options{Rank: 1, Size: 2, Root: l.Addr().String(), Secret: testSecret, Timeout: time.Minute}
	badJob(t, ErrSecret, 1, joinSoon(t.Context(), o))
}

// TestReplay: what a rank said once lets nobody in a second time.
func TestReplay(t *testing.T) {
	o := options(t, 3, "127.0.0.1")
	o.Secret = testSecret
	root := joinSoon(t.Context(), o.as(0))

	// Rank 1 joins through somebody who listens.
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	var mu sync.Mutex
	var heard []byte
	var forwarding sync.WaitGroup
	forwarding.Go(func() {
		near, err := proxy.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", o.Root)
		if err != nil {
			t.Error(err)
			return
		}
		forwarding.Go(func() { _, _ = io.Copy(near, far); near.Close() })
		buf := make([]byte, 4096)
		for {
			n, err := near.Read(buf)
			mu.Lock()
			heard = append(heard, buf[:n]...)
			mu.Unlock()
			if _, werr := far.Write(buf[:n]); err != nil || werr != nil {
				far.Close()
				return
			}
		}
	})
	through := o.as(1)
	through.Root = proxy.Addr().String()
	one := joinSoon(t.Context(), through)
	whole := helloSize + 1 + 1 + macSize // and some for the address
	for n := 0; n < whole; time.Sleep(time.Millisecond) {
		mu.Lock()
		n = len(heard)
		mu.Unlock()
	}

	mu.Lock()
	recorded := slices.Clone(heard)
	mu.Unlock()
	conn, err := net.Dial("tcp", o.Root)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(recorded); err != nil {
		t.Fatal(err)
	}
	if a, _, err := readAnswer(conn, wireVersion); err != nil || a.code != codeFine {
		t.Errorf("answer %+v, %v", a, err)
	}
	if v, err := readVerdict(conn); err != nil || v.code != codeSecret {
		t.Errorf("verdict %+v, %v; want a refusal", v, err)
	}
	goodJob(t, root, one, joinSoon(t.Context(), o.as(2)))
	proxy.Close()
	forwarding.Wait()
}

func TestDuplicateRank(t *testing.T) {
	both(t, func(t *testing.T, secret Secret) {
		for _, r := range []int{0, 1} {
			o := options(t, 4, "127.0.0.1")
			o.Secret = secret
			w := watch(&o)
			joins := []*joining{joinSoon(t.Context(), o.as(0)), joinSoon(t.Context(), o.as(2)), joinSoon(t.Context(), o.as(1))}
			w.came(2)
			// A second rank 0 would not get the port; it comes as a caller here.
			if r == 1 {
				joins = append(joins, joinSoon(t.Context(), o.as(1)))
			} else {
				c := strangeCaller(o, 0, 4)
				_, err := c.call(t.Context())
				if !errors.Is(err, ErrDuplicate) {
					t.Errorf("a second rank 0: %v", err)
				}
			}
			badJob(t, ErrDuplicate, r, joins...)
		}
	})
}

// watcher sees who has come to rank 0.
type watcher chan *node

// watch must be called before anybody joins.
func watch(o *Options) watcher {
	w := make(watcher, 1)
	o.joined = func(n *node) {
		if n.rank == 0 {
			w <- n
		}
	}
	return w
}

// came waits until a number of ranks has come, and returns rank 0.
func (w watcher) came(count int) *node {
	root := <-w
	for n := -1; n < count; time.Sleep(time.Millisecond) {
		root.mu.Lock()
		n = root.forming.came
		root.mu.Unlock()
	}
	return root
}

// strangeCaller says what Join would not.
func strangeCaller(o Options, rank, size int) *caller {
	at, err := parseTarget(o.Root)
	if err != nil {
		panic(err)
	}
	return &caller{
		role: roleJoin, rank: rank, size: size, version: wireVersion, secret: o.Secret, isSecret: len(o.Secret) > 0, target: at,
		advertise: func(net.Conn) (string, error) { return "127.0.0.1:1", nil },
	}
}

func TestDuplicateOfAFormedJob(t *testing.T) {
	o := options(t, 3, "127.0.0.1")
	all := form(t, o)
	defer closeAll(all)
	badJob(t, ErrDuplicate, 2, joinSoon(t.Context(), o.as(2)))
	if err := everywhere(all, func(x Exchanger) error { _, err := x.AllGather(t.Context(), nil); return err }); err != nil {
		t.Errorf("the job was disturbed: %v", err)
	}
}

func TestRankThatTheJobDoesNotHave(t *testing.T) {
	both(t, func(t *testing.T, secret Secret) {
		o := options(t, 3, "127.0.0.1")
		o.Secret = secret
		w := watch(&o)
		joins := []*joining{joinSoon(t.Context(), o.as(0)), joinSoon(t.Context(), o.as(1))}
		w.came(1)
		if _, err := strangeCaller(o, 77, 3).call(t.Context()); !errors.Is(err, ErrRank) {
			t.Errorf("rank 77: %v", err)
		}
		badJob(t, ErrRank, 77, joins...)
	})
}

func TestAddressThatMakesNoSense(t *testing.T) {
	for _, address := range []string{"", "nonsense", "0.0.0.0:5", "[fe80::1%eth0]:5", "unix:@", "unix:@a\x00b"} {
		o := options(t, 3, "127.0.0.1")
		root := joinSoon(t.Context(), o.as(0))
		c := strangeCaller(o, 1, 3)
		c.advertise = func(net.Conn) (string, error) { return address, nil }
		if _, err := c.call(t.Context()); !errors.Is(err, ErrAddress) {
			t.Errorf("%q: %v", address, err)
		}
		badJob(t, ErrAddress, 1, root)
	}
}

func TestOtherSize(t *testing.T) {
	both(t, func(t *testing.T, secret Secret) {
		o := options(t, 3, "127.0.0.1")
		o.Secret = secret
		w := watch(&o)
		joins := []*joining{joinSoon(t.Context(), o.as(0)), joinSoon(t.Context(), o.as(1))}
		w.came(1)
		other := o.as(2)
		other.Size = 5
		badJob(t, ErrSize, 2, append(joins, joinSoon(t.Context(), other))...)
		if !strings.Contains(joins[1].err.Error(), "5") || !strings.Contains(joins[1].err.Error(), "3") {
			t.Errorf("the sizes are not named: %v", joins[1].err)
		}
	})
}

func TestOtherVersion(t *testing.T) {
	t.Run("open", func(t *testing.T) { // who speaks our protocol is one of ours
		o := options(t, 3, "127.0.0.1")
		w := watch(&o)
		joins := []*joining{joinSoon(t.Context(), o.as(0)), joinSoon(t.Context(), o.as(1))}
		w.came(1)
		other := o.as(2)
		other.version = wireVersion + 1
		badJob(t, ErrVersion, 2, joinSoon(t.Context(), other))
		badJob(t, ErrVersion, -1, joins...)
	})
	t.Run("secret", func(t *testing.T) { // who has not proved itself ends nothing
		o := options(t, 3, "127.0.0.1")
		o.Secret = testSecret
		w := watch(&o)
		joins := []*joining{joinSoon(t.Context(), o.as(0)), joinSoon(t.Context(), o.as(1))}
		w.came(1)
		other := o.as(2)
		other.version = wireVersion + 1
		badJob(t, ErrVersion, 2, joinSoon(t.Context(), other))
		goodJob(t, append(joins, joinSoon(t.Context(), o.as(2)))...)
	})
}

func TestOtherJob(t *testing.T) {
	both(t, func(t *testing.T, secret Secret) {
		o := options(t, 2, "127.0.0.1")
		o.Secret, o.Job = secret, "mine"
		root := joinSoon(t.Context(), o.as(0))
		other := o.as(1)
		other.Job = "yours"
		badJob(t, ErrOtherJob, 1, joinSoon(t.Context(), other))
		goodJob(t, root, joinSoon(t.Context(), o.as(1)))
	})
}

func TestNobodyThere(t *testing.T) {
	o := options(t, 2, "127.0.0.1")
	o.listener[0].Close()
	o.Timeout = time.Second
	var far *UnreachableError
	if err := joinSoon(t.Context(), o.as(1)).wait(t, "nobody"); !errors.As(err, &far) || far.Rank != 1 || far.Peer != 0 || !strings.Contains(err.Error(), o.Root) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got %v", err)
	}
}

// TestAnotherServiceThere: what listens is something else, such as the store
// of a launcher.
func TestAnotherServiceThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for calls := 0; ; calls++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("220 mail.example.org ESMTP\r\n"))
			conn.Close()
			if calls == 3 { // it tries again, and again
				cancel()
			}
		}
	}()
	o := Options{Rank: 1, Size: 2, Root: l.Addr().String()}
	if err := joinSoon(ctx, o).wait(t, "another service"); !errors.Is(err, errStranger) {
		t.Errorf("got %v", err)
	}
}

// TestPortInUse: rank 0 says so at once.
func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	err = joinSoon(t.Context(), Options{Size: 2, Root: l.Addr().String()}).wait(t, "a port in use")
	if !errors.Is(err, ErrAddress) || !strings.Contains(err.Error(), EnvPort) {
		t.Errorf("got %v", err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, tt := range []struct {
		o     Options
		field string
	}{
		{Options{Size: 0}, "Size"},
		{Options{Size: -4}, "Size"},
		{Options{Size: maxSize + 1}, "Size"},
		{Options{Size: 2, Rank: 2, Root: "h:1"}, "Rank"},
		{Options{Size: 2, Rank: -1, Root: "h:1"}, "Rank"},
		{Options{Size: 2}, "Root"},
		{Options{Size: 2, Root: "host"}, "Root"},
		{Options{Size: 2, Root: ":5"}, "Root"},
		{Options{Size: 2, Root: "h:0"}, "Root"},
		{Options{Size: 2, Root: "h:65536"}, "Root"},
		{Options{Size: 2, Root: "unix:@"}, "Root"},
		{Options{Size: 2, Root: "h:1", Secret: []byte("short")}, "Secret"},
		{Options{Size: 2, Root: "h:1", Timeout: -1}, "Timeout"},
		{Options{Size: 2, Root: "127.0.0.1:1", Listen: "host:x"}, "Listen"},
	} {
		_, err := Join(t.Context(), tt.o)
		var e *OptionError
		if !errors.As(err, &e) || e.Field != tt.field {
			t.Errorf("%+v: %v", tt.o, err)
		}
	}
	x, err := Join(t.Context(), Options{Size: 1})
	if err != nil || x.Size() != 1 {
		t.Fatalf("a job of one rank: %v", err)
	}
	x.Close()
}

// strangers are all kinds of callers that are no ranks.
var strangers = map[string]func(conn net.Conn, stop <-chan struct{}){
	"scanner": func(conn net.Conn, _ <-chan struct{}) {},
	"silent":  func(_ net.Conn, stop <-chan struct{}) { <-stop },
	"http": func(conn net.Conn, stop <-chan struct{}) {
		_, _ = conn.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
		<-stop
	},
	"garbage": func(conn net.Conn, _ <-chan struct{}) {
		b := make([]byte, 10000)
		for i := range b {
			b[i] = byte(rand.Uint32())
		}
		_, _ = conn.Write(b)
	},
	"slow": func(conn net.Conn, stop <-chan struct{}) {
		h := hello{version: wireVersion, role: roleJoin, rank: 1, size: 4}
		for _, b := range h.encode() {
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
			}
			if _, err := conn.Write([]byte{b}); err != nil {
				return
			}
		}
		<-stop
	},
	"half": func(conn net.Conn, stop <-chan struct{}) {
		_, _ = conn.Write(magic[:])
		<-stop
	},
	"hello and no more": func(conn net.Conn, stop <-chan struct{}) {
		h := hello{version: wireVersion, role: roleJoin, hasSecret: true, rank: 1, size: 4, nonce: newNonce()}
		_, _ = conn.Write(h.encode())
		<-stop
	},
	"hello and garbage": func(conn net.Conn, stop <-chan struct{}) {
		h := hello{version: wireVersion, role: roleJoin, hasSecret: true, rank: 1, size: 4, nonce: newNonce()}
		_, _ = conn.Write(h.encode())
		_, _, _ = readAnswer(conn, wireVersion)
		_, _ = conn.Write(make([]byte, 1+macSize))
		<-stop
	},
	"reset": func(conn net.Conn, _ <-chan struct{}) {
		_, _ = conn.Write(magic[:5])
		_ = conn.(*net.TCPConn).SetLinger(0)
	},
}

// TestStrangers: a crowd of strangers, larger than the gate holds, neither
// keeps ranks out nor gets in, and is gone in the end.
func TestStrangers(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	both(t, func(t *testing.T, secret Secret) {
		o := options(t, 4, "127.0.0.1")
		o.Secret = secret
		stop := make(chan struct{})
		var crowd sync.WaitGroup
		bother := func(address string) {
			for name, behave := range strangers {
				if secret == nil && strings.HasPrefix(name, "hello") {
					continue // it would be the wrong secret, which is tested elsewhere
				}
				for range 25 {
					crowd.Go(func() {
						conn, err := net.Dial("tcp", address)
						if err != nil {
							return
						}
						defer conn.Close()
						behave(conn, stop)
					})
				}
			}
		}
		// Those that listen in the tree are bothered, too.
		w := watch(&o)
		root := joinSoon(t.Context(), o.as(0))
		bother(o.Root)
		two := joinSoon(t.Context(), o.as(2))
		three := joinSoon(t.Context(), o.as(3))
		n := w.came(2)
		n.mu.Lock()
		inner := n.forming.addresses[2]
		n.mu.Unlock()
		bother(inner)
		time.Sleep(20 * time.Millisecond)
		goodJob(t, root, two, three, joinSoon(t.Context(), o.as(1)))
		close(stop)
		crowd.Wait()
	})
	noMoreGoroutines(t, goroutines)
}

func noMoreGoroutines(t *testing.T, than int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); runtime.NumGoroutine() > than; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), than, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

// TestForgedFrame: on a link, too, only the other end is believed.
func TestForgedFrame(t *testing.T) {
	all := form(t, options(t, 2, "127.0.0.1"))
	defer closeAll(all)
	one := all[1].(*node)
	if err := writeFrame(one.parent.conn, frameGather, appendBlob([]byte{0, 0, 0, 0}, []byte("forged"))); err != nil {
		t.Fatal(err)
	}
	if _, err := one.parent.conn.Write(make([]byte, macSize)); err != nil {
		t.Fatal(err)
	}
	within(t, "a forged frame", all[0].Done())
	var frame *FrameError
	var lost *LostError
	if err := all[0].Err(); !errors.As(err, &frame) || !errors.As(err, &lost) || lost.Rank != 1 {
		t.Errorf("got %v", err)
	}
}

func TestSecretDoesNotPrint(t *testing.T) {
	o := Options{Secret: testSecret}
	for _, s := range []string{
		fmt.Sprintf("%v", o), fmt.Sprintf("%+v", o), fmt.Sprintf("%#v", o), fmt.Sprintf("%s %q %x %d", o.Secret, o.Secret, o.Secret, o.Secret), fmt.Sprintf("%v", o.Secret.LogValue()),
	} {
		if strings.Contains(s, "horse") || strings.Contains(s, "686f727365") || strings.Contains(s, "104 111") {
			t.Errorf("the secret is in %q", s)
		}
	}
	if b, err := o.Secret.MarshalText(); err != nil || strings.Contains(string(b), "horse") {
		t.Errorf("%s, %v", b, err)
	}
}
