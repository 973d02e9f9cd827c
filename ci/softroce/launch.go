package softroce

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Job is a program with ranks on several machines.
type Job struct {
	Nodes   []int // machines; all where nil
	PerNode int   // ranks of each; 1 where 0. Ranks count through a node, then the next
	Args    []string
	// Env adds to a rank's environment, which has torchrun's variables: RANK,
	// WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
	Env func(rank int) []string
	// Stdout and Stderr get the ranks' output, each line with its rank before
	// it. Nil drops it; the end of a failed rank's errors is kept anyway.
	Stdout, Stderr io.Writer
}

// masterPort is where rank 0 serves the rendezvous. Jobs of one cluster that
// run at a time take ports one after the other.
var masterPort = struct {
	sync.Mutex
	last int
}{last: 29500}

// rankGrace is how long ranks have to end by themselves once one has failed.
const rankGrace = 5 * time.Second

// A RankError says that a rank of a job did not end well.
type RankError struct {
	Rank   int
	Stderr string // the end of its standard error
	Err    error
}

func (e *RankError) Error() string {
	return fmt.Sprintf("rank %d: %v: %s", e.Rank, e.Err, e.Stderr)
}

func (e *RankError) Unwrap() error { return e.Err }

// Launch runs a job and waits for it. When a rank fails, the others are asked to
// end after a grace of five seconds and killed after another. The error joins a *RankError
// for each rank that failed.
func (c *Cluster) Launch(ctx context.Context, job Job) error {
	nodes := job.Nodes
	if nodes == nil {
		for i := range c.nodes {
			nodes = append(nodes, i)
		}
	}
	per := max(job.PerNode, 1)
	size := len(nodes) * per
	masterPort.Lock()
	masterPort.last++
	port := masterPort.last
	masterPort.Unlock()

	out, errOut := &lineMixer{to: job.Stdout}, &lineMixer{to: job.Stderr}
	ranks := make([]*Process, 0, size)
	tails := make([]*tailBuffer, size)
	errs := make([]error, size)
	for rank := range size {
		n := c.nodes[nodes[rank/per]]
		env := []string{
			fmt.Sprintf("RANK=%d", rank), fmt.Sprintf("WORLD_SIZE=%d", size),
			fmt.Sprintf("LOCAL_RANK=%d", rank%per), fmt.Sprintf("LOCAL_WORLD_SIZE=%d", per),
			"MASTER_ADDR=" + c.nodes[nodes[0]].Address, fmt.Sprintf("MASTER_PORT=%d", port),
		}
		if job.Env != nil {
			env = append(env, job.Env(rank)...)
		}
		tails[rank] = &tailBuffer{}
		p, err := n.Start(ctx, Command{
			Args: job.Args, Env: env,
			Stdout: out.rank(rank), Stderr: io.MultiWriter(errOut.rank(rank), tails[rank]),
		})
		if err != nil {
			errs[rank] = &RankError{Rank: rank, Err: err}
			break
		}
		ranks = append(ranks, p)
	}

	failed := make(chan struct{})
	var once sync.Once
	fail := func() { once.Do(func() { close(failed) }) }
	if len(ranks) < size {
		fail()
	}
	ended := make(chan struct{})
	go func() {
		select {
		case <-failed:
			endAll(ranks, ended)
		case <-ended:
		}
	}()
	var wg sync.WaitGroup
	for rank, p := range ranks {
		wg.Go(func() {
			if err := p.Wait(); err != nil {
				errs[rank] = &RankError{rank, tails[rank].String(), err}
				fail()
			}
		})
	}
	wg.Wait()
	close(ended)
	return errors.Join(errs...)
}

// endAll ends the ranks of a failed job that have not done so.
func endAll(ranks []*Process, ended <-chan struct{}) {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		select {
		case <-ended:
			return
		case <-time.After(rankGrace):
		}
		for _, p := range ranks {
			_ = p.Signal(s) // one that has ended is left alone
		}
	}
}

// A lineMixer gives the lines of several ranks to one writer, whole.
type lineMixer struct {
	mu sync.Mutex
	to io.Writer
}

func (m *lineMixer) rank(rank int) io.Writer {
	if m.to == nil {
		return io.Discard
	}
	return &lineWriter{mixer: m, prefix: fmt.Sprintf("%d: ", rank)}
}

type lineWriter struct {
	mixer  *lineMixer
	prefix string
	half   []byte // of a line
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.half = append(w.half, p...)
	end := slices.Index(w.half, '\n')
	if end < 0 {
		return len(p), nil
	}
	var whole strings.Builder
	for ; end >= 0; end = slices.Index(w.half, '\n') {
		whole.WriteString(w.prefix)
		whole.Write(w.half[:end+1])
		w.half = w.half[end+1:]
	}
	w.mixer.mu.Lock()
	defer w.mixer.mu.Unlock()
	_, err := io.WriteString(w.mixer.to, whole.String())
	return len(p), err
}

// A tailBuffer keeps the end of what is written to it.
type tailBuffer struct {
	mu sync.Mutex
	b  []byte
}

const tailBytes = 4000

func (t *tailBuffer) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > 2*tailBytes {
		t.b = append([]byte(nil), t.b[len(t.b)-tailBytes:]...)
	}
	return len(p), nil
}

func (t *tailBuffer) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(lastBytes(string(t.b), tailBytes))
}
