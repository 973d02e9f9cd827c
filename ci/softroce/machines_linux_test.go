//go:build softroce

package softroce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The machines of these tests are booted once; the tests take turns on them
// and leave them as they found them.
var shared struct {
	once    sync.Once
	cluster *Cluster
	err     error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.cluster != nil {
		shared.cluster.Close()
	}
	os.Exit(code)
}

// machines returns the two shared machines, with Open MPI in them.
func machines(t *testing.T) *Cluster {
	t.Helper()
	shared.once.Do(func() {
		shared.cluster, shared.err = Boot(context.Background(), Config{MPI: true, Log: t.Logf})
	})
	if shared.err != nil {
		absent(t, shared.err)
	}
	t.Cleanup(func() {
		for _, n := range shared.cluster.Nodes() {
			if err := n.Err(); err != nil {
				t.Fatalf("after the test: %v", err)
			}
			if err := n.Calm(context.Background()); err != nil {
				t.Error(err)
			}
			if err := n.Idle(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
	return shared.cluster
}

// absent ends a test on a machine that cannot boot others: skipped where
// something is not installed and may not be, failed where that must not be.
func absent(t *testing.T, err error) {
	t.Helper()
	var missing *MissingError
	var kernel *KernelError
	if os.Getenv("CI") != "true" && (errors.As(err, &missing) || errors.As(err, &kernel)) {
		t.Skipf("NOT RUN on soft-RoCE: %v", err)
	}
	t.Fatal(err)
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestDevice(t *testing.T) {
	c, ctx := machines(t), within(t, time.Minute)
	for _, n := range c.Nodes() {
		out, err := n.Run(ctx, "ibv_devinfo", "-v", "-d", "rxe0")
		if err != nil {
			t.Fatal(err)
		}
		flat := strings.Join(strings.Fields(out), " ")
		for _, want := range []string{
			"state: PORT_ACTIVE", "active_mtu: 4096", "link_layer: Ethernet",
			"GID[ 1]: ::ffff:" + n.Address + ", RoCE v2",
		} {
			if !strings.Contains(flat, want) {
				t.Errorf("%s: ibv_devinfo does not say %q:\n%s", n.Name, want, out)
			}
		}
	}
}

// pingPongPort is where ibv_rc_pingpong listens.
const pingPongPort = 18515

func TestPingPong(t *testing.T) {
	c, ctx := machines(t), within(t, 2*time.Minute)
	pingPong(ctx, t, c, 500)
}

// pingPong runs ibv_rc_pingpong, which checks what it receives, and returns
// how far the counters of both machines came.
func pingPong(ctx context.Context, t *testing.T, c *Cluster, rounds int) (Counters, Counters) {
	t.Helper()
	before := counters(ctx, t, c)
	args := []string{"ibv_rc_pingpong", "-d", "rxe0", "-g", "1", "-c", "-s", "16384", "-n", fmt.Sprint(rounds)}
	var out, complaint bytes.Buffer
	server, err := c.Node(0).Start(ctx, Command{Args: args, Stdout: &out, Stderr: &complaint})
	if err != nil {
		t.Fatal(err)
	}
	err = c.Node(0).Listening(ctx, pingPongPort)
	if err == nil {
		_, err = c.Node(1).Run(ctx, append(args, c.Node(0).Address)...)
	}
	if err != nil {
		_ = server.Signal(syscall.SIGKILL)
	}
	if err := errors.Join(err, server.Wait()); err != nil {
		t.Fatalf("%v: %s", err, complaint.String())
	}
	if strings.Contains(out.String()+complaint.String(), "invalid data") {
		t.Fatalf("wrong bytes:\n%s%s", out.String(), complaint.String())
	}
	after := counters(ctx, t, c)
	moved := [2]Counters{after[0].Since(before[0]), after[1].Since(before[1])}
	packets := uint64(rounds) * 4 // of each message, at MTU 4096
	for i, m := range moved {
		if m["sent_pkts"] < packets || m["rcvd_pkts"] < packets {
			t.Errorf("node%d: %d messages of four packets moved the counters by %v only", i, rounds, m)
		}
	}
	return moved[0], moved[1]
}

func counters(ctx context.Context, t *testing.T, c *Cluster) [2]Counters {
	t.Helper()
	var all [2]Counters
	for i := range all {
		var err error
		if all[i], err = c.Node(i).Counters(ctx); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func TestPerftest(t *testing.T) {
	c, ctx := machines(t), within(t, 3*time.Minute)
	before := counters(ctx, t, c)
	for _, bytes := range []int{64 << 10, 1 << 20} {
		b, err := c.MeasureBandwidth(ctx, "ib_write_bw", bytes, (32<<20)/bytes)
		if err != nil {
			t.Fatal(err)
		}
		if b.Average <= 0 || b.Peak < b.Average {
			t.Errorf("ib_write_bw of %d bytes: %+v", bytes, b)
		}
		t.Logf("%s: ib_write_bw, %d bytes: peak %.1f, average %.1f MB/s", c.Accel, bytes, b.Peak, b.Average)
	}
	l, err := c.MeasureLatency(ctx, "ib_write_lat", 8, 2000)
	if err != nil {
		t.Fatal(err)
	}
	if l.Min <= 0 || l.Min > l.Typical || l.Typical > l.Max {
		t.Errorf("ib_write_lat: %+v", l)
	}
	t.Logf("%s: ib_write_lat, 8 bytes: least %.1f, typical %.1f, average %.1f us", c.Accel, l.Min, l.Typical, l.Average)
	moved := counters(ctx, t, c)[1].Since(before[1])
	if want := uint64(64<<20) / 4096; moved["sent_pkts"] < want {
		t.Errorf("node1 sent %d packets, two runs of 32 MiB take %d", moved["sent_pkts"], want)
	}
}

func TestWeather(t *testing.T) {
	c, ctx := machines(t), within(t, 4*time.Minute)
	if err := c.PinNeighbours(ctx); err != nil {
		t.Fatal(err)
	}
	for _, w := range []struct{ name, words string }{
		{"loss", "loss 1%"}, {"reordering", "delay 2ms reorder 95% 50%"}, {"delay", "delay 20ms"},
	} {
		t.Run(w.name, func(t *testing.T) {
			c := machines(t)
			for _, n := range c.Nodes() {
				if err := n.Netem(ctx, w.words); err != nil {
					t.Fatal(err)
				}
			}
			rounds := 100
			if w.name == "loss" {
				rounds = 300 // 2400 packets: at one in a hundred some are lost
			}
			a, b := pingPong(ctx, t, c, rounds)
			if w.name == "loss" && a["completer_retry_err"]+b["completer_retry_err"]+a["out_of_seq_request"]+b["out_of_seq_request"] == 0 {
				t.Errorf("no packet was lost: %v, %v", a, b)
			}
		})
	}
}

func TestPull(t *testing.T) {
	c, ctx := machines(t), within(t, time.Minute)
	n := c.Node(1)
	state := func() string {
		out, err := n.Shell(ctx, "cat /sys/class/infiniband/rxe0/ports/1/state")
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out)
	}
	before, err := n.Counters(ctx)
	if err != nil {
		t.Fatal(err)
	}
	pulled := make(chan error, 1)
	go func() { pulled <- n.Pull(ctx, 2*time.Second) }()
	for !strings.Contains(state(), "DOWN") {
		select {
		case err := <-pulled:
			t.Fatalf("the port was never down (%v)", err)
		default:
		}
	}
	if err := <-pulled; err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(state(), "ACTIVE") {
		if ctx.Err() != nil {
			t.Fatalf("the port did not come back: %s", state())
		}
	}
	after, err := n.Counters(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if after.Since(before)["link_downed"] == 0 {
		t.Errorf("the device did not count that its link was down: %v", after.Since(before))
	}
	pingPong(ctx, t, c, 50)
}

// A process that is killed must leave no RDMA object; machines sees to that.
func TestKilledProcessLeavesNothing(t *testing.T) {
	c, ctx := machines(t), within(t, time.Minute)
	p, err := c.Node(0).Start(ctx, Command{Args: []string{"ibv_rc_pingpong", "-d", "rxe0", "-g", "1"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Node(0).Listening(ctx, pingPongPort); err != nil {
		t.Fatal(err)
	}
	// It has opened the device and made its queue pair before it listens.
	if now, err := c.Node(0).Resources(ctx); err != nil || now["mr"] != 1 || now["ctx"] != 1 {
		t.Errorf("ibv_rc_pingpong holds %v (%v)", now, err)
	}
	if err := p.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var exit *ExitError
	if err := p.Wait(); !errors.As(err, &exit) || exit.Status.Signal != syscall.SIGKILL {
		t.Fatalf("killed: %v", err)
	}
}

func TestCommands(t *testing.T) {
	c, ctx := machines(t), within(t, 2*time.Minute)
	n := c.Node(0)

	t.Run("streams and status", func(t *testing.T) {
		var out, complaint bytes.Buffer
		err := n.Do(ctx, Command{
			Args: []string{"sh", "-c", `cat; echo "to $WHOM" >&2; pwd >&2; exit 3`}, Env: []string{"WHOM=err"}, Dir: "/tmp",
			Stdin: strings.NewReader("in"), Stdout: &out, Stderr: &complaint,
		})
		var exit *ExitError
		if !errors.As(err, &exit) || exit.Status.Code != 3 || exit.Node != 0 {
			t.Errorf("error %v, want exit status 3", err)
		}
		if out.String() != "in" || complaint.String() != "to err\n/tmp\n" {
			t.Errorf("stdout %q, stderr %q", out.String(), complaint.String())
		}
	})
	t.Run("no such program", func(t *testing.T) {
		var exit *ExitError
		if _, err := n.Run(ctx, "/no/such"); !errors.As(err, &exit) || exit.Status.Err == "" {
			t.Errorf("error %v, want that there is no program", err)
		}
	})
	t.Run("much output, both ways, several at once", func(t *testing.T) {
		sent := bytes.Repeat([]byte("0123456789abcde\n"), 1<<17) // 2 MiB
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				var out bytes.Buffer
				if err := n.Do(ctx, Command{Args: []string{"cat"}, Stdin: bytes.NewReader(sent), Stdout: &out}); err != nil {
					t.Error(err)
				} else if !bytes.Equal(out.Bytes(), sent) {
					t.Errorf("%d bytes came back of %d, or others", out.Len(), len(sent))
				}
			})
		}
		wg.Wait()
	})
	t.Run("deadline", func(t *testing.T) {
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		if err := n.Do(short, Command{Args: []string{"sh", "-c", "sleep 1000 & wait"}}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want that the deadline is over", err)
		}
		if out, err := n.Run(ctx, "pgrep", "sleep"); err == nil {
			t.Errorf("still there: %s", out)
		}
	})
	t.Run("put", func(t *testing.T) {
		prog := build(t, "./testdata/ranks")
		if err := n.Put(ctx, "/put/prog", prog); err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(prog)
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := n.Do(ctx, Command{Args: []string{"cat", "/put/prog"}, Stdout: &got}); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Error("other bytes")
		}
		if _, err := n.Run(ctx, "/put/prog", "fail"); err == nil || !strings.Contains(err.Error(), "TUTTI_RANK") {
			t.Errorf("the program says %v, want that it lacks TUTTI_RANK", err)
		}
	})
}

// build compiles a program of this module with cgo and returns its path.
func build(t *testing.T, pkg string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "prog")
	cmd := exec.Command("go", "build", "-o", to, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return to
}

func (c *Cluster) putAll(ctx context.Context, t *testing.T, there, here string) {
	t.Helper()
	if err := c.each(ctx, func(ctx context.Context, n *Node) error { return n.Put(ctx, there, here) }); err != nil {
		t.Fatal(err)
	}
}

func TestLaunch(t *testing.T) {
	c, ctx := machines(t), within(t, 2*time.Minute)
	c.putAll(ctx, t, "/ranks", build(t, "./testdata/ranks"))
	t.Run("two on each", func(t *testing.T) {
		var out bytes.Buffer
		if err := c.Launch(ctx, Job{PerNode: 2, Args: []string{"/ranks"}, Stdout: &out}); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"0: rank 0 of 4, local rank 0, on node0 with 1 devices\n", "1: rank 1 of 4, local rank 1, on node0 with 1 devices\n",
			"2: rank 2 of 4, local rank 0, on node1 with 1 devices\n", "3: rank 3 of 4, local rank 1, on node1 with 1 devices\n",
			"0: sum 6\n",
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no line %q in\n%s", want, out.String())
			}
		}
	})
	t.Run("one fails", func(t *testing.T) {
		err := c.Launch(ctx, Job{Args: []string{"/ranks", "fail"}})
		var rank *RankError
		var exit *ExitError
		if !errors.As(err, &rank) || !errors.As(err, &exit) || !strings.Contains(err.Error(), "rank 1: softroce: node1: /ranks fail: exit status 7: rank 1 was told to fail") {
			t.Errorf("error %v", err)
		}
	})
}

func TestMPI(t *testing.T) {
	c, ctx := machines(t), within(t, 4*time.Minute)
	prog := filepath.Join(t.TempDir(), "bench")
	if out, err := exec.Command("mpicc", "-O2", "-o", prog, "../../bench/peers/src/mpi.c", "-lm").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c.putAll(ctx, t, "/bench", prog)
	for _, over := range []Transport{MPIOverRC, MPIOverUD, MPIOverTCP} {
		t.Run(string(over), func(t *testing.T) {
			c := machines(t)
			before := counters(ctx, t, c)
			out, err := c.MPIRun(ctx, over, 1, "/bench", "--op", "allreduce", "-b", "8,65536,4194304", "-n", "10", "--batch", "1", "-c")
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Count(out, `"wrong":0}`); got != 3 {
				t.Fatalf("%d right results of 3:\n%s", got, out)
			}
			t.Logf("%s, Open MPI over %s, two ranks:\n%s", c.Accel, over, out)
			// 4 MiB and its check: each rank sends at least 11 times 4 MiB.
			sent := counters(ctx, t, c)[0].Since(before[0])["sent_pkts"]
			if verbs := over != MPIOverTCP; verbs != (sent > 11*1024) {
				t.Errorf("rxe0 sent %d packets", sent)
			}
		})
	}
}

// Three machines take the switch. One whose kernel dies is named, with the
// end of its console; nothing is left of any.
func TestThreeMachinesAndAPanic(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	before := held(t)
	c, err := Boot(ctx, Config{Machines: 3, MemoryMiB: 256, Log: t.Logf})
	if err != nil {
		absent(t, err)
	}
	defer c.Close()
	for _, n := range c.Nodes() {
		for _, peer := range c.Nodes() {
			if _, err := n.Run(ctx, "ping", "-c", "2", "-i", "0.1", "-s", "4000", peer.Name); err != nil {
				t.Errorf("%s to %s: %v", n.Name, peer.Name, err)
			}
		}
	}
	waiting, err := c.Node(1).Start(ctx, Command{Args: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = c.Node(1).Shell(ctx, "echo 1 > /proc/sys/kernel/sysrq; echo c > /proc/sysrq-trigger") }()
	var dead *MachineError
	if err := waiting.Wait(); !errors.As(err, &dead) || dead.Node != 1 || !strings.Contains(dead.Console, "sysrq") {
		t.Errorf("a process of a machine that died: %v", err)
	}
	if _, err := c.Node(1).Run(ctx, "true"); !errors.As(err, &dead) {
		t.Errorf("a command for a machine that died: %v", err)
	}
	if _, err := c.Node(2).Run(ctx, "ping", "-c", "1", "node0"); err != nil {
		t.Errorf("the others: %v", err)
	}
	c.Close()
	if err := c.Node(0).Do(ctx, Command{Args: []string{"true"}}); !errors.Is(err, ErrClosed) {
		t.Errorf("a command for a machine that was closed: %v", err)
	}
	if after := held(t); after != before {
		t.Errorf("before the boot and after closing this process has %s; %s", before, after)
	}
}

// A boot that is called off leaves nothing either.
func TestBootIsCalledOff(t *testing.T) {
	before := held(t)
	ctx, cancel := context.WithCancel(within(t, time.Minute))
	_, err := Boot(ctx, Config{Machines: 1, MemoryMiB: 256, Log: func(format string, _ ...any) {
		if strings.HasPrefix(format, "image") { // QEMU starts next
			time.AfterFunc(100*time.Millisecond, cancel)
		}
	}})
	if err == nil {
		t.Fatal("it booted")
	}
	if ctx.Err() == nil {
		absent(t, err)
	}
	if after := held(t); after != before {
		t.Errorf("before and after this process has %s; %s", before, after)
	}
}

// held counts this process's QEMUs and descriptors.
func held(t *testing.T) string {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	machines := 0
	for _, stat := range stats {
		line, err := os.ReadFile(stat)
		if err != nil {
			continue // it has just ended
		}
		_, after, _ := strings.Cut(string(line), "(qemu-system-x86")
		if words := strings.Fields(after); len(words) > 2 && words[2] == fmt.Sprint(os.Getpid()) {
			machines++
		}
	}
	return fmt.Sprintf("%d machines, %d descriptors", machines, len(fds))
}
