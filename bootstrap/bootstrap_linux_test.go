package bootstrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The test binary is its own rank: with this variable set it does what it says.
const roleVariable = "TUTTI_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role))
	}
	os.Exit(m.Run())
}

// play is what a child process does.
func play(role string) int {
	if role == "parent" { // launches ranks that never end, prints their pids
		j, err := Launch(context.Background(), Spec{Size: 2, Command: as("sleep")})
		if err != nil {
			return 9
		}
		fmt.Println(j.Pids()[0], j.Pids()[1])
		_ = j.Wait()
		return 0
	}
	if strings.HasPrefix(role, "far-") {
		return playFar(role)
	}
	x, err := FromEnv(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 9
	}
	defer x.Close()
	switch role {
	case "gather":
		for turn := range 20 {
			mine := bytes.Repeat([]byte{byte(x.Rank())}, turn*997)
			all, err := x.AllGather(context.Background(), mine)
			if err != nil || len(all) != x.Size() {
				return 8
			}
			for rank, b := range all {
				if len(b) != turn*997 || bytes.Count(b, []byte{byte(rank)}) != len(b) {
					return 7
				}
			}
		}
		return 0
	case "twice": // what the descriptor's number is by now stays open
		f, err := os.Open(os.DevNull)
		if err != nil {
			return 8
		}
		defer f.Close()
		number, _ := strconv.Atoi(strings.TrimPrefix(os.Getenv(EnvBootstrap), "fd:"))
		if int(f.Fd()) != number && syscall.Dup3(int(f.Fd()), number, 0) != nil {
			return 7
		}
		_, err = FromEnv(context.Background())
		var e *EnvError
		var st syscall.Stat_t
		if !errors.As(err, &e) || e.Name != EnvBootstrap || syscall.Fstat(number, &st) != nil {
			fmt.Fprintln(os.Stderr, "second FromEnv:", err)
			return 6
		}
		if _, err := x.AllGather(context.Background(), nil); err != nil {
			return 5
		}
		return 0
	case "leave", "close": // rank 1 leaves before the others are done
		if x.Rank() != 1 {
			_, err := x.AllGather(context.Background(), nil)
			var job *JobError
			if !errors.As(err, &job) || !strings.Contains(job.Reason, "rank 1") {
				fmt.Fprintln(os.Stderr, "told:", err)
				return 6
			}
		} else if role == "close" {
			x.Close()
			time.Sleep(grace + grace/4)
		}
		return 0
	case "linger": // rank 1 is done long before the others leave
		for range 2 {
			if _, err := x.AllGather(context.Background(), nil); err != nil {
				return 8
			}
		}
		if x.Rank() != 1 {
			time.Sleep(50 * time.Millisecond)
		}
		return 0
	case "die": // rank 1 dies; the others must be told
		if x.Rank() == 1 {
			return 5
		}
		_, err := x.AllGather(context.Background(), nil)
		var job *JobError
		if !errors.As(err, &job) || !strings.Contains(job.Reason, "rank 1") {
			fmt.Fprintln(os.Stderr, "told:", err)
			return 6
		}
		return 0
	case "killed":
		if x.Rank() == 1 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		<-x.Done()
		return 0
	case "stopped":
		return playStopped(x)
	case "sleep":
		time.Sleep(time.Hour)
	case "stubborn":
		if x.Rank() == 0 {
			return 3
		}
		time.Sleep(time.Hour)
	case "nonsense":
		if x.Rank() == 1 {
			c := x.(*rank).conn
			_, _ = c.Write(append([]byte{77}, make([]byte, 8)...))
		}
		<-x.Done()
		return 0
	case "huge":
		if x.Rank() == 1 {
			_, _ = x.(*rank).conn.Write([]byte{frameGather, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
		}
		<-x.Done()
		return 0
	}
	return 0
}

func as(role string) func(int) *exec.Cmd {
	return func(int) *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), roleVariable+"="+role, quickExit)
		cmd.Stderr = os.Stderr
		return cmd
	}
}

func launch(t *testing.T, size int, role string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	j, err := Launch(ctx, Spec{Size: size, Command: as(role)})
	if err != nil {
		t.Fatal(err)
	}
	return j.Wait()
}

func TestLaunchGathers(t *testing.T) {
	for _, size := range []int{1, 2, 5} {
		if err := launch(t, size, "gather"); err != nil {
			t.Errorf("%d ranks: %v", size, err)
		}
	}
}

func TestDeadRankIsNamed(t *testing.T) {
	var e *RankError
	if err := launch(t, 3, "die"); !errors.As(err, &e) || e.Rank != 1 || e.ExitCode != 5 {
		t.Errorf("exit status: %v", err)
	}
	if err := launch(t, 3, "killed"); !errors.As(err, &e) || e.Rank != 1 || e.Signal != syscall.SIGKILL {
		t.Errorf("signal: %v", err)
	}
	if err := launch(t, 2, "stubborn"); !errors.As(err, &e) || e.Rank != 0 || e.ExitCode != 3 {
		t.Errorf("with a rank that does not listen: %v", err)
	}
}

// TestEarlyLeaver: a rank that others still wait for fails the job, also with
// status 0; one that they are done with may go.
func TestEarlyLeaver(t *testing.T) {
	var e *RankError
	for _, role := range []string{"leave", "close"} {
		began := time.Now()
		if err := launch(t, 3, role); !errors.As(err, &e) || e.Rank != 1 || !errors.Is(err, ErrLeft) {
			t.Errorf("%s: %v", role, err)
		}
		if status := strings.Contains(e.Error(), "exit status 0"); status != (role == "leave") {
			t.Errorf("%s: %v", role, e)
		}
		if took := time.Since(began); took > 5*grace {
			t.Errorf("%s: took %v", role, took)
		}
	}
	if err := launch(t, 3, "linger"); err != nil {
		t.Errorf("left after the last round: %v", err)
	}
}

func TestInheritedSocketIsUsedOnce(t *testing.T) {
	if err := launch(t, 2, "twice"); err != nil {
		t.Error(err)
	}
}

func TestNonsenseFromARank(t *testing.T) {
	for _, role := range []string{"nonsense", "huge"} {
		var frame *FrameError
		var e *RankError
		if err := launch(t, 2, role); !errors.As(err, &e) || e.Rank != 1 || !errors.As(err, &frame) {
			t.Errorf("%s: %v", role, err)
		}
	}
}

func TestUnstartableRank(t *testing.T) {
	_, err := Launch(t.Context(), Spec{Size: 2, Command: func(rank int) *exec.Cmd {
		if rank == 1 {
			return exec.Command("/does/not/exist")
		}
		return as("sleep")(rank)
	}})
	var e *RankError
	if !errors.As(err, &e) || e.Rank != 1 || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestCancelKillsRanks(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	j, err := Launch(ctx, Spec{Size: 2, Command: as("sleep")})
	if err != nil {
		t.Fatal(err)
	}
	pids := j.Pids()
	cancel()
	if err := j.Wait(); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait: %v", err)
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d lives on", pid)
		}
	}
}

// TestKilledParentLeavesNobody: SIGKILL gives a parent no chance to clean up;
// the kernel does.
func TestKilledParentLeavesNobody(t *testing.T) {
	parent := as("parent")(0)
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var a, b int
	if _, err := fmt.Fscan(out, &a, &b); err != nil {
		t.Fatal(err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	for end := time.Now().Add(10 * time.Second); alive(a) || alive(b); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("ranks %d and %d live on 10 s after their parent was killed", a, b)
		}
	}
}

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

func TestMemoryGathers(t *testing.T) {
	const n = 4
	all := Memory(n)
	var wg sync.WaitGroup
	for r, x := range all {
		wg.Go(func() {
			for turn := range 50 {
				got, err := x.AllGather(t.Context(), []byte{byte(r), byte(turn)})
				if err != nil {
					t.Error(err)
					return
				}
				for q, b := range got {
					if !bytes.Equal(b, []byte{byte(q), byte(turn)}) {
						t.Errorf("turn %d: rank %d got %v of rank %d", turn, r, b, q)
					}
				}
			}
		})
	}
	wg.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := all[0].AllGather(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("alone: %v", err)
	}
	all[1].Close()
	if _, err := all[1].AllGather(t.Context(), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if _, err := all[2].AllGather(t.Context(), make([]byte, MaxBlob+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
}

func TestEnvironmentIsChecked(t *testing.T) {
	t.Setenv(EnvRank, "")
	if _, err := FromEnv(t.Context()); !errors.Is(err, ErrNoEnvironment) {
		t.Errorf("no environment: %v", err)
	}
	for _, tt := range []struct{ rank, size, bootstrap, bad string }{
		{"0", "", "fd:3", EnvSize},
		{"0", "zwei", "fd:3", EnvSize},
		{"0", "1000000000", "fd:3", EnvSize},
		{"2", "2", "fd:3", EnvRank},
		{"-1", "2", "fd:3", EnvRank},
		{"0", "2", "", EnvBootstrap},
		{"0", "2", "fd:x", EnvBootstrap},
		{"0", "2", "fd:1", EnvBootstrap},
		{"0", "2", "fd:999999", EnvBootstrap},
	} {
		t.Setenv(EnvRank, tt.rank)
		t.Setenv(EnvSize, tt.size)
		t.Setenv(EnvBootstrap, tt.bootstrap)
		_, err := FromEnv(t.Context())
		var e *EnvError
		if !errors.As(err, &e) || e.Name != tt.bad {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

func TestParentGone(t *testing.T) {
	ours, theirs := net.Pipe()
	r := newRank(0, 2, theirs)
	defer r.Close()
	ours.Close()
	if _, err := r.AllGather(t.Context(), nil); !errors.Is(err, ErrCoordinatorGone) {
		t.Errorf("got %v", err)
	}
}

func FuzzFrames(f *testing.F) {
	f.Add([]byte{frameResult, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 2)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		size = 1 + size&7
		kind, payload, err := readFrame(bytes.NewReader(b), 1<<16)
		if err != nil {
			return
		}
		if kind == frameResult {
			if blobs, err := decodeBlobs(payload, size); err == nil && !bytes.Equal(encodeBlobs(blobs), payload) {
				t.Errorf("%x decodes to blobs that encode otherwise", payload)
			}
		}
	})
}
