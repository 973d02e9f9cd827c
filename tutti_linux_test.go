package tutti_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
)

// The test binary is its own rank: with the first variable set it plays that
// role. With the second, ranks take turns on so many nodes.
const (
	roleVariable  = "TUTTI_TEST_ROLE"
	nodesVariable = "TUTTI_TEST_NODES"
)

var roles = map[string]func(context.Context, *tutti.Comm) error{
	"sums":     sums,
	"lose one": loseOne,
	"forever":  forever,
}

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	if err := play(roles[role]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func play(role func(context.Context, *tutti.Comm) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if nodes, _ := strconv.Atoi(os.Getenv(nodesVariable)); nodes > 0 {
		rank, _ := strconv.Atoi(os.Getenv(bootstrap.EnvRank))
		_ = os.Setenv(tutti.EnvHost, strconv.Itoa(rank%nodes))
	}
	c, err := tutti.Init(ctx, tutti.Config{})
	if err != nil {
		return err
	}
	return errors.Join(role(ctx, c), c.Close(), noSockets())
}

// noSockets is an error if this process holds a socket still, whoever in it
// opened one: to peers, or to the launcher.
func noSockets() error {
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		target, _ := os.Readlink(filepath.Join(dir, e.Name()))
		if fd, _ := strconv.Atoi(e.Name()); fd > 2 && strings.HasPrefix(target, "socket:") {
			return fmt.Errorf("descriptor %d is a socket that Close left open", fd)
		}
	}
	return nil
}

func start(t *testing.T, size int, role string) *bootstrap.Job {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	j, err := bootstrap.Launch(ctx, bootstrap.Spec{Size: size, Command: func(int) *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), roleVariable+"="+role)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		return cmd
	}})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// sums runs calls of many sizes, on both kinds of memory, and checks them.
func sums(ctx context.Context, c *tutti.Comm) error {
	b, err := c.Alloc(1 << 20)
	if err != nil {
		return err
	}
	defer b.Free()
	n := c.Size()
	for i := range 300 {
		size := 1 + (i*i*i*7919)%(1<<18)
		x := mem.Slice[int32](b.Bytes())[:size]
		if i%3 == 0 {
			x = make([]int32, size)
		}
		for e := range x {
			x[e] = int32(e*(c.Rank()+1) + i)
		}
		if err := tutti.AllReduce(ctx, c, x, x, mem.Sum); err != nil {
			return err
		}
		for e, got := range x {
			if want := int32(e*n*(n+1)/2 + n*i); got != want {
				return fmt.Errorf("rank %d call %d element %d of %d: %d, want %d", c.Rank(), i, e, size, got, want)
			}
		}
	}
	return nil
}

func TestProcesses(t *testing.T) {
	for _, n := range []int{1, 2, 3, 7} {
		if err := start(t, n, "sums").Wait(); err != nil {
			t.Errorf("%d ranks: %v", n, err)
		}
	}
}

// TestStoppedRanks stops ranks at random moments: that is slowness, not death,
// and never a wrong result.
func TestStoppedRanks(t *testing.T) {
	j := start(t, 3, "sums")
	over := make(chan error, 1)
	go func() { over <- j.Wait() }()
	rng := rand.New(rand.NewPCG(3, 5))
	for stops := 0; ; stops++ {
		pid := j.Pids()[rng.IntN(3)]
		_ = syscall.Kill(pid, syscall.SIGSTOP)
		time.Sleep(time.Duration(rng.IntN(5_000)) * time.Microsecond)
		_ = syscall.Kill(pid, syscall.SIGCONT)
		select {
		case err := <-over:
			if err != nil {
				t.Error(err)
			}
			t.Logf("%d stops", stops)
			return
		case <-time.After(time.Duration(rng.IntN(3_000)) * time.Microsecond):
		}
	}
}

// loseOne: the last rank kills itself in the middle; the others must each get
// an error that names it.
func loseOne(ctx context.Context, c *tutti.Comm) error {
	b, err := c.Alloc(1 << 16)
	if err != nil {
		return err
	}
	last := c.Size() - 1
	for i := 0; ; i++ {
		if c.Rank() == last && i == 1000 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		x := b.Bytes()[:8<<(i%14)]
		err := c.AllReduce(ctx, x, x, mem.F32, mem.Sum)
		if err == nil {
			continue
		}
		var lost *link.PeerLostError
		if !errors.As(err, &lost) || lost.Rank != last || lost.Pid == 0 {
			return fmt.Errorf("rank %d: %w; want the loss of rank %d", c.Rank(), err, last)
		}
		if !strings.Contains(err.Error(), fmt.Sprintf("rank %d (pid ", last)) {
			return fmt.Errorf("the error does not name who was lost: %w", err)
		}
		return nil
	}
}

func TestKilledRankIsTold(t *testing.T) {
	var e *bootstrap.RankError
	if err := start(t, 4, "lose one").Wait(); !errors.As(err, &e) || e.Rank != 3 || e.Signal != syscall.SIGKILL {
		t.Errorf("got %v", err)
	}
}

func forever(ctx context.Context, c *tutti.Comm) error {
	b, err := c.Alloc(1 << 24)
	if err != nil {
		return err
	}
	for {
		if err := c.AllReduce(ctx, b.Bytes(), b.Bytes(), mem.F32, mem.Max); err != nil {
			return nil //nolint:nilerr // the test kills its peers; that is what is wanted
		}
	}
}

// TestNothingIsLeftBehind kills every rank at random moments and looks for
// what they might have left.
func TestNothingIsLeftBehind(t *testing.T) {
	before := leftovers(t)
	rng := rand.New(rand.NewPCG(11, 13))
	for range 5 {
		j := start(t, 3, "forever")
		time.Sleep(time.Duration(rng.IntN(150)) * time.Millisecond)
		for _, pid := range j.Pids() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if j.Wait() == nil {
			t.Error("ranks that were killed ended well")
		}
	}
	nothingLeft(t, before)
}

// nothingLeft waits until nothing is there that was not before.
func nothingLeft(t *testing.T, before []string) {
	t.Helper()
	// Other jobs on the machine come and go; what is ours would stay.
	suspects := leftovers(t)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		now := leftovers(t)
		suspects = slices.DeleteFunc(suspects, func(s string) bool {
			return slices.Contains(before, s) || !slices.Contains(now, s)
		})
		if len(suspects) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("left behind: %q", suspects)
		}
	}
}

// leftovers lists what ranks could leave: files in /dev/shm and the temporary
// folder with the project's name, and sockets.
func leftovers(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{"/dev/shm/*", filepath.Join(os.TempDir(), "*tutti*")} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, files...)
	}
	sockets, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(sockets)) {
		if strings.Contains(line, "@tutti-") {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}
