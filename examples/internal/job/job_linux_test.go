package job_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/examples/internal/job"
)

// The test binary is its own example: with this variable set it plays one.
const role = "JOB_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(role) == "" {
		os.Exit(m.Run())
	}
	job.Main(3, tutti.Config{}, func(ctx context.Context, r *job.Rank) error {
		r.Headline("hello, %d", r.Size())
		if err := r.Say(ctx, "%s", strings.Repeat("x", r.Rank())); err != nil {
			return err
		}
		return r.Check(ctx, os.Getenv(role) != "wrong" || r.Rank() != 2, "all is well")
	})
}

func play(name string) (stdout string, err error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), role+"="+name)
	out, err := cmd.Output()
	return string(out), err
}

const spoken = "hello, 3\n  rank 0  \n  rank 1  x\n  rank 2  xx\nall is well: "

func TestRight(t *testing.T) {
	if out, err := play("right"); err != nil || out != spoken+"true\n" {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestWrong: a check that fails on one rank fails the program.
func TestWrong(t *testing.T) {
	out, err := play("wrong")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || out != spoken+"false\n" {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(exit.Stderr), "rank 2: it does not hold that: all is well") {
		t.Errorf("stderr: %s", exit.Stderr)
	}
}
