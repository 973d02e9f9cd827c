package rc

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/verbs"
	"github.com/tutti-go/tutti/verbs/fakeverbs"
)

// TestBadSettings: one clear error each, and everything released.
func TestBadSettings(t *testing.T) {
	checkLeaks(t)
	name := devices(t)[0]
	index := 255
	for what, tt := range map[string]struct {
		cfg  Config
		says string
	}{
		"no such device": {Config{Devices: []string{"none_0"}}, "none_0"},
		"no such port":   {Config{Devices: []string{name + ":9"}}, "no port 9"},
		"a port's name":  {Config{Devices: []string{name + ":x"}}, `"x" is no port`},
		"no name":        {Config{Devices: []string{""}}, "names no device"},
		"the same twice": {Config{Devices: []string{name, "none_0"}}, "none_0"},
		"all but all":    {Config{Devices: allBut(t)}, "no such RDMA device"},
		"GID index":      {Config{Devices: []string{name}, GIDIndex: &index}, "no GID with index 255"},
		"partition":      {Config{Devices: []string{name}, PKeyIndex: 60000}, "60000"},
		"address":        {Config{Devices: []string{name}, Listen: "192.0.2.1"}, "192.0.2.1"},
	} {
		_, err := Open(t.Context(), bootstrap.Single(), tt.cfg)
		if err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func allBut(t *testing.T) (names []string) {
	t.Helper()
	list, err := verbs.Devices()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range list {
		names = append(names, "^"+d.Name)
	}
	return names
}

// TestAllDevices: without names, all that are up.
func TestAllDevices(t *testing.T) {
	checkLeaks(t)
	f, err := Open(t.Context(), bootstrap.Single(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	if len(f.rails) == 0 {
		t.Error("no rails")
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func TestPortIsDown(t *testing.T) {
	onSimulated(t)
	checkLeaks(t)
	if err := simulated.SetPort(fakeverbs.PortDown); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := simulated.SetPort(fakeverbs.PortActive); err != nil {
			t.Error(err)
		}
	}()
	for what, cfg := range map[string]Config{"named": {Devices: devices(t)}, "any": {}} {
		if _, err := Open(t.Context(), bootstrap.Single(), cfg); err == nil || !strings.Contains(err.Error(), "DOWN") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestMismatch: ranks that cannot be connected say why, at both ends, and may
// try again.
func TestMismatch(t *testing.T) {
	checkLeaks(t)
	ex := bootstrap.Memory(2)
	var fabrics [2]*Fabric
	errs := make(chan error, 2)
	for rank := range fabrics {
		cfg := Config{Devices: devices(t)}
		if rank == 1 {
			cfg.MTU = 256
		} else {
			cfg.MTU = 512
		}
		go func() {
			f, err := Open(t.Context(), ex[rank], cfg)
			fabrics[rank] = f
			errs <- err
		}()
	}
	if err := errors.Join(<-errs, <-errs); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for rank, f := range fabrics {
			if _, err := f.Connect(t.Context(), 1-rank); err == nil || !strings.Contains(err.Error(), "MTU") {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
	}
	for _, f := range fabrics {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestExpose: memory that another has allocated is written to; its numbers are
// given once.
func TestExpose(t *testing.T) {
	checkLeaks(t)
	fabrics := openAll(t, 2, Config{})
	memory, err := mapMemory(1 << 16)
	if err != nil {
		t.Fatal(err)
	}
	withdraw, err := fabrics[1].Expose(77, memory)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fabrics[1].Expose(77, memory); !errors.Is(err, link.ErrRange) {
		t.Errorf("the same number again: %v", err)
	}
	if _, err := fabrics[1].Expose(78, memory[8:]); !errors.Is(err, link.ErrRange) {
		t.Errorf("memory that is not aligned: %v", err)
	}
	if _, err := fabrics[1].Alloc(8); err == nil {
		t.Error("allocates too")
	}
	l, err := fabrics[0].Connect(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	w := waiter(fabrics[1])
	if err := errors.Join(l.Put(mem.Remote{Region: 77, Offset: 1000}, []byte{5}), l.Notify(mem.Remote{Region: 77}, 3),
		w.Wait(t.Context(), link.CounterAt(memory), 3)); err != nil || memory[1000] != 5 {
		t.Errorf("%d, %v", memory[1000], err)
	}
	if err := errors.Join(withdraw(), withdraw()); err != nil {
		t.Error(err)
	}
	if _, err := fabrics[1].Expose(77, memory); !errors.Is(err, link.ErrRange) {
		t.Errorf("a number that was withdrawn: %v", err)
	}
	for end := 0; ; end++ { // the notice is under way
		if err = l.Notify(mem.Remote{Region: 77}, 4); errors.Is(err, link.ErrRange) || end > 1e6 {
			break
		}
	}
	if !errors.Is(err, link.ErrRange) {
		t.Errorf("what was withdrawn: %v", err)
	}
	for _, f := range fabrics {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := unix.Munmap(memory); err != nil {
		t.Error(err)
	}
}

// TestNothingIsAllocated on the way of a put, a notification, a wait.
func TestNothingIsAllocated(t *testing.T) {
	fabrics := openAll(t, 2, Config{QueuePairs: 2})
	defer func() {
		for _, f := range fabrics {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	}()
	b, err := fabrics[1].Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	l, err := fabrics[0].Connect(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	w := waiter(fabrics[1])
	ctx, src, at := t.Context(), make([]byte, 300_000), mem.Remote{Region: b.Region(), Offset: 4096}
	counter, v := link.CounterAt(b.Bytes()), uint64(0)
	for _, size := range []int{8, 1000, 20_000, 300_000} {
		if n := testing.AllocsPerRun(50, func() {
			v++
			if err := errors.Join(l.Put(at, src[:size]), l.Notify(mem.Remote{Region: at.Region}, v), w.Wait(ctx, counter, v)); err != nil {
				t.Fatal(err)
			}
		}); n >= 1 { // the fabrics' goroutines may, once in a while
			t.Errorf("%d bytes: %v allocations", size, n)
		}
	}
}
