package remote

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
)

// Hello is the server's first word.
type Hello struct {
	Name string `json:"name"` // of the machine
	Err  string `json:"err"`  // what went wrong before the server could serve, or ""
}

// Command is what to run. Its standard streams are the client's and do not
// cross as JSON.
type Command struct {
	Args []string `json:"args"` // program and arguments; the program is looked up in PATH
	Env  []string `json:"env"`  // KEY=value, added to the server's
	Dir  string   `json:"dir"`  // "" is the server's

	Stdin          io.Reader `json:"-"` // nil is the null device
	Stdout, Stderr io.Writer `json:"-"` // nil drops what is written
}

// Status says how a process ended.
type Status struct {
	Code   int            `json:"code"`   // the exit status, -1 where there is none
	Signal syscall.Signal `json:"signal"` // that killed it, or 0
	Err    string         `json:"err"`    // why it could not be started, or ""
}

// OK reports whether the process ended by itself with status 0.
func (s Status) OK() bool { return s.Code == 0 && s.Signal == 0 && s.Err == "" }

func (s Status) String() string {
	switch {
	case s.Err != "":
		return s.Err
	case s.Signal != 0:
		return fmt.Sprintf("killed by signal %d (%v)", int(s.Signal), s.Signal)
	}
	return fmt.Sprintf("exit status %d", s.Code)
}

// ErrClosed is why a process of a closed Client has no Status.
var ErrClosed = errors.New("remote: the connection is closed")

// Client starts processes at the other end of a stream. It may be used by any
// number of goroutines.
type Client struct {
	conn io.ReadWriteCloser
	out  frameWriter

	greeted chan struct{} // closed when hello is there
	hello   Hello
	done    chan struct{} // closed when the stream has ended; err says why
	err     error

	mu        sync.Mutex
	closed    bool
	last      uint32
	processes map[uint32]*Process
}

// NewClient takes over the stream, which Close closes.
func NewClient(conn io.ReadWriteCloser) *Client {
	c := &Client{
		conn: conn, out: frameWriter{w: conn},
		greeted: make(chan struct{}), done: make(chan struct{}),
		processes: map[uint32]*Process{},
	}
	go c.read()
	return c
}

// Hello blocks until the server has spoken, the stream has ended or ctx has.
func (c *Client) Hello(ctx context.Context) (Hello, error) {
	select {
	case <-c.greeted:
		return c.hello, nil
	case <-c.done:
		return Hello{}, c.err
	case <-ctx.Done():
		return Hello{}, ctx.Err()
	}
}

// Done is closed when the stream has ended.
func (c *Client) Done() <-chan struct{} { return c.done }

// Close ends the stream. The server kills what still runs; Wait of each such
// process returns ErrClosed.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	err := c.conn.Close()
	<-c.done
	return err
}

// Start starts a process and returns at once: a program that does not exist
// shows in the Status. What the process writes goes to Stdout and Stderr in
// the order in which it comes, from one goroutine; the caller must Wait.
func (c *Client) Start(cmd Command) (*Process, error) {
	if len(cmd.Args) == 0 {
		return nil, errors.New("remote: a command without a program")
	}
	request, err := json.Marshal(cmd)
	if err != nil {
		return nil, err
	}
	if len(request) > maxPayload {
		return nil, fmt.Errorf("remote: a command of %d bytes, the most is %d", len(request), maxPayload)
	}
	c.mu.Lock()
	if c.err != nil || c.closed {
		err := c.err
		c.mu.Unlock()
		return nil, errors.Join(ErrClosed, err)
	}
	c.last++
	p := &Process{client: c, id: c.last, cmd: cmd, output: newQueue[frame](), over: make(chan struct{})}
	c.processes[p.id] = p
	c.mu.Unlock()

	go p.deliver()
	if err := c.out.write(frame{kindStart, p.id, request}); err != nil {
		c.forget(p)
		p.output.end()
		return nil, errors.Join(ErrClosed, err)
	}
	go p.feed()
	return p, nil
}

func (c *Client) forget(p *Process) {
	c.mu.Lock()
	delete(c.processes, p.id)
	c.mu.Unlock()
}

// read hands out what comes until the stream ends.
func (c *Client) read() {
	r := bufio.NewReaderSize(c.conn, chunkBytes)
	err := c.serve(r)
	if errors.Is(err, io.EOF) {
		err = ErrClosed
	}
	c.mu.Lock()
	c.err = err
	left := c.processes
	c.processes = map[uint32]*Process{}
	c.mu.Unlock()
	close(c.done)
	for _, p := range left {
		p.output.end()
	}
}

func (c *Client) serve(r *bufio.Reader) error {
	for first := true; ; first = false {
		f, err := readFrame(r)
		if err != nil {
			return err
		}
		if first != (f.kind == kindHello) {
			return &StreamError{fmt.Sprintf("a frame of kind %d out of turn", f.kind)}
		}
		switch f.kind {
		case kindHello:
			if err := json.Unmarshal(f.payload, &c.hello); err != nil {
				return &StreamError{"hello: " + err.Error()}
			}
			close(c.greeted)
		case kindStdout, kindStderr, kindExit:
			c.mu.Lock()
			p := c.processes[f.process]
			if f.kind == kindExit {
				delete(c.processes, f.process)
			}
			c.mu.Unlock()
			if p != nil {
				p.output.put(f)
			}
		default:
			return &StreamError{fmt.Sprintf("a frame of kind %d from a server", f.kind)}
		}
	}
}

// Process is one that was started.
type Process struct {
	client *Client
	id     uint32
	cmd    Command
	output *queue[frame]

	over   chan struct{} // closed when status and err hold
	status Status
	err    error
}

// deliver writes the output where the caller wants it, and ends with the
// process. A writer that fails loses the rest of its stream, as a closed pipe
// would.
func (p *Process) deliver() {
	defer close(p.over)
	out, errs := p.cmd.Stdout, p.cmd.Stderr
	for {
		f, ok := p.output.take()
		switch {
		case !ok:
			p.err = ErrClosed
			return
		case f.kind == kindStdout && out != nil:
			if _, err := out.Write(f.payload); err != nil {
				out = nil
			}
		case f.kind == kindStderr && errs != nil:
			if _, err := errs.Write(f.payload); err != nil {
				errs = nil
			}
		case f.kind == kindExit:
			if err := json.Unmarshal(f.payload, &p.status); err != nil {
				p.err = &StreamError{"exit: " + err.Error()}
			}
			return
		}
	}
}

// feed sends standard input until it or the stream ends. The server drops what
// a process that has ended did not read.
func (p *Process) feed() {
	if p.cmd.Stdin != nil {
		// Without its ReaderFrom or WriterTo, so that frames keep their size.
		_, _ = io.CopyBuffer(stream{&p.client.out, kindStdin, p.id}, struct{ io.Reader }{p.cmd.Stdin}, make([]byte, chunkBytes))
	}
	_ = p.client.out.write(frame{kindStdinEnd, p.id, nil}) // the reader sees the stream's end as well
}

// Signal sends a signal to the process and all of its group. One that has
// ended is left alone.
func (p *Process) Signal(s syscall.Signal) error {
	return p.client.out.write(frame{kindSignal, p.id, []byte{byte(s)}})
}

// Done is closed when the process has ended and its output is delivered.
func (p *Process) Done() <-chan struct{} { return p.over }

// Wait blocks until the process has ended and its output is delivered. The
// error, with which there is no Status, is that the stream ended before.
func (p *Process) Wait() (Status, error) {
	<-p.over
	return p.status, p.err
}
