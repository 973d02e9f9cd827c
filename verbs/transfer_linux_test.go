//go:build linux && cgo && (amd64 || arm64 || loong64 || ppc64le || riscv64 || s390x)

package verbs_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"

	"github.com/tutti-go/tutti/verbs"
)

// Every operation, with its completions on both sides.
func TestOperations(t *testing.T) {
	a, b := pair(t, options{})
	const n = 100_000
	data := pattern(make([]byte, n), 1)
	copy(a.mem, data)

	a.post(verbs.Request{ID: 1, Opcode: verbs.Write, Flags: verbs.Signaled, Segments: []verbs.Segment{a.seg(0, n)}, RemoteAddr: b.at(777), RKey: b.mr.RKey()})
	a.succeeds(1, verbs.CompletedWrite)
	b.same(777, data)
	b.idle()

	b.receive(2)
	a.post(verbs.Request{ID: 3, Opcode: verbs.WriteImm, Imm: 0x01020304, Flags: verbs.Signaled, Segments: []verbs.Segment{a.seg(1, n-1)}, RemoteAddr: b.at(200_000), RKey: b.mr.RKey()})
	c := b.succeeds(2, verbs.CompletedRecvImm)
	if imm, ok := c.Imm(); !ok || imm != 0x01020304 || c.Bytes != n-1 {
		t.Errorf("%+v carries %#x", c, imm)
	}
	b.same(200_000, data[1:])
	a.succeeds(3, verbs.CompletedWrite)

	// A message gathered from three places and scattered to two.
	b.receive(4, b.seg(500_000, 1000), b.seg(600_000, n))
	a.post(verbs.Request{ID: 5, Opcode: verbs.Send, Flags: verbs.Signaled, Segments: []verbs.Segment{a.seg(10, 700), a.seg(0, 0), a.seg(50_000, 20_000)}})
	c = b.succeeds(4, verbs.CompletedRecv)
	if _, ok := c.Imm(); ok || c.Bytes != 20_700 {
		t.Errorf("%+v", c)
	}
	message := append(append([]byte(nil), data[10:710]...), data[50_000:70_000]...)
	b.same(500_000, message[:1000])
	b.same(600_000, message[1000:])
	a.succeeds(5, verbs.CompletedSend)

	b.receive(6, b.seg(0, 64))
	a.post(verbs.Request{ID: 7, Opcode: verbs.SendImm, Imm: 9, Flags: verbs.Signaled | verbs.Solicited, Inline: []byte("inline")})
	c = b.succeeds(6, verbs.CompletedRecv)
	if imm, ok := c.Imm(); !ok || imm != 9 || c.Bytes != 6 {
		t.Errorf("%+v carries %#x", c, imm)
	}
	b.same(0, []byte("inline"))
	a.succeeds(7, verbs.CompletedSend)

	pattern(b.mem[800_000:800_000+n], 2)
	a.post(verbs.Request{ID: 8, Opcode: verbs.Read, Flags: verbs.Signaled, Segments: []verbs.Segment{a.seg(300_000, 40_000), a.seg(400_000, n-40_000)}, RemoteAddr: b.at(800_000), RKey: b.mr.RKey()})
	a.succeeds(8, verbs.CompletedRead)
	a.same(300_000, b.mem[800_000:840_000])
	a.same(400_000, b.mem[840_000:800_000+n])

	word := func(s *side, offset int) *uint64 { return wordAt(s.mem, offset) }
	*word(b, 1<<19) = 40
	a.post(
		verbs.Request{ID: 9, Opcode: verbs.FetchAdd, Flags: verbs.Signaled, CompareAdd: 2, Segments: []verbs.Segment{a.seg(8, 8)}, RemoteAddr: b.at(1 << 19), RKey: b.mr.RKey()},
		verbs.Request{ID: 10, Opcode: verbs.CompareSwap, Flags: verbs.Signaled | verbs.Fence, CompareAdd: 42, Swap: 1<<63 + 1, Segments: []verbs.Segment{a.seg(16, 8)}, RemoteAddr: b.at(1 << 19), RKey: b.mr.RKey()},
		verbs.Request{ID: 11, Opcode: verbs.CompareSwap, Flags: verbs.Signaled | verbs.Fence, CompareAdd: 42, Swap: 7, Segments: []verbs.Segment{a.seg(24, 8)}, RemoteAddr: b.at(1 << 19), RKey: b.mr.RKey()},
	)
	a.succeeds(9, verbs.CompletedFetchAdd)
	a.succeeds(10, verbs.CompletedCompareSwap)
	a.succeeds(11, verbs.CompletedCompareSwap)
	if got := [4]uint64{*word(a, 8), *word(a, 16), *word(a, 24), *word(b, 1<<19)}; got != [4]uint64{40, 42, 1<<63 + 1, 1<<63 + 1} {
		t.Errorf("atomics: %d", got)
	}

	// Nothing at all may be moved too.
	b.receive(12)
	a.post(verbs.Request{ID: 13, Opcode: verbs.WriteImm, Imm: 5, Flags: verbs.Signaled, RemoteAddr: b.at(0), RKey: b.mr.RKey()},
		verbs.Request{ID: 14, Opcode: verbs.Write, Flags: verbs.Signaled, Inline: []byte{}, RemoteAddr: b.at(0), RKey: b.mr.RKey()})
	if c := b.succeeds(12, verbs.CompletedRecvImm); c.Bytes != 0 {
		t.Errorf("%+v", c)
	}
	a.succeeds(13, verbs.CompletedWrite)
	a.succeeds(14, verbs.CompletedWrite)
	a.idle()
	b.idle()
	if a.qp.DataInOrder(verbs.Write) {
		t.Logf("%v places the bytes of a write in order", a.qp)
	}
}

// A batch is one doorbell: its requests are carried out in order, and one
// completion of the last stands for all.
func TestBatch(t *testing.T) {
	a, b := pair(t, options{depth: 32})
	for round := range 10 {
		for i := range 32 {
			r := verbs.Request{ID: uint64(i), Opcode: verbs.Write, Segments: []verbs.Segment{a.seg(i*1000, 1000)}, RemoteAddr: b.at(i * 1000), RKey: b.mr.RKey()}
			if i%3 == 1 {
				r.Segments, r.Inline = nil, binary.NativeEndian.AppendUint64(nil, uint64(round*1000+i))
			}
			if i == 31 {
				r.Flags = verbs.Signaled
			}
			if err := a.send.Add(&r); err != nil {
				t.Fatal(err)
			}
		}
		pattern(a.mem[:32_000], byte(round))
		if a.send.Len() != 32 {
			t.Fatalf("%d requests in the batch", a.send.Len())
		}
		if n, err := a.send.Post(); n != 32 || err != nil || a.send.Len() != 0 {
			t.Fatalf("posted %d, %v; %d left", n, err, a.send.Len())
		}
		a.succeeds(31, verbs.CompletedWrite)
		a.idle()
		for i := range 32 {
			if i%3 == 1 {
				if got := *wordAt(b.mem, i*1000); got != uint64(round*1000+i) {
					t.Fatalf("round %d, request %d wrote %d", round, i, got)
				}
			} else {
				b.same(i*1000, a.mem[i*1000:(i+1)*1000])
			}
		}
	}
	if n, err := a.send.Post(); n != 0 || err != nil {
		t.Errorf("an empty batch: %d, %v", n, err)
	}
}

// What a batch cannot hold, and what a queue pair cannot do, is refused before
// it comes to the device.
func TestBatchRefuses(t *testing.T) {
	a, b := pair(t, options{depth: 4})
	five := make([]verbs.Segment, 5)
	other := newSide(t, a.dev, a.port, options{kind: verbs.UD})
	for name, c := range map[string]struct {
		batch *verbs.Batch
		r     verbs.Request
	}{
		"too many segments":         {a.send, verbs.Request{Opcode: verbs.Write, Segments: five[:a.qp.Caps().SendSegments+1]}},
		"too much inline":           {a.send, verbs.Request{Opcode: verbs.Write, Inline: make([]byte, a.qp.Caps().InlineBytes+1)}},
		"inline and segments":       {a.send, verbs.Request{Opcode: verbs.Write, Inline: []byte{1}, Segments: five[:1]}},
		"an unknown opcode":         {a.send, verbs.Request{Opcode: 77}},
		"a datagram to nobody":      {other.send, verbs.Request{Opcode: verbs.Send}},
		"a write without a partner": {other.send, verbs.Request{Opcode: verbs.Write}},
	} {
		if err := c.batch.Add(&c.r); !errors.Is(err, verbs.ErrRequest) || c.batch.Len() != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := a.recv.Add(1, make([]verbs.Segment, a.qp.Caps().RecvSegments+1)...); !errors.Is(err, verbs.ErrRequest) {
		t.Errorf("a receive of too many segments: %v", err)
	}

	small, err := a.qp.NewBatch(verbs.BatchOptions{Requests: 4, Segments: 5, InlineBytes: 40})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, small)
	fill := func(r verbs.Request) (n int) {
		small.Clear()
		for {
			if err := small.Add(&r); errors.Is(err, verbs.ErrBatchFull) {
				return n
			} else if err != nil {
				t.Fatal(err)
			}
			n++
		}
	}
	remote := verbs.Request{Opcode: verbs.Write, Flags: verbs.Signaled, RemoteAddr: b.at(0), RKey: b.mr.RKey()}
	for name, c := range map[string]struct {
		change func(*verbs.Request)
		want   int
	}{
		"requests": {func(*verbs.Request) {}, 4},
		"segments": {func(r *verbs.Request) { r.Segments = []verbs.Segment{a.seg(0, 1), a.seg(1, 1)} }, 2},
		"inline":   {func(r *verbs.Request) { r.Inline = make([]byte, 13) }, 2},
	} {
		r := remote
		c.change(&r)
		if n := fill(r); n != c.want {
			t.Errorf("%s: %d requests fit, want %d", name, n, c.want)
		}
	}
	n, err := small.Post()
	if err != nil || n == 0 {
		t.Errorf("posting %d: %v", n, err)
	}
	a.completions(n)
	r := remote
	if err := small.Add(&r); err != nil {
		t.Errorf("a batch that was posted: %v", err)
	}
	if _, err := small.Post(); err != nil {
		t.Error(err)
	}
	a.completions(1)
	for _, o := range []verbs.BatchOptions{{}, {Requests: -1}, {Requests: 1 << 30}, {Requests: 1, Segments: -1}, {Requests: 1, InlineBytes: -1}} {
		if _, err := a.qp.NewBatch(o); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// Posting stops where the queue is full, names the request, keeps those that
// are left, and goes on when completions have been polled.
func TestQueueFull(t *testing.T) {
	a, b := pair(t, options{depth: 8, entries: 64})
	depth := a.qp.Caps().SendRequests
	total := 3*depth + 1
	batch, err := a.qp.NewBatch(verbs.BatchOptions{Requests: total})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, batch)
	for i := range total {
		if err := batch.Add(&verbs.Request{ID: uint64(i), Opcode: verbs.Write, Flags: verbs.Signaled, Inline: []byte{byte(i)}, RemoteAddr: b.at(i), RKey: b.mr.RKey()}); err != nil {
			t.Fatal(err)
		}
	}
	posted, full, completed := 0, 0, 0
	for completed < total {
		n, err := batch.Post()
		posted += n
		var e *verbs.PostError
		if errors.As(err, &e) {
			full++
			if !errors.Is(err, verbs.ErrQueueFull) || e.Index != n || e.ID != uint64(posted) || e.Device != a.dev.Name() {
				t.Fatalf("after %d in all and %d now: %v (%+v)", posted, n, err, e)
			}
		} else if err != nil {
			t.Fatal(err)
		}
		if batch.Len() != total-posted {
			t.Fatalf("%d are left of %d, %d posted", batch.Len(), total, posted)
		}
		if posted > completed {
			for _, c := range a.completions(1) {
				if c.Err() != nil || c.ID != uint64(completed) {
					t.Fatalf("completion %d: %+v", completed, c)
				}
				completed++
			}
		}
	}
	if full == 0 {
		t.Errorf("%d requests fitted into a queue of %d", total, depth)
	}
	for i := range total {
		if b.mem[i] != byte(i) {
			t.Errorf("byte %d is %d", i, b.mem[i])
		}
	}

	// Receives too. Soft-RoCE takes more than it says.
	many := 4*b.qp.Caps().RecvRequests + 64
	receives, err := b.qp.NewRecvBatch(verbs.BatchOptions{Requests: many})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, receives)
	for i := range many {
		if err := receives.Add(uint64(i)); err != nil {
			t.Fatal(err)
		}
	}
	var e *verbs.PostError
	n, err := receives.Post()
	if !errors.Is(err, verbs.ErrQueueFull) || !errors.As(err, &e) || e.ID != uint64(n) || n+receives.Len() != many || n < b.qp.Caps().RecvRequests {
		t.Errorf("%d receives of %d posted: %v", n, many, err)
	}
}

// One call posts receives and batches of several queue pairs and polls.
func TestPostAndPoll(t *testing.T) {
	dev, port := device(t)
	var sides [2][2]*side
	for i := range sides {
		sides[i] = [2]*side{newSide(t, dev, port, options{}), newSide(t, dev, port, options{})}
		connect(sides[i][0], sides[i][1])
	}
	for i, s := range sides {
		if err := s[1].recv.Add(uint64(i), s[1].seg(0, 8)); err != nil {
			t.Fatal(err)
		}
		if err := s[0].send.Add(&verbs.Request{Opcode: verbs.Send, Inline: []byte{byte(i + 1)}, Flags: verbs.Signaled}); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range sides {
		if _, err := s[1].recv.Post(); err != nil {
			t.Fatal(err)
		}
	}
	a, b := sides[0], sides[1]
	done := make([]verbs.Completion, 8)
	n, err := a[1].cq.PostAndPoll(done, nil, a[0].send, b[0].send)
	for n == 0 && err == nil {
		n, err = a[1].cq.Poll(done)
	}
	if err != nil || n != 1 || done[0].ID != 0 || done[0].Opcode != verbs.CompletedRecv {
		t.Fatalf("%d, %v, %+v", n, err, done[0])
	}
	b[1].succeeds(1, verbs.CompletedRecv)
	a[1].same(0, []byte{1})
	b[1].same(0, []byte{2})
	a[0].completions(1)
	b[0].completions(1)

	// A batch that is refused does not keep the next one back.
	idle := newSide(t, dev, port, options{}) // in RESET
	if err := idle.send.Add(&verbs.Request{ID: 5, Opcode: verbs.Send, Inline: []byte{1}}); err != nil {
		t.Fatal(err)
	}
	if err := a[0].send.Add(&verbs.Request{ID: 6, Opcode: verbs.Write, Inline: []byte{9}, Flags: verbs.Signaled, RemoteAddr: a[1].at(0), RKey: a[1].mr.RKey()}); err != nil {
		t.Fatal(err)
	}
	n, err = a[0].cq.PostAndPoll(nil, nil, idle.send, a[0].send)
	var e *verbs.PostError
	if n != 0 || !errors.As(err, &e) || e.ID != 5 || e.Index != 0 || !errors.Is(err, syscall.EINVAL) || idle.send.Len() != 1 || a[0].send.Len() != 0 {
		t.Errorf("%d, %v; %d and %d left", n, err, idle.send.Len(), a[0].send.Len())
	}
	a[0].succeeds(6, verbs.CompletedWrite)
	a[1].same(0, []byte{9})

	// A batch named twice is posted once; none is no batch.
	if err := a[0].send.Add(&verbs.Request{ID: 7, Opcode: verbs.Write, Inline: []byte{7}, Flags: verbs.Signaled, RemoteAddr: a[1].at(0), RKey: a[1].mr.RKey()}); err != nil {
		t.Fatal(err)
	}
	if n, err := a[0].cq.PostAndPoll(nil, nil, a[0].send, nil, a[0].send, b[0].send, a[0].send); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	a[0].succeeds(7, verbs.CompletedWrite)
	a[0].idle()
	if n, err := a[0].cq.PostAndPoll(nil, nil, idle.send, idle.send); n != 0 || !errors.Is(err, syscall.EINVAL) || idle.send.Len() != 1 {
		t.Errorf("%d, %v; %d left", n, err, idle.send.Len())
	}
	idle.send.Clear()
}

// The hot path allocates nothing.
func TestNoAllocations(t *testing.T) {
	a, b := pair(t, options{depth: 32})
	segments := []verbs.Segment{a.seg(0, 64)}
	done := make([]verbs.Completion, 64)
	var counter [8]byte
	check := func(name string, f func()) {
		t.Helper()
		if n := testing.AllocsPerRun(50, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
	drain := func(want int) {
		for got := 0; got < want; {
			n, err := a.cq.Poll(done)
			if err != nil {
				panic(err)
			}
			got += n
		}
	}
	add := func(flags verbs.SendFlags) {
		binary.NativeEndian.PutUint64(counter[:], 1)
		if a.send.Add(&verbs.Request{Opcode: verbs.Write, Segments: segments, RemoteAddr: b.at(0), RKey: b.mr.RKey()}) != nil ||
			a.send.Add(&verbs.Request{Opcode: verbs.Write, Inline: counter[:], RemoteAddr: b.at(64), RKey: b.mr.RKey(), Flags: flags}) != nil {
			panic("the batch is full")
		}
	}
	check("Post", func() {
		add(verbs.Signaled)
		if n, err := a.send.Post(); n != 2 || err != nil {
			panic(err)
		}
		drain(1)
	})
	check("PostAndPoll", func() {
		add(verbs.Signaled)
		n, err := a.cq.PostAndPoll(done, nil, a.send)
		if err != nil {
			panic(err)
		}
		drain(1 - n)
	})
	check("an empty Poll", func() {
		if _, err := a.cq.Poll(done); err != nil {
			panic(err)
		}
	})
	check("receives", func() {
		for i := range 4 {
			if b.recv.Add(uint64(i), verbs.Segment{Addr: b.at(0), Bytes: 64, LKey: b.mr.LKey()}) != nil {
				panic("the batch is full")
			}
		}
		b.recv.Clear()
	})
	check("an array on the stack", func() {
		var few [4]verbs.Completion
		if _, err := a.cq.Poll(few[:]); err != nil {
			panic(err)
		}
	})
}

// Several queue pairs on one completion queue and in one memory region, driven
// by goroutines of their own.
func TestManyQueuePairs(t *testing.T) {
	dev, port := device(t)
	const pairs, rounds, size = 4, 50, 3000
	var wg sync.WaitGroup
	for k := range pairs {
		a, b := newSide(t, dev, port, options{}), newSide(t, dev, port, options{})
		connect(a, b)
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(k)))
			for round := range rounds {
				n := 1 + rng.IntN(size)
				pattern(a.mem[:n], byte(round+k))
				if a.send.Add(&verbs.Request{ID: uint64(round), Opcode: verbs.Write, Flags: verbs.Signaled, Segments: []verbs.Segment{{Addr: a.at(0), Bytes: uint32(n), LKey: a.mr.LKey()}}, RemoteAddr: b.at(round), RKey: b.mr.RKey()}) != nil {
					t.Error("the batch is full")
					return
				}
				if _, err := a.send.Post(); err != nil {
					t.Error(err)
					return
				}
				for got := 0; got == 0; {
					var err error
					if got, err = a.cq.Poll(a.done[:1]); err != nil || (got == 1 && (a.done[0].Err() != nil || a.done[0].ID != uint64(round))) {
						t.Errorf("%v, %+v", err, a.done[0])
						return
					}
				}
				if string(b.mem[round:round+n]) != string(a.mem[:n]) {
					t.Errorf("round %d of pair %d: wrong bytes", round, k)
					return
				}
			}
		})
	}
	wg.Wait()
}

// Datagrams, with what a receiver learns of the sender.
func TestDatagrams(t *testing.T) {
	dev, port := device(t)
	a, b := newSide(t, dev, port, options{kind: verbs.UD}), newSide(t, dev, port, options{kind: verbs.UD})
	for _, s := range []*side{a, b} {
		s.init()
		if err := s.qp.ToRTR(verbs.RTROptions{}); err != nil {
			t.Fatal(err)
		}
		if err := s.qp.ToRTS(verbs.RTSOptions{PSN: 3}); err != nil {
			t.Fatal(err)
		}
	}
	ah, err := a.pd.CreateAH(a.address(b.gid.GID, b.port.LID))
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, ah)
	message := pattern(a.mem[:200], 3)
	for i := range 3 {
		b.receive(uint64(i), b.seg(i*1000, verbs.GRHBytes+200))
	}
	a.post(
		verbs.Request{ID: 1, Opcode: verbs.Send, Flags: verbs.Signaled, Segments: []verbs.Segment{a.seg(0, 200)}, AH: ah, RemoteQPN: b.qp.QPN(), RemoteQKey: 0x11111111},
		verbs.Request{ID: 2, Opcode: verbs.SendImm, Imm: 77, Flags: verbs.Signaled, Inline: []byte("hello"), AH: ah, RemoteQPN: b.qp.QPN(), RemoteQKey: 0x11111111},
	)
	a.succeeds(1, verbs.CompletedSend)
	a.succeeds(2, verbs.CompletedSend)
	c := b.succeeds(0, verbs.CompletedRecv)
	if c.Bytes != 240 || c.SrcQPN != a.qp.QPN() || (port.LinkLayer == verbs.LinkEthernet && c.Flags&verbs.CompletedGRH == 0) {
		t.Errorf("%+v", c)
	}
	b.same(verbs.GRHBytes, message)
	c = b.succeeds(1, verbs.CompletedRecv)
	if imm, ok := c.Imm(); !ok || imm != 77 || c.Bytes != verbs.GRHBytes+5 {
		t.Errorf("%+v", c)
	}
	b.same(1000+verbs.GRHBytes, []byte("hello"))

	if _, err := a.pd.CreateAH(verbs.AddressVector{}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("an address without a port: %v", err)
	}
	if port.LinkLayer == verbs.LinkEthernet {
		if _, err := a.pd.CreateAH(verbs.AddressVector{Port: port.Number}); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("an address without a GID on RoCE: %v", err)
		}
	}
}

// Queue pairs that share receives.
func TestSharedReceives(t *testing.T) {
	dev, port := device(t)
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, pd)
	srq, err := pd.CreateSRQ(verbs.SRQOptions{Requests: 16, Segments: 2})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, srq)
	if o := srq.Options(); o.Requests < 16 || o.Segments < 2 {
		t.Errorf("got %+v", o)
	}
	receives, err := srq.NewRecvBatch(verbs.BatchOptions{Requests: 16})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, receives)
	var senders, receivers []*side
	for range 2 {
		a, b := newSide(t, dev, port, options{}), newSide(t, dev, port, options{srq: srq, pd: pd})
		connect(a, b)
		senders, receivers = append(senders, a), append(receivers, b)
	}
	if _, err := receivers[0].qp.NewRecvBatch(verbs.BatchOptions{Requests: 1}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("receives of its own: %v", err)
	}
	memory := receivers[0]
	for i := range 8 {
		if err := receives.Add(uint64(i), memory.seg(i*100, 1), memory.seg(i*100+50, 50)); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := receives.Post(); n != 8 || err != nil {
		t.Fatal(n, err)
	}
	for i := range 8 {
		a, b := senders[i%2], receivers[i%2]
		a.post(verbs.Request{Opcode: verbs.Send, Flags: verbs.Signaled, Inline: []byte(fmt.Sprintf("%d message", i))})
		b.succeeds(uint64(i), verbs.CompletedRecv)
		a.succeeds(0, verbs.CompletedSend)
		memory.same(i*100, []byte{byte('0' + i)})
		memory.same(i*100+50, []byte(" message"))
	}
	if err := srq.Arm(1 << 20); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a limit beyond the queue: %v", err)
	}
	a, err := dev.Attr()
	if err != nil {
		t.Fatal(err)
	}
	var e *verbs.Error
	if _, err := pd.CreateSRQ(verbs.SRQOptions{Requests: a.MaxSRQRequests + 1, Segments: 1}); !errors.As(err, &e) || e.Advice == "" {
		t.Errorf("too large a queue: %v", err)
	}
	if _, err := pd.CreateSRQ(verbs.SRQOptions{}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("an empty queue: %v", err)
	}
}
