package remote

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// outputGrace is how long a process's children may keep its output open once
// it has ended.
const outputGrace = time.Second

// Serve says hello and runs what the client asks for until the stream ends;
// then it kills what still runs and waits for it. A clean end is no error. The
// stream stays open.
func Serve(conn io.ReadWriter, hello Hello) error {
	s := &server{out: frameWriter{w: conn}, running: map[uint32]*job{}}
	word, err := json.Marshal(hello)
	if err != nil {
		return err
	}
	if err := s.out.write(frame{kindHello, 0, word}); err != nil {
		return err
	}
	err = s.loop(bufio.NewReaderSize(conn, chunkBytes))
	s.killAll()
	s.work.Wait()
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

type server struct {
	out  frameWriter
	work sync.WaitGroup

	mu      sync.Mutex
	running map[uint32]*job
}

// A job is a process of the client's, from its start frame to its exit frame.
type job struct {
	cmd   *exec.Cmd
	stdin *queue[[]byte]

	mu  sync.Mutex
	pid int // of the process and its group; 0 before the start and after the end
}

func (j *job) signal(s syscall.Signal) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.pid != 0 {
		_ = syscall.Kill(-j.pid, s) // no such process: it has just ended
	}
}

func (j *job) setPid(pid int) {
	j.mu.Lock()
	j.pid = pid
	j.mu.Unlock()
}

func (s *server) loop(r *bufio.Reader) error {
	for {
		f, err := readFrame(r)
		if err != nil {
			return err
		}
		s.mu.Lock()
		j := s.running[f.process]
		s.mu.Unlock()
		switch f.kind {
		case kindStart:
			if j != nil {
				return &StreamError{fmt.Sprintf("process %d started twice", f.process)}
			}
			if err := s.start(f); err != nil {
				return err
			}
		case kindStdin:
			if j != nil {
				j.stdin.put(f.payload)
			}
		case kindStdinEnd:
			if j != nil {
				j.stdin.end()
			}
		case kindSignal:
			if len(f.payload) != 1 {
				return &StreamError{"a signal without a number"}
			}
			if j != nil {
				j.signal(syscall.Signal(f.payload[0]))
			}
		default:
			return &StreamError{fmt.Sprintf("a frame of kind %d from a client", f.kind)}
		}
	}
}

func (s *server) start(f frame) error {
	var c Command
	if err := json.Unmarshal(f.payload, &c); err != nil || len(c.Args) == 0 {
		return &StreamError{fmt.Sprintf("a start of nothing: %v", err)}
	}
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Dir = c.Dir
	cmd.Stdout = stream{&s.out, kindStdout, f.process}
	cmd.Stderr = stream{&s.out, kindStderr, f.process}
	cmd.WaitDelay = outputGrace
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	j := &job{cmd: cmd, stdin: newQueue[[]byte]()}
	pipe, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return s.exit(f.process, Status{Code: -1, Err: err.Error()})
	}
	j.setPid(cmd.Process.Pid)
	s.mu.Lock()
	s.running[f.process] = j
	s.mu.Unlock()
	s.work.Go(func() { feed(pipe, j.stdin) })
	s.work.Go(func() {
		status := s.wait(j)
		j.stdin.end()
		s.mu.Lock()
		delete(s.running, f.process)
		s.mu.Unlock()
		// The reader finds out when the stream is broken.
		_ = s.exit(f.process, status)
	})
	return nil
}

// feed writes standard input, which nobody may read any more.
func feed(to io.WriteCloser, from *queue[[]byte]) {
	defer func() { _ = to.Close() }()
	for {
		b, ok := from.take()
		if !ok {
			return
		}
		if _, err := to.Write(b); err != nil {
			return
		}
	}
}

func (s *server) wait(j *job) Status {
	err := j.cmd.Wait()
	j.setPid(0)
	state := j.cmd.ProcessState
	if state == nil {
		return Status{Code: -1, Err: err.Error()}
	}
	status := Status{Code: state.ExitCode()}
	if w, ok := state.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		status.Signal = w.Signal()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) && status.OK() {
		status.Err = err.Error()
	}
	return status
}

func (s *server) exit(process uint32, status Status) error {
	word, err := json.Marshal(status)
	if err != nil {
		return err
	}
	return s.out.write(frame{kindExit, process, word})
}

func (s *server) killAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.running {
		j.stdin.end()
		j.signal(syscall.SIGKILL)
	}
}
