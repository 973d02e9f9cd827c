//go:build amd64 && !noasm && !race

package fence

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// words are what two processes play Dekker's pattern with. Each holds a round.
type words struct {
	light, heavy       word
	sawHeavy, sawLight word // the last in which one saw the other
	lightDone, over    word
}

// word is one on a line of its own.
type word struct {
	atomic.Uint64
	_ [7]uint64
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
	other := exec.Command(os.Args[0])
	other.Env = append(os.Environ(), lightSide+"=1")
	other.ExtraFiles = []*os.File{file}
	other.Stderr = os.Stderr
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	missed := 0
	err = play(fd, func(w *words, round uint64) {
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
	if err := errors.Join(err, other.Wait()); err != nil {
		t.Errorf("the other side: %v", err)
	}
	if missed > 0 {
		t.Errorf("in %d of %d rounds neither saw the other", missed, rounds)
	}
}

const lightSide = "TUTTI_TEST_FENCE_LIGHT_SIDE"

func TestMain(m *testing.M) {
	if os.Getenv(lightSide) == "" {
		os.Exit(m.Run())
	}
	if err := playLight(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// playLight is the other process.
func playLight() error {
	if !Usable() {
		return errors.New("the other side has asymmetric fences, this one not")
	}
	return play(3, func(w *words, round uint64) {
		Light(&w.light.Uint64, round)
		if w.heavy.Load() == round {
			w.sawHeavy.Store(round)
		}
		w.lightDone.Store(round)
		await(&w.over, round)
	})
}

// play runs the rounds of one side. An error says that the other is gone.
func play(fd int, side func(w *words, round uint64)) (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	memory, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mapping the words: %w", err)
	}
	defer unix.Munmap(memory)
	defer func() {
		if gone := recover(); gone != nil {
			err = fmt.Errorf("%v", gone)
		}
	}()
	w := (*words)(unsafe.Pointer(unsafe.SliceData(memory)))
	for round := uint64(1); round <= rounds; round++ {
		side(w, round)
	}
	return nil
}

// await waits for the other side, and panics if it does not come.
func await(w *word, v uint64) {
	began := time.Now()
	for i := 1; w.Load() < v; i++ {
		if i%4096 == 0 { // perhaps there is one core
			runtime.Gosched()
			_ = unix.Nanosleep(&unix.Timespec{Nsec: 1000}, nil)
			if time.Since(began) > 30*time.Second {
				panic("it does not come")
			}
		}
	}
}
