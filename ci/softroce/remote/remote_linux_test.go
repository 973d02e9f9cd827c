package remote

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// connect returns a client whose server runs in this process, and the way to
// learn how the server ended.
func connect(t *testing.T) (*Client, <-chan error) {
	t.Helper()
	here, there := net.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- Serve(there, Hello{Name: "test"})
		there.Close()
	}()
	c := NewClient(here)
	t.Cleanup(func() { c.Close() })
	hello, err := c.Hello(context.Background())
	if err != nil || hello.Name != "test" {
		t.Fatalf("hello %+v, error %v", hello, err)
	}
	return c, served
}

func run(t *testing.T, c *Client, cmd Command) Status {
	t.Helper()
	p, err := c.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	status, err := p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return status
}

func TestStatus(t *testing.T) {
	c, _ := connect(t)
	for _, tt := range []struct {
		line string
		want Status
		ok   bool
	}{
		{"true", Status{}, true},
		{"exit 5", Status{Code: 5}, false},
		{"kill -TERM $$", Status{Code: -1, Signal: syscall.SIGTERM}, false},
	} {
		got := run(t, c, Command{Args: []string{"sh", "-c", tt.line}})
		if got != tt.want || got.OK() != tt.ok {
			t.Errorf("%s: %+v, want %+v", tt.line, got, tt.want)
		}
	}
	if got := run(t, c, Command{Args: []string{"/no/such/program"}}); got.OK() || !strings.Contains(got.Err, "/no/such/program") {
		t.Errorf("no such program: %+v", got)
	}
	if _, err := c.Start(Command{}); err == nil {
		t.Error("a command without a program was started")
	}
}

func TestStreams(t *testing.T) {
	c, _ := connect(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			in := bytes.Repeat([]byte("some bytes "), 1<<16)
			var out, complaint bytes.Buffer
			status := run(t, c, Command{
				Args: []string{"sh", "-c", "cat; echo $A >&2"}, Env: []string{"A=b"},
				Stdin: bytes.NewReader(in), Stdout: &out, Stderr: &complaint,
			})
			if !status.OK() || !bytes.Equal(out.Bytes(), in) || complaint.String() != "b\n" {
				t.Errorf("%+v, %d bytes of %d, stderr %q", status, out.Len(), len(in), complaint.String())
			}
		})
	}
	wg.Wait()
}

// A process that reads nothing, and a caller that takes no output, hold up
// nobody else.
func TestSlowOnesHoldUpNobody(t *testing.T) {
	c, _ := connect(t)
	deaf, err := c.Start(Command{Args: []string{"sleep", "1000"}, Stdin: bytes.NewReader(make([]byte, 4<<20))})
	if err != nil {
		t.Fatal(err)
	}
	blocked := make(chan struct{})
	slow, err := c.Start(Command{Args: []string{"sh", "-c", "yes | head -c 1000000"}, Stdout: writerFunc(func(p []byte) (int, error) {
		<-blocked
		return len(p), nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	if status := run(t, c, Command{Args: []string{"true"}}); !status.OK() {
		t.Errorf("%+v", status)
	}
	close(blocked)
	if status, err := slow.Wait(); err != nil || !status.OK() {
		t.Errorf("%+v, %v", status, err)
	}
	if err := deaf.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if status, err := deaf.Wait(); err != nil || status.Signal != syscall.SIGKILL {
		t.Errorf("%+v, %v", status, err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// A signal reaches what the process has started, and a child that keeps the
// output open does not keep the status back.
func TestGroup(t *testing.T) {
	c, _ := connect(t)
	out := make(lineChan, 10)
	p, err := c.Start(Command{Args: []string{"sh", "-c", "sleep 1000 & echo $!; wait"}, Stdout: out})
	if err != nil {
		t.Fatal(err)
	}
	child := <-out
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if status, err := p.Wait(); err != nil || status.Signal != syscall.SIGTERM {
		t.Errorf("%+v, %v", status, err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		// A zombie has no command line any more.
		if line, err := os.ReadFile("/proc/" + child + "/cmdline"); err != nil || len(line) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the child lives on")
		}
	}

	if status := run(t, c, Command{Args: []string{"sh", "-c", "sleep 3 & exit 4"}}); status.Code != 4 {
		t.Errorf("%+v, want status 4", status)
	}
}

type lineChan chan string

func (c lineChan) Write(p []byte) (int, error) {
	c <- strings.TrimSpace(string(p))
	return len(p), nil
}

func TestCloseKills(t *testing.T) {
	c, served := connect(t)
	p, err := c.Start(Command{Args: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if _, err := p.Wait(); !errors.Is(err, ErrClosed) {
		t.Errorf("error %v, want ErrClosed", err)
	}
	if err := <-served; err != nil {
		t.Errorf("the server: %v", err)
	}
	if _, err := c.Start(Command{Args: []string{"true"}}); !errors.Is(err, ErrClosed) {
		t.Errorf("started on a closed client: %v", err)
	}
}

func TestNonsense(t *testing.T) {
	var bad *StreamError
	// A server that begins with something else than hello.
	here, there := net.Pipe()
	c := NewClient(here)
	go func() { _, _ = there.Write(encode(t, frame{kindExit, 1, []byte("{}")})) }()
	if _, err := c.Hello(context.Background()); !errors.As(err, &bad) {
		t.Errorf("exit before hello: %v", err)
	}
	c.Close()
	// Clients that send what only a server may, or no JSON.
	for _, f := range []frame{{kindStdout, 1, nil}, {kindStart, 1, []byte("[")}, {kindStart, 1, []byte("{}")}, {kindSignal, 1, nil}} {
		err := Serve(struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(encode(t, f)), io.Discard}, Hello{})
		if !errors.As(err, &bad) {
			t.Errorf("%+v: %v", f, err)
		}
	}
}

func encode(t testing.TB, f frame) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := (&frameWriter{w: &b}).write(f); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// FuzzFrame feeds the parser of what comes over the stream. What it takes, the
// writer writes in the same bytes.
func FuzzFrame(f *testing.F) {
	f.Add(encode(f, frame{kindStdout, 7, []byte("text")}))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0})
	f.Add([]byte{0, 0, 0, 1, 6, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bufio.NewReader(bytes.NewReader(data))
		for at := 0; ; {
			fr, err := readFrame(r)
			if err != nil {
				return
			}
			again := encode(t, fr)
			if !bytes.HasPrefix(data[at:], again) {
				t.Fatalf("%x became %x", data[at:], again)
			}
			at += len(again)
			if fr.kind == kindExit {
				var s Status
				_ = json.Unmarshal(fr.payload, &s) // must not panic
			}
		}
	})
}
