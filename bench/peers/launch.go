package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// A launcher starts benchmark programs, one run at a time, and leaves nothing
// of them behind: no process, no temporary folder, no shared memory.
type launcher struct {
	tmp string // parent of the runs' folders
}

// run starts the commands, waits for all and returns what they printed on
// standard output. Past limit, or when ctx ends, everything is killed; what was
// printed until then is returned with the error.
func (l *launcher) run(ctx context.Context, limit time.Duration, leftovers []string, commands func(tmp string) []Command) ([]byte, error) {
	tmp, err := os.MkdirTemp(l.tmp, "run-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	before := shmFiles(leftovers)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	cmds := commands(tmp)
	outs := make([]bytes.Buffer, len(cmds))
	errs := make([]bytes.Buffer, len(cmds))
	failed := make([]error, len(cmds))
	var wg sync.WaitGroup
	for i, c := range cmds {
		cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
		cmd.Env = append(cleanEnv(os.Environ()), append([]string{"TMPDIR=" + tmp}, c.Env...)...)
		cmd.Stdout, cmd.Stderr = &outs[i], &errs[i]
		// A launcher is asked first: it knows its ranks. The sweep below takes
		// what does not listen.
		cmd.Cancel = func() error { return terminate(cmd) }
		cmd.WaitDelay = 3 * time.Second
		ownGroup(cmd)
		if err := cmd.Start(); err != nil {
			cancel()
			wg.Wait()
			sweep()
			return nil, err
		}
		wg.Go(func() {
			if failed[i] = cmd.Wait(); failed[i] != nil && len(cmds) > 1 {
				cancel() // the other ranks would wait for it
			}
		})
	}
	wg.Wait()
	sweep()
	removeNew(leftovers, before)

	var out []byte
	for i := range outs {
		out = append(out, outs[i].Bytes()...)
	}
	var said []byte
	for i := range errs {
		said = append(said, errs[i].Bytes()...)
	}
	if err := errors.Join(failed...); err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return out, fmt.Errorf("not done after %v", limit.Round(time.Second))
		}
		if errors.Is(context.Cause(ctx), context.Canceled) && len(said) == 0 {
			return out, context.Canceled
		}
		return out, fmt.Errorf("%s: %w: %s", cmp.Or(cmds[0].Name, filepath.Base(cmds[0].Args[0])), firstError(failed), lastWords(said))
	}
	return out, nil
}

func firstError(errs []error) error {
	for _, e := range errs {
		if e != nil {
			return e
		}
	}
	return nil
}

// lastWords is the part of a program's complaint that fits a table's footnote.
func lastWords(b []byte) string {
	var kept []string
	for line := range strings.Lines(string(b)) {
		line = strings.Join(strings.Fields(line), " ")
		if line != "" && strings.Trim(line, "-=*") != "" {
			kept = append(kept, line)
		}
	}
	if len(kept) == 0 {
		return "it said nothing"
	}
	s := strings.Join(kept[:min(3, len(kept))], "; ")
	if len(s) > 300 {
		s = s[:300] + "..."
	}
	return s
}

// tuning are prefixes of variables that tune a peer. They are taken out of the
// environment, so that a run depends on the catalogue alone.
var tuning = []string{"OMPI_", "PMIX_", "PRTE_", "PMI_", "MPIR_", "MPICH_", "MPIEXEC_", "HYDRA_", "I_MPI_", "UCX_", "FI_", "CCL_", "GLOO_", "PEERS_"}

func cleanEnv(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		return strings.HasPrefix(v, "TMPDIR=") || slices.ContainsFunc(tuning, func(p string) bool { return strings.HasPrefix(v, p) })
	})
}

func shmFiles(patterns []string) map[string]bool {
	found := map[string]bool{}
	for _, p := range patterns {
		names, err := filepath.Glob(filepath.Join("/dev/shm", p))
		if err != nil {
			continue // a bad pattern; the catalogue's test finds it
		}
		for _, n := range names {
			found[n] = true
		}
	}
	return found
}

// removeNew takes away what a killed run left in /dev/shm; what was there
// before it is somebody else's.
func removeNew(patterns []string, before map[string]bool) {
	for n := range shmFiles(patterns) {
		if !before[n] {
			_ = os.Remove(n) // gone already is as good
		}
	}
}
