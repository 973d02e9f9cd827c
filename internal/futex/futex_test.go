package futex

import (
	"sync/atomic"
	"testing"
	"time"
)

func TestWakeEndsWait(t *testing.T) {
	var word atomic.Uint32
	woken := make(chan struct{})
	go func() {
		for word.Load() == 0 {
			Wait(&word, 0, time.Minute)
		}
		close(woken)
	}()
	time.Sleep(10 * time.Millisecond) // let it fall asleep; waking earlier is legal too
	word.Store(1)
	Wake(&word)
	select {
	case <-woken:
	case <-time.After(10 * time.Second):
		t.Fatal("still asleep 10 s after Wake")
	}
}

func TestWaitReturns(*testing.T) {
	var word atomic.Uint32
	Wait(&word, 1, time.Hour)        // another value: at once
	Wait(&word, 0, time.Millisecond) // same value: by timeout
}

func TestProbe(t *testing.T) {
	if err := Probe(); err != nil {
		t.Fatal(err)
	}
}
