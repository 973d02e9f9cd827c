package softroce

import (
	"context"
	"crypto/rand"
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
	Dir     string // "" is the root folder
	// Env is what tells a rank about the job, added to the machine's
	// environment. TuttiEnv where nil.
	Env func(Rank) []string
	// Stdout and Stderr get the ranks' output, each line with its rank before
	// it. Nil drops it; the end of a failed rank's errors is kept anyway.
	Stdout, Stderr io.Writer
}

// A Rank is one process of a job.
type Rank struct {
	Rank, Size           int
	LocalRank, LocalSize int    // in its machine
	Node                 int    // machine
	RootAddress          string // of rank 0's machine
	RootPort             int    // free there: rank 0 serves the rendezvous on it
	Secret               string // of the job
}

// TuttiEnv describes the job in Tutti's own variables.
func TuttiEnv(r Rank) []string {
	return []string{
		fmt.Sprintf("TUTTI_RANK=%d", r.Rank), fmt.Sprintf("TUTTI_SIZE=%d", r.Size),
		fmt.Sprintf("TUTTI_LOCAL_RANK=%d", r.LocalRank),
		fmt.Sprintf("TUTTI_BOOTSTRAP=tcp://%s:%d", r.RootAddress, r.RootPort), "TUTTI_SECRET=" + r.Secret,
	}
}

// TorchrunEnv describes the job in torchrun's variables, and adds its secret.
func TorchrunEnv(r Rank) []string {
	return []string{
		fmt.Sprintf("RANK=%d", r.Rank), fmt.Sprintf("WORLD_SIZE=%d", r.Size),
		fmt.Sprintf("LOCAL_RANK=%d", r.LocalRank), fmt.Sprintf("LOCAL_WORLD_SIZE=%d", r.LocalSize),
		"MASTER_ADDR=" + r.RootAddress, fmt.Sprintf("MASTER_PORT=%d", r.RootPort), "TUTTI_SECRET=" + r.Secret,
	}
}

// rootPort is the port of the last job's rendezvous. Each job has another, so
// that no connection of one that was killed is in the next one's way.
var rootPort = struct {
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

// Launch runs a job and waits for it. When a rank fails, the others are asked
// to end after a grace of five seconds and killed after another. The error
// joins a *RankError for each rank that failed.
func (c *Cluster) Launch(ctx context.Context, job Job) error {
	nodes := job.Nodes
	if nodes == nil {
		for i := range c.nodes {
			nodes = append(nodes, i)
		}
	}
	per := max(job.PerNode, 1)
	size := len(nodes) * per
	rootPort.Lock()
	rootPort.last++
	port := rootPort.last
	rootPort.Unlock()
	secret := rand.Text()
	env := job.Env
	if env == nil {
		env = TuttiEnv
	}

	out, errOut := &lineMixer{to: job.Stdout}, &lineMixer{to: job.Stderr}
	ranks := make([]*Process, 0, size)
	tails := make([]*tailBuffer, size)
	errs := make([]error, size)
	for rank := range size {
		n := c.nodes[nodes[rank/per]]
		tails[rank] = &tailBuffer{}
		p, err := n.Start(ctx, Command{
			Args: job.Args, Dir: job.Dir, Env: env(Rank{rank, size, rank % per, per, n.Index, c.nodes[nodes[0]].Address, port, secret}),
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
