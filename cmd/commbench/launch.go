package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/internal/cpu"
)

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
