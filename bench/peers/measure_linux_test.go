package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// script writes a program that notes its run in log and prints one result
// line for each size after -b.
func script(t *testing.T, dir, name, us string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	text := fmt.Sprintf(`#!/bin/sh
echo %s >> %s/log
while [ $# -gt 0 ]; do case $1 in -b|--size) sizes=$2;; esac; shift; done
for b in $(echo "$sizes" | tr , ' '); do
  echo "{\"op\":\"allreduce\",\"ranks\":2,\"bytes\":$b,\"time_us\":{\"p50\":%s},\"wrong\":0}"
done
`, name, dir, us)
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func plainLaunch(_ place, v Variant, _ int, prog []string) []Command {
	return []Command{{Args: prog, Env: v.Env}}
}

func fakeCampaign(t *testing.T, dir string) *campaign {
	t.Helper()
	peer := func(name, us string) runner {
		return runner{Peer: Peer{Name: name, Ops: opNames(), Launch: plainLaunch, Variants: []Variant{{Name: "default"}}}, prog: script(t, dir, name, us)}
	}
	return &campaign{
		work:  Work{Dtype: "f32", Redop: "sum", InPlace: true, Memory: []string{memoryAlloc, memoryUser}, Contenders: 2},
		cores: 2, limit: 20 * time.Second, rounds: 2, cap: time.Millisecond, variants: true,
		runners: []runner{peer("a", "10"), peer("b", "12"), peer("c", "30")}, launcher: &launcher{tmp: dir}, tutti: script(t, dir, "tutti", "5"), say: t.Logf,
	}
}

func TestRoundsAlternate(t *testing.T) {
	dir := t.TempDir()
	c := fakeCampaign(t, dir)
	r := &Report{Work: c.work}
	if err := c.all(t.Context(), r, groupsOf(ops[:1], []int{2}, []int64{8}), noSave); err != nil {
		t.Fatal(err)
	}
	p := r.Points[0]
	if b := p.best(); b == nil || b.Name != "a" || *b.RatioAlloc != (Spread{2, 2, 2, 2}) || *b.RatioUser != (Spread{2, 2, 2, 2}) {
		t.Errorf("best = %+v, want a at twice Tutti's time in 2 rounds", b)
	}
	if p.Alloc.US.Rounds != 4 || p.User.US.Rounds != 4 {
		t.Errorf("Tutti ran %d and %d times, want 4 and 4: once beside each peer in each round", p.Alloc.US.Rounds, p.User.US.Rounds)
	}
	b, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	// Calibration of all; then pairs of those near the best, peer first in one
	// round and Tutti first in the next.
	want := "a b c" + " a tutti tutti b tutti tutti" + " tutti tutti a tutti tutti b"
	if got := strings.Join(strings.Fields(string(b)), " "); got != want {
		t.Errorf("order of runs:\n got %s\nwant %s", got, want)
	}
}

// Small sizes share a peer's launch; each is beside Tutti's run of its own.
func TestBandsShareALaunch(t *testing.T) {
	dir := t.TempDir()
	c := fakeCampaign(t, dir)
	c.rounds, c.runners = 1, c.runners[:1]
	r := &Report{Work: c.work}
	if err := c.all(t.Context(), r, groupsOf(ops[:1], []int{2}, []int64{8, 1024, 1 << 20}), noSave); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	want := "a" + " a tutti tutti tutti tutti" + " a tutti tutti"
	if got := strings.Join(strings.Fields(string(b)), " "); got != want {
		t.Errorf("order of runs:\n got %s\nwant %s", got, want)
	}
	for _, p := range r.Points {
		if b := p.best(); b == nil || b.RatioUser.Median != 2 {
			t.Errorf("%d bytes: best = %+v, want a at twice Tutti's time", p.Bytes, b)
		}
	}
}

func noSave() error { return nil }

func TestFailuresAreNamed(t *testing.T) {
	dir := t.TempDir()
	c := fakeCampaign(t, dir)
	bad := "#!/bin/sh\necho 'it broke' >&2\nexit 3\n"
	if err := os.WriteFile(c.runners[1].prog, []byte(bad), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.tutti, []byte(bad), 0o755); err != nil {
		t.Fatal(err)
	}
	r := &Report{Work: c.work}
	if err := c.all(t.Context(), r, groupsOf(ops[:1], []int{2}, []int64{8}), noSave); err != nil {
		t.Fatal(err)
	}
	p := r.Points[0]
	for who, text := range map[string]string{"b": p.peer("b").Error, "alloc": p.Alloc.Error, "user": p.User.Error} {
		if !strings.Contains(text, "exit status 3") || !strings.Contains(text, "it broke") {
			t.Errorf("%s: error %q, want the exit status and what was said", who, text)
		}
	}
	if p.peer("a").US == nil {
		t.Error("peer a was not measured because of another's failure")
	}
}

// A run that does not end, and has started processes of its own in other
// groups, is stopped whole.
func TestNothingLeftBehind(t *testing.T) {
	adoptOrphans()
	l := &launcher{tmp: t.TempDir()}
	mark := filepath.Join(t.TempDir(), "pids")
	hang := "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ >> " + mark + "; sleep 600' & echo $$ >> " + mark + "; echo out; sleep 600"
	start := time.Now()
	out, err := l.run(t.Context(), 300*time.Millisecond, nil, func(string) []Command {
		return []Command{{Args: []string{"sh", "-c", hang}}}
	})
	if err == nil || !strings.Contains(err.Error(), "not done after") {
		t.Errorf("err = %v, want that it was not done", err)
	}
	if string(out) != "out\n" {
		t.Errorf("output %q, want what was printed before the end", out)
	}
	if d := time.Since(start); d > 20*time.Second {
		t.Errorf("stopping took %v", d)
	}
	b, err := os.ReadFile(mark)
	if err != nil || len(strings.Fields(string(b))) != 2 {
		t.Fatalf("pids %q, %v; want two", b, err)
	}
	for _, pid := range strings.Fields(string(b)) {
		if _, err := os.Stat("/proc/" + pid); err == nil {
			t.Errorf("process %s is still there", pid)
		}
	}
	if left, err := os.ReadDir(l.tmp); err != nil || len(left) > 0 {
		t.Errorf("left in the temporary folder: %v, %v", left, err)
	}
}

func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(200*time.Millisecond, cancel)
	_, err := (&launcher{tmp: t.TempDir()}).run(ctx, time.Minute, nil, func(string) []Command {
		return []Command{{Args: []string{"sleep", "600"}}, {Args: []string{"sleep", "600"}}}
	})
	if err == nil || ctx.Err() == nil {
		t.Errorf("err = %v, want an error", err)
	}
	if left := children(os.Getpid()); len(left) > 0 {
		t.Errorf("children left: %v", left)
	}
}
