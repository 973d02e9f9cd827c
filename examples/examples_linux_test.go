// Package examples runs every example as a user would, and compares what it
// prints with testdata; -update writes that anew.
package examples

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	// What the examples are made of. Without it, and without a look at their
	// sources, go test would not know when it has to run them again.
	_ "github.com/tutti-go/tutti"
	_ "github.com/tutti-go/tutti/bucket"
	_ "github.com/tutti-go/tutti/examples/internal/job"
)

var update = flag.Bool("update", false, "write testdata anew")

// dir is the folder that the examples are built in.
var dir string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) (status int) {
	var err error
	if dir, err = os.MkdirTemp("", "examples-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	sources, err := filepath.Glob("*/*.go")
	for _, source := range sources {
		_, failed := os.ReadFile(source)
		err = errors.Join(err, failed)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir += "/" // go build then takes it for a folder
	if out, err := exec.Command("go", "build", "-o", dir, "./...").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// output runs a program and fails the test unless it ends well and is silent on
// stderr.
func output(t *testing.T, program string, args ...string) []byte {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil || stderr.Len() > 0 {
		t.Fatalf("%s %v: %v\n%s%s", filepath.Base(program), args, err, &stdout, &stderr)
	}
	return stdout.Bytes()
}

func TestExamples(t *testing.T) {
	sources, err := filepath.Glob("*/main.go")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, source := range sources {
		name := filepath.Dir(source)
		t.Run(name, func(t *testing.T) {
			got := output(t, dir+name)
			golden := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("it prints\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// TestOtherSizes: the examples that take a number of ranks check themselves.
func TestOtherSizes(t *testing.T) {
	for name, sizes := range map[string][]string{
		"cheatsheet": {"2", "5"},
		"mean":       {"1", "3"},
		"softmax":    {"1", "5"},
		"argmax":     {"1", "3", "7"},
		"ring":       {"1", "2", "5"},
		"train":      {"1", "3"},
	} {
		for _, n := range sizes {
			output(t, dir+name, "-ranks", n)
		}
	}
}

// TestRefused: what an example cannot do is an error, and told so.
func TestRefused(t *testing.T) {
	for _, k := range []struct {
		name, ranks string
		status      int
	}{{"mean", "0", 2}, {"argmax", "17", 1}, {"cheatsheet", "1", 1}} {
		var exit *exec.ExitError
		out, err := exec.Command(dir+k.name, "-ranks", k.ranks).CombinedOutput()
		if !errors.As(err, &exit) || exit.ExitCode() != k.status || len(out) == 0 {
			t.Errorf("%s -ranks %s: %v, want status %d\n%s", k.name, k.ranks, err, k.status, out)
		}
	}
}
