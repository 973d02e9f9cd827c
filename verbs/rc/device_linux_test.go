package rc

import (
	"cmp"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/link/linktest"
	"github.com/tutti-go/tutti/verbs"
	"github.com/tutti-go/tutti/verbs/fakeverbs"
)

// simulated is the fabric of the simulated devices, nil where the tests run on
// real ones: TUTTI_RC_REAL=1 takes the system's library.
var simulated *fakeverbs.Fabric

func prepare() (done func(), err error) {
	if os.Getenv("TUTTI_RC_REAL") != "" {
		return func() {}, nil
	}
	if dir := os.Getenv("TUTTI_FAKE_VERBS_DIR"); dir != "" { // a child
		simulated, err = fakeverbs.Open(dir)
		return func() {}, err
	}
	lib, err := fakeverbs.Build("")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "rc-test-")
	if err != nil {
		return nil, err
	}
	if simulated, err = fakeverbs.Open(dir); err != nil {
		return nil, err
	}
	for name, value := range map[string]string{
		verbs.LibraryVariable:      lib,
		"TUTTI_FAKE_VERBS_DIR":     dir,
		"TUTTI_FAKE_VERBS_DEVICES": "3",
		"TUTTI_FAKE_VERBS_QUIET":   cmp.Or(os.Getenv("TUTTI_FAKE_VERBS_QUIET"), "0"),
	} {
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	return func() { os.RemoveAll(dir) }, nil
}

// devices are those that tests use unless they say otherwise: one.
func devices(t testing.TB) []string {
	t.Helper()
	list, err := verbs.Devices()
	if err != nil || len(list) == 0 {
		t.Fatalf("no device to test on: %v", err)
	}
	return []string{list[0].Name}
}

func openAll(t testing.TB, n int, cfg Config) []*Fabric {
	t.Helper()
	if cfg.Devices == nil {
		cfg.Devices = devices(t)
	}
	ex := bootstrap.Memory(n)
	fabrics := make([]*Fabric, n)
	var wg sync.WaitGroup
	for r := range fabrics {
		wg.Go(func() {
			f, err := Open(t.Context(), ex[r], cfg)
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
			fabrics[r] = f
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return fabrics
}

// checkLeaks fails the test if what runs and is open at its end was not at
// its start.
func checkLeaks(t *testing.T) {
	t.Helper()
	d, err := verbs.Open(devices(t)[0]) // what the library keeps for good
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	files, goroutines, live := descriptors(t), runtime.NumGoroutine(), verbs.Live()
	t.Cleanup(func() {
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			files2, goroutines2, live2 := descriptors(t), runtime.NumGoroutine(), verbs.Live()
			if files2 <= files && goroutines2 <= goroutines && live2 == live {
				return
			}
			if time.Now().After(end) {
				stacks := make([]byte, 1<<16)
				t.Fatalf("%d descriptors and %d goroutines before, %d and %d after; left open: %v\n%s",
					files, goroutines, files2, goroutines2, live2, stacks[:runtime.Stack(stacks, true)])
			}
		}
	})
}

func descriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		// The runtime's own epoll and eventfd come with the first socket.
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && to != "anon_inode:[eventpoll]" && to != "anon_inode:[eventfd]" {
			n++
		}
	}
	return n
}

// settings are configurations that tests of the contract run with.
func settings() map[string]Config {
	all := map[string]Config{
		"default":        {},
		"three lanes":    {QueuePairs: 3},
		"tiny queues":    {SendDepth: 8, Credits: 4, BounceBytes: minBounceBytes, QueuePairs: 2},
		"nothing inline": {InlineBytes: -1},
		"direct":         {Signal: Direct, QueuePairs: 2, SendDepth: 16},
	}
	if simulated != nil {
		all["two rails"] = Config{Devices: []string{"fake0", "fake1"}, QueuePairs: 2}
	}
	return all
}

func TestConformance(t *testing.T) {
	for name, cfg := range settings() {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			linktest.Run(t, func(t *testing.T, n int) []link.Fabric {
				var out []link.Fabric
				for _, f := range openAll(t, n, cfg) {
					out = append(out, f)
				}
				return out
			})
		})
	}
}
