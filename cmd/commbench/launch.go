package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/internal/cpu"
)

// rankSlack is what a rank needs beside its buffers: the program itself,
// scratch memory, samples.
const rankSlack = 48 << 20

// runParent starts the ranks, prints what they report, and waits for them.
func runParent(ctx context.Context, o *options, args []string, stdout, stderr io.Writer) error {
	if err := checkNames(ctx, o); err != nil {
		return err
	}
	if o.ranks == 0 {
		o.ranks = max(2, cpu.Count())
	}
	if err := o.checkRoot(o.ranks); err != nil {
		return err
	}
	if err := checkMemory(o, cpu.MemAvailable); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot start ranks: %w (is /proc mounted?)", err)
	}
	out := newOutput(o, stdout, stderr)
	for _, ranks := range jobSizes(o) {
		j := &job{options: o, ranks: ranks, program: program, args: args, out: out, stderr: stderr}
		if err := j.run(ctx); err != nil {
			out.interrupted(err)
			return err
		}
	}
	return out.finish()
}

// jobSizes lists the numbers of ranks to run with, one job after another.
func jobSizes(o *options) []int {
	if !o.roofline || o.ranks < 2 {
		return []int{o.ranks}
	}
	var sizes []int
	for n := 2; n <= o.ranks; n++ {
		sizes = append(sizes, n)
	}
	return sizes
}

// algorithm is what Tutti is told to use. The name of an algorithm means that
// of the collective, where there is one only.
func (o *options) algorithm() string {
	if o.algo == "" || o.algo == "auto" || strings.Contains(o.algo, "/") {
		return o.algo
	}
	form := ""
	for _, op := range o.ops {
		switch {
		case op.exchanges():
		case form == "":
			form = op.form.String()
		case form != op.form.String():
			return o.algo
		}
	}
	return form + "/" + o.algo
}

// checkNames asks Tutti whether it knows the algorithm and the path. Outside
// of a job Init gets no further than that.
func checkNames(ctx context.Context, o *options) error {
	if o.roofline {
		return nil
	}
	if o.algo != "" && o.algo != "auto" {
		if err := checkAlgo(ctx, o); err != nil {
			return err
		}
	}
	c, err := tutti.Init(ctx, tutti.Config{Path: o.path})
	var bad *tutti.ConfigError
	switch {
	case err == nil:
		return c.Close()
	case errors.As(err, &bad) && bad.Field == "Path":
		return unknown("path", bad.Value, bad.Known)
	case errors.Is(err, bootstrap.ErrNoEnvironment):
		return nil
	}
	return err
}

// checkAlgo refuses an algorithm that none of the operations has, and lists
// those that they have.
func checkAlgo(ctx context.Context, o *options) error {
	_, err := tutti.Init(ctx, tutti.Config{Algo: "?"}) // to hear of all
	var bad *tutti.ConfigError
	if !errors.As(err, &bad) {
		return err
	}
	known := []string{"auto"}
	for _, name := range bad.Known {
		collective, bare, _ := strings.Cut(name, "/")
		if !slices.ContainsFunc(o.ops, func(op *operation) bool { return !op.exchanges() && op.form.String() == collective }) {
			continue
		}
		if o.algo == name || o.algo == bare {
			return nil
		}
		known = append(known, name)
	}
	return unknown("algo", o.algo, known)
}

// memoryNeeded is what all ranks take together.
func memoryNeeded(o *options) uint64 {
	samples := 24 * uint64(o.iters) // this rank's, the slowest's, the floor's
	if o.overlap {
		samples *= 2
	}
	need := uint64(o.ranks) * (samples + rankSlack)
	for rank := range o.ranks {
		if o.roofline {
			break
		}
		send, recv := o.room(rank, o.ranks)
		need += uint64(max(0, send) + max(0, recv) + 2*guardBytes)
	}
	if o.roofline || o.vsRoofline {
		need += uint64(rigBytes(o.ranks, o.largest()))
	}
	return need
}

// checkMemory refuses what does not fit before anything is touched: running
// out later kills processes, and not always ours.
func checkMemory(o *options, available func() (uint64, error)) error {
	there, err := available()
	if err != nil {
		return fmt.Errorf("cannot tell how much memory there is: %w (is /proc mounted?)", err)
	}
	if need := memoryNeeded(o); need > there {
		return &memoryError{o.ranks, need, there}
	}
	return nil
}

// job is one set of ranks and what came from them.
type job struct {
	options *options
	ranks   int
	program string
	args    []string
	out     *output
	stderr  io.Writer

	mu       sync.Mutex
	commands []*exec.Cmd     // by rank
	failures map[int]failure // by rank, the first of each
	silent   []time.Time     // by rank, when it was last heard of
}

func (j *job) run(ctx context.Context) error {
	j.commands, j.failures, j.silent = make([]*exec.Cmd, j.ranks), map[int]failure{}, make([]time.Time, j.ranks)
	var inherited *os.File
	if j.options.roofline || j.options.vsRoofline {
		var err error
		if inherited, err = newShared(rigBytes(j.ranks, j.options.largest())); err != nil {
			return err
		}
		defer inherited.Close()
	}
	readers, writers := make([]*os.File, j.ranks), make([]*os.File, j.ranks)
	defer closeAll(readers)
	defer closeAll(writers)
	for rank := range j.ranks {
		var err error
		if readers[rank], writers[rank], err = os.Pipe(); err != nil {
			return fmt.Errorf("cannot start ranks: %w", err)
		}
	}
	launched, err := bootstrap.Launch(ctx, bootstrap.Spec{Size: j.ranks, Command: func(rank int) *exec.Cmd {
		cmd := exec.Command(j.program, j.args...)
		cmd.Stderr = j.stderr
		cmd.Env = append(os.Environ(), envEvents+"=fd:3")
		cmd.ExtraFiles = []*os.File{writers[rank]}
		if inherited != nil {
			cmd.Env = append(cmd.Env, envFloor+"=fd:4")
			cmd.ExtraFiles = append(cmd.ExtraFiles, inherited)
		}
		j.commands[rank] = cmd
		return cmd
	}})
	if err != nil {
		return err
	}
	closeAll(writers) // the readers end with the ranks
	var reading sync.WaitGroup
	for rank, r := range readers {
		reading.Go(func() {
			if err := readEvents(r, func(ev event) { j.take(rank, ev) }); err != nil {
				j.take(rank, event{Failure: &failure{rank, err.Error(), time.Now()}})
			}
			j.silent[rank] = time.Now() // its end of the pipe closed with it
		})
	}
	err = launched.Wait()
	reading.Wait()
	return j.cause(ctx, err)
}

func (j *job) take(rank int, ev event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if ev.Failure != nil {
		if _, known := j.failures[rank]; !known {
			j.failures[rank] = *ev.Failure
		}
		return
	}
	j.out.take(ev)
}

// cause picks, among what the launcher saw and what ranks reported, what a
// reader needs to know.
func (j *job) cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var rank *bootstrap.RankError
	if err == nil || !errors.As(err, &rank) || rank.Signal != nil {
		return err
	}
	first, told := j.failures[rank.Rank]
	if !told { // it ended without a word
		return err
	}
	for _, f := range j.failures {
		if f.At.Before(first.At) {
			first = f
		}
	}
	// One that died cannot tell, and the others may tell of it before the
	// launcher sees it. Long after, it is the launcher that killed it.
	for rank, cmd := range j.commands {
		_, told := j.failures[rank]
		status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if status.Signaled() && !told && j.silent[rank].Before(first.At.Add(time.Second)) {
			return &bootstrap.RankError{Rank: rank, Pid: cmd.Process.Pid, Signal: status.Signal(), ExitCode: -1}
		}
	}
	return &rankFailure{first}
}

// rankFailure is what a rank said before it ended.
type rankFailure struct{ failure }

func (e *rankFailure) Error() string { return e.Text }

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}
