//go:build amd64 && !noasm && !race

package fence

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// words are what two processes play Dekker's pattern with, each on a line of
// its own. A side that has finished round r of the game has its done at r.
type words struct {
	light, heavy       atomic.Uint64
	_                  [6]uint64
	sawHeavy, sawLight atomic.Uint64 // the last round in which one saw the other
	_                  [6]uint64
	lightDone, over    atomic.Uint64
}

const rounds = 5000

// TestNeitherMissesTheOther plays Dekker's pattern between two processes: in no
// round may both have missed the other's store.
func TestNeitherMissesTheOther(t *testing.T) {
	if !Usable() {
		if os.Getenv("CI") == "true" {
			t.Fatal("membarrier(2) is refused")
		}
		t.Skip("NOT TESTED here: membarrier(2) is refused")
	}
	fd, err := unix.MemfdCreate("fence-test", 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "words")
	defer file.Close()
	if err := file.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	other := exec.Command(os.Args[0], "-test.run", "^TestLightSide$", "-test.v")
	other.Env = append(os.Environ(), lightSide+"=1")
	other.ExtraFiles = []*os.File{file}
	other.Stderr = os.Stderr
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	missed := 0
	play(t, fd, func(w *words, round uint64) {
		// The other side begins when it sees the last round's end: meet it there.
		for range round % 512 {
			_ = w.sawLight.Load()
		}
		w.heavy.Store(round)
		Heavy()
		if w.light.Load() == round {
			w.sawLight.Store(round)
		}
		await(&w.lightDone, round)
		if w.sawLight.Load() != round && w.sawHeavy.Load() != round {
			missed++
		}
		w.over.Store(round)
	})
	if err := other.Wait(); err != nil {
		t.Errorf("the other side: %v", err)
	}
	if missed > 0 {
		t.Errorf("in %d of %d rounds neither saw the other", missed, rounds)
	}
}

const lightSide = "TUTTI_TEST_FENCE_LIGHT_SIDE"

// TestLightSide is the other process.
func TestLightSide(t *testing.T) {
	if os.Getenv(lightSide) == "" {
		t.Skip("it is started by TestNeitherMissesTheOther")
	}
	if !Usable() {
		t.Fatal("the other side has asymmetric fences, this one not")
	}
	play(t, 3, func(w *words, round uint64) {
		Light(&w.light, round)
		if w.heavy.Load() == round {
			w.sawHeavy.Store(round)
		}
		w.lightDone.Store(round)
		await(&w.over, round)
	})
}

// play runs the rounds of one side.
func play(t *testing.T, fd int, side func(w *words, round uint64)) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	memory, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(fmt.Errorf("mapping the words: %w", err))
	}
	defer unix.Munmap(memory)
	w := (*words)(unsafe.Pointer(unsafe.SliceData(memory)))
	for round := uint64(1); round <= rounds; round++ {
		side(w, round)
	}
}

func await(word *atomic.Uint64, v uint64) {
	for i := 1; word.Load() < v; i++ {
		if i%4096 == 0 { // perhaps there is one core
			runtime.Gosched()
			_ = unix.Nanosleep(&unix.Timespec{Nsec: 1000}, nil)
		}
	}
}
