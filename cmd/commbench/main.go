package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/tutti-go/tutti/bootstrap"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program; it returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := untilSignal()
	defer stop(nil)
	results := &checkedWriter{w: stdout, failed: stop} // nobody measures for nobody
	work := func(ctx context.Context, o *options) error { return runParent(ctx, o, args, results, stderr) }
	if bootstrap.Launcher() != "" {
		work = func(ctx context.Context, o *options) error { return runRank(ctx, o, results, stderr) }
	}
	err := execute(ctx, args, work, results, stderr)
	if err == nil {
		err = results.err
	}
	var told *toldError
	if err != nil && !errors.As(err, &told) {
		fmt.Fprintln(stderr, "commbench: "+oneLine(err))
	}
	return exitStatus(err)
}

// untilSignal is a context that the first SIGINT, SIGTERM or SIGHUP ends, or
// the function it returns; a second signal ends the process. A rank leaves what
// a terminal sends to both to its parent, which ends its ranks.
func untilSignal() (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signal.Ignore(syscall.SIGPIPE) // the write fails, and that is reported
	kinds := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup
		kinds = append(kinds, syscall.SIGHUP)
	}
	if os.Getenv(envEvents) != "" {
		signal.Ignore(syscall.SIGINT, syscall.SIGHUP)
		return ctx, cancel
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, kinds...)
	go func() {
		select {
		case s := <-signals:
			number, _ := s.(syscall.Signal)
			cancel(&signalError{s.String(), int(number)})
		case <-ctx.Done():
		}
		signal.Reset(kinds...)
	}()
	return ctx, cancel
}
