package link

import (
	"context"
	"testing"
	"time"
)

// progress raises a counter at the looks-th call, as a medium does that learns
// of a peer's notification when somebody asks it to look.
type progress struct {
	c     *Counter
	looks int
}

func (p *progress) Progress() {
	if p.looks--; p.looks == 0 {
		p.c.Raise(1)
	}
}

// TestWaitMakesProgress: what a wait is for may come only if the wait looks for
// it, while it polls as well as while it yields.
func TestWaitMakesProgress(t *testing.T) {
	for name, patience := range map[string]Patience{
		"polling":  {Polls: 1000, Yields: 0, Nap: time.Hour},
		"yielding": {Polls: 0, Yields: 1000, Nap: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			var c Counter
			w := Waiter{Patience: patience, Fault: new(Fault), Progress: &progress{&c, 500}}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if err := w.Wait(ctx, &c, 1); err != nil {
				t.Fatal(err)
			}
		})
	}
}
