package mesh

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/tutti-go/tutti/bootstrap"
)

func openAll(t *testing.T, n int) []*Mesh {
	t.Helper()
	checkLeaks(t)
	ex := bootstrap.Memory(n)
	out := make([]*Mesh, n)
	var wg sync.WaitGroup
	for r := range out {
		wg.Go(func() {
			m, err := Open(t.Context(), ex[r], Config{})
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
			out[r] = m
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() {
		for _, m := range out {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return out
}

// checkLeaks fails the test if goroutines run at its end that did not at its
// start.
func checkLeaks(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				stacks := make([]byte, 1<<16)
				t.Fatalf("%d goroutines before, %d after\n%s", before, runtime.NumGoroutine(), stacks[:runtime.Stack(stacks, true)])
			}
		}
	})
}

// call is what a handler got.
type call struct {
	peer int
	conn *net.TCPConn
}

func handle(m *Mesh, purpose string) chan call {
	calls := make(chan call, 99)
	m.Handle(purpose, func(peer int, c *net.TCPConn) { calls <- call{peer, c} })
	return calls
}

func within[T any](t *testing.T, ch chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(10 * time.Second):
		t.Fatal("not within 10 s")
		panic("unreachable")
	}
}

func dial(t *testing.T, m *Mesh, peer int, purpose string) *net.TCPConn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, err := m.Dial(ctx, peer, purpose)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestEveryPair: every rank dials every other, all at once and for several
// purposes; each call arrives once, where it was meant, with a stream that is
// whole from its first byte in both directions.
func TestEveryPair(t *testing.T) {
	const ranks = 8
	all := openAll(t, ranks)
	purposes := []string{"a", "a purpose of 24 bytes is"}
	type key struct {
		to      int
		purpose string
	}
	calls := map[key]chan call{}
	for r, m := range all {
		calls[key{r, purposes[0]}] = handle(m, purposes[0])
	}
	var wg sync.WaitGroup
	for from, m := range all {
		for to := range all {
			for _, p := range purposes {
				if to == from {
					continue
				}
				wg.Go(func() {
					c, err := m.Dial(t.Context(), to, p)
					if err != nil {
						t.Error(err)
						return
					}
					defer c.Close()
					fmt.Fprintf(c, "%d to %d for %24s.", from, to, p)
					var echo [1]byte
					if _, err := io.ReadFull(c, echo[:]); err != nil || echo[0] != byte(to) {
						t.Errorf("%d to %d for %s: answered %d, %v", from, to, p, echo[0], err)
					}
				})
			}
		}
	}
	for r, m := range all { // late: they have been waiting
		calls[key{r, purposes[1]}] = handle(m, purposes[1])
	}
	for k, ch := range calls {
		seen := map[int]bool{}
		for range ranks - 1 {
			c := within(t, ch)
			seen[c.peer] = true
			want := fmt.Sprintf("%d to %d for %24s.", c.peer, k.to, k.purpose)
			got := make([]byte, len(want))
			if _, err := io.ReadFull(c.conn, got); err != nil || string(got) != want {
				t.Errorf("got %q, want %q: %v", got, want, err)
			}
			_, _ = c.conn.Write([]byte{byte(k.to)})
			c.conn.Close()
		}
		if len(seen) != ranks-1 {
			t.Errorf("rank %d was called by %v only", k.to, seen)
		}
	}
	wg.Wait()
}

// TestStrangers: whatever somebody sends who does not know the key, it is hung
// up on, learns nothing from which a proof could be made, and disturbs nobody.
func TestStrangers(t *testing.T) {
	all := openAll(t, 2)
	calls := handle(all[0], "a")
	good := hello{ranks: 2, from: 1, to: 0, purpose: "a"}
	with := func(change func(h *hello)) []byte {
		h := good
		change(&h)
		return h.encode()
	}
	for name, said := range map[string][]byte{
		"noise":             noise(helloBytes),
		"much noise":        noise(1 << 16),
		"http":              []byte("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: nobody in particular\r\nAccept: */*\r\nConnection: keep-alive\r\n\r\n"),
		"no such rank":      with(func(h *hello) { h.from = 2 }),
		"wild rank":         with(func(h *hello) { h.from = 1<<32 - 1 }),
		"its own rank":      with(func(h *hello) { h.from = 0 }),
		"another's":         with(func(h *hello) { h.to = 1 }),
		"another job's":     with(func(h *hello) { h.ranks = 3 }),
		"other version":     append(append([]byte(magic), 9, 0, 0, 0), good.encode()[len(magic)+4:]...),
		"no purpose":        with(func(h *hello) { h.purpose = "" }),
		"purpose of zeros":  with(func(h *hello) { h.purpose = "a\x00b" }),
		"no proof":          append(good.encode(), make([]byte, 32)...),
		"a proof of noise":  append(good.encode(), noise(32)...),
		"a much longer one": append(good.encode(), noise(4096)...),
	} {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("tcp", all[1].Address(0))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, _ = c.Write(said)
			_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
			got, err := io.ReadAll(c)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("not hung up on")
			}
			if len(got) != 0 && len(got) != challengeBytes {
				t.Errorf("was told %d bytes", len(got))
			}
		})
	}
	if len(calls) != 0 {
		t.Errorf("%+v was let in", <-calls)
	}
	dial(t, all[1], 0, "a")
	within(t, calls).conn.Close()
}

func noise(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

// TestReflection: a proof that a rank gives is none for whoever got it, in
// either role, for another connection, rank or purpose.
func TestReflection(t *testing.T) {
	all := openAll(t, 3)
	calls := handle(all[0], "a")
	h := hello{ranks: 3, from: 1, to: 0, purpose: "a", nonce: [nonceBytes]byte(noise(nonceBytes))}
	ask := func(h hello) (net.Conn, []byte) {
		c, err := net.Dial("tcp", all[1].Address(0))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		challenge := make([]byte, challengeBytes)
		_, _ = c.Write(h.encode())
		if _, err := io.ReadFull(c, challenge); err != nil {
			t.Fatal(err)
		}
		return c, challenge
	}
	first, challenge := ask(h)
	second, _ := ask(h) // the same words, but a nonce of the acceptor's own
	other := h
	other.from = 2
	third, _ := ask(other)
	for _, c := range []net.Conn{first, second, third} {
		_, _ = c.Write(challenge[nonceBytes:])
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if n, err := c.Read(make([]byte, 99)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %d bytes, %v; want to be hung up on", n, err)
		}
	}
	if len(calls) != 0 {
		t.Errorf("%+v was let in", <-calls)
	}
}

// TestImpostor: who listens where a rank should, and does not know the key, is
// found out.
func TestImpostor(t *testing.T) {
	checkLeaks(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(c, make([]byte, helloBytes))
			_, _ = c.Write(noise(challengeBytes))
			_, _ = io.Copy(io.Discard, c)
			c.Close()
		}
	}()
	m, err := Open(t.Context(), beside(l.Addr().String()), Config{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Dial(t.Context(), 1, "a")
	var e *DialError
	if !errors.Is(err, ErrStranger) || !errors.As(err, &e) || e.Rank != 0 || e.Peer != 1 || e.Purpose != "a" {
		t.Errorf("got %v", err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	l.Close()
	<-served
}

// beside is the Exchanger of rank 0 of two; rank 1 is no mesh, but an address.
type beside string

func (beside) Rank() int { return 0 }
func (beside) Size() int { return 2 }

func (b beside) AllGather(_ context.Context, mine []byte) ([][]byte, error) {
	theirs := newCard(string(b))
	return [][]byte{mine, theirs.encode()}, nil
}

// TestDialEnds: by its context and with Close where the peer is stopped, at
// once where nobody listens or the arguments are wrong.
func TestDialEnds(t *testing.T) {
	checkLeaks(t)
	stopped, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts; nobody answers
	if err != nil {
		t.Fatal(err)
	}
	defer stopped.Close()
	refusing, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refusing.Close()
	hasty, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hasty.Close()
	go func() {
		for {
			c, err := hasty.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	cause := errors.New("had enough")
	for name, tt := range map[string]struct {
		address string
		peer    int
		purpose string
		close   bool
		want    error
	}{
		"stopped":    {stopped.Addr().String(), 1, "a", false, cause},
		"closed":     {stopped.Addr().String(), 1, "a", true, ErrClosed},
		"refused":    {refusing.Addr().String(), 1, "a", false, nil},
		"hung up on": {hasty.Addr().String(), 1, "a", false, nil},
		"itself":     {stopped.Addr().String(), 0, "a", false, nil},
		"no rank":    {stopped.Addr().String(), 2, "a", false, nil},
		"negative":   {stopped.Addr().String(), -1, "a", false, nil},
		"no purpose": {stopped.Addr().String(), 1, "", false, nil},
		"long":       {stopped.Addr().String(), 1, "a purpose that is too long", false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := Open(t.Context(), beside(tt.address), Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			switch {
			case tt.close:
				time.AfterFunc(5*time.Millisecond, func() { m.Close() })
			case tt.want != nil:
				time.AfterFunc(5*time.Millisecond, func() { cancel(cause) })
			}
			got := make(chan error, 1)
			go func() { _, err := m.Dial(ctx, tt.peer, tt.purpose); got <- err }()
			err = within(t, got)
			var e *DialError
			if !errors.As(err, &e) || e.Peer != tt.peer || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestHalfOpen: those who say nothing take no room from those who do.
func TestHalfOpen(t *testing.T) {
	all := openAll(t, 2)
	calls := handle(all[0], "a")
	const idle = strangers + 40
	for range idle {
		c, err := net.Dial("tcp", all[1].Address(0))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	dial(t, all[1], 0, "a")
	within(t, calls).conn.Close()
	all[0].mu.Lock()
	defer all[0].mu.Unlock()
	if n := len(all[0].greeting); n > strangers+4 {
		t.Errorf("%d connections without a proof at a time", n)
	}
}

// TestCloseHangsUp: on those that nobody has handled.
func TestCloseHangsUp(t *testing.T) {
	all := openAll(t, 2)
	c := dial(t, all[1], 0, "nobody's")
	if err := all[0].Close(); err != nil {
		t.Error(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v; want to be hung up on", err)
	}
	if err := all[0].Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func TestAddresses(t *testing.T) {
	checkLeaks(t)
	for name, tt := range map[string]struct {
		cfg  Config
		want string // the start of what others are told; empty for an error
	}{
		"default":             {Config{}, "127.0.0.1:"},
		"an address":          {Config{Listen: "127.0.0.2"}, "127.0.0.2:"},
		"with a port":         {Config{Listen: "127.0.0.3:0"}, "127.0.0.3:"},
		"advertised":          {Config{Listen: "127.0.0.1", Advertise: "192.0.2.1"}, "192.0.2.1:"},
		"advertised in whole": {Config{Listen: "127.0.0.1", Advertise: "[2001:db8::1]:99"}, "[2001:db8::1]:99"},
		"everywhere":          {Config{Listen: "0.0.0.0"}, ""},
		"a name":              {Config{Listen: "localhost"}, ""},
		"not ours":            {Config{Listen: "192.0.2.1"}, ""},
		"no address":          {Config{Listen: "127.0.0.1:http"}, ""},
		"tells nothing":       {Config{Advertise: "host:1"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := Open(t.Context(), bootstrap.Single(), tt.cfg)
			if tt.want == "" {
				var e *ConfigError
				if !errors.As(err, &e) {
					t.Fatalf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			if got := m.Address(0); len(got) < len(tt.want) || got[:len(tt.want)] != tt.want {
				t.Errorf("the others are told %q", got)
			}
		})
	}
}

// TestForeignCard: ranks of another build are named.
func TestForeignCard(t *testing.T) {
	checkLeaks(t)
	for _, address := range []string{"", "0.0.0.0:1", "127.0.0.1:0", "no address"} {
		_, err := Open(t.Context(), beside(address), Config{})
		var e *CardError
		if !errors.As(err, &e) || e.Rank != 1 {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// TestKey: it depends on every byte of every card, and on where cards end.
func TestKey(t *testing.T) {
	seen := map[[32]byte]string{}
	for _, blobs := range []string{"a|b", "b|a", "ab|", "|ab", "a|b|", "a", "", "a|c"} {
		key := jobKey(bytes.Split([]byte(blobs), []byte("|")))
		if other, ok := seen[key]; ok {
			t.Errorf("%q and %q give one key", blobs, other)
		}
		seen[key] = blobs
	}
}

// FuzzFrames: what a stranger sends is refused or means what it says.
func FuzzFrames(f *testing.F) {
	f.Add((&hello{ranks: 4, from: 1, to: 2, purpose: "a"}).encode())
	c := newCard("127.0.0.1:80")
	f.Add(c.encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := decodeHello(b); err == nil && !bytes.Equal(h.encode(), b) {
			t.Errorf("%x decodes to %+v, which encodes otherwise", b, h)
		} else if err != nil && !errors.Is(err, ErrStranger) {
			t.Errorf("%x: %v", b, err)
		}
		if c, err := decodeCard(b); err == nil && !bytes.Equal(c.encode(), b) {
			t.Errorf("%x decodes to a card that encodes otherwise", b)
		}
	})
}

// FuzzAdmit: no bytes of a stranger's get it in, whatever follows them.
func FuzzAdmit(f *testing.F) {
	m := &Mesh{rank: 0, cards: make([]card, 2), key: [32]byte(noise(32))}
	f.Add((&hello{ranks: 2, from: 1, to: 0, purpose: "a"}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, _, err := m.admit(&script{in: bytes.NewReader(b)}); err == nil {
			t.Errorf("let in: %x", b)
		}
		if err := m.greet(&script{in: bytes.NewReader(b)}, 1, "a"); err == nil {
			t.Errorf("taken for rank 1: %x", b)
		}
	})
}

// script is a connection whose other end says what is written down.
type script struct {
	in  io.Reader
	out bytes.Buffer
}

func (s *script) Read(b []byte) (int, error)  { return s.in.Read(b) }
func (s *script) Write(b []byte) (int, error) { return s.out.Write(b) }
