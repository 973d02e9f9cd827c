package fakeverbs

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// missing skips for want of something that a package would bring: loudly, and
// not where the tests must be complete.
func missing(t *testing.T, what, pkg string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("%s is not installed; Debian and Ubuntu have it in %s", what, pkg)
	}
	t.Skipf("SKIPPED: %s is not installed (Debian and Ubuntu: %s), so nothing here compares with it", what, pkg)
}

// TestSystemHeader compares our declarations with the system's.
func TestSystemHeader(t *testing.T) {
	library(t)
	cc, err := compiler()
	if err != nil {
		t.Fatal(err)
	}
	facts := func(flags ...string) (string, error) {
		program := filepath.Join(t.TempDir(), "facts")
		args := append(flags, "-std=gnu11", "-o", program, "testdata/abi/facts.c")
		if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w\n%s", err, out)
		}
		out, err := exec.Command(program).Output()
		return string(out), err
	}
	ours, err := facts()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/usr/include/infiniband/verbs.h"); err != nil {
		missing(t, "infiniband/verbs.h", "libibverbs-dev")
	}
	theirs, err := facts("-DSYSTEM")
	if err != nil {
		t.Fatal(err)
	}
	a, b := strings.Split(ours, "\n"), strings.Split(theirs, "\n")
	if len(a) != len(b) || len(a) < 300 {
		t.Fatalf("%d facts here, %d there", len(a), len(b))
	}
	for i := range a {
		if a[i] != b[i] {
			t.Errorf("ours: %s, the system's: %s", a[i], b[i])
		}
	}
}

// witness runs a program that was written for real devices, or two that talk
// to each other, server first.
type witness struct {
	name, pkg string
	args      []string
	alone     bool
	want      string // what it prints when all went well; of two, the client
}

func TestPrograms(t *testing.T) {
	const iterations = "200"
	perftest := func(name string, args ...string) witness {
		args = append([]string{"-d", "fake0", "-x", "3", "-n", iterations}, args...)
		return witness{name: name, pkg: "perftest", args: args, want: `(?m)^ \d+ +(` + iterations + `|800) `}
	}
	pingpong := func(name string, args ...string) witness {
		args = append([]string{"-d", "fake0", "-g", "3", "-n", iterations}, args...)
		return witness{name: name, pkg: "ibverbs-utils", args: args, want: iterations + ` iters in`}
	}
	for i, w := range []witness{
		{name: "ibv_devices", pkg: "ibverbs-utils", alone: true, want: `fake0\s+02fa4e00fffe0000`},
		{name: "ibv_devinfo", pkg: "ibverbs-utils", args: []string{"-v"}, alone: true, want: `GID\[  3\]:\s+::ffff:198.18.1.1, RoCE v2`},
		pingpong("ibv_rc_pingpong", "-c"),
		pingpong("ibv_rc_pingpong", "-c", "-e"),
		pingpong("ibv_rc_pingpong", "-c", "-s", "1000000"),
		pingpong("ibv_ud_pingpong", "-c"),
		pingpong("ibv_srq_pingpong"),
		perftest("ib_write_bw", "-s", "65536"),
		perftest("ib_write_bw", "-s", "1000", "-q", "4"),
		perftest("ib_write_lat", "-s", "8"),
		perftest("ib_write_lat", "-s", "64", "-I", "220"),
		perftest("ib_read_bw", "-s", "65536"),
		perftest("ib_read_lat", "-s", "8"),
		perftest("ib_send_bw", "-s", "4096"),
		perftest("ib_send_lat", "-s", "8", "-e"),
		perftest("ib_send_lat", "-c", "UD", "-s", "8"),
		perftest("ib_send_bw", "-r", "64", "--use-srq"),
		perftest("ib_atomic_bw"),
		perftest("ib_atomic_lat", "-A", "CMP_AND_SWAP"),
	} {
		t.Run(w.name+strings.Join(w.args[min(len(w.args), 6):], ""), func(t *testing.T) {
			if testing.Short() && i%4 != 2 {
				t.Skip("short: others stand for it")
			}
			lib := library(t)
			if _, err := exec.LookPath(w.name); err != nil {
				missing(t, w.name, w.pkg)
			}
			w.run(t, lib)
		})
	}
}

func (w witness) run(t *testing.T, lib string) {
	fabric, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	start := func(peer ...string) (*exec.Cmd, *bytes.Buffer) {
		args := append([]string{}, w.args...)
		if !w.alone {
			args = append(args, "-p", port)
		}
		cmd := exec.Command(w.name, append(args, peer...)...)
		cmd.Env = append(append(os.Environ(), fabric.Env(lib)...), "TUTTI_FAKE_VERBS_QUIET=1", "LANG=C")
		out := new(bytes.Buffer)
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, out
	}
	finish := func(cmd *exec.Cmd, out *bytes.Buffer, want string) {
		stuck := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
		defer stuck.Stop()
		err := cmd.Wait()
		if strings.Contains(out.String(), "symbol lookup error") || strings.Contains(out.String(), "version `IBVERBS_PRIVATE") {
			t.Skipf("SKIPPED: this system's providers need another release of libibverbs:\n%s", out)
		}
		if err != nil || !regexp.MustCompile(want).Match(out.Bytes()) {
			t.Errorf("%v: %v\n%s", cmd.Args, err, out)
		}
	}
	if w.alone {
		cmd, out := start()
		finish(cmd, out, w.want)
		return
	}
	server, out := start()
	// It is ready when its port is: a connection would be taken for the
	// client, so ask the kernel.
	for deadline := time.Now().Add(20 * time.Second); !listens(port); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			server.Process.Kill()
			break
		}
	}
	client, clientOut := start("127.0.0.1")
	finish(client, clientOut, w.want)
	finish(server, out, "")
}

func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// listens says whether a socket of this machine listens on the port.
func listens(port string) bool {
	n, err := strconv.Atoi(port)
	if err != nil {
		return false
	}
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(name)
		if regexp.MustCompile(fmt.Sprintf(`:%04X [0-9A-F]+:0000 0A`, n)).Match(text) {
			return true
		}
	}
	return false
}
