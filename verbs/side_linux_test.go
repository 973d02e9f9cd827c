//go:build linux && cgo && (amd64 || arm64 || loong64 || ppc64le || riscv64 || s390x)

package verbs_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/verbs"
)

// patience bounds waits that end at once unless something is broken.
const patience = 30 * time.Second

// device opens the first device with a port that is up, and when the test ends
// sees that nothing is left open, neither objects nor descriptors nor
// goroutines.
func device(t testing.TB) (*verbs.Device, verbs.Port) {
	t.Helper()
	list, err := verbs.Devices()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		t.Fatalf("the library %q has no device to test on", os.Getenv(verbs.LibraryVariable))
	}
	warm(t, list[0].Name)
	files, goroutines, resources := descriptors(t), runtime.NumGoroutine(), tracked(t)
	t.Cleanup(func() {
		if live := verbs.Live(); live != (verbs.Census{}) {
			t.Errorf("left open: %v", live)
		}
		if fabric != nil { // what the device itself counts
			if err := fabric.Refresh(); err != nil {
				t.Error(err)
			}
			processes, err := fabric.Processes()
			if err != nil {
				t.Error(err)
			}
			for _, p := range processes {
				if p.PID == os.Getpid() && (p.Objects() != 0 || p.Leaked != 0) {
					t.Errorf("left in the device: %+v", p)
				}
			}
		}
		if now := tracked(t); now != resources {
			t.Errorf("the kernel counts %s, before %s", now, resources)
		}
		if now := descriptors(t); now != files {
			t.Errorf("descriptors: %s, before %s", now, files)
		}
		for deadline := time.Now().Add(patience); runtime.NumGoroutine() > goroutines; runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Errorf("%d goroutines, before %d", runtime.NumGoroutine(), goroutines)
				break
			}
		}
	})
	for _, info := range list {
		d, err := verbs.Open(info.Name)
		if err != nil {
			t.Fatal(err)
		}
		a, err := d.Attr()
		if err != nil {
			t.Fatal(err)
		}
		for n := 1; n <= a.Ports; n++ {
			p, err := d.Port(n)
			if err != nil {
				t.Fatal(err)
			}
			if p.State == verbs.PortActive {
				closeAfter(t, d)
				return d, p
			}
		}
		d.Close()
	}
	t.Fatalf("none of %d devices has an active port", len(list))
	panic("unreachable")
}

var warmed bool

// warm opens a device once before descriptors are counted: the library keeps
// some for good.
func warm(t testing.TB, name string) {
	if warmed {
		return
	}
	warmed = true
	d, err := verbs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	d.Event(ctx) //nolint:errcheck // starts the runtime's poller
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// tracked is what the kernel counts of real devices.
func tracked(t testing.TB) string {
	if fabric != nil {
		return ""
	}
	counts, err := verbs.Resources()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(counts)
}

// descriptors lists what this process has open.
func descriptors(t testing.TB) string {
	dir, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range dir {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && !strings.HasPrefix(target, "/proc/") {
			names = append(names, target)
		}
	}
	return strings.Join(names, " ")
}

func closeAfter(t testing.TB, c interface{ Close() error }) {
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// memory maps bytes that are not Go's.
func memory(t testing.TB, size int) []byte {
	t.Helper()
	m, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(m) })
	return m
}

const everything = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

// side is one end of a connection, with memory of its own.
type side struct {
	t    testing.TB
	dev  *verbs.Device
	port verbs.Port
	gid  verbs.GIDEntry
	pd   *verbs.PD
	ch   *verbs.CompletionChannel
	cq   *verbs.CompletionQueue
	qp   *verbs.QueuePair
	mem  []byte
	mr   *verbs.MR
	send *verbs.Batch
	recv *verbs.RecvBatch // nil with an SRQ
	done []verbs.Completion
}

// options of a side; the zero value is the usual.
type options struct {
	kind    verbs.QPType // RC
	depth   int          // 64 requests each way
	entries int          // of the completion queue: 4*depth
	bytes   int          // of memory: 1 MiB
	srq     *verbs.SRQ
	pd      *verbs.PD // one of its own
	access  verbs.Access
}

func newSide(t testing.TB, dev *verbs.Device, port verbs.Port, o options) *side {
	t.Helper()
	if o.kind == 0 {
		o.kind = verbs.RC
	}
	if o.depth == 0 {
		o.depth = 64
	}
	if o.entries == 0 {
		o.entries = 4 * o.depth
	}
	if o.bytes == 0 {
		o.bytes = 1 << 20
	}
	if o.access == 0 {
		o.access = everything
	}
	s := &side{t: t, dev: dev, port: port, pd: o.pd, done: make([]verbs.Completion, o.entries)}
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	gids, err := dev.GIDs(port.Number)
	ok(err)
	for _, g := range gids { // the last one that can be used: RoCE v2, and IPv4 on soft-RoCE
		if s.gid.GID.Zero() || g.Type == verbs.GIDRoCEv2 {
			s.gid = g
		}
	}
	s.mem = memory(t, o.bytes)
	if s.pd == nil {
		s.pd, err = dev.AllocPD()
		ok(err)
		closeAfter(t, s.pd)
	}
	s.mr, err = s.pd.RegisterMemory(s.mem, o.access)
	ok(err)
	closeAfter(t, s.mr)
	s.ch, err = dev.CreateChannel()
	ok(err)
	closeAfter(t, s.ch)
	s.cq, err = dev.CreateCQ(verbs.CQOptions{Entries: o.entries, Channel: s.ch})
	ok(err)
	closeAfter(t, s.cq)
	caps := verbs.QPCaps{SendRequests: o.depth, RecvRequests: o.depth, SendSegments: 4, RecvSegments: 4, InlineBytes: 64}
	if o.srq != nil {
		caps.RecvRequests, caps.RecvSegments = 0, 0
	}
	s.qp, err = s.pd.CreateQP(verbs.QPOptions{Type: o.kind, SendCQ: s.cq, RecvCQ: s.cq, SRQ: o.srq, Caps: caps})
	ok(err)
	closeAfter(t, s.qp)
	s.send, err = s.qp.NewBatch(verbs.BatchOptions{Requests: 2 * o.depth})
	ok(err)
	closeAfter(t, s.send)
	if o.srq == nil {
		s.recv, err = s.qp.NewRecvBatch(verbs.BatchOptions{Requests: o.depth})
		ok(err)
		closeAfter(t, s.recv)
	}
	return s
}

func (s *side) init() {
	s.t.Helper()
	o := verbs.InitOptions{Port: s.port.Number, Access: everything}
	if s.qp.Type() == verbs.UD {
		o = verbs.InitOptions{Port: s.port.Number, QKey: 0x11111111}
	}
	if err := s.qp.ToInit(o); err != nil {
		s.t.Fatal(err)
	}
}

// address is the way from s to peer.
func (s *side) address(peer verbs.GID, lid uint16) verbs.AddressVector {
	return verbs.AddressVector{Port: s.port.Number, Global: s.port.LinkLayer == verbs.LinkEthernet, DGID: peer, SGIDIndex: s.gid.Index, HopLimit: 255, DLID: lid}
}

func (s *side) rtr(qpn, psn uint32, gid verbs.GID, lid uint16) verbs.RTROptions {
	o := verbs.DefaultRTR()
	o.DestQPN, o.PSN, o.MTU, o.Address = qpn, psn, s.port.ActiveMTU, s.address(gid, lid)
	o.MinRNRTimer = 1
	return o
}

func (s *side) rts(psn uint32) verbs.RTSOptions {
	o := verbs.DefaultRTS()
	o.PSN, o.Timeout = psn, 12
	return o
}

// connect brings two sides to RTS, with change, if any, made to their options.
func connect(a, b *side, change ...func(*verbs.RTROptions, *verbs.RTSOptions)) {
	a.t.Helper()
	const psn = 0xfffff0 // numbers wrap around soon
	for i, s := range []*side{a, b} {
		peer := []*side{b, a}[i]
		s.init()
		rtr, rts := s.rtr(peer.qp.QPN(), psn+uint32(1-i), peer.gid.GID, peer.port.LID), s.rts(psn+uint32(i))
		for _, f := range change {
			f(&rtr, &rts)
		}
		if err := s.qp.ToRTR(rtr); err != nil {
			a.t.Fatal(err)
		}
		if err := s.qp.ToRTS(rts); err != nil {
			a.t.Fatal(err)
		}
	}
}

// pair makes two sides on one device, connected.
func pair(t testing.TB, o options) (a, b *side) {
	t.Helper()
	dev, port := device(t)
	a, b = newSide(t, dev, port, o), newSide(t, dev, port, o)
	connect(a, b)
	return a, b
}

// seg is n bytes of the side's memory.
func (s *side) seg(offset, n int) verbs.Segment {
	s.t.Helper()
	g, err := s.mr.Segment(offset, n)
	if err != nil {
		s.t.Fatal(err)
	}
	return g
}

// at is the address of a byte of the side's memory.
func (s *side) at(offset int) uint64 { return s.mr.Addr() + uint64(offset) }

// post sends requests, all in one go.
func (s *side) post(requests ...verbs.Request) {
	s.t.Helper()
	for i := range requests {
		if err := s.send.Add(&requests[i]); err != nil {
			s.t.Fatal(err)
		}
	}
	if n, err := s.send.Post(); err != nil || n != len(requests) {
		s.t.Fatalf("posted %d of %d: %v", n, len(requests), err)
	}
}

// receive posts one receive.
func (s *side) receive(id uint64, segments ...verbs.Segment) {
	s.t.Helper()
	if err := s.recv.Add(id, segments...); err != nil {
		s.t.Fatal(err)
	}
	if n, err := s.recv.Post(); err != nil || n != 1 {
		s.t.Fatalf("posted %d: %v", n, err)
	}
}

// completions polls until there are n.
func (s *side) completions(n int) []verbs.Completion {
	s.t.Helper()
	got := 0
	for deadline := time.Now().Add(patience); got < n; {
		k, err := s.cq.Poll(s.done[got:n])
		if err != nil {
			s.t.Fatal(err)
		}
		if got += k; k == 0 {
			if time.Now().After(deadline) {
				s.t.Fatalf("%d completions of %d", got, n)
			}
			runtime.Gosched()
		}
	}
	return append([]verbs.Completion(nil), s.done[:n]...)
}

// succeeds waits for one completion and requires that it is of the request.
func (s *side) succeeds(id uint64, opcode verbs.CompletionOpcode) verbs.Completion {
	s.t.Helper()
	c := s.completions(1)[0]
	if err := c.Err(); err != nil {
		s.t.Fatal(err)
	}
	if c.ID != id || c.Opcode != opcode || c.QPN != s.qp.QPN() {
		s.t.Fatalf("completed %+v, want ID %d, opcode %d, queue pair %#x", c, id, opcode, s.qp.QPN())
	}
	return c
}

// fails waits for one completion and requires its status.
func (s *side) fails(id uint64, status verbs.Status) {
	s.t.Helper()
	c := s.completions(1)[0]
	if c.ID != id || c.Status != status {
		s.t.Fatalf("completed with ID %d: %v; want ID %d: %v", c.ID, c.Status, id, status)
	}
}

// idle requires that there are no completions.
func (s *side) idle() {
	s.t.Helper()
	if n, err := s.cq.Poll(s.done); n != 0 || err != nil {
		s.t.Fatalf("%d completions that nobody asked for, the first %+v, %v", n, s.done[0], err)
	}
}

// same requires bytes of the side's memory.
func (s *side) same(offset int, want []byte) {
	s.t.Helper()
	if got := s.mem[offset : offset+len(want)]; !bytes.Equal(got, want) {
		s.t.Fatalf("memory at %d is wrong", offset)
	}
}

// pattern fills bytes so that each place and each seed differ.
func pattern(b []byte, seed byte) []byte {
	x := uint32(seed) + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

// wordAt is 8 bytes of memory as a number.
func wordAt(memory []byte, offset int) *uint64 {
	return (*uint64)(unsafe.Pointer(&memory[offset : offset+8][0]))
}

// load reads a word that a device writes.
func load(p *uint64) uint64 { return atomic.LoadUint64(p) }
