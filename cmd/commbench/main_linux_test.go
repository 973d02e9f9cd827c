package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/mem"
)

// The test binary is commbench where this variable is set, after what its
// value says has been done to the process.
const beVariable = "COMMBENCH_TEST_BE"

func TestMain(m *testing.M) {
	how := os.Getenv(beVariable)
	if how == "" {
		os.Exit(m.Run())
	}
	if how != "plain" {
		if err := handicap(how); err != nil {
			fmt.Fprintln(os.Stderr, "handicap:", err)
			os.Exit(99)
		}
		os.Setenv(beVariable, "plain")
		panic(syscall.Exec(os.Args[0], os.Args, os.Environ()))
	}
	if after := os.Getenv("COMMBENCH_TEST_DIE"); after != "" && os.Getenv(bootstrap.EnvRank) == after {
		os.Exit(7) // a rank that dies at start
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// handicap takes something from this process that commbench needs.
func handicap(how string) error {
	runtime.LockOSThread()
	switch how {
	case "no memfd":
		return refuse(unix.SYS_MEMFD_CREATE, false)
	case "no shared futex":
		return refuse(unix.SYS_FUTEX, true)
	case "no private memory":
		limit := unix.Rlimit{Cur: 512 << 20, Max: 512 << 20}
		return unix.Setrlimit(unix.RLIMIT_DATA, &limit)
	case "no proc":
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return err
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		return unix.Unmount("/proc", unix.MNT_DETACH)
	}
	return fmt.Errorf("unknown handicap %q", how)
}

// refuse makes a system call fail with EPERM, as a container's profile would;
// for futex only where the word is shared between processes, since Go itself
// needs the other kind.
func refuse(number uint32, sharedOnly bool) error {
	const private = 128
	ins := func(code uint16, k uint32, jt, jf uint8) unix.SockFilter {
		return unix.SockFilter{Code: code, Jt: jt, Jf: jf, K: k}
	}
	const load, equal, set, ret = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	const allow, deny = 0x7fff0000, 0x00050000 | uint32(unix.EPERM)
	prog := []unix.SockFilter{ins(load, 0, 0, 0), ins(equal, number, 0, 1), ins(ret, deny, 0, 0), ins(ret, allow, 0, 0)}
	if sharedOnly {
		prog = []unix.SockFilter{
			ins(load, 0, 0, 0), ins(equal, number, 0, 3),
			ins(load, 24, 0, 0), ins(set, private, 1, 0), ins(ret, deny, 0, 0), // args[1]
			ins(ret, allow, 0, 0),
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&fprog)), 0, 0)
}

// commbench is a command that is commbench.
func commbench(t *testing.T, how, line string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], strings.Fields(line)...)
	cmd.Env = append(os.Environ(), beVariable+"="+how)
	return cmd
}

// outcome runs it to its end.
func outcome(cmd *exec.Cmd) (status int, stdout, stderr string) {
	var out bytes.Buffer
	status, stderr = outcomeTo(&out, cmd)
	return status, out.String(), stderr
}

func outcomeTo(stdout io.Writer, cmd *exec.Cmd) (status int, stderr string) {
	var errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = stdout, &errs
	_ = cmd.Run() // the status says it
	return cmd.ProcessState.ExitCode(), errs.String()
}

func TestEveryTypeAndOperator(t *testing.T) {
	want := 0
	for _, dt := range mem.DTypes() {
		for _, op := range mem.Ops() {
			if op.Supports(dt) {
				want++
			}
		}
	}
	for _, ranks := range []int{2, 3, 4} {
		for _, memory := range []string{memoryAlloc, memoryUser} {
			line := fmt.Sprintf("--ranks %d --memory %s -b 8 -e 128K -f 128 -d all -o all -n 1 -w 1 -m 1 --format csv", ranks, memory)
			status, stdout, stderr := outcome(commbench(t, "plain", line))
			if status != 0 || stderr != "" {
				t.Fatalf("%s: status %d, %s", line, status, stderr)
			}
			rows, err := csv.NewReader(strings.NewReader(stdout)).ReadAll()
			if err != nil || len(rows) != 1+want*3*2 {
				t.Fatalf("%s: %d rows, %v; want %d", line, len(rows), err, 1+want*3*2)
			}
			for _, row := range rows[1:] {
				if wrong := row[len(row)-1]; wrong != "0" {
					t.Errorf("%v", row)
				}
			}
		}
	}
}

func TestOutputs(t *testing.T) {
	status, stdout, stderr := outcome(commbench(t, "plain", "--ranks 2 -b 8 -e 64K -f 64 -n 5 --vs-roofline"))
	if status != 0 || !strings.Contains(stdout, "# Out of bounds values : 0 OK") || !strings.Contains(stdout, "# Avg bus bandwidth") {
		t.Errorf("table: status %d\n%s%s", status, stdout, stderr)
	}
	status, stdout, stderr = outcome(commbench(t, "plain", "--ranks 3 --size 1M -n 5 --in-place --format json --vs-roofline"))
	var r result
	if err := json.Unmarshal([]byte(stdout), &r); status != 0 || err != nil ||
		r.Ranks != 3 || r.Bytes != 1<<20 || !r.InPlace || r.Time.P50 <= 0 || r.Wrong == nil || *r.Wrong != 0 || r.Ratio == nil || *r.Ratio <= 0 {
		t.Errorf("json: status %d, %v\n%s%s", status, err, stdout, stderr)
	}
	status, stdout, stderr = outcome(commbench(t, "plain", "--op barrier --ranks 2 -n 5 --format json"))
	if status != 0 || !strings.Contains(stdout, `"op":"barrier"`) || !strings.Contains(stdout, `"wrong":0`) {
		t.Errorf("barrier: status %d\n%s%s", status, stdout, stderr)
	}
	status, stdout, stderr = outcome(commbench(t, "plain", "roofline --ranks 3 -b 8 -e 64K -f 8192 -n 5 -d bf16 -o avg --format json"))
	if lines := strings.Count(stdout, `"op":"roofline"`); status != 0 || lines != 4 {
		t.Errorf("roofline: status %d, %d lines\n%s%s", status, lines, stdout, stderr)
	}
	status, stdout, stderr = outcome(commbench(t, "plain", "--ranks 1 --size 8 -n 5"))
	if status != 0 {
		t.Errorf("alone: status %d\n%s%s", status, stdout, stderr)
	}
}

// TestEveryAlgorithm: those that pass partial results on round more often.
func TestEveryAlgorithm(t *testing.T) {
	for _, algo := range []string{"direct", "oneshot", "staged", "ring", "tree"} {
		line := "--ranks 5 -b 8 -e 4K -f 512 -d f16,bf16,f32,f64,u8 -o sum,prod,avg,min -n 1 -w 1 -m 1 --algo " + algo
		if status, stdout, stderr := outcome(commbench(t, "plain", line)); status != 0 || stderr != "" {
			t.Errorf("%s: status %d\n%s%s", line, status, stdout, stderr)
		}
	}
}

// TestLaunchedByOthers: a process with TUTTI_RANK set is a rank, and rank 0
// prints.
func TestLaunchedByOthers(t *testing.T) {
	j, err := bootstrap.Launch(t.Context(), bootstrap.Spec{Size: 2, Command: func(int) *exec.Cmd {
		cmd := commbench(t, "plain", "--size 4K -n 5")
		cmd.Stdout, cmd.Stderr = nil, os.Stderr
		return cmd
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Wait(); err != nil {
		t.Error(err)
	}
	cmd := commbench(t, "plain", "--size 4K -n 5")
	cmd.Env = append(cmd.Env, bootstrap.EnvRank+"=0", bootstrap.EnvSize+"=1")
	status, out, errs := outcome(cmd)
	if status != 0 || !strings.Contains(out, "0 OK") {
		t.Errorf("status %d\n%s%s", status, out, errs)
	}
	cmd = commbench(t, "plain", "--size 4K -n 5")
	cmd.Env = append(cmd.Env, bootstrap.EnvRank+"=x", bootstrap.EnvSize+"=1")
	if status, out, errs := outcome(cmd); status != exitRun || !strings.Contains(errs, bootstrap.EnvRank) || out != "" {
		t.Errorf("status %d\n%s%s", status, out, errs)
	}
}

// TestWrongResults: a rank with data that the others do not expect.
func TestWrongResults(t *testing.T) {
	var stdout bytes.Buffer
	j, err := bootstrap.Launch(t.Context(), bootstrap.Spec{Size: 2, Command: func(rank int) *exec.Cmd {
		cmd := commbench(t, "plain", fmt.Sprintf("--size 4K -n 5 --seed %d", rank))
		if rank == 0 {
			cmd.Stdout = &stdout
		}
		return cmd
	}})
	if err != nil {
		t.Fatal(err)
	}
	var rank *bootstrap.RankError
	if err := j.Wait(); !errors.As(err, &rank) || rank.ExitCode != exitWrong || !strings.Contains(stdout.String(), "FAILED") {
		t.Errorf("%v\n%s", err, &stdout)
	}
}

// TestWrongResultsOfEveryOperation: the same for all that move data.
func TestWrongResultsOfEveryOperation(t *testing.T) {
	var stdout bytes.Buffer
	j, err := bootstrap.Launch(t.Context(), bootstrap.Spec{Size: 2, Command: func(rank int) *exec.Cmd {
		cmd := commbench(t, "plain", fmt.Sprintf("--op all --size 4K -n 1 -w 1 -m 1 --format json --seed %d", rank))
		if rank == 0 {
			cmd.Stdout = &stdout
		}
		return cmd
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Wait(); err == nil {
		t.Error("all good")
	}
	rows := 0
	for line := range strings.Lines(stdout.String()) {
		var r result
		if err := json.Unmarshal([]byte(line), &r); err != nil || r.Wrong == nil || (*r.Wrong > 0) != (r.Op != "barrier") {
			t.Errorf("%v: %s", err, line)
		}
		rows++
	}
	if rows != len(operations)+11 {
		t.Errorf("%d rows", rows)
	}
}

// complains checks that a command fails with a status and one line.
func complains(t *testing.T, cmd *exec.Cmd, want int, says string) {
	t.Helper()
	var stdout bytes.Buffer
	complainsTo(t, &stdout, cmd, want, says)
	if strings.Contains(stdout.String(), "OK") {
		t.Errorf("%v: %s", cmd.Args[1:], &stdout)
	}
}

func complainsTo(t *testing.T, stdout io.Writer, cmd *exec.Cmd, want int, says string) {
	t.Helper()
	status, stderr := outcomeTo(stdout, cmd)
	if strings.HasPrefix(stderr, "handicap:") {
		t.Skip(stderr)
	}
	// The race detector has its own complaint about a missing /proc.
	stderr = regexp.MustCompile(`(?m)^==\d+==WARNING.*\n`).ReplaceAllString(stderr, "")
	if status != want || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, says) {
		t.Errorf("%v: status %d, want %d and one line with %q\n%s", cmd.Args[1:], status, want, says, stderr)
	}
}

func TestComplaints(t *testing.T) {
	complains(t, commbench(t, "plain", "--size 10"), exitUsage, "multiple of 4")
	complains(t, commbench(t, "plain", "--algo sideways"), exitUsage, "allreduce/direct")
	complains(t, commbench(t, "plain", "--algo barrier/direct"), exitUsage, "allreduce/direct")
	complains(t, commbench(t, "plain", "--algo dissemination"), exitUsage, "allreduce/direct")
	complains(t, commbench(t, "plain", "--op allreduce,barrier --algo sideways"), exitUsage, "barrier/dissemination")
	complains(t, commbench(t, "plain", "--op sendrecv --algo direct"), exitUsage, "valid are auto")
	complains(t, commbench(t, "plain", "--op gather --root 4096"), exitUsage, "--root 4096: valid are 0 to")
	complains(t, commbench(t, "plain", "--op everything"), exitUsage, "alltoallv, all")
	complains(t, commbench(t, "plain", "--path carrier-pigeon"), exitUsage, "shm")
	complains(t, commbench(t, "plain", "--size 4T"), exitRun, "need 16 TiB of memory, there is")
	cmd := commbench(t, "plain", "--size 8 --ranks 3")
	cmd.Env = append(cmd.Env, "COMMBENCH_TEST_DIE=2")
	complains(t, cmd, exitRun, "rank 2 (pid ")
}

// TestNobodyReads: where results cannot be written, measuring ends at once.
func TestNobodyReads(t *testing.T) {
	const long = "--ranks 2 -b 8 -e 1M -n 1000000"
	t.Run("full disk", func(t *testing.T) {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Skip(err)
		}
		defer full.Close()
		complainsTo(t, full, commbench(t, "plain", long), exitRun, "no space")
		complainsTo(t, full, commbench(t, "plain", "--ranks 2 --size 8 -n 5 --format csv"), exitRun, "no space")
		complainsTo(t, full, commbench(t, "plain", "--help"), exitRun, "no space")
	})
	t.Run("closed pipe", func(t *testing.T) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		r.Close()
		complainsTo(t, w, commbench(t, "plain", long), exitRun, "broken pipe")
	})
}

func TestMachineThatRefuses(t *testing.T) {
	t.Run("memfd", func(t *testing.T) {
		complains(t, commbench(t, "no memfd", "--size 8 --ranks 2"), exitRun, "memfd_create")
		complains(t, commbench(t, "no memfd", "roofline -b 8 -e 8 --ranks 2"), exitRun, "memfd_create")
	})
	t.Run("futex", func(t *testing.T) {
		complains(t, commbench(t, "no shared futex", "--size 8 --ranks 2"), exitRun, "futex")
	})
	t.Run("memory", func(t *testing.T) {
		complains(t, commbench(t, "no private memory", "--size 512M --in-place --ranks 2 --memory mmap"), exitRun, "a buffer of 512 MiB")
	})
	t.Run("proc", func(t *testing.T) {
		complains(t, commbench(t, "no proc", "--size 8 --ranks 2"), exitRun, "/proc")
	})
}

// longRun starts a benchmark that goes on for minutes, and waits until its
// ranks are at work. It returns their pids.
func longRun(t *testing.T, more string) (*exec.Cmd, []int, *bytes.Buffer, *bytes.Buffer) {
	t.Helper()
	cmd := commbench(t, "plain", "--ranks 3 -b 8 -e 1M -f 131072 -n 100000 --in-place "+more)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stderr := &bytes.Buffer{}
	cmd.Stderr = stderr
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stdout := &bytes.Buffer{}
	rank := regexp.MustCompile(`#  rank +\d+  pid +(\d+)`)
	b := make([]byte, 4096)
	for !strings.Contains(stdout.String(), "(elements)") {
		n, err := r.Read(b)
		if err != nil {
			t.Fatalf("ended early: %v\n%s%s", err, stdout, stderr)
		}
		stdout.Write(b[:n])
	}
	var pids []int
	for _, m := range rank.FindAllStringSubmatch(stdout.String(), -1) {
		pid, _ := strconv.Atoi(m[1])
		pids = append(pids, pid)
	}
	if len(pids) != 3 {
		t.Fatalf("ranks %v in\n%s", pids, stdout)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = stdout.ReadFrom(r)
		r.Close()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
	})
	for _, pid := range pids {
		atWork(t, pid)
	}
	return cmd, pids, stdout, stderr
}

// atWork waits until a rank has computed for so long that it is past the start
// and in the samples of its first point, which take some seconds.
func atWork(t *testing.T, pid int) {
	t.Helper()
	const ticks = 20 // of 10 ms
	used := func() int {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest) // from state, the third of proc(5), on
		user, _ := strconv.Atoi(fields[14-3])
		system, _ := strconv.Atoi(fields[15-3])
		return user + system
	}
	for before, end := used(), time.Now().Add(time.Minute); used() < before+ticks; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("process %d does nothing", pid)
		}
	}
}

// gone waits until processes have ended.
func gone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if err != nil || strings.Contains(string(stat), ") Z") {
				break
			}
			if time.Now().After(end) {
				t.Errorf("process %d lives on", pid)
				break
			}
		}
	}
}

func TestKilledRank(t *testing.T) {
	cmd, pids, _, stderr := longRun(t, "")
	_ = syscall.Kill(pids[1], syscall.SIGKILL)
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != exitRun {
		t.Errorf("status %d", got)
	}
	if s := stderr.String(); strings.Count(s, "\n") != 1 || !strings.Contains(s, fmt.Sprintf("rank 1 (pid %d)", pids[1])) {
		t.Errorf("standard error: %q", s)
	}
	gone(t, pids)
}

// TestFirstCause: rank 0 is the first to fail, by the death of rank 1; but not
// where the launcher killed rank 1, long after.
func TestFirstCause(t *testing.T) {
	ended := func(script string) *exec.Cmd {
		cmd := exec.Command("sh", "-c", script)
		_ = cmd.Run() // its state says it
		return cmd
	}
	now := time.Now()
	j := &job{
		commands: []*exec.Cmd{ended("exit 3"), ended("kill -9 $$")},
		failures: map[int]failure{0: {0, "rank 0: rank 1 was lost", now}},
	}
	for after, says := range map[time.Duration]string{
		10 * time.Millisecond: "rank 1 (pid ", 2 * time.Second: "rank 0: rank 1 was lost",
	} {
		j.silent = []time.Time{now, now.Add(after)}
		if err := j.cause(t.Context(), &bootstrap.RankError{Rank: 0, ExitCode: 3}); !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%v after: %v", after, err)
		}
	}
}

func TestStoppedRankMeetsDeadline(t *testing.T) {
	cmd, pids, _, stderr := longRun(t, "--timeout 4s")
	_ = syscall.Kill(pids[2], syscall.SIGSTOP)
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != exitRun {
		t.Errorf("status %d", got)
	}
	if s := stderr.String(); strings.Count(s, "\n") != 1 || !strings.Contains(s, "not done after 4s") {
		t.Errorf("standard error: %q", s)
	}
	gone(t, pids)
}

func TestInterrupt(t *testing.T) {
	for _, group := range []bool{true, false} { // as a terminal does, and as kill does
		cmd, pids, _, stderr := longRun(t, "")
		to := cmd.Process.Pid
		if group {
			to = -to
		}
		_ = syscall.Kill(to, syscall.SIGINT)
		_ = cmd.Wait()
		if got := cmd.ProcessState.ExitCode(); got != 130 {
			t.Errorf("status %d\n%s", got, stderr)
		}
		if s := stderr.String(); strings.Count(s, "\n") != 1 || !strings.Contains(s, "interrupt") {
			t.Errorf("standard error: %q", s)
		}
		gone(t, pids)
	}
}

func TestKilledParent(t *testing.T) {
	cmd, pids, _, _ := longRun(t, "")
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	gone(t, pids)
}

// rowsOf are the results that a command printed, all of them right.
func rowsOf(t *testing.T, line string) []result {
	t.Helper()
	status, stdout, stderr := outcome(commbench(t, "plain", line+" --format json"))
	if status != 0 {
		t.Fatalf("%s: status %d\n%s%s", line, status, stdout, stderr)
	}
	var rows []result
	for text := range strings.Lines(stdout) {
		var r result
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatalf("%s: %v in %q", line, err, text)
		}
		if r.Wrong == nil || *r.Wrong != 0 || r.Time.P50 <= 0 {
			t.Errorf("%s: %s", line, text)
		}
		rows = append(rows, r)
	}
	return rows
}

// TestEveryOperation on every kind of memory, with blocks that are no whole
// words and with one element.
func TestEveryOperation(t *testing.T) {
	const quick = " --op all -n 1 -w 1 -m 2 "
	for _, ranks := range []int{2, 3} {
		for _, memory := range memories {
			for _, more := range []string{"-b 4 -e 300004 -i 100000", "-b 2 -e 60002 -i 30000 -d u8,f16 --uneven -o max --root 1"} {
				rows := rowsOf(t, fmt.Sprintf("--ranks %d --memory %s %s %s", ranks, memory, quick, more))
				seen := map[string]int{}
				for _, r := range rows {
					seen[fmt.Sprint(r.Op, r.InPlace)]++
					op, err := parseOperation(r.Op)
					if err != nil || r.Ranks != ranks || (r.Root >= 0) != op.rooted() || (r.RedOp == "none") == op.reduces() || r.InPlace && op.apart {
						t.Errorf("%v: %+v", err, r)
					}
				}
				if len(seen) != len(operations)+11 {
					t.Errorf("%d ranks, %s, %s: %v", ranks, memory, more, seen)
				}
			}
		}
	}
}

func TestWires(t *testing.T) {
	for _, wire := range []string{"f16", "bf16", "q8"} {
		for _, r := range rowsOf(t, "--ranks 3 -b 4 -e 400004 -i 200000 -o sum,avg -n 1 -w 1 -m 1 --wire "+wire) {
			if r.Wire != wire {
				t.Errorf("%+v", r)
			}
		}
	}
}

func TestOverlap(t *testing.T) {
	rows := rowsOf(t, "--op all --ranks 2 --size 16K -n 5 -m 2 --overlap --fixed-order")
	if len(rows) != len(operations) {
		t.Errorf("%d rows", len(rows))
	}
	for _, r := range rows {
		if v := r.Overlap; v == nil || v.Comm <= 0 || v.Compute <= 0 || v.Both <= 0 || v.Hidden < 0 || v.Low > v.Hidden || v.Hidden > v.High {
			t.Errorf("%+v %+v", r, v)
		}
	}
}

func TestAllInPlace(t *testing.T) {
	status, stdout, stderr := outcome(commbench(t, "plain", "--op all --in-place --ranks 2 --size 1K -n 2 -w 1 -m 2"))
	if status != 0 || strings.Count(stdout, "(elements)") != len(operations) || !strings.Contains(stdout, ": 0 OK") ||
		stderr != "commbench: out of place, as there is no other form: alltoall, sendrecv, barrier, alltoallv\n" {
		t.Errorf("status %d\n%s%s", status, stdout, stderr)
	}
}
