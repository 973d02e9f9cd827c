package bootstrap

import (
	"fmt"
	"os"
	"os/exec"
)

// Spec says what to launch.
type Spec struct {
	// Size is the number of ranks.
	Size int
	// Command returns the command of a rank, not started. Launch adds to its
	// environment and its ExtraFiles.
	Command func(rank int) *exec.Cmd
}

// RankError says how a rank ended that should not have.
type RankError struct {
	Rank, Pid int
	Signal    os.Signal // that killed it, or nil
	ExitCode  int       // -1 when a signal did
	Err       error     // when it could not be started, spoke nonsense, or left too early
}

func (e *RankError) Error() string {
	switch {
	case e.Err != nil && e.Pid == 0:
		return fmt.Sprintf("rank %d could not be started: %v", e.Rank, e.Err)
	case e.Err != nil:
		return fmt.Sprintf("rank %d (pid %d): %v", e.Rank, e.Pid, e.Err)
	case e.Signal != nil:
		return fmt.Sprintf("rank %d (pid %d) was killed by signal %d (%v)", e.Rank, e.Pid, e.Signal, e.Signal)
	}
	return fmt.Sprintf("rank %d (pid %d) ended with exit status %d", e.Rank, e.Pid, e.ExitCode)
}

func (e *RankError) Unwrap() error { return e.Err }
