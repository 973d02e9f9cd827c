package tcp

import (
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/link/linktest"
)

func openAll(t *testing.T, n int, cfg Config) []link.Fabric {
	t.Helper()
	ex := bootstrap.Memory(n)
	fabrics := make([]link.Fabric, n)
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

func TestConformance(t *testing.T) {
	for name, cfg := range map[string]Config{
		"default":      {},
		"four stripes": {Stripes: 4},
		"small":        {SocketBytes: 16 << 10, Congestion: "reno"}, // which every kernel has
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			linktest.Run(t, func(t *testing.T, n int) []link.Fabric { return openAll(t, n, cfg) })
		})
	}
}

func openDescriptors(t *testing.T) int {
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

// checkLeaks fails the test if what runs and is open at its end was not at
// its start.
func checkLeaks(t *testing.T) {
	t.Helper()
	files, goroutines := openDescriptors(t), runtime.NumGoroutine()
	t.Cleanup(func() {
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			files2, goroutines2 := openDescriptors(t), runtime.NumGoroutine()
			if files2 <= files && goroutines2 <= goroutines {
				return
			}
			if time.Now().After(end) {
				stacks := make([]byte, 1<<16)
				t.Fatalf("%d descriptors and %d goroutines before, %d and %d after\n%s",
					files, goroutines, files2, goroutines2, stacks[:runtime.Stack(stacks, true)])
			}
		}
	})
}
