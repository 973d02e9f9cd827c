package shm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// roleEnv names what a re-executed test binary does instead of tests.
const roleEnv = "TUTTI_SHM_TEST_ROLE"

// roles are what rank 1 of two does in a process of its own. Rank 0 is the
// test. The two speak by AllGather, which after Open carries what they like.
var roles = map[string]func(ctx context.Context, ex *pipes) error{}

func TestMain(m *testing.M) {
	role, ok := roles[os.Getenv(roleEnv)]
	if !ok {
		os.Exit(m.Run())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := role(ctx, &pipes{1, os.Stdin, os.Stdout}); err != nil {
		fmt.Fprintln(os.Stderr, "rank 1:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// pipes is the Exchanger of one of two ranks.
type pipes struct {
	rank int
	in   io.Reader
	out  io.Writer
}

func (p *pipes) Rank() int { return p.rank }
func (*pipes) Size() int   { return 2 }

func (p *pipes) AllGather(_ context.Context, mine []byte) ([][]byte, error) {
	theirs, err := p.swap(mine)
	if err != nil {
		return nil, err
	}
	if p.rank == 0 {
		return [][]byte{mine, theirs}, nil
	}
	return [][]byte{theirs, mine}, nil
}

// swap gives the other rank a blob for one of its.
func (p *pipes) swap(mine []byte) (theirs []byte, err error) {
	if _, err := p.out.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(mine))), mine...)); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(p.in, size[:]); err != nil {
		return nil, err
	}
	theirs = make([]byte, binary.LittleEndian.Uint32(size[:]))
	_, err = io.ReadFull(p.in, theirs)
	return theirs, err
}

// numbers swaps a few numbers.
func (p *pipes) numbers(mine ...uint64) ([]uint64, error) {
	var b []byte
	for _, n := range mine {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	theirs, err := p.swap(b)
	if err != nil {
		return nil, err
	}
	var got []uint64
	for ; len(theirs) >= 8; theirs = theirs[8:] {
		got = append(got, binary.LittleEndian.Uint64(theirs))
	}
	return got, nil
}

// other is rank 1 in its own process.
type other struct {
	*pipes
	cmd *exec.Cmd
	t   *testing.T
}

// spawn starts rank 1 in a role. The test must call end, or kill.
func spawn(t *testing.T, role string, env ...string) *other {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(append(os.Environ(), env...), roleEnv+"="+role)
	cmd.Stderr = os.Stderr
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
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return &other{&pipes{0, out, in}, cmd, t}
}

// swapped is numbers for tests.
func (o *other) swapped(mine ...uint64) []uint64 {
	o.t.Helper()
	got, err := o.numbers(mine...)
	if err != nil {
		o.t.Fatal("rank 1 does not answer: ", err)
	}
	return got
}

// end waits for rank 1, which must be content.
func (o *other) end() {
	o.t.Helper()
	if err := o.cmd.Wait(); err != nil {
		o.t.Error("rank 1: ", err)
	}
}

// kill ends rank 1 and waits until its parent has taken note.
func (o *other) kill() {
	o.t.Helper()
	var exit *exec.ExitError
	if err := errors.Join(o.cmd.Process.Kill(), o.cmd.Wait()); err != nil && !errors.As(err, &exit) {
		o.t.Error(err)
	}
}
