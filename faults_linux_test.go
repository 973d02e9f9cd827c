package tutti_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
)

// Who is killed, and where the others say how they fared.
const (
	victimVariable = "TUTTI_TEST_VICTIM"
	folderVariable = "TUTTI_TEST_FOLDER"
)

func init() {
	roles["mixed"] = func(ctx context.Context, c *tutti.Comm) error {
		m, err := newMixture(c)
		for i := 0; i < 250 && err == nil; i++ {
			err = m.next(ctx)
		}
		return err
	}
	roles["mixed until one is lost"] = mixedUntilLost
}

// mixture is an endless row of calls of all kinds that all ranks draw alike.
type mixture struct {
	c     *tutti.Comm
	rng   *rand.Rand
	alloc [2][]byte
	plain [2][]byte
}

func newMixture(c *tutti.Comm) (*mixture, error) {
	m := &mixture{c: c, rng: rand.New(rand.NewPCG(21, 22))}
	for i := range 2 {
		b, err := c.Alloc(1 << 20)
		if err != nil {
			return nil, err
		}
		m.alloc[i], m.plain[i] = b.Bytes(), make([]byte, 1<<20)
	}
	return m, nil
}

// next makes a call and checks its result.
func (m *mixture) next(ctx context.Context) error {
	n, r := m.c.Size(), m.c.Rank()
	memory := m.alloc
	if m.rng.IntN(2) == 0 {
		memory = m.plain
	}
	block := 8 * (1 + m.rng.IntN(1<<m.rng.IntN(14)))
	root, kind, tag := m.rng.IntN(n), m.rng.IntN(8), byte(m.rng.Uint32())
	in, out := memory[0][:n*block], memory[1][:n*block]
	// Block q of rank r's input is filled with what names both.
	name := func(from, to int) byte { return tag + byte(31*from+7*to) }
	for q := range n {
		fill(in[q*block:][:block], name(r, q))
	}
	c, x := m.c, m.c.NewExchange()
	var err error
	want := func(q int) byte { return name(q, r) }
	switch kind {
	case 0:
		err = c.AllToAll(ctx, in, out, mem.U8)
	case 1:
		for q := range n {
			x.Send(in[q*block:][:block], mem.U8, q)
		}
		for q := range n {
			x.Recv(out[q*block:][:block], mem.U8, q)
		}
		err = x.Run(ctx)
	case 2:
		w, issued := c.AllToAllAsync(ctx, in, out, mem.F64)
		err = errors.Join(issued, w.Wait(ctx))
	case 3:
		err = c.AllGather(ctx, in[:block], out, mem.U8)
		want = func(q int) byte { return name(q, 0) }
	case 4:
		err = c.Broadcast(ctx, in, out, mem.U8, root)
		want = func(q int) byte { return name(root, q) }
	case 5:
		err = c.AllReduce(ctx, in, out, mem.U8, mem.Bxor)
		want = func(q int) (b byte) {
			for p := range n {
				b ^= name(p, q)
			}
			return b
		}
	case 6:
		if err = c.Gather(ctx, in[:block], out, mem.U8, root); r != root {
			return err
		}
		want = func(q int) byte { return name(q, 0) }
	case 7:
		if err = c.Scatter(ctx, in, out[:block], mem.U8, root); err == nil {
			err = is(out[:block], name(root, r))
		}
		return err
	}
	for q := range n {
		if err == nil {
			err = is(out[q*block:][:block], want(q))
		}
	}
	return err
}

func fill(b []byte, with byte) {
	for i := range b {
		b[i] = with
	}
}

func is(b []byte, full byte) error {
	for _, got := range b {
		if got != full {
			return fmt.Errorf("a byte is %d, not %d", got, full)
		}
	}
	return nil
}

// mixedUntilLost ends well if it ends with the loss of the victim.
func mixedUntilLost(ctx context.Context, c *tutti.Comm) error {
	folder := os.Getenv(folderVariable)
	say := func(what, text string) error {
		name := filepath.Join(folder, fmt.Sprintf("%s.%d", what, c.Rank()))
		if err := os.WriteFile(name+".new", []byte(text), 0o600); err != nil {
			return err
		}
		return os.Rename(name+".new", name)
	}
	m, err := newMixture(c)
	for i := 0; err == nil; i++ {
		if i == 1 {
			err = say("ready", "")
		}
		if err == nil {
			err = m.next(ctx)
		}
	}
	victim, _ := strconv.Atoi(os.Getenv(victimVariable))
	var lost *link.PeerLostError
	if !errors.As(err, &lost) || lost.Rank != victim {
		return errors.Join(err, say("end", err.Error()))
	}
	return say("end", "")
}

// TestStoppedRanksInMixedCalls: slowness is not death, whatever is called.
func TestStoppedRanksInMixedCalls(t *testing.T) {
	t.Run("one node", stoppedInMixedCalls)
	t.Run("two nodes", func(t *testing.T) {
		t.Setenv(nodesVariable, "2")
		stoppedInMixedCalls(t)
	})
}

func stoppedInMixedCalls(t *testing.T) {
	j := start(t, 4, "mixed")
	over := make(chan error, 1)
	go func() { over <- j.Wait() }()
	rng := rand.New(rand.NewPCG(31, 5))
	for stops := 0; ; stops++ {
		pid := j.Pids()[rng.IntN(4)]
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

// TestKilledAtAnyMoment: whatever the others are at, each of them is told whom
// it has lost, and nothing stays behind.
func TestKilledAtAnyMoment(t *testing.T) {
	for _, nodes := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(nodes, " nodes"), func(t *testing.T) {
			t.Setenv(nodesVariable, strconv.Itoa(nodes))
			killedAtAnyMoment(t)
		})
	}
}

func killedAtAnyMoment(t *testing.T) {
	rounds := 8
	if testing.Short() {
		rounds = 3
	}
	before := leftovers(t)
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 13))
	for round := range rounds {
		n := 2 + round%4
		victim, folder := rng.IntN(n), t.TempDir()
		t.Setenv(victimVariable, strconv.Itoa(victim))
		t.Setenv(folderVariable, folder)
		j := start(t, n, "mixed until one is lost")
		files := func(what string) []string {
			names, _ := filepath.Glob(filepath.Join(folder, what+".?"))
			return names
		}
		for end := time.Now().Add(30 * time.Second); len(files("ready")) < n; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d of %d ranks are ready", len(files("ready")), n)
			}
		}
		delay := time.Duration(rng.IntN(50_000)) * time.Microsecond
		time.Sleep(delay)
		_ = syscall.Kill(j.Pids()[victim], syscall.SIGKILL)
		var e *bootstrap.RankError
		if err := j.Wait(); !errors.As(err, &e) || e.Rank != victim || e.Signal != syscall.SIGKILL {
			t.Errorf("the job: %v", err)
		}
		if ends := files("end"); len(ends) != n-1 {
			t.Errorf("%d of %d survivors have ended by themselves, %v after the start", len(ends), n-1, delay)
		}
		for _, name := range files("end") {
			if text, err := os.ReadFile(name); err != nil || len(text) > 0 {
				t.Errorf("%s when rank %d is killed: %s %v", filepath.Base(name), victim, text, err)
			}
		}
	}
	nothingLeft(t, before)
}
