package bootstrap

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// quickExit has a process under the race detector end at once instead of after
// a second.
const quickExit = "GORACE=atexit_sleep_ms=0"

// victimVariable names the rank of which a process must be told that it died.
const victimVariable = "TUTTI_TEST_VICTIM"

// playFar is what a rank does that nobody of this package has launched.
func playFar(role string) int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if role == "far-cut" {
		silence = 2 * time.Second
	}
	x, err := FromEnv(ctx)
	if err != nil {
		fmt.Println("failed:", err)
		if role == "far-killed" && named(err) {
			return 0
		}
		return 9
	}
	fmt.Println("joined")
	switch role {
	case "far-gather":
		defer x.Close()
		for turn := range 20 {
			all, err := x.AllGather(ctx, bytes.Repeat([]byte{byte(x.Rank())}, turn*997))
			if err != nil {
				fmt.Println("failed:", err)
				return 8
			}
			for rank, b := range all {
				if len(b) != turn*997 || bytes.Count(b, []byte{byte(rank)}) != len(b) {
					return 7
				}
			}
		}
	case "far-killed", "far-cut": // goes on until it is told
		for err == nil {
			_, err = x.AllGather(ctx, make([]byte, 2000))
		}
		fmt.Println("told:", err)
		if !named(err) {
			return 6
		}
		x.Close()
	case "far-exit": // rank 1 ends without a word, once all are there
		_, _ = x.AllGather(ctx, nil) // others may hear of the end before theirs is done
		if x.Rank() == 1 {
			return 0
		}
		<-x.Done()
		if err := x.Err(); !named(err) {
			fmt.Println("told:", err)
			return 6
		}
		x.Close()
	case "far-address": // listens where it should, and all reach it there
		defer x.Close()
		if err := playAddress(ctx, x); err != nil {
			fmt.Println("failed:", err)
			return 5
		}
	}
	return 0
}

// named is whether an error names the victim, on a busy machine with others
// that are late. Who comes when rank 0 has been told, and has ended, finds
// nobody.
func named(err error) bool {
	victim, _ := strconv.Atoi(os.Getenv(victimVariable))
	var lost *LostError
	var missing *MissingError
	var far *UnreachableError
	return errors.As(err, &lost) && lost.Rank == victim || errors.As(err, &missing) && slices.Contains(missing.Ranks, victim) ||
		errors.As(err, &far) && (far.Peer == victim || far.Peer == 0)
}

// playAddress: every rank connects to every other at the address that it tells.
func playAddress(ctx context.Context, x Exchanger) error {
	address := x.(Addresser).Address()
	l, err := net.Listen("tcp", netip.AddrPortFrom(address, 0).String())
	if err != nil {
		return err
	}
	defer l.Close()
	var greeting sync.WaitGroup
	greeting.Go(func() {
		for range x.Size() {
			if conn, err := l.Accept(); err == nil {
				conn.Close()
			}
		}
	})
	// The kernel forgets the zone of an address that is local to its link.
	at := netip.AddrPortFrom(address, l.Addr().(*net.TCPAddr).AddrPort().Port())
	all, err := x.AllGather(ctx, []byte(at.String()))
	if err != nil {
		return err
	}
	for rank, at := range all {
		conn, err := net.DialTimeout("tcp", string(at), 10*time.Second)
		if err != nil {
			return fmt.Errorf("rank %d at %s: %w", rank, at, err)
		}
		conn.Close()
	}
	greeting.Wait()
	fmt.Println("address", address)
	_, err = x.AllGather(ctx, nil) // nobody leaves before all are done
	return err
}

// far is a rank in a process of its own.
type far struct {
	cmd    *exec.Cmd
	output bytes.Buffer
	joined chan struct{} // closed when it says so, or ends
	ended  chan struct{}
	err    error
}

// startFar starts a rank; words go before the test's binary.
func startFar(t *testing.T, role string, words []string, env ...string) *far {
	t.Helper()
	words = append(slices.Clone(words), os.Args[0])
	f := &far{cmd: exec.Command(words[0], words[1:]...), joined: make(chan struct{}), ended: make(chan struct{})}
	f.cmd.Env = append(os.Environ(), append([]string{roleVariable + "=" + role, quickExit}, env...)...)
	out, err := f.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	f.cmd.Stderr = os.Stderr
	if err := f.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.cmd.Process.Kill(); <-f.ended })
	go func() {
		defer close(f.ended)
		once := sync.OnceFunc(func() { close(f.joined) })
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			fmt.Fprintln(&f.output, lines.Text())
			if lines.Text() == "joined" {
				once()
			}
		}
		_, _ = io.Copy(io.Discard, out)
		f.err = f.cmd.Wait()
		once()
	}()
	return f
}

// wait waits until it ends, and says how and what it said.
func (f *far) wait(t *testing.T) (string, error) {
	t.Helper()
	select {
	case <-f.ended:
	case <-time.After(90 * time.Second):
		_ = f.cmd.Process.Kill()
		<-f.ended
		t.Errorf("a rank did not end:\n%s", &f.output)
	}
	return f.output.String(), f.err
}

// freePort is a port of loopback that nobody uses, and that the system hands
// out to nobody.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := 10000 + rand.N(6000)
		if l, err := net.Listen("tcp", fmt.Sprintf(":%d", port)); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// farJob are the variables of a rank.
func farJob(rank, size int, at string) []string {
	return []string{fmt.Sprintf("%s=%d", EnvRank, rank), fmt.Sprintf("%s=%d", EnvSize, size), EnvBootstrap + "=" + at}
}

// TestProcesses: ranks that nobody has launched meet, at a port or at a socket.
func TestProcesses(t *testing.T) {
	for name, at := range map[string]string{
		"IPv4": fmt.Sprintf("tcp://127.0.0.1:%d", freePort(t)),
		"IPv6": fmt.Sprintf("tcp://[::1]:%d", freePort(t)),
		"name": fmt.Sprintf("tcp://localhost:%d", freePort(t)),
		"unix": fmt.Sprintf("unix:@tutti-test-%x", rand.Uint64()),
	} {
		t.Run(name, func(t *testing.T) {
			for _, role := range []string{"far-gather", "far-address"} {
				var all []*far
				for _, r := range rand.Perm(5) {
					all = append(all, startFar(t, role, nil, append(farJob(r, 5, at), EnvSecret+"="+string(testSecret))...))
				}
				for _, f := range all {
					if said, err := f.wait(t); err != nil {
						t.Errorf("%v:\n%s", err, said)
					}
				}
			}
		})
	}
}

// TestLaunchersForReal starts ranks with the launchers that this machine has.
func TestLaunchersForReal(t *testing.T) {
	for name, words := range map[string][]string{
		"Open MPI":              {"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "3"},
		"Hydra":                 {"mpiexec.hydra", "-n", "3"},
		"Hydra, behind a shell": {"mpiexec.hydra", "-n", "3", "sh", "-c", `"$0"; exit $?`},
		"torchrun":              {"torchrun", "--standalone", "--no-python", "--nproc-per-node=3"},
	} {
		t.Run(name, func(t *testing.T) {
			path, err := exec.LookPath(words[0])
			if err != nil {
				t.Skipf("NOT TESTED with %s: %v", name, err)
			}
			for _, role := range []string{"far-gather", "far-address"} {
				f := startFar(t, role, append([]string{path}, words[1:]...))
				if said, err := f.wait(t); err != nil || strings.Count(said, "joined") != 3 {
					t.Errorf("%v:\n%s", err, said)
				}
			}
		})
	}
}

// TestKilledProcess: whichever rank is killed, and whenever in the exchange,
// every other is told which it was.
func TestKilledProcess(t *testing.T) {
	const size = 6
	var slowest time.Duration
	for trial := range 12 {
		victim := trial % size
		at := fmt.Sprintf("tcp://127.0.0.1:%d", freePort(t))
		var all []*far
		for r := range size {
			all = append(all, startFar(t, "far-killed", nil, append(farJob(r, size, at), fmt.Sprintf("%s=%d", victimVariable, victim))...))
		}
		<-all[victim].joined
		time.Sleep(rand.N(20 * time.Millisecond))
		killed := time.Now()
		if err := all[victim].cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for r, f := range all {
			if said, err := f.wait(t); r != victim && err != nil {
				t.Errorf("rank %d, when %d was killed: %v:\n%s", r, victim, err, said)
			}
		}
		slowest = max(slowest, time.Since(killed))
	}
	t.Logf("all processes knew, and had ended, at most %v after a SIGKILL", slowest)
}

// TestKilledWhileForming: the same at any moment of the start. One that is
// killed before it has come is missing.
func TestKilledWhileForming(t *testing.T) {
	const size = 4
	for trial := range 8 {
		victim := trial % size
		at := fmt.Sprintf("tcp://127.0.0.1:%d", freePort(t))
		var all []*far
		for _, r := range rand.Perm(size) {
			all = append(all, startFar(t, "far-killed", nil, append(farJob(r, size, at),
				fmt.Sprintf("%s=%d", victimVariable, victim), EnvTimeout+"=2s")...))
			if r == victim {
				go func(f *far) {
					time.Sleep(rand.N(50 * time.Millisecond))
					_ = f.cmd.Process.Kill()
				}(all[len(all)-1])
			}
		}
		for _, f := range all {
			said, err := f.wait(t)
			if slices.Contains(f.cmd.Env, fmt.Sprintf("%s=%d", EnvRank, victim)) {
				continue
			}
			if err != nil {
				t.Errorf("when %d was killed: %v:\n%s", victim, err, said)
			}
		}
	}
}

// TestExitWithoutClose: a process that ends without a word counts as lost.
func TestExitWithoutClose(t *testing.T) {
	at := fmt.Sprintf("tcp://127.0.0.1:%d", freePort(t))
	var all []*far
	for r := range 4 {
		all = append(all, startFar(t, "far-exit", nil, append(farJob(r, 4, at), victimVariable+"=1")...))
	}
	for r, f := range all {
		if said, err := f.wait(t); err != nil {
			t.Errorf("rank %d: %v:\n%s", r, err, said)
		}
	}
}

// TestJoinLeaksNothing: neither jobs that form nor such that do not leave
// goroutines or descriptors behind.
func TestJoinLeaksNothing(t *testing.T) {
	once := func() {
		for _, network := range []string{"127.0.0.1", "::1", "unix"} {
			o := options(t, 7, network)
			o.Secret = testSecret
			all := form(t, o)
			_ = everywhere(all, func(x Exchanger) error { _, err := x.AllGather(t.Context(), nil); return err })
			closeAll(all)

			o = options(t, 7, network) // ranks are missing
			o.Timeout = 30 * time.Millisecond
			all, _ = joinAll(t.Context(), o, func(o *Options) bool { return o.Rank < 5 })
			closeAll(all)

			o = options(t, 7, network) // one of another size
			o.Timeout = 200 * time.Millisecond
			all, _ = joinAll(t.Context(), o, func(o *Options) bool {
				if o.Rank == 6 {
					o.Size = 8
				}
				return true
			})
			closeAll(all)

			o = options(t, 7, network) // one dies
			all = form(t, o)
			cut(all[3])
			within(t, "a death", all[6].Done())
			closeAll(all)
			n := all[3].(*node)
			n.mu.Lock()
			n.shut = false // it has only played dead
			n.mu.Unlock()
			n.Close()
			o = options(t, 7, network)
			for _, l := range o.listener {
				l.Close()
			}
		}
	}
	once() // whatever is opened once is open now
	fds, goroutines := openFiles(t), runtime.NumGoroutine()
	for range 3 {
		once()
	}
	noMoreGoroutines(t, goroutines)
	for end := time.Now().Add(20 * time.Second); len(openFiles(t)) > len(fds); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("before: %v\nafter: %v", fds, openFiles(t))
		}
	}
}
