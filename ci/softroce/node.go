package softroce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/tutti-go/tutti/ci/softroce/image"
	"github.com/tutti-go/tutti/ci/softroce/remote"
)

// Command is a program to run in a machine. Nil streams are: nothing to read,
// and output dropped.
type Command = remote.Command

// killGrace is how long a killed process has to be gone.
const killGrace = 10 * time.Second

// An ExitError says that a program in a machine did not end well.
type ExitError struct {
	Node   int
	Args   []string
	Status remote.Status
	Stderr string // the end of its standard error, where Run has kept it
}

func (e *ExitError) Error() string {
	s := fmt.Sprintf("softroce: node%d: %s: %v", e.Node, strings.Join(e.Args, " "), e.Status)
	if e.Stderr != "" {
		s += ": " + e.Stderr
	}
	return s
}

// Process is a program that runs in a machine.
type Process struct {
	node *Node
	args []string
	p    *remote.Process
	ctx  context.Context
	free func() bool
}

// Start starts a program in the machine and returns at once. When ctx ends, the
// program is killed, with its process group. The caller must Wait.
func (n *Node) Start(ctx context.Context, cmd Command) (*Process, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	p, err := n.client.Start(cmd)
	if err != nil {
		return nil, n.why(err)
	}
	free := context.AfterFunc(ctx, func() {
		_ = p.Signal(syscall.SIGKILL) // Wait sees it when the stream is gone
	})
	return &Process{n, cmd.Args, p, ctx, free}, nil
}

// why prefers the machine's end as the cause of a broken stream.
func (n *Node) why(err error) error {
	if !errors.Is(err, remote.ErrClosed) {
		return fmt.Errorf("softroce: node%d: %w", n.Index, err)
	}
	select {
	case <-n.gone:
	case <-time.After(killGrace): // QEMU ends with the stream
		return fmt.Errorf("softroce: node%d: %w", n.Index, err)
	}
	return n.Err()
}

// Signal sends a signal to the program and its process group.
func (p *Process) Signal(s syscall.Signal) error {
	if err := p.p.Signal(s); err != nil {
		return p.node.why(err)
	}
	return nil
}

// Wait blocks until the program has ended and its output is delivered. The
// error is an *ExitError unless it ended with status 0; the cause of the
// context's end if that killed it; or a *MachineError.
func (p *Process) Wait() error {
	defer p.free()
	select {
	case <-p.p.Done():
	case <-p.node.gone:
		return p.node.Err()
	case <-p.ctx.Done():
		select {
		case <-p.p.Done():
		case <-p.node.gone:
		case <-time.After(killGrace):
		}
		return fmt.Errorf("softroce: node%d: %s: %w", p.node.Index, strings.Join(p.args, " "), context.Cause(p.ctx))
	}
	status, err := p.p.Wait()
	if err != nil {
		return p.node.why(err)
	}
	if !status.OK() {
		return &ExitError{Node: p.node.Index, Args: p.args, Status: status}
	}
	return nil
}

// Do runs a program and waits for it.
func (n *Node) Do(ctx context.Context, cmd Command) error {
	p, err := n.Start(ctx, cmd)
	if err != nil {
		return err
	}
	return p.Wait()
}

// Run runs a program and returns what it wrote to standard output, also when
// it fails; the error has the end of its standard error.
func (n *Node) Run(ctx context.Context, args ...string) (string, error) {
	var out, complaint bytes.Buffer
	err := n.Do(ctx, Command{Args: args, Stdout: &out, Stderr: &complaint})
	var exit *ExitError
	if errors.As(err, &exit) {
		exit.Stderr = strings.TrimSpace(lastBytes(complaint.String(), 2000))
	}
	return out.String(), err
}

func lastBytes(s string, n int) string { return s[max(0, len(s)-n):] }

// Shell runs a line of shell as Run does.
func (n *Node) Shell(ctx context.Context, line string) (string, error) {
	return n.Run(ctx, "/bin/sh", "-c", line)
}

// Put copies a file of this machine into the node, all of it or nothing. A
// program brings the libraries that it needs and that the node lacks.
func (n *Node) Put(ctx context.Context, there, here string) error {
	libraries, err := image.Libraries(ctx, here)
	if err != nil {
		return err
	}
	for _, l := range libraries {
		if n.cluster.known(l) {
			continue
		}
		if err := n.putFile(ctx, l, l); err != nil {
			return err
		}
	}
	return n.putFile(ctx, there, here)
}

func (n *Node) putFile(ctx context.Context, there, here string) error {
	f, err := os.Open(here)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return n.Write(ctx, there, f, info.Mode())
}

// Write makes a file in the node of what it reads.
func (n *Node) Write(ctx context.Context, there string, from io.Reader, mode os.FileMode) error {
	var complaint bytes.Buffer
	err := n.Do(ctx, Command{
		Args:  []string{"/init", "put", there, fmt.Sprintf("%o", mode.Perm())},
		Stdin: from, Stderr: &complaint,
	})
	var exit *ExitError
	if errors.As(err, &exit) {
		exit.Stderr = strings.TrimSpace(complaint.String())
	}
	return err
}
