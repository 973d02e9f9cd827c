package softroce

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/tutti-go/tutti/ci/softroce/remote"
)

// A Cluster is a set of running machines, joined by one network. Each has the
// address 10.0.0.(i+1) on eth0, the name node<i>, and rxe0.
type Cluster struct {
	Accel  string // kvm or tcg
	Kernel string // version

	nodes []*Node
	known func(string) bool // whether a path is in the image
	stop  func()
}

// ErrClosed is why a closed cluster does nothing.
var ErrClosed = errors.New("softroce: the cluster is closed")

// A MachineError says that a machine stopped, or did not start.
type MachineError struct {
	Node    int
	Reason  string
	Console string // the last lines of its console
}

func (e *MachineError) Error() string {
	return fmt.Sprintf("softroce: node%d: %s; its console's last lines:\n%s", e.Node, e.Reason, e.Console)
}

// Nodes are the machines, in order.
func (c *Cluster) Nodes() []*Node { return c.nodes }

// Node is machine i, from 0.
func (c *Cluster) Node(i int) *Node { return c.nodes[i] }

// Close turns the machines off as a power failure would and returns when their
// processes have ended. Processes in them end with ErrClosed. It may be called
// more than once.
func (c *Cluster) Close() { c.stop() }

// Node is a machine.
type Node struct {
	Index   int
	Name    string // node0
	Address string // 10.0.0.1

	cluster *Cluster
	client  *remote.Client
	console *console
	idle    map[string]int // resource counts after boot

	mu     sync.Mutex
	failed error         // why it stopped
	gone   chan struct{} // closed when failed is set
}

func (n *Node) fail(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.failed == nil {
		n.failed = err
		close(n.gone)
	}
}

// Err is why the machine stopped, or nil while it runs.
func (n *Node) Err() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failed
}

// Gone is closed when the machine has stopped; Err says why.
func (n *Node) Gone() <-chan struct{} { return n.gone }

// Console returns the last lines of the machine's console.
func (n *Node) Console() string { return n.console.tail() }

// A console keeps what a machine last said.
type console struct {
	mu    sync.Mutex
	lines []string
}

const consoleLines = 60

// add keeps a line and reports whether the kernel has died.
func (c *console) add(line string) (fatal bool) {
	line = strings.TrimRight(line, "\r\n")
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.lines) >= consoleLines {
		c.lines = append(c.lines[:0], c.lines[1:]...)
	}
	c.lines = append(c.lines, line)
	return isFatal(line)
}

func (c *console) tail() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.lines, "\n")
}

// isFatal reports whether a line of the console is the end of a kernel. A
// stall is not: an emulated machine on a busy host has them and goes on.
func isFatal(line string) bool {
	for _, word := range []string{"Kernel panic", "Oops: ", "kernel BUG at", "BUG: unable to handle", "BUG: kernel NULL", "general protection fault", "Out of memory: Killed"} {
		if strings.Contains(line, word) {
			return true
		}
	}
	return false
}

// each runs f for all machines at a time and returns what went wrong.
func (c *Cluster) each(ctx context.Context, f func(context.Context, *Node) error) error {
	errs := make([]error, len(c.nodes))
	var wg sync.WaitGroup
	for i, n := range c.nodes {
		wg.Go(func() { errs[i] = f(ctx, n) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
