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
	defer stop()
	work := func(ctx context.Context, o *options) error { return runParent(ctx, o, args, stdout, stderr) }
	if os.Getenv(bootstrap.EnvRank) != "" {
		work = func(ctx context.Context, o *options) error { return runRank(ctx, o, stdout, stderr) }
	}
	err := execute(ctx, args, work, stdout, stderr)
	var told *toldError
	if err != nil && !errors.As(err, &told) {
		fmt.Fprintln(stderr, "commbench: "+oneLine(err))
	}
	return exitStatus(err)
}

// untilSignal is a context that the first SIGINT, SIGTERM or SIGHUP ends; a
// second one ends the process. A rank leaves what a terminal sends to both to
// its parent, which ends its ranks.
func untilSignal() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	kinds := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}
	if os.Getenv(envEvents) != "" {
		signal.Ignore(syscall.SIGINT, syscall.SIGHUP)
		return ctx, func() { cancel(nil) }
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, kinds...)
	go func() {
		select {
		case s := <-signals:
			number, _ := s.(syscall.Signal)
			cancel(&signalError{s.String(), int(number)})
			signal.Reset(kinds...)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}
