package fakeverbs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// library builds the library, or skips where none can be.
func library(t *testing.T) string {
	t.Helper()
	lib, err := Build("")
	if errors.Is(err, ErrUnavailable) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return lib
}

// TestStrict runs the cases of testdata, a program that uses the library by
// declarations of its own, as it is and with sanitizers.
func TestStrict(t *testing.T) {
	t.Run("plain", func(t *testing.T) { strict(t, library(t)) })
	t.Run("sanitized", func(t *testing.T) {
		if testing.Short() {
			t.Skip("short: the sanitizers take long")
		}
		library(t) // or skip
		sanitize := []string{"-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"}
		if out, err := exec.Command("sh", "-c", "echo 'int main(void){return 0;}' | ${CC:-cc} "+strings.Join(sanitize, " ")+" -xc - -o /dev/null").CombinedOutput(); err != nil {
			t.Skipf("the compiler has no sanitizers: %v\n%s", err, out)
		}
		lib, err := build("", sanitize)
		if err != nil {
			t.Fatal(err)
		}
		strict(t, lib, sanitize...)
	})
}

func strict(t *testing.T, lib string, flags ...string) {
	program := filepath.Join(t.TempDir(), "strict")
	cc, err := compiler()
	if err != nil {
		t.Fatal(err)
	}
	sources, err := filepath.Glob("testdata/*.c")
	if err != nil || len(sources) == 0 {
		t.Fatal("no sources", err)
	}
	args := append([]string{"-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-format-zero-length", "-pthread", "-o", program}, sources...)
	args = append(append(args, flags...), lib)
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	list := exec.Command(program)
	list.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Dir(lib))
	names, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	variables := map[string][]string{
		"order-inorder":      {"PLACEMENT=inorder"},
		"order-relaxed":      {"PLACEMENT=relaxed"},
		"without-devices":    {"DEVICES=0"},
		"without-kernel":     {"DEVICES=-1"},
		"without-permission": {"OPEN_ERRNO=13"},
		"little-memory":      {"MEMLOCK=100000"},
		"two-devices":        {"DEVICES=2", "PORTS=2"},
	}
	for name := range strings.FieldsSeq(string(names)) {
		t.Run(name, func(t *testing.T) {
			c := strictCase{t: t, dir: t.TempDir()}
			for _, v := range append(variables[name], "QUIET=1") {
				c.env = append(c.env, "TUTTI_FAKE_VERBS_"+v)
			}
			c.run(lib, program, name)
		})
	}
}

type strictCase struct {
	t      *testing.T
	dir    string
	env    []string
	fabric *Fabric
	flaps  chan error // of the last time a port went down for a while
}

func (c *strictCase) run(lib, program, name string) {
	t := c.t
	var err error
	if c.fabric, err = Open(c.dir); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, name)
	cmd.Env = append(append(os.Environ(), c.fabric.Env(lib)...), c.env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// Cases fail by themselves when nothing comes; this is for what hangs.
	stuck := time.AfterFunc(2*time.Minute, func() { cmd.Process.Kill() })
	defer stuck.Stop()
	c.serve(cmd.Process.Pid, out, in)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if c.flaps != nil {
		if err := <-c.flaps; err != nil {
			t.Error(err)
		}
	}
	if stderr.Len() > 0 && name != "nonsense" {
		t.Errorf("standard error:\n%s", stderr.String())
	}
	// A killed process leaves its own file; nothing else stays behind but the
	// commands.
	left, err := os.ReadDir(c.dir)
	if err != nil {
		t.Error(err)
	}
	for _, e := range left {
		if e.Name() != "control" && name != "killing" {
			t.Errorf("%s is left behind", e.Name())
		}
	}
	if alive, err := c.fabric.Processes(); err != nil || len(alive) != 0 {
		t.Errorf("processes left: %+v, %v", alive, err)
	}
}

// serve does what the case asks for.
func (c *strictCase) serve(pid int, out io.Reader, in io.WriteCloser) {
	defer in.Close()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		request, asks := strings.CutPrefix(lines.Text(), "ask ")
		if !asks {
			c.t.Error(lines.Text())
			continue
		}
		if err := c.do(pid, request); err != nil {
			c.t.Errorf("%s: %v", request, err)
			return
		}
		fmt.Fprintln(in, "done")
	}
}

func (c *strictCase) do(pid int, request string) error {
	var qp uint32
	var queue string
	var n, status, after int
	name, rest, _ := strings.Cut(request, " ")
	switch name {
	case "hold":
		if _, err := fmt.Sscan(rest, &n); err != nil {
			return err
		}
		return c.fabric.Hold(n)
	case "delay":
		if _, err := fmt.Sscan(rest, &n); err != nil {
			return err
		}
		return c.fabric.Delay(time.Duration(n) * time.Millisecond)
	case "fail":
		if _, err := fmt.Sscan(rest, &qp, &queue, &n, &status, &after); err != nil {
			return err
		}
		return c.fabric.Fail(Failure{Status: status, Nth: n, Receive: queue == "recv", After: after != 0}, OfQP(qp))
	case "kill":
		if _, err := fmt.Sscan(rest, &qp); err != nil {
			return err
		}
		return c.fabric.KillQP(qp)
	case "event":
		if _, err := fmt.Sscan(rest, &n, &qp); err != nil {
			return err
		}
		if qp == 0 {
			return c.fabric.Raise(n)
		}
		return c.fabric.Raise(n, OfQP(qp))
	case "port":
		if _, err := fmt.Sscan(rest, &n); err != nil {
			return err
		}
		return c.fabric.SetPort(n, OfProcess(pid))
	case "objects":
		return c.objects(pid, rest)
	case "nonsense":
		if err := c.fabric.command("nonsense", nil); err == nil || !strings.Contains(err.Error(), "nonsense") {
			return errors.New("a command that does not exist is taken")
		}
		return nil
	case "flap":
		return c.flap(pid, rest == "1")
	}
	return errors.New("unknown request")
}

// objects compares what the process has open, by kind, with what it should.
func (c *strictCase) objects(pid int, want string) error {
	if err := c.fabric.Refresh(); err != nil {
		return err
	}
	all, err := c.fabric.Processes()
	if err != nil {
		return err
	}
	if len(all) != 1 || all[0].PID != pid {
		return fmt.Errorf("processes: %+v", all)
	}
	p := all[0]
	got := fmt.Sprint(p.Contexts, p.PDs, p.MRs, p.CompletionQueues, p.QueuePairs, p.SRQs, p.AddressHandles, p.Channels)
	if got != want {
		return fmt.Errorf("there are %s", got)
	}
	if sum := strings.Count(want, "1"); p.Objects() != sum {
		return fmt.Errorf("%d objects", p.Objects())
	}
	return nil
}

// flap sets a port down, of the process or of its peer, and up again while the
// process goes on.
func (c *strictCase) flap(pid int, own bool) error {
	if c.flaps != nil {
		if err := <-c.flaps; err != nil {
			return err
		}
	}
	if !own {
		all, err := c.fabric.Processes()
		if err != nil {
			return err
		}
		for _, p := range all {
			if p.PID != pid {
				pid = p.PID
				break
			}
		}
	}
	c.flaps = make(chan error, 1)
	err := c.fabric.SetPort(PortDown, OfProcess(pid))
	go func() {
		time.Sleep(5 * time.Millisecond)
		c.flaps <- c.fabric.SetPort(PortActive, OfProcess(pid))
	}()
	return err
}
