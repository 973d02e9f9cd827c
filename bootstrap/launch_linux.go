package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// grace is how long ranks have to end by themselves once the job has failed.
const grace = 2 * time.Second

// Job is a set of running ranks.
type Job struct {
	hub     *hub
	waiting sync.WaitGroup
	ended   []chan struct{} // by rank: closed when its process has ended
	over    chan struct{}   // closed when all ranks have ended
	stop    context.CancelFunc

	mu       sync.Mutex
	commands []*exec.Cmd // those that were started, by rank
	err      error       // the first cause
}

// Launch starts the ranks of a job on this machine and serves their
// rendezvous over inherited sockets; nothing listens. The ranks die with this
// process, whatever kills it, and with ctx.
//
// The first rank that ends with anything but status 0, or while others wait for
// it, fails the job: the others are told, and killed after a grace of two
// seconds. The caller must Wait, which also gives back what the Job holds.
func Launch(ctx context.Context, spec Spec) (*Job, error) {
	ctx, stop := context.WithCancel(ctx)
	j := &Job{over: make(chan struct{}), stop: stop}
	for range spec.Size {
		j.ended = append(j.ended, make(chan struct{}))
	}
	started := make(chan error)
	// The kernel sends a child its death signal when the thread that started
	// it ends, so that thread stays until all children have ended.
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		started <- j.start(spec)
		<-j.over
	}()
	if err := <-started; err != nil {
		j.kill()
		j.waiting.Wait()
		close(j.over)
		if j.hub != nil {
			j.hub.close()
		}
		stop()
		return nil, err
	}
	go func() {
		j.waiting.Wait()
		close(j.over)
	}()
	go func() {
		select {
		case <-ctx.Done():
			j.fail(context.Cause(ctx))
			j.kill()
		case <-j.over:
		}
	}()
	return j, nil
}

// start makes the sockets and starts the commands.
func (j *Job) start(spec Spec) error {
	var ours []net.Conn
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	for range spec.Size {
		conn, file, err := socketPair()
		if err != nil {
			for _, c := range ours {
				c.Close()
			}
			return err
		}
		ours, theirs = append(ours, conn), append(theirs, file)
	}
	j.hub = newHub(ours, j.wrong)
	for rank := range spec.Size {
		cmd := spec.Command(rank)
		fd := 3 + len(cmd.ExtraFiles)
		cmd.ExtraFiles = append(cmd.ExtraFiles, theirs[rank])
		if cmd.Env == nil {
			cmd.Env = os.Environ()
		}
		cmd.Env = append(cmd.Env,
			EnvRank+"="+strconv.Itoa(rank), EnvLocalRank+"="+strconv.Itoa(rank),
			EnvSize+"="+strconv.Itoa(spec.Size), fmt.Sprintf("%s=fd:%d", EnvBootstrap, fd))
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
		j.mu.Lock()
		err := cmd.Start()
		if err == nil {
			j.commands = append(j.commands, cmd)
		}
		j.mu.Unlock()
		if err != nil {
			return &RankError{Rank: rank, Err: err}
		}
		j.waiting.Go(func() { j.wait(rank, cmd) })
	}
	return nil
}

// wrong reports what the hub noticed of a rank.
func (j *Job) wrong(rank int, err error) {
	if errors.Is(err, ErrLeft) {
		// It may have been killed, or failed. Then wait has reported that, and
		// this is not the first cause.
		select {
		case <-j.ended[rank]:
			err = fmt.Errorf("ended with exit status 0: %w", err)
		case <-j.over:
		case <-time.After(grace):
		}
	}
	cause := &RankError{Rank: rank, Err: err}
	if pids := j.Pids(); rank < len(pids) { // else it was not started
		cause.Pid = pids[rank]
	}
	j.fail(cause)
}

// wait reports how a rank ended.
func (j *Job) wait(rank int, cmd *exec.Cmd) {
	defer close(j.ended[rank])
	err := cmd.Wait()
	if err == nil {
		return
	}
	cause := &RankError{Rank: rank, Pid: cmd.Process.Pid, ExitCode: -1}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		cause.Err = err
	} else if status := exit.Sys().(syscall.WaitStatus); status.Signaled() {
		cause.Signal = status.Signal()
	} else {
		cause.ExitCode = status.ExitStatus()
	}
	j.fail(cause)
}

// fail records the first cause, tells the ranks, and kills those that have
// not ended after the grace.
func (j *Job) fail(err error) {
	j.mu.Lock()
	first := j.err == nil
	if first {
		j.err = err
	}
	j.mu.Unlock()
	if !first {
		return
	}
	go j.hub.fail(err.Error(), grace/4)
	go func() {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-timer.C:
			j.kill()
		case <-j.over:
		}
	}()
}

func (j *Job) kill() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, cmd := range j.commands {
		_ = cmd.Process.Kill() // one that has ended already is fine
	}
}

// Wait returns when every rank has ended: nil when all did with status 0, else
// the first cause, a *RankError or the cause of the context's end.
func (j *Job) Wait() error {
	<-j.over
	j.stop()
	j.hub.close()
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// Pids lists the ranks' processes, by rank.
func (j *Job) Pids() []int {
	j.mu.Lock()
	defer j.mu.Unlock()
	pids := make([]int, len(j.commands))
	for rank, cmd := range j.commands {
		pids[rank] = cmd.Process.Pid
	}
	return pids
}

func socketPair() (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	ours := os.NewFile(uintptr(fds[0]), "bootstrap")
	defer ours.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		unix.Close(fds[1])
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	return conn, os.NewFile(uintptr(fds[1]), "bootstrap"), nil
}
