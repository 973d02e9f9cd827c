package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/engine"
	"github.com/tutti-go/tutti/internal/cpu"
)

// runRank is a rank's whole life. It reports over the pipe of its parent, or
// prints where a launcher that is not commbench has started it.
func runRank(ctx context.Context, o *options, stdout, stderr io.Writer) error {
	pipe, err := inheritedFile(envEvents)
	if err != nil {
		return err
	}
	ex, err := bootstrap.FromEnv(ctx)
	if err != nil {
		return err
	}
	defer ex.Close()
	r := &rank{options: o, ex: ex, machine: cpu.Count(), report: func(event) error { return nil }}
	var out *output
	switch {
	case pipe != nil:
		defer pipe.Close()
		r.report = (&events{w: pipe}).send
	case ex.Rank() == 0:
		o.ranks = ex.Size()
		out = newOutput(o, stdout, stderr)
		r.report = func(ev event) error { out.take(ev); return nil }
	}
	err = r.run(ctx)
	if pipe != nil {
		if err != nil {
			return &toldError{err}
		}
		return nil
	}
	switch {
	case out != nil && err == nil:
		return out.finish()
	case out != nil:
		out.interrupted(err)
	case err == nil && r.wrong > 0:
		return &wrongError{r.wrong}
	}
	return err
}

// rank is one member of the job at work.
type rank struct {
	*options
	ex      bootstrap.Exchanger
	machine int // cores that all ranks may use, seen before this one is pinned
	report  func(event) error

	comm       *tutti.Comm // nil for commbench roofline
	rig        *rig        // nil where no floor is measured
	send, recv []byte      // of the largest size, and the guard; recv is nil where all is in place
	wrong      int64       // so far, on all ranks
}

func (r *rank) run(ctx context.Context) (err error) {
	// Where the job has failed, what is running ends, and says why.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-r.ex.Done():
			cancel(r.ex.Err())
		case <-ctx.Done():
		}
	}()
	// What went wrong is told before closing the communicator makes it go
	// wrong for others too.
	defer func() {
		if err != nil {
			_ = r.report(event{Failure: &failure{r.ex.Rank(), oneLine(err), time.Now()}})
		}
		if r.comm != nil {
			err = errors.Join(err, r.comm.Close())
		}
	}()
	if !r.roofline {
		if err := r.checkRoot(r.ex.Size()); err != nil {
			return err
		}
		if err := r.join(ctx); err != nil {
			return err
		}
	}
	if err := r.greet(ctx); err != nil {
		return err
	}
	if err := r.excuse(); err != nil {
		return err
	}
	if err := r.buffers(); err != nil {
		return err
	}
	if r.roofline || r.vsRoofline {
		if r.rig, err = newRig(r.ex, r.largest(), r.machine); err != nil {
			return err
		}
		defer r.rig.close()
	}
	for i, t := range r.tasks {
		say := func(phase string) error {
			if r.ex.Rank() != 0 {
				return nil
			}
			return r.report(event{Progress: &progress{i, phase}})
		}
		if err := r.task(ctx, t, say); err != nil {
			return err
		}
	}
	return nil
}

func (r *rank) join(ctx context.Context) error {
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	comm, err := tutti.Init(ctx, tutti.Config{
		Exchanger: r.ex, Algo: r.algorithm(), Path: r.path, Threads: r.threads, FixedOrder: r.fixedOrder,
	})
	if err != nil {
		return rankError(r.ex.Rank(), err)
	}
	r.comm = comm
	return nil
}

// rankError names the rank, unless the error does.
func rankError(rank int, err error) error {
	if strings.HasPrefix(err.Error(), "rank ") {
		return err
	}
	return fmt.Errorf("rank %d: %w", rank, err)
}

func (r *rank) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, r.timeout,
		fmt.Errorf("not done after %v (--timeout): %w", r.timeout, context.DeadlineExceeded))
}

// gather exchanges blobs. Checking takes ranks different times, so there is
// more patience than for a call.
func (r *rank) gather(ctx context.Context, blob []byte) ([][]byte, error) {
	limit := r.timeout + time.Minute + time.Duration(r.largest()>>20)*20*time.Millisecond*time.Duration(r.ex.Size())
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		fmt.Errorf("a rank has not come to the end of a point in %v: %w", limit, context.DeadlineExceeded))
	defer cancel()
	all, err := r.ex.AllGather(ctx, blob)
	if err != nil {
		return nil, rankError(r.ex.Rank(), err)
	}
	return all, nil
}

// greet pins the rank, and lets rank 0 say who is there. It comes after Init,
// which counts the cores that all ranks may use.
func (r *rank) greet(ctx context.Context) error {
	me := member{Rank: r.ex.Rank(), Pid: os.Getpid(), Cores: r.cores()}
	if err := cpu.Pin(me.Cores...); err != nil {
		me.Cores = nil
		_ = r.report(event{Note: rankError(me.Rank, err).Error()})
	}
	b, err := json.Marshal(me)
	if err != nil {
		return err
	}
	all, err := r.gather(ctx, b)
	if err != nil || r.ex.Rank() != 0 {
		return err
	}
	h := &hello{Ranks: make([]member, len(all))}
	for i, b := range all {
		if err := json.Unmarshal(b, &h.Ranks[i]); err != nil {
			return fmt.Errorf("rank %d introduced itself with nonsense: %w", i, err)
		}
	}
	if r.comm != nil {
		h.Path, h.Ops = r.describe()
	}
	return r.report(event{Hello: h})
}

// excuse says what is measured otherwise than asked for: under --op all, not
// every operation can be in place.
func (r *rank) excuse() error {
	apart := which(r.ops, func(op *operation) bool { return op.apart })
	if !r.inPlace || apart == "" || r.ex.Rank() != 0 {
		return nil
	}
	return r.report(event{Note: "out of place, as there is no other form: " + apart})
}

// cores are those this rank is pinned to: one, or as many as it has threads.
func (r *rank) cores() []int {
	usable, err := cpu.Usable()
	if err != nil || len(usable) == 0 {
		return nil
	}
	threads := r.threads
	if threads == 0 {
		threads = r.machine / r.ex.Size()
	}
	if r.roofline {
		threads = 1
	}
	threads = min(max(1, threads), len(usable))
	cores := make([]int, threads)
	for i := range cores {
		cores[i] = usable[(r.ex.Rank()*threads+i)%len(usable)]
	}
	return cores
}

// describe tells the path and, for each operation, where the algorithm changes
// with the size.
func (r *rank) describe() (path string, ops []described) {
	for _, op := range r.ops {
		d, last := described{Op: op.name}, ""
		var first *task
		for _, t := range r.tasks {
			if t.op != op {
				continue
			}
			if first == nil {
				first = &t
			}
			if t.dtype != first.dtype || t.redop != first.redop {
				break // the sizes begin again
			}
			p, algo := r.howAt(t)
			path = p
			if algo != last {
				d.Algos = append(d.Algos, fmt.Sprintf("%s from %s", algo, shortBytes(t.bytes)))
				last = algo
			}
		}
		if len(d.Algos) == 1 {
			d.Algos[0] = last
		}
		ops = append(ops, d)
	}
	return path, ops
}

// beyondDoor is a size of blocks that never go in one shot; v forms and coded
// elements do not at any size, which Describe is not told.
const beyondDoor = 1 << 20

func (r *rank) howAt(t task) (path, algo string) {
	block, reached := t.count(r.ex.Size())*t.dtype.Size(), r.reached()
	if coded := r.wireOf(t.op) != engine.WireFull; coded || t.op.vector {
		block, reached = max(block, beyondDoor), reached && !coded
	}
	path, algo = r.comm.Describe(t.op.form, block, reached)
	if t.op.exchanges() {
		return path, "exchange"
	}
	return path, strings.TrimPrefix(algo, t.op.form.String()+"/")
}
