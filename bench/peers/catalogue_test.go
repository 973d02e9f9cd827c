package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestCatalogue(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range catalogue() {
		if p.Name == "" || seen[p.Name] {
			t.Errorf("peer %q: no name, or twice", p.Name)
		}
		seen[p.Name] = true
		if p.Title == "" || p.Settings == "" || p.Package == "" || len(p.Ops) == 0 {
			t.Errorf("peer %s: title, settings, package or ops missing", p.Name)
		}
		if (len(p.Apt) > 0) == (len(p.Pip) > 0) {
			t.Errorf("peer %s: wants packages from exactly one place", p.Name)
		}
		if _, err := sources.ReadFile("src/" + p.Source); err != nil {
			t.Errorf("peer %s: %v", p.Name, err)
		}
		for _, pattern := range p.Leftovers {
			if _, err := filepath.Match(pattern, ""); err != nil || strings.HasPrefix(pattern, "*") {
				t.Errorf("peer %s: leftovers %q: %v", p.Name, pattern, err)
			}
		}
		// A campaign of all collectives is to end within the hour.
		checkVariants(t, p, place{venv: "/venv", tmp: "/tmp/run"}, 3, 6)
	}
}

// checkVariants sees that each is launched with its settings, and that each op
// has one, and not more than so many.
func checkVariants(t *testing.T, p Peer, at place, launch, most int) {
	t.Helper()
	for _, name := range p.Ops {
		op, ok := opByName(name)
		if !ok {
			t.Errorf("peer %s: no op %q", p.Name, name)
		}
		for _, ranks := range []int{2, 4} {
			c := &campaign{work: Work{InPlace: true}, variants: true, cores: 2}
			n := len(c.usable(p, op, ranks))
			if n == 0 {
				t.Errorf("peer %s: no variant for %s with %d ranks on 2 cores", p.Name, name, ranks)
			}
			if n > most {
				t.Errorf("peer %s: %d variants for %s, more than %d", p.Name, n, name, most)
			}
		}
	}
	for _, v := range p.Variants {
		for _, name := range v.Ops {
			if !slices.Contains(p.Ops, name) {
				t.Errorf("peer %s, %s: is for %s, which the peer has not", p.Name, v.Name, name)
			}
		}
	}
	names := map[string]bool{}
	for _, v := range p.Variants {
		if v.Name == "" || names[v.Name] {
			t.Errorf("peer %s: variant %q: no name, or twice", p.Name, v.Name)
		}
		names[v.Name] = true
		prog := []string{"prog", "-b", "8"}
		started := 0
		for _, c := range p.Launch(at, v, launch, prog) {
			if len(c.Args) < len(prog) || !slices.Equal(c.Args[len(c.Args)-len(prog):], prog) {
				t.Errorf("peer %s, %s: %q does not end in the program", p.Name, v.Name, c.Args)
			}
			for _, e := range v.Env {
				if !slices.Contains(c.Env, e) {
					t.Errorf("peer %s, %s: %s is not set", p.Name, v.Name, e)
				}
			}
			if i := slices.Index(c.Args, "-n"); i >= 0 && c.Args[i+1] == strconv.Itoa(launch) {
				started += launch
			} else {
				started++
			}
		}
		if started != launch {
			t.Errorf("peer %s, %s: starts %d ranks of %d", p.Name, v.Name, started, launch)
		}
	}
}

// The program of the MPIs must compile without a word from the compiler with
// whatever MPI this machine has.
func TestCompileMPI(t *testing.T) {
	dir := t.TempDir()
	if err := writeSources(filepath.Join(dir, "src")); err != nil {
		t.Fatal(err)
	}
	found := false
	for _, mpicc := range []string{"mpicc.openmpi", "mpicc.mpich", "mpicc"} {
		if _, err := exec.LookPath(mpicc); err != nil {
			continue
		}
		found = true
		out, err := exec.CommandContext(context.Background(), mpicc, "-O2", "-Wall", "-Wextra", "-Werror",
			"-o", filepath.Join(dir, mpicc), filepath.Join(dir, "src", "mpi.c"), "-lm").CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", mpicc, err, out)
		}
	}
	if !found {
		t.Skip("NOT TESTED: mpi.c was not compiled: this machine has no mpicc (Debian: libopenmpi-dev or libmpich-dev)")
	}
}
