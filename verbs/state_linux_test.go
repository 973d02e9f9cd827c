//go:build linux && cgo && (amd64 || arm64 || loong64 || ppc64le || riscv64 || s390x)

package verbs_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/tutti-go/tutti/verbs"
)

// States change in order, and say what is wrong when they cannot.
func TestStates(t *testing.T) {
	dev, port := device(t)
	s := newSide(t, dev, port, options{})
	good := s.rtr(s.qp.QPN(), 1, s.gid.GID, port.LID) // to itself
	refused := func(name string, err error, from, to verbs.QPState, says string) {
		t.Helper()
		var e *verbs.StateError
		if !errors.As(err, &e) {
			t.Errorf("%s: %v", name, err)
			return
		}
		if (!errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENODATA)) || e.From != from || e.To != to || e.Device != dev.Name() || e.QPN != s.qp.QPN() || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v: %+v", name, err, e)
		}
	}
	is := func(want verbs.QPState) {
		t.Helper()
		if a, err := s.qp.Query(); err != nil || a.State != want {
			t.Fatalf("state %v, %v; want %v", a.State, err, want)
		}
	}
	is(verbs.StateReset)
	refused("RTR at once", s.qp.ToRTR(good), verbs.StateReset, verbs.StateRTR, "from INIT only")
	refused("RTS at once", s.qp.ToRTS(s.rts(1)), verbs.StateReset, verbs.StateRTS, "from RTR only")
	refused("no port", s.qp.ToInit(verbs.InitOptions{}), verbs.StateReset, verbs.StateInit, "port 0")
	refused("a port too many", s.qp.ToInit(verbs.InitOptions{Port: 200}), verbs.StateReset, verbs.StateInit, "no port 200")
	refused("a negative key", s.qp.ToInit(verbs.InitOptions{Port: port.Number, PKeyIndex: -1}), verbs.StateReset, verbs.StateInit, "partition key")
	if fabric != nil { // soft-RoCE does not look at it
		refused("a key too many", s.qp.ToInit(verbs.InitOptions{Port: port.Number, PKeyIndex: port.PKeys}), verbs.StateReset, verbs.StateInit, "partition key")
	}
	is(verbs.StateReset)
	s.init()
	is(verbs.StateInit)

	for name, c := range map[string]struct {
		change func(*verbs.RTROptions)
		says   string
	}{
		"no MTU":       {func(o *verbs.RTROptions) { o.MTU = 0 }, "MTU"},
		"an odd MTU":   {func(o *verbs.RTROptions) { o.MTU = 1024 }, "MTU"},
		"no port":      {func(o *verbs.RTROptions) { o.Address.Port = 0 }, "port 0"},
		"a flow label": {func(o *verbs.RTROptions) { o.Address.FlowLabel = 1 << 20 }, "flow label"},
		"a GID index":  {func(o *verbs.RTROptions) { o.Address.SGIDIndex = 256 }, "GID index"},
		"atomics":      {func(o *verbs.RTROptions) { o.MaxDestRDAtomic = -1 }, "MaxDestRDAtomic"},
	} {
		o := good
		c.change(&o)
		refused(name, s.qp.ToRTR(o), verbs.StateInit, verbs.StateRTR, c.says)
	}
	if port.LinkLayer == verbs.LinkEthernet {
		o := good
		o.Address.Global = false
		refused("no GID", s.qp.ToRTR(o), verbs.StateInit, verbs.StateRTR, "global")
		o = good
		gids, err := dev.GIDs(port.Number)
		if err != nil {
			t.Fatal(err)
		}
		o.Address.SGIDIndex = gids[len(gids)-1].Index + 1
		refused("an empty entry", s.qp.ToRTR(o), verbs.StateInit, verbs.StateRTR, "no GID with index")
	}
	if port.ActiveMTU < verbs.MTU4096 {
		o := good
		o.MTU = verbs.MTU4096
		refused("too large an MTU", s.qp.ToRTR(o), verbs.StateInit, verbs.StateRTR, "more than the port's")
	}
	is(verbs.StateInit)
	if err := s.qp.ToRTR(good); err != nil {
		t.Fatal(err)
	}
	bad := s.rts(1)
	bad.RetryCount = 8
	refused("eight retries", s.qp.ToRTS(bad), verbs.StateRTR, verbs.StateRTS, "retry counts")
	if err := s.qp.ToRTS(s.rts(1)); err != nil {
		t.Fatal(err)
	}
	a, err := s.qp.Query()
	if err != nil || a.State != verbs.StateRTS || a.DestQPN != s.qp.QPN() || a.PathMTU != port.ActiveMTU || a.Port != port.Number ||
		a.Timeout != 12 || a.RetryCount != 6 || a.RNRRetry != 7 || a.Address.SGIDIndex != s.gid.Index || a.Address.DGID != s.gid.GID {
		t.Errorf("%+v, %v", a, err)
	}

	// It is connected to itself.
	s.post(verbs.Request{ID: 1, Opcode: verbs.Write, Flags: verbs.Signaled, Inline: []byte{42}, RemoteAddr: s.at(100), RKey: s.mr.RKey()})
	s.succeeds(1, verbs.CompletedWrite)
	s.same(100, []byte{42})

	// After an error everything is flushed, and RESET begins anew.
	s.receive(7)
	if err := s.qp.ToError(); err != nil {
		t.Fatal(err)
	}
	is(verbs.StateErr)
	s.fails(7, verbs.Flushed)
	s.post(verbs.Request{ID: 8, Opcode: verbs.Write, Inline: []byte{1}, RemoteAddr: s.at(0), RKey: s.mr.RKey()}) // completes though it is not signalled
	s.fails(8, verbs.Flushed)
	if err := s.qp.Reset(); err != nil {
		t.Fatal(err)
	}
	is(verbs.StateReset)
	connect(s, s2(t, s))
	s.idle()
}

// s2 is a peer for s on the same device.
func s2(t *testing.T, s *side) *side { return newSide(t, s.dev, s.port, options{}) }

func TestCreateRefuses(t *testing.T) {
	dev, port := device(t)
	s := newSide(t, dev, port, options{})
	a, err := dev.Attr()
	if err != nil {
		t.Fatal(err)
	}
	one := verbs.QPCaps{SendRequests: 1, RecvRequests: 1, SendSegments: 1, RecvSegments: 1}
	for name, c := range map[string]struct {
		o    verbs.QPOptions
		says string
	}{
		"no queue":       {verbs.QPOptions{Type: verbs.RC, Caps: one}, "completion queues"},
		"many requests":  {verbs.QPOptions{Type: verbs.RC, SendCQ: s.cq, RecvCQ: s.cq, Caps: verbs.QPCaps{SendRequests: a.MaxQPRequests + 1, SendSegments: 1}}, "requests"},
		"many segments":  {verbs.QPOptions{Type: verbs.RC, SendCQ: s.cq, RecvCQ: s.cq, Caps: verbs.QPCaps{SendRequests: 1, SendSegments: a.MaxSegments + 1}}, "segments"},
		"much inline":    {verbs.QPOptions{Type: verbs.RC, SendCQ: s.cq, RecvCQ: s.cq, Caps: verbs.QPCaps{SendRequests: 1, SendSegments: 1, InlineBytes: 1 << 20}}, "inline"},
		"a negative":     {verbs.QPOptions{Type: verbs.RC, SendCQ: s.cq, RecvCQ: s.cq, Caps: verbs.QPCaps{SendRequests: -1}}, "-1"},
		"a strange type": {verbs.QPOptions{Type: 99, SendCQ: s.cq, RecvCQ: s.cq, Caps: one}, "queue pair type 99"},
	} {
		qp, err := s.pd.CreateQP(c.o)
		var e *verbs.Error
		if !errors.As(err, &e) || e.Device != dev.Name() || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		if qp != nil {
			qp.Close()
		}
	}
	other, err := verbs.Open(dev.Name())
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, other)
	if _, err := other.CreateCQ(verbs.CQOptions{Entries: 1, Channel: s.ch}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a channel of another context: %v", err)
	}
	pd, err := other.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	defer pd.Close()
	if _, err := pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: s.cq, RecvCQ: s.cq, Caps: one}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a completion queue of another context: %v", err)
	}
}

// What goes wrong between two queue pairs ends in the status that says so, and
// everything behind it is flushed.
func TestFailures(t *testing.T) {
	dev, port := device(t)
	impatient := func(rtr *verbs.RTROptions, rts *verbs.RTSOptions) {
		rts.Timeout, rts.RetryCount, rts.RNRRetry = 8, 1, 1
	}
	for _, c := range []struct {
		name    string
		want    verbs.Status
		soft    verbs.Status // what soft-RoCE makes of it, if something else
		request func(a, b *side) verbs.Request
		options options
		peer    verbs.Status // how b's receive ends; Success for none
		change  func(*verbs.RTROptions, *verbs.RTSOptions)
	}{
		{name: "a wrong remote key", want: verbs.RemoteAccess, request: func(a, b *side) verbs.Request {
			return verbs.Request{Opcode: verbs.Write, Segments: []verbs.Segment{a.seg(0, 8)}, RemoteAddr: b.at(0), RKey: b.mr.RKey() ^ 0x5a5a5a}
		}},
		{name: "past the remote region", want: verbs.RemoteAccess, request: func(a, b *side) verbs.Request {
			return verbs.Request{Opcode: verbs.Write, Segments: []verbs.Segment{a.seg(0, 8)}, RemoteAddr: b.at(len(b.mem) - 7), RKey: b.mr.RKey()}
		}},
		{name: "a read that is not allowed", want: verbs.RemoteAccess, options: options{access: verbs.AccessLocalWrite | verbs.AccessRemoteWrite}, request: func(a, b *side) verbs.Request {
			return verbs.Request{Opcode: verbs.Read, Segments: []verbs.Segment{a.seg(0, 8)}, RemoteAddr: b.at(0), RKey: b.mr.RKey()}
		}},
		{name: "a wrong local key", want: verbs.LocalProtection, soft: verbs.LocalQPOperation, request: func(a, b *side) verbs.Request {
			s := a.seg(0, 8)
			s.LKey ^= 0x5a5a5a
			return verbs.Request{Opcode: verbs.Write, Segments: []verbs.Segment{s}, RemoteAddr: b.at(0), RKey: b.mr.RKey()}
		}},
		{name: "no receive", want: verbs.RNRRetryExceeded, change: impatient, request: func(a, b *side) verbs.Request {
			return verbs.Request{Opcode: verbs.Send, Inline: []byte{1}}
		}},
		{name: "too short a receive", want: verbs.RemoteInvalidRequest, soft: verbs.RemoteOperation, peer: verbs.LocalLength, request: func(a, b *side) verbs.Request {
			b.receive(9, b.seg(0, 4))
			return verbs.Request{Opcode: verbs.Send, Inline: []byte("five.")}
		}},
		{name: "a peer that is gone", want: verbs.RetryExceeded, change: impatient, request: func(a, b *side) verbs.Request {
			for _, c := range []interface{ Close() error }{b.send, b.recv, b.qp} {
				if err := c.Close(); err != nil {
					t.Fatal(err)
				}
			}
			return verbs.Request{Opcode: verbs.Write, Inline: []byte{1}, RemoteAddr: b.at(0), RKey: b.mr.RKey()}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := newSide(t, dev, port, c.options), newSide(t, dev, port, c.options)
			if c.change != nil {
				connect(a, b, c.change)
			} else {
				connect(a, b)
			}
			first := c.request(a, b)
			first.ID = 1 // not signalled: an error completes all the same
			second := verbs.Request{ID: 2, Opcode: verbs.Write, Inline: []byte{1}, RemoteAddr: b.at(0), RKey: b.mr.RKey()}
			a.receive(3)
			a.post(first, second)
			ids := make(map[uint64]verbs.Status)
			for _, done := range a.completions(3) {
				ids[done.ID] = done.Status
				var e *verbs.CompletionError
				if err := done.Err(); !errors.As(err, &e) || !errors.Is(err, done.Status) || e.QPN != a.qp.QPN() || done.Status.Cause() == "" {
					t.Errorf("%v", err)
				}
			}
			if fabric == nil && ids[1] == c.soft && c.soft != verbs.Success {
				t.Logf("soft: %v for %v", c.soft, c.want)
				c.want, c.peer = c.soft, softPeer[c.peer]
			}
			if ids[1] != c.want || ids[2] != verbs.Flushed || ids[3] != verbs.Flushed {
				t.Errorf("%v, then %v and %v; want %v", ids[1], ids[2], ids[3], c.want)
			}
			if c.peer != verbs.Success {
				b.fails(9, c.peer)
			}
			if q, err := a.qp.Query(); err != nil || q.State != verbs.StateErr {
				t.Errorf("state %v, %v", q.State, err)
			}
		})
	}
}

// softPeer is how soft-RoCE ends the receive at the other side.
var softPeer = map[verbs.Status]verbs.Status{verbs.LocalLength: verbs.LocalQPOperation}
