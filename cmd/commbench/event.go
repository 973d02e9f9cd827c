package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// envEvents names the pipe, "fd:N", over which ranks report to the parent.
const envEvents = "COMMBENCH_EVENTS"

// event is one line from a rank to the parent; one of the fields is set.
type event struct {
	Hello    *hello    `json:"hello,omitempty"`
	Progress *progress `json:"progress,omitempty"`
	Point    *point    `json:"point,omitempty"`
	Floor    *floor    `json:"floor,omitempty"`
	Note     string    `json:"note,omitempty"` // worth a line on standard error
	Failure  *failure  `json:"failure,omitempty"`
}

// hello says who takes part, once all ranks have met.
type hello struct {
	Ranks []member    `json:"ranks"`
	Path  string      `json:"path"`
	Ops   []described `json:"ops"`
}

// described is an operation and the algorithms that it takes.
type described struct {
	Op    string   `json:"op"`
	Algos []string `json:"algos"` // "oneshot from 8", "direct from 64K"
}

// member is one rank in a hello.
type member struct {
	Rank int `json:"rank"`
	Pid  int `json:"pid"`
	// Cores are those it is pinned to; none where pinning failed.
	Cores []int `json:"cores"`
}

// progress says what is going on.
type progress struct {
	Point int    `json:"point"` // from 0
	Phase string `json:"phase"`
}

// failure is the error that ends a rank. One rank's failure is often another's
// doing, so it says when.
type failure struct {
	Rank int       `json:"rank"`
	Text string    `json:"text"`
	At   time.Time `json:"at"`
}

// maxEvent bounds a line; that of a hello grows with the ranks.
const maxEvent = 16 << 20

// events writes events; safe for concurrent use.
type events struct {
	mu sync.Mutex
	w  io.Writer
}

func (e *events) send(ev event) error {
	b, err := json.Marshal(ev)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	_, err = e.w.Write(append(b, '\n'))
	return err
}

// inheritedFile opens the descriptor that a variable of the environment names,
// or returns nil where it is not set.
func inheritedFile(name string) (*os.File, error) {
	value := os.Getenv(name)
	if value == "" {
		return nil, nil
	}
	number, ok := strings.CutPrefix(value, "fd:")
	fd, err := strconv.Atoi(number)
	if !ok || err != nil || fd < 3 {
		return nil, fmt.Errorf("environment variable %s is %q; want fd:N", name, value)
	}
	f := os.NewFile(uintptr(fd), strings.ToLower(name))
	if _, err := f.Stat(); err != nil {
		return nil, fmt.Errorf("environment variable %s is %q: %w", name, value, err)
	}
	return f, nil
}

// readEvents calls take for every event until the last writer is gone. A rank
// that was killed may leave a piece of a line; it is skipped.
func readEvents(r io.Reader, take func(event)) error {
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxEvent)
	for s.Scan() {
		var ev event
		if err := json.Unmarshal(s.Bytes(), &ev); err == nil {
			take(ev)
		}
	}
	if err := s.Err(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("reading the ranks' results: %w", err)
	}
	return nil
}
