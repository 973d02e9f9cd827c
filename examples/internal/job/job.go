// Package job runs an example: it starts the ranks, as processes of the same
// program, and prints what they say in rank order.
package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/mem"
)

// Rank is a rank of the job, which can print.
type Rank struct{ *tutti.Comm }

// patience is how long an example may take.
const patience = 2 * time.Minute

// Main is the whole of an example's main: it runs rank as each of n processes
// and exits, with status 0 if all of them returned nil.
func Main(n int, cfg tutti.Config, rank func(ctx context.Context, r *Rank) error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var err error
	switch {
	case n < 1:
		fmt.Fprintf(os.Stderr, "%d ranks; want at least 1\n", n)
		os.Exit(2)
	case bootstrap.Launcher() == "":
		err = launch(ctx, n)
	default:
		err = play(ctx, cfg, rank)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// launch starts this program once for each rank and waits for all.
func launch(ctx context.Context, n int) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	job, err := bootstrap.Launch(ctx, bootstrap.Spec{Size: n, Command: func(int) *exec.Cmd {
		cmd := exec.Command(program, os.Args[1:]...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		return cmd
	}})
	if err != nil {
		return err
	}
	return job.Wait()
}

// play is the life of a rank: join, work, leave.
func play(ctx context.Context, cfg tutti.Config, rank func(ctx context.Context, r *Rank) error) error {
	comm, err := tutti.Init(ctx, cfg)
	if err != nil {
		return err
	}
	if err := errors.Join(rank(ctx, &Rank{comm}), comm.Close()); err != nil {
		return fmt.Errorf("rank %d: %w", comm.Rank(), err)
	}
	return nil
}

// Headline prints a line once, whoever calls it.
func (r *Rank) Headline(format string, args ...any) {
	if r.Rank() == 0 {
		fmt.Printf(format+"\n", args...)
	}
}

// Say prints a line for each rank, in rank order. All ranks call it: the lines
// are gathered at rank 0, which prints them.
func (r *Rank) Say(ctx context.Context, format string, args ...any) error {
	line := fmt.Appendf(nil, "  rank %d  "+format+"\n", append([]any{r.Rank()}, args...)...)
	lengths := make([]int64, r.Size())
	if err := tutti.Gather(ctx, r.Comm, []int64{int64(len(line))}, lengths, 0); err != nil {
		return err
	}
	counts, total := make([]int, r.Size()), 0
	for i, length := range lengths {
		counts[i] = int(length)
		total += counts[i]
	}
	lines := make([]byte, total)
	if err := tutti.GatherV(ctx, r.Comm, line, lines, counts, 0); err != nil {
		return err
	}
	fmt.Print(string(lines)) // nothing, but at rank 0
	return nil
}

// Check prints what was checked and how that went, and is an error on every
// rank if it did not hold on all. All ranks call it.
func (r *Rank) Check(ctx context.Context, holds bool, what string) error {
	all := []uint8{0}
	if holds {
		all[0] = 1
	}
	if err := tutti.AllReduce(ctx, r.Comm, all, all, mem.Min); err != nil {
		return err
	}
	r.Headline("%s: %v", what, all[0] == 1)
	if all[0] == 0 {
		return fmt.Errorf("it does not hold that: %s", what)
	}
	return nil
}
