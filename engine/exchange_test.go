package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tutti-go/tutti/engine"
	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
)

// letter is a message of a pattern that all ranks know.
type letter struct {
	from, to, bytes    int
	dtype              mem.DType
	sendKind, recvKind string
	seed               uint64
}

func (l *letter) content() []byte {
	b := make([]byte, l.bytes)
	rng := rand.New(rand.NewPCG(l.seed, 7))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// letterSizes are around the borders of inline, eager, slot and stream.
var letterSizes = []int{0, 1, 8, 23, 24, 25, 48, 4096, 8191, 8192, 8193, 32 << 10, 65536, 128 << 10, 128<<10 + 1, 300_001}

func drawLetters(rng *rand.Rand, n, most int) []letter {
	letters := make([]letter, rng.IntN(most))
	for i := range letters {
		l := letter{from: rng.IntN(n), to: rng.IntN(n), dtype: mem.U8, seed: rng.Uint64()}
		if l.bytes = letterSizes[rng.IntN(len(letterSizes))]; rng.IntN(2) == 0 {
			l.bytes = rng.IntN(20_000)
		}
		if l.bytes%8 == 0 && rng.IntN(2) == 0 {
			l.dtype = mem.F64
		}
		l.sendKind, l.recvKind = memoryKinds[rng.IntN(3)], memoryKinds[rng.IntN(3)]
		letters[i] = l
	}
	return letters
}

// mail is what one rank does in a pattern, in an order of its own in which the
// messages of a pair keep theirs.
type mail struct {
	*letter
	recv bool
	buf  []byte
}

func mailOf(letters []letter, rank int, rng *rand.Rand) []*mail {
	var all []*mail
	for i := range letters {
		if l := &letters[i]; l.from == rank {
			all = append(all, &mail{letter: l})
		}
		if l := &letters[i]; l.to == rank {
			all = append(all, &mail{letter: l, recv: true})
		}
	}
	shuffled := make([]*mail, len(all))
	copy(shuffled, all)
	rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	// The places that a pair's messages have drawn are filled in their order.
	type pair struct {
		from, to int
		recv     bool
	}
	next := map[pair][]*mail{}
	for _, m := range all {
		k := pair{m.from, m.to, m.recv}
		next[k] = append(next[k], m)
	}
	for i, m := range shuffled {
		k := pair{m.from, m.to, m.recv}
		shuffled[i], next[k] = next[k][0], next[k][1:]
	}
	return shuffled
}

// TestExchangePatterns: every rank draws the same random messages and posts its
// own in another order.
func TestExchangePatterns(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 12
	}
	for _, m := range media {
		t.Run(m.name, func(t *testing.T) {
			for _, n := range []int{1, 2, 5} {
				l := newLab(t, m, n)
				onEveryRank(t, n, func(r int) error {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					shared, own := rand.New(rand.NewPCG(3, uint64(n))), rand.New(rand.NewPCG(4, uint64(r)))
					x := l.job[r].NewExchange()
					for round := range rounds {
						if err := l.exchange(ctx, l.job[r], x, drawLetters(shared, n, 6*n), own); err != nil {
							return fmt.Errorf("round %d: %w", round, err)
						}
					}
					return nil
				})
				l.close(t)
			}
		})
	}
}

// exchange plays a rank's part of a pattern and checks what it gets.
func (l *lab) exchange(ctx context.Context, c *engine.Comm, x *engine.Exchange, letters []letter, own *rand.Rand) error {
	rank := c.Rank()
	todo := mailOf(letters, rank, own)
	used := map[string]*[2]int{"alloc": {}, "go": {}, "mmap": {}}
	for _, m := range todo {
		kind, half := m.sendKind, 0
		if m.recv {
			kind, half = m.recvKind, 1
		}
		at := &used[kind][half]
		if *at+m.bytes+8 > arenaBytes {
			m.buf = mem.Bytes(make([]uint64, m.bytes/8+1))[:m.bytes]
		} else {
			m.buf = l.arenas[rank][kind][half][*at:][:m.bytes]
			*at += (m.bytes + 7) / 8 * 8
		}
		if m.recv {
			clear(m.buf)
			x.Recv(m.buf, m.dtype, m.from)
		} else {
			copy(m.buf, m.content())
			x.Send(m.buf, m.dtype, m.to)
		}
	}
	var err error
	if own.IntN(4) == 0 {
		var w engine.Work
		if w, err = x.RunAsync(ctx); err == nil {
			err = w.Wait(ctx)
		}
	} else {
		err = x.Run(ctx)
	}
	if err != nil {
		return err
	}
	for i, m := range todo {
		if !bytes.Equal(m.buf, m.content()) {
			return fmt.Errorf("operation %d (recv %v), %d bytes from %d to %d: wrong bytes", i, m.recv, m.bytes, m.from, m.to)
		}
	}
	return nil
}

// TestExchangeAmongCalls: messages and collectives take turns, each rank at its
// own speed, and everybody sends before it receives.
func TestExchangeAmongCalls(t *testing.T) {
	const n, rounds = 4, 60
	for _, m := range media {
		t.Run(m.name, func(t *testing.T) {
			j := open(t, m, n, "", nil, 1)
			onEveryRank(t, n, func(r int) error {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				rng := rand.New(rand.NewPCG(9, 9))
				x := j[r].NewExchange()
				for round := range rounds {
					count := 1 + rng.IntN(20_000)
					mine := make([]int32, count)
					for i := range mine {
						mine[i] = int32(r*1000 + round + i)
					}
					all := make([]int32, n*count)
					for q := range n {
						x.Send(mem.Bytes(mine), mem.I32, q)
					}
					for q := range n {
						x.Recv(mem.Bytes(all[q*count:][:count]), mem.I32, q)
					}
					if err := x.Run(ctx); err != nil {
						return err
					}
					sum := make([]int32, count)
					if err := j[r].AllReduce(ctx, mem.Bytes(mine), mem.Bytes(sum), mem.I32, mem.Sum); err != nil {
						return err
					}
					for i := range sum {
						for q := range n {
							sum[i] -= all[q*count+i]
						}
						if sum[i] != 0 {
							return fmt.Errorf("round %d: element %d is off by %d", round, i, sum[i])
						}
					}
					// A ring of the blocking kind.
					from, to := (r+n-1)%n, (r+1)%n
					if err := j[r].SendRecv(ctx, mem.Bytes(mine), to, mem.Bytes(sum), from, mem.I32); err != nil {
						return err
					}
					if sum[0] != int32(from*1000+round) {
						return fmt.Errorf("round %d: %d from rank %d", round, sum[0], from)
					}
				}
				return nil
			})
		})
	}
}

// TestSendReturnsEarly: short messages, and those that are copied anyway, are
// on their way when Send returns; and they arrive though the sender closes.
func TestSendReturnsEarly(t *testing.T) {
	for _, m := range media {
		for _, size := range []int{0, 8, 24, 25, 4096, 8192} {
			t.Run(fmt.Sprintf("%s/%d", m.name, size), func(t *testing.T) {
				const messages = 8 // as many as a stream has lines
				j := open(t, m, 2, "", nil, 1)
				want := bytes.Repeat([]byte{7}, size)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				for range messages {
					if err := j[0].Send(ctx, want, mem.U8, 1); err != nil {
						t.Fatal(err)
					}
				}
				if err := j[0].Close(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Millisecond) // rank 1 hears of it
				for i := range messages {
					got := make([]byte, size)
					if err := j[1].Recv(ctx, got, mem.U8, 0); err != nil || !bytes.Equal(got, want) {
						t.Fatalf("message %d: %v", i, err)
					}
				}
				if err := j[1].Recv(ctx, make([]byte, size), mem.U8, 0); !errors.Is(err, link.ErrClosed) {
					t.Errorf("one more: %v", err)
				}
			})
		}
	}
}

// TestSenderWhoNeverLooks: what a receiver tells in messages that its sender
// has not asked for yet is heard all the same, so the sender is not held up.
func TestSenderWhoNeverLooks(t *testing.T) {
	const messages = 200
	for _, m := range media {
		for _, each := range []int{1, 2, 3, 5, 25} { // rank 1 sends one for so many that it receives
			t.Run(fmt.Sprintf("%s/%d", m.name, each), func(t *testing.T) {
				j := open(t, m, 2, "", nil, 1)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				const back = 8 // as many as rank 0 need not take
				onEveryRank(t, 2, func(r int) error {
					buf := make([]byte, 100)
					if r == 0 {
						for i := range messages {
							if err := j[0].Send(ctx, buf, mem.U8, 1); err != nil {
								return fmt.Errorf("message %d: %w", i, err)
							}
						}
						for range back {
							if err := j[0].Recv(ctx, buf, mem.U8, 1); err != nil {
								return err
							}
						}
						return nil
					}
					sent := 0
					for i := range messages {
						if err := j[1].Recv(ctx, buf, mem.U8, 0); err != nil {
							return fmt.Errorf("message %d: %w", i, err)
						}
						if i%each == each-1 && sent < back {
							sent++
							if err := j[1].Send(ctx, buf, mem.U8, 0); err != nil {
								return err
							}
						}
					}
					return nil
				})
			})
		}
	}
}

// TestMessagesAfterClose: they are refused, also where there is no room for one
// more and the sender would have to look into memory that has gone.
func TestMessagesAfterClose(t *testing.T) {
	for _, m := range media {
		t.Run(m.name, func(t *testing.T) {
			j := open(t, m, 2, "", nil, 1)
			a, b := make([]byte, 8), make([]byte, 8)
			for range 8 { // as many as a stream has lines
				if err := j[0].Send(t.Context(), a, mem.U8, 1); err != nil {
					t.Fatal(err)
				}
			}
			if err := j[0].Close(); err != nil {
				t.Fatal(err)
			}
			for name, call := range map[string]func() error{
				"send":     func() error { return j[0].Send(t.Context(), a, mem.U8, 1) },
				"recv":     func() error { return j[0].Recv(t.Context(), b, mem.U8, 1) },
				"sendrecv": func() error { return j[0].SendRecv(t.Context(), a, 1, b, 1, mem.U8) },
			} {
				if err := call(); !errors.Is(err, link.ErrClosed) {
					t.Errorf("%s: %v, want link.ErrClosed", name, err)
				}
			}
		})
	}
}

// TestLongSendWaits until the message has been fetched.
func TestLongSendWaits(t *testing.T) {
	j := open(t, media[0], 2, "", nil, 1)
	buf := j.buffers(t, 1<<20, true)
	sent := make(chan error, 1)
	go func() { sent <- j[0].Send(t.Context(), buf[0], mem.F32, 1) }()
	select {
	case err := <-sent:
		t.Fatalf("sent with nobody there: %v", err)
	case <-time.After(30 * time.Millisecond):
	}
	if err := j[1].Recv(t.Context(), buf[1], mem.F32, 0); err != nil {
		t.Error(err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// TestExchangeMismatch: the receiver learns of it at every size, and the sender
// of what is not sent ahead; both know what the other one has.
func TestExchangeMismatch(t *testing.T) {
	type side struct {
		bytes int
		dtype mem.DType
	}
	sig := func(call string, s side) engine.Signature {
		return engine.Signature{Call: call, Bytes: s.bytes, Type: s.dtype, Root: -1}
	}
	for _, m := range media {
		for _, registered := range []bool{true, false} {
			for _, sides := range [][2]side{
				{{8, mem.F32}, {16, mem.F32}},
				{{8, mem.F32}, {8, mem.I32}},
				{{8 << 10, mem.F32}, {0, mem.F32}},
				{{2 << 20, mem.F32}, {8, mem.F32}},
				{{2 << 20, mem.F32}, {2 << 20, mem.F64}},
				{{1_400_000, mem.F32}, {2 << 20, mem.F32}},
			} {
				t.Run(fmt.Sprintf("%s/%v/%v", m.name, registered, sides), func(t *testing.T) {
					j := open(t, m, 3, "", nil, 1)
					bufs := j.buffers(t, 2<<20, registered)
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
					defer cancel()
					errs := errorsOf(2, func(r int) error {
						if r == 0 { // from rank 2 to rank 1
							return j[2].Send(ctx, bufs[2][:sides[0].bytes], sides[0].dtype, 1)
						}
						return j[1].Recv(ctx, bufs[1][:sides[1].bytes], sides[1].dtype, 2)
					})
					var mismatch *engine.MismatchError
					if !errors.As(errs[1], &mismatch) || mismatch.Rank != 2 ||
						mismatch.Mine != sig("recv", sides[1]) || mismatch.Theirs != sig("send", sides[0]) {
						t.Errorf("the receiver: %v", errs[1])
					}
					// 1 MiB is what the slots between two ranks hold.
					if sides[0].bytes <= 1<<20 {
						if errs[0] != nil {
							t.Errorf("the sender of a short message: %v", errs[0])
						}
						return
					}
					if !errors.As(errs[0], &mismatch) || mismatch.Rank != 1 ||
						mismatch.Mine != sig("send", sides[0]) || mismatch.Theirs != sig("recv", sides[1]) {
						t.Errorf("the sender: %v", errs[0])
					}
				})
			}
		}
	}
}

// TestRefusalOfAnEarlierMessage: a sender that waits for a later one learns of
// the one that was refused.
func TestRefusalOfAnEarlierMessage(t *testing.T) {
	for _, m := range media {
		t.Run(m.name, func(t *testing.T) {
			j := open(t, m, 2, "", nil, 1)
			bufs := j.buffers(t, 1<<20, true)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			errs := errorsOf(2, func(r int) error {
				x := j[r].NewExchange()
				if r == 0 {
					x.Send(bufs[0][:8], mem.F32, 1)
					x.Send(bufs[0], mem.F32, 1)
				} else {
					x.Recv(bufs[1][:12], mem.F32, 0)
				}
				return x.Run(ctx)
			})
			for r, err := range errs {
				var mismatch *engine.MismatchError
				if !errors.As(err, &mismatch) || mismatch.Rank != 1-r || mismatch.Mine.Bytes != []int{8, 12}[r] || mismatch.Theirs.Bytes != []int{12, 8}[r] {
					t.Errorf("rank %d: %v", r, err)
				}
			}
		})
	}
}

// TestExchangeArguments: nothing has moved, and the exchange is empty again.
func TestExchangeArguments(t *testing.T) {
	j := open(t, media[1], 2, "", nil, 1)
	b := mem.Bytes(make([]uint64, 100))
	x := j[0].NewExchange()
	for name, fill := range map[string]func(){
		"no such rank":     func() { x.Send(b, mem.U8, 2) },
		"rank below zero":  func() { x.Recv(b, mem.U8, -1) },
		"no type":          func() { x.Send(b, mem.DType(200), 1) },
		"not whole":        func() { x.Recv(b[:7], mem.F32, 1) },
		"recv twice":       func() { x.Recv(b, mem.U8, 1); x.Recv(b[8:16], mem.U8, 1) },
		"send what comes":  func() { x.Send(b[:16], mem.U8, 1); x.Recv(b[8:32], mem.U8, 1) },
		"to itself":        func() { x.Send(b[:16], mem.U8, 0); x.Recv(b[:16], mem.U8, 0) },
		"good, then wrong": func() { x.Send(b[:16], mem.U8, 1); x.Send(b[:16], mem.U8, 7) },
	} {
		for _, async := range []bool{false, true} {
			fill()
			var err error
			if async {
				_, err = x.RunAsync(t.Context())
			} else {
				err = x.Run(t.Context())
			}
			var arg *engine.ArgumentError
			if !errors.As(err, &arg) {
				t.Errorf("%s: %v, want an ArgumentError", name, err)
			}
			if err := x.Run(t.Context()); err != nil {
				t.Errorf("%s: the exchange is not empty: %v", name, err)
			}
		}
	}
	// The same bytes may be sent twice, and the job goes on.
	onEveryRank(t, 2, func(r int) error {
		if r == 1 {
			x := j[1].NewExchange()
			x.Recv(make([]byte, 16), mem.U8, 0)
			x.Recv(make([]byte, 16), mem.U8, 0)
			return x.Run(t.Context())
		}
		x.Send(b[:16], mem.U8, 1)
		x.Send(b[:16], mem.U8, 1)
		return x.Run(t.Context())
	})
}

// TestMessageToNobody: who waits for a message, or for somebody to take one,
// ends with its deadline, or when the other rank closes.
func TestMessageToNobody(t *testing.T) {
	for _, m := range media {
		for _, send := range []bool{true, false} {
			for _, closes := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%v/%v", m.name, send, closes), func(t *testing.T) {
					j := open(t, m, 3, "", nil, 1)
					bufs := j.buffers(t, 2<<20, true)
					want := context.DeadlineExceeded
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
					if closes {
						want = link.ErrClosed
						cancel()
						ctx, cancel = context.WithTimeout(t.Context(), 20*time.Second)
						time.AfterFunc(5*time.Millisecond, func() { j[1].Close() })
					}
					defer cancel()
					x := j[0].NewExchange()
					if send {
						x.Send(bufs[0], mem.U8, 1)
					} else {
						x.Recv(bufs[0], mem.U8, 1)
					}
					err := x.Run(ctx)
					var call *engine.CallError
					if !errors.Is(err, want) || !errors.As(err, &call) || call.Rank != 0 {
						t.Errorf("%v, want a CallError that is %v", err, want)
					}
				})
			}
		}
	}
}

// TestMessageBesideACall is refused, and the call gets its message all the same.
func TestMessageBesideACall(t *testing.T) {
	if raceEnabled {
		t.Skip("a race by intent: the check is not meant to be exact")
	}
	j := open(t, media[0], 2, "", nil, 1)
	got := make([]byte, 8)
	over := make(chan error, 1)
	go func() { over <- j[0].Recv(t.Context(), got, mem.U8, 1) }()
	time.Sleep(20 * time.Millisecond)
	if err := j[0].Send(t.Context(), make([]byte, 8), mem.U8, 1); !errors.Is(err, engine.ErrBusy) {
		t.Errorf("Send beside Recv: %v, want ErrBusy", err)
	}
	if err := j[1].Send(t.Context(), []byte("message!"), mem.U8, 0); err != nil {
		t.Error(err)
	}
	if err := <-over; err != nil || string(got) != "message!" {
		t.Errorf("got %q, %v", got, err)
	}
}
