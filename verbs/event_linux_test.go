//go:build linux && cgo && (amd64 || arm64 || loong64 || ppc64le || riscv64 || s390x)

package verbs_test

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/verbs"
)

// A completion queue tells its channel, once for each time it was armed.
func TestCompletionEvents(t *testing.T) {
	a, b := pair(t, options{})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	readable := func() bool {
		t.Helper()
		p := []unix.PollFd{{Fd: int32(b.ch.Fd()), Events: unix.POLLIN}}
		n, err := unix.Poll(p, 0)
		if err != nil {
			t.Fatal(err)
		}
		return n == 1
	}
	if cq, err := b.ch.TryWait(); cq != nil || err != nil || readable() {
		t.Fatalf("an event before anything happened: %v, %v", cq, err)
	}
	for i := range 20 {
		if err := b.cq.Arm(false); err != nil {
			t.Fatal(err)
		}
		b.receive(uint64(i))
		waited := make(chan error, 1)
		go func() {
			cq, err := b.ch.Wait(ctx)
			if err == nil && cq != b.cq {
				err = errors.New("another queue's event")
			}
			waited <- err
		}()
		a.post(verbs.Request{ID: 1, Opcode: verbs.Send, Flags: verbs.Signaled, Inline: []byte{1}[:0]})
		if err := <-waited; err != nil {
			t.Fatal(err)
		}
		b.succeeds(uint64(i), verbs.CompletedRecv)
		a.succeeds(1, verbs.CompletedSend)
	}
	// It was not armed again.
	b.receive(30)
	a.post(verbs.Request{ID: 1, Opcode: verbs.Send, Flags: verbs.Signaled})
	b.succeeds(30, verbs.CompletedRecv)
	a.succeeds(1, verbs.CompletedSend)
	if cq, err := b.ch.TryWait(); cq != nil || err != nil || readable() {
		t.Fatalf("an event that nobody asked for: %v, %v", cq, err)
	}

	// Only what is solicited.
	if err := b.cq.Arm(true); err != nil {
		t.Fatal(err)
	}
	b.receive(31)
	b.receive(32)
	a.post(verbs.Request{ID: 1, Opcode: verbs.Send, Flags: verbs.Signaled})
	b.succeeds(31, verbs.CompletedRecv)
	a.succeeds(1, verbs.CompletedSend)
	if cq, err := b.ch.TryWait(); cq != nil || err != nil {
		t.Fatalf("an event of a message that was not solicited: %v, %v", cq, err)
	}
	a.post(verbs.Request{ID: 1, Opcode: verbs.Send, Flags: verbs.Signaled | verbs.Solicited})
	if cq, err := b.ch.Wait(ctx); cq != b.cq || err != nil {
		t.Fatalf("%v, %v", cq, err)
	}
	b.succeeds(32, verbs.CompletedRecv)
	a.succeeds(1, verbs.CompletedSend)

	// An event that nobody reads does not keep the queue from closing.
	if err := b.cq.Arm(false); err != nil {
		t.Fatal(err)
	}
	b.receive(33)
	a.post(verbs.Request{ID: 1, Opcode: verbs.Send, Flags: verbs.Signaled})
	b.succeeds(33, verbs.CompletedRecv)
	a.succeeds(1, verbs.CompletedSend)

	silent, err := a.dev.CreateCQ(verbs.CQOptions{Entries: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := silent.Arm(false); !errors.Is(err, unix.EINVAL) {
		t.Errorf("arming a queue without a channel: %v", err)
	}
	if err := silent.Close(); err != nil {
		t.Error(err)
	}
}

// Waits end with their context, one without ending another, and with the
// object.
func TestWaitsEnd(t *testing.T) {
	dev, _ := device(t)
	type wait func(context.Context) error
	for name, open := range map[string]func() (wait, func() error){
		"completions": func() (wait, func() error) {
			ch, err := dev.CreateChannel()
			if err != nil {
				t.Fatal(err)
			}
			return func(ctx context.Context) error { _, err := ch.Wait(ctx); return err }, ch.Close
		},
		"events": func() (wait, func() error) {
			d, err := verbs.Open(dev.Name())
			if err != nil {
				t.Fatal(err)
			}
			return func(ctx context.Context) error { _, err := d.Event(ctx); return err }, d.Close
		},
	} {
		t.Run(name, func(t *testing.T) {
			wait, shut := open()
			cause := errors.New("enough")
			over, cancel := context.WithCancelCause(context.Background())
			cancel(cause)
			if err := wait(over); !errors.Is(err, cause) {
				t.Errorf("a context that is over: %v", err)
			}
			const waiters = 6
			ended := make(chan error, waiters)
			var cancels []context.CancelCauseFunc
			for range waiters {
				ctx, cancel := context.WithCancelCause(context.Background())
				cancels = append(cancels, cancel)
				go func() { ended <- wait(ctx) }()
			}
			for i := range waiters / 2 {
				cancels[i](cause)
				if err := <-ended; !errors.Is(err, cause) {
					t.Errorf("cancelled: %v", err)
				}
			}
			select {
			case err := <-ended:
				t.Errorf("a wait that nobody cancelled ended: %v", err)
			default:
			}
			if err := shut(); err != nil {
				t.Error(err)
			}
			for range waiters / 2 {
				if err := <-ended; !errors.Is(err, verbs.ErrClosed) {
					t.Errorf("closed: %v", err)
				}
			}
			for _, cancel := range cancels {
				cancel(nil)
			}
		})
	}
}

// A shared receive queue that runs low raises an event, which names it.
func TestEvents(t *testing.T) {
	dev, port := device(t)
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, pd)
	srq, err := pd.CreateSRQ(verbs.SRQOptions{Requests: 16, Segments: 1})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, srq)
	receives, err := srq.NewRecvBatch(verbs.BatchOptions{Requests: 16})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, receives)
	a, b := newSide(t, dev, port, options{}), newSide(t, dev, port, options{srq: srq, pd: pd})
	connect(a, b)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for i := range 4 {
		if err := receives.Add(uint64(i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := receives.Post(); err != nil {
		t.Fatal(err)
	}
	if err := srq.Arm(3); err != nil {
		t.Fatal(err)
	}
	if n, err := srq.Limit(); n != 3 || err != nil {
		t.Errorf("limit %d, %v", n, err)
	}
	for i := range 2 {
		a.post(verbs.Request{Opcode: verbs.Send, Flags: verbs.Signaled})
		a.succeeds(0, verbs.CompletedSend)
		b.succeeds(uint64(i), verbs.CompletedRecv)
	}
	for {
		e, err := dev.Event(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == verbs.EventCommEstablished || e.Type == verbs.EventGIDChange {
			continue // may be
		}
		if e.Type != verbs.EventSRQLimit || e.SRQ != srq || e.QP != nil || e.CQ != nil || e.Port != 0 {
			t.Errorf("%v: %+v", e, e)
		}
		break
	}
	if n, err := srq.Limit(); n != 0 || err != nil {
		t.Errorf("limit %d after its event, %v", n, err)
	}
}

// A queue closes while another goroutine takes its events.
func TestCloseWithEvents(t *testing.T) {
	dev, port := device(t)
	ch, err := dev.CreateChannel()
	if err != nil {
		t.Fatal(err)
	}
	s := newSide(t, dev, port, options{})
	connect(s, newSide(t, dev, port, options{}))
	waiter := make(chan error, 1)
	events := 0
	go func() {
		for {
			if _, err := ch.Wait(context.Background()); err != nil {
				waiter <- err
				return
			}
			events++
		}
	}()
	for range 50 {
		cq, err := dev.CreateCQ(verbs.CQOptions{Entries: 8, Channel: ch})
		if err != nil {
			t.Fatal(err)
		}
		qp, err := s.pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, Caps: verbs.QPCaps{SendRequests: 1, RecvRequests: 4, SendSegments: 1, RecvSegments: 1}})
		if err != nil {
			t.Fatal(err)
		}
		receives, err := qp.NewRecvBatch(verbs.BatchOptions{Requests: 4})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(cq.Arm(false), qp.ToInit(verbs.InitOptions{Port: port.Number}), receives.Add(1)); err != nil {
			t.Fatal(err)
		}
		if _, err := receives.Post(); err != nil {
			t.Fatal(err)
		}
		if err := qp.ToError(); err != nil { // the receive is flushed, which is an event
			t.Fatal(err)
		}
		for n := 0; n == 0; {
			if n, err = cq.Poll(s.done[:1]); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(receives.Close(), qp.Close(), cq.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if err := ch.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-waiter; !errors.Is(err, verbs.ErrClosed) {
		t.Error(err)
	}
	t.Logf("%d events of 50 were taken before their queue closed", events)
}
