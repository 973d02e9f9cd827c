//go:build linux && cgo && (amd64 || arm64 || loong64 || ppc64le || riscv64 || s390x)

package verbs_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/verbs"
)

func TestDevice(t *testing.T) {
	d, p := device(t)
	list, err := verbs.Devices()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, info := range list {
		if info.Name == "" || strings.ContainsRune(info.Name, 0) {
			t.Errorf("a device is called %q", info.Name)
		}
		found = found || info == d.Info()
	}
	if !found || d.Name() != d.Info().Name {
		t.Errorf("%+v is not among %+v", d.Info(), list)
	}
	a, err := d.Attr()
	if err != nil {
		t.Fatal(err)
	}
	if a.Ports < 1 || a.Ports > 255 || a.MaxQueuePairs < 2 || a.MaxQPRequests < 1 || a.MaxSegments < 1 || a.MaxCQEntries < 1 || a.MaxMRBytes == 0 || a.NodeGUID != d.Info().GUID {
		t.Errorf("device: %+v", a)
	}
	if p.ActiveMTU.Bytes() == 0 || p.ActiveMTU > p.MaxMTU || p.MaxMessage == 0 || p.GIDs < 1 || p.PKeys < 1 || p.LinkLayer == verbs.LinkUnspecified {
		t.Errorf("port: %+v", p)
	}
	if pd, err := d.AllocPD(); err != nil || pd.Device() != d {
		t.Errorf("a protection domain of %v, %v", pd.Device(), err)
	} else if err := pd.Close(); err != nil {
		t.Error(err)
	}
	if p.Speed%100 != 0 || p.Speed < 0 {
		t.Errorf("speed %d Mb/s", p.Speed)
	}
	if d.CompletionVectors() < 1 {
		t.Errorf("%d completion vectors", d.CompletionVectors())
	}
	if key, err := d.PKey(p.Number, 0); err != nil || key&0x7fff == 0 {
		t.Errorf("partition key %#x, %v", key, err)
	}
	gids, err := d.GIDs(p.Number)
	if err != nil || len(gids) == 0 {
		t.Fatalf("%d GIDs, %v", len(gids), err)
	}
	for i, g := range gids {
		if g.GID.Zero() || g.Index < 0 || g.Index >= p.GIDs || (i > 0 && g.Index <= gids[i-1].Index) {
			t.Errorf("GID %d: %+v", i, g)
		}
		if (p.LinkLayer == verbs.LinkEthernet) == (g.Type == verbs.GIDInfiniBand) {
			t.Errorf("GID %d: %v on %v", i, g.Type, p.LinkLayer)
		}
	}
	t.Logf("%s: %d ports, port %d: %v, MTU %v, %v, %d Mb/s, %d GIDs, the first %v %v of %q",
		d.Name(), a.Ports, p.Number, p.LinkLayer, p.ActiveMTU, p.State, p.Speed, len(gids), gids[0].Type, gids[0].GID, gids[0].Netdev)
}

func TestDeviceRefuses(t *testing.T) {
	d, p := device(t)
	a, err := d.Attr()
	if err != nil {
		t.Fatal(err)
	}
	var e *verbs.Error
	if _, err := d.Port(a.Ports + 1); !errors.As(err, &e) || !errors.Is(err, syscall.EINVAL) || e.Device != d.Name() {
		t.Errorf("a port too many: %v", err)
	}
	for _, n := range []int{0, -1, 256} {
		if _, err := d.Port(n); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("port %d: %v", n, err)
		}
	}
	if _, err := d.GIDs(a.Ports + 1); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("GIDs of a port too many: %v", err)
	}
	if _, err := d.PKey(p.Number, p.PKeys); !errors.As(err, &e) {
		t.Errorf("a partition key too many: %v", err)
	}
	var none *verbs.NoDeviceError
	if _, err := verbs.Open("no such device"); !errors.As(err, &none) || len(none.Present) == 0 {
		t.Errorf("a device that is not there: %v", err)
	}
	for name, o := range map[string]verbs.CQOptions{
		"none": {}, "too many": {Entries: a.MaxCQEntries + 1}, "absurd": {Entries: 1 << 31}, "negative": {Entries: -1},
	} {
		if _, err := d.CreateCQ(o); !errors.As(err, &e) || e.Device != d.Name() {
			t.Errorf("a completion queue of %s: %v", name, err)
		} else if name == "too many" && e.Advice == "" {
			t.Errorf("%v says no limit", err)
		}
	}
}

func TestRegister(t *testing.T) {
	d, _ := device(t)
	pd, err := d.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, pd)
	m := memory(t, 1<<20)
	for _, access := range []verbs.Access{0, verbs.AccessLocalWrite, everything, everything | verbs.AccessRelaxedOrdering} {
		mr, err := pd.RegisterMemory(m[64:64+8192], access)
		if err != nil {
			t.Fatal(err)
		}
		if mr.Len() != 8192 || mr.Addr() == 0 {
			t.Errorf("%d bytes at %#x", mr.Len(), mr.Addr())
		}
		if s, err := mr.Segment(8000, 192); err != nil || s != (verbs.Segment{Addr: mr.Addr() + 8000, Bytes: 192, LKey: mr.LKey()}) {
			t.Errorf("%+v, %v", s, err)
		}
		for _, r := range [][2]int{{-1, 1}, {0, -1}, {8192, 1}, {1, 8192}, {0, 8193}, {1 << 62, 1 << 62}} {
			if _, err := mr.Segment(r[0], r[1]); !errors.Is(err, verbs.ErrRange) {
				t.Errorf("%d bytes at %d: %v", r[1], r[0], err)
			}
		}
		if _, err := mr.Segment(8192, 0); err != nil {
			t.Errorf("nothing at the end: %v", err)
		}
		if err := mr.Close(); err != nil {
			t.Error(err)
		}
	}

	var e *verbs.RegisterError
	if _, err := pd.RegisterMemory(nil, everything); !errors.As(err, &e) || !errors.Is(err, syscall.EINVAL) {
		t.Errorf("nothing: %v", err)
	}
	if _, err := pd.RegisterMemory(m, verbs.AccessRemoteWrite); !errors.As(err, &e) || !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "local write") {
		t.Errorf("remote write without local: %v", err)
	}
	hole, err := unix.Mmap(-1, 0, 8192, unix.PROT_READ, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(hole)
	if _, err := pd.RegisterMemory(hole, everything); !errors.As(err, &e) || e.Bytes != 8192 || e.Device != d.Name() {
		t.Errorf("memory that may not be written: %v", err)
	}
	if pd.DMABuf() {
		if _, err := pd.RegisterDMABuf(int(os.Stdin.Fd()), 0, 4096, 0, everything); !errors.As(err, &e) {
			t.Errorf("standard input as a dma-buf: %v", err)
		}
	} else if _, err := pd.RegisterDMABuf(0, 0, 4096, 0, everything); !errors.Is(err, verbs.ErrUnsupported) || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a dma-buf: %v", err)
	}
	if _, err := pd.RegisterDMABuf(0, 0, 0, 0, everything); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("nothing of a dma-buf: %v", err)
	}
}

// Objects close in order, those that others stand on stay open and say who it
// is, a second Close does nothing, and closed ones refuse work.
func TestCloseOrder(t *testing.T) {
	dev, port := device(t)
	d, err := verbs.Open(dev.Name())
	if err != nil {
		t.Fatal(err)
	}
	before := verbs.Live()
	pd, _ := d.AllocPD()
	ch, _ := d.CreateChannel()
	cq, _ := d.CreateCQ(verbs.CQOptions{Entries: 16, Channel: ch})
	srq, _ := pd.CreateSRQ(verbs.SRQOptions{Requests: 16, Segments: 1})
	m := memory(t, 4096)
	mr, err := pd.RegisterMemory(m, everything)
	if err != nil {
		t.Fatal(err)
	}
	qp, err := pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, SRQ: srq, Caps: verbs.QPCaps{SendRequests: 4, SendSegments: 1}})
	if err != nil {
		t.Fatal(err)
	}
	batch, err := qp.NewBatch(verbs.BatchOptions{Requests: 4})
	if err != nil {
		t.Fatal(err)
	}
	gids, err := d.GIDs(port.Number)
	if err != nil {
		t.Fatal(err)
	}
	ah, err := pd.CreateAH(verbs.AddressVector{Port: port.Number, Global: port.LinkLayer == verbs.LinkEthernet, DGID: gids[0].GID, SGIDIndex: gids[0].Index, DLID: port.LID})
	if err != nil {
		t.Fatal(err)
	}
	want := before
	want.PDs, want.Channels, want.CompletionQueues, want.SRQs, want.MRs, want.QueuePairs, want.Batches, want.AddressHandles =
		want.PDs+1, want.Channels+1, want.CompletionQueues+1, want.SRQs+1, want.MRs+1, want.QueuePairs+1, want.Batches+1, want.AddressHandles+1
	if got := verbs.Live(); got != want {
		t.Errorf("open: %v, want %v", got, want)
	}

	for _, c := range []struct {
		object   interface{ Close() error }
		children []string
	}{
		{d, []string{"completion channel", "completion queue of", "protection domain"}},
		{pd, []string{"RC queue pair", "address handle", "memory region of 4096 bytes", "shared receive queue"}},
		{ch, []string{"completion queue"}},
		{cq, []string{"RC queue pair"}},
		{srq, []string{"RC queue pair"}},
		{qp, []string{"batch of queue pair"}},
	} {
		err := c.object.Close()
		var busy *verbs.BusyError
		if !errors.As(err, &busy) || !errors.Is(err, verbs.ErrBusy) || len(busy.Children) != len(c.children) {
			t.Errorf("closing %T: %v", c.object, err)
			continue
		}
		for i, child := range c.children {
			if !strings.Contains(busy.Children[i], child) || !strings.Contains(err.Error(), child) {
				t.Errorf("closing %T: %v does not name the %s", c.object, err, child)
			}
		}
	}
	if got := verbs.Live(); got != want {
		t.Errorf("after closing nothing: %v, want %v", got, want)
	}
	for _, object := range []interface{ Close() error }{batch, qp, ah, srq, mr, cq, ch, pd, d} {
		for range 2 {
			if err := object.Close(); err != nil {
				t.Errorf("closing %T: %v", object, err)
			}
		}
	}

	after := []error{batch.Add(&verbs.Request{}), qp.ToInit(verbs.InitOptions{Port: 1}), srq.Arm(1), cq.Arm(false), qp.ToError()}
	for _, f := range []func() error{
		func() error { _, err := d.AllocPD(); return err },
		func() error { _, err := d.CreateChannel(); return err },
		func() error { _, err := d.CreateCQ(verbs.CQOptions{Entries: 1}); return err },
		func() error { _, err := d.Attr(); return err },
		func() error { _, err := d.Port(1); return err },
		func() error { _, err := d.GIDs(1); return err },
		func() error { _, err := d.PKey(1, 0); return err },
		func() error { _, err := d.Event(context.Background()); return err },
		func() error { _, err := pd.RegisterMemory(m, everything); return err },
		func() error { _, err := pd.CreateSRQ(verbs.SRQOptions{Requests: 1}); return err },
		func() error { _, err := pd.CreateAH(verbs.AddressVector{Port: 1}); return err },
		func() error {
			_, err := pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: cq, RecvCQ: cq})
			return err
		},
		func() error { _, err := qp.NewBatch(verbs.BatchOptions{Requests: 1}); return err },
		func() error { _, err := qp.Query(); return err },
		func() error { _, err := srq.Limit(); return err },
		func() error { _, err := batch.Post(); return err },
		func() error { _, err := cq.Poll(make([]verbs.Completion, 1)); return err },
		func() error { _, err := ch.Wait(context.Background()); return err },
		func() error { _, err := ch.TryWait(); return err },
	} {
		after = append(after, f())
	}
	for i, err := range after {
		if !errors.Is(err, verbs.ErrClosed) || !errors.Is(err, os.ErrClosed) {
			t.Errorf("call %d after closing: %v", i, err)
		}
	}
	if pd.DMABuf() || qp.DataInOrder(verbs.Write) {
		t.Error("closed objects promise something")
	}
}

// Objects come and go from many goroutines at once.
func TestCloseConcurrently(t *testing.T) {
	d, _ := device(t)
	pd, err := d.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 8 {
				cq, err := d.CreateCQ(verbs.CQOptions{Entries: 4})
				if err != nil {
					t.Error(err)
					return
				}
				qp, err := pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, Caps: verbs.QPCaps{SendRequests: 1, RecvRequests: 1, SendSegments: 1, RecvSegments: 1}})
				if err != nil {
					t.Error(err)
					return
				}
				if err := cq.Close(); !errors.Is(err, verbs.ErrBusy) {
					t.Errorf("a completion queue in use: %v", err)
				}
				if err := errors.Join(qp.Close(), cq.Close()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := pd.Close(); err != nil {
		t.Error(err)
	}
}
