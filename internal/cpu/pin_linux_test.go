package cpu

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"
)

const pinVariable = "TUTTI_TEST_PIN"

// TestMain: pinning cannot be undone for threads that come later, so it is
// tried in a child.
func TestMain(m *testing.M) {
	if os.Getenv(pinVariable) != "" {
		os.Exit(pinned())
	}
	os.Exit(m.Run())
}

// pinned pins to the last usable core and checks every thread, those that
// start later too.
func pinned() int {
	cores, err := Usable()
	if err != nil {
		return 2
	}
	last := cores[len(cores)-1]
	if err := Pin(last); err != nil {
		return 3
	}
	masks := make(chan []int)
	for range 8 {
		go func() {
			runtime.LockOSThread()
			time.Sleep(time.Millisecond)
			mask, _ := Usable()
			masks <- mask
		}()
	}
	for range 8 {
		if !slices.Equal(<-masks, []int{last}) {
			return 4
		}
	}
	if err := Pin(1023); err == nil {
		return 5
	}
	return 0
}

func TestPin(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), pinVariable+"=1")
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
}
