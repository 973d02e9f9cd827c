//go:build linux && cgo && (amd64 || arm64 || loong64 || ppc64le || riscv64 || s390x)

package verbs_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tutti-go/tutti/verbs"
	"github.com/tutti-go/tutti/verbs/fakeverbs"
)

// Whatever a device says of a request comes through, as an error of its own.
func TestEveryStatus(t *testing.T) {
	onFake(t)
	dev, port := device(t)
	for status := verbs.LocalLength; status <= verbs.General; status++ {
		for _, receive := range []bool{false, true} {
			a, b := newSide(t, dev, port, options{depth: 4}), newSide(t, dev, port, options{depth: 4})
			connect(a, b)
			victim, id := a, uint64(1)
			if receive {
				victim, id = b, 2
			}
			if err := fabric.Fail(fakeverbs.Failure{Status: int(status), Receive: receive}, fakeverbs.OfQP(victim.qp.QPN())); err != nil {
				t.Fatal(err)
			}
			b.receive(2)
			a.post(verbs.Request{ID: 1, Opcode: verbs.Send})
			c := victim.completions(1)[0]
			var e *verbs.CompletionError
			err := victim.cq.Check(&c)
			if c.ID != id || !errors.As(err, &e) || !errors.Is(err, status) || e.Status != status || e.QPN != victim.qp.QPN() || e.Device != dev.Name() || !strings.Contains(err.Error(), status.Error()) {
				t.Errorf("status %d, receive %v: %+v: %v", uint32(status), receive, c, err)
			}
			if q, err := victim.qp.Query(); err != nil || q.State != verbs.StateErr {
				t.Errorf("status %d, receive %v: state %v, %v", uint32(status), receive, q.State, err)
			}
		}
	}
}

// next returns the next event that a test waits for: what merely may happen is
// passed over.
func next(t *testing.T, dev *verbs.Device) verbs.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		e, err := dev.Event(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if e.Type != verbs.EventCommEstablished {
			return e
		}
	}
}

// Events say what they happened to.
func TestEveryEvent(t *testing.T) {
	onFake(t)
	dev, port := device(t)
	a, b := newSide(t, dev, port, options{}), newSide(t, dev, port, options{})
	connect(a, b)
	raise := func(event int, of ...fakeverbs.Of) verbs.Event {
		t.Helper()
		if err := fabric.Raise(event, of...); err != nil {
			t.Fatal(err)
		}
		return next(t, dev)
	}

	if err := fabric.SetPort(fakeverbs.PortDown); err != nil {
		t.Fatal(err)
	}
	if e := next(t, dev); e.Type != verbs.EventPortError || e.Port != port.Number || e.QP != nil || e.Type.Fatal() || !strings.Contains(e.String(), dev.Name()+" port 1") {
		t.Errorf("%v: %+v", e, e)
	}
	if p, err := dev.Port(port.Number); err != nil || p.State != verbs.PortDown {
		t.Errorf("%v, %v", p.State, err)
	}
	if err := fabric.SetPort(fakeverbs.PortActive); err != nil {
		t.Fatal(err)
	}
	if e := next(t, dev); e.Type != verbs.EventPortActive || e.Port != port.Number {
		t.Errorf("%v: %+v", e, e)
	}
	if e := raise(fakeverbs.EventGIDChange); e.Type != verbs.EventGIDChange || e.Port != port.Number {
		t.Errorf("%v: %+v", e, e)
	}
	for event, want := range map[int]verbs.EventType{fakeverbs.EventQPFatal: verbs.EventQPFatal, fakeverbs.EventQPReqErr: verbs.EventQPRequestError, fakeverbs.EventQPAccessErr: verbs.EventQPAccessError} {
		if e := raise(event, fakeverbs.OfQP(a.qp.QPN())); e.Type != want || !e.Type.Fatal() || e.QP != a.qp || e.CQ != nil || e.Port != 0 || !strings.Contains(e.String(), a.qp.String()) {
			t.Errorf("%v: %+v", e, e)
		}
	}
	if q, err := a.qp.Query(); err != nil || q.State != verbs.StateErr {
		t.Errorf("%v, %v", q.State, err)
	}
	if e := raise(fakeverbs.EventCQErr, fakeverbs.OfQP(b.qp.QPN())); e.Type != verbs.EventCQError || e.CQ != b.cq || e.QP != nil || !strings.Contains(e.String(), b.cq.String()) {
		t.Errorf("%v: %+v", e, e)
	}

	// An event that nobody reads does not keep its object open.
	c := newSide(t, dev, port, options{})
	if err := fabric.Raise(fakeverbs.EventQPFatal, fakeverbs.OfQP(c.qp.QPN())); err != nil {
		t.Fatal(err)
	}
}

// A completion queue that is too small breaks, with everything on it; that is
// an event and no silence.
func TestOverrun(t *testing.T) {
	onFake(t)
	dev, port := device(t)
	a, b := newSide(t, dev, port, options{depth: 8, entries: 2}), newSide(t, dev, port, options{depth: 8})
	connect(a, b)
	var requests []verbs.Request
	for i := range min(8, a.cq.Entries()+1) {
		requests = append(requests, verbs.Request{ID: uint64(i), Opcode: verbs.Write, Flags: verbs.Signaled, Inline: []byte{1}, RemoteAddr: b.at(0), RKey: b.mr.RKey()})
	}
	if len(requests) == 8 {
		t.Skipf("a queue of 2 entries holds %d", a.cq.Entries())
	}
	a.post(requests...)
	for seen := 0; seen < 2; seen++ {
		if e := next(t, dev); e.CQ == a.cq && e.Type == verbs.EventCQError {
			return
		}
	}
	t.Error("no event")
}

// With the port down a queue pair does not connect, and says so.
func TestPortDown(t *testing.T) {
	onFake(t)
	dev, port := device(t)
	s := newSide(t, dev, port, options{})
	s.init()
	if err := fabric.SetPort(fakeverbs.PortDown); err != nil {
		t.Fatal(err)
	}
	o := s.rtr(s.qp.QPN(), 1, s.gid.GID, port.LID)
	o.Address.SGIDIndex = 200 // which no device has
	err := s.qp.ToRTR(o)
	var e *verbs.StateError
	if !errors.As(err, &e) || !strings.Contains(err.Error(), "port 1 is DOWN") {
		t.Errorf("%v", err)
	}
	if err := fabric.SetPort(fakeverbs.PortActive); err != nil {
		t.Fatal(err)
	}
}
