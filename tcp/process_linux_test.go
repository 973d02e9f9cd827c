package tcp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// roleEnv names what a re-executed test binary does instead of tests.
const roleEnv = "TUTTI_TCP_TEST_ROLE"

// roles are what a rank does in a process of its own. Ranks speak to the test
// by swapping blobs, which is also their Exchanger: the test passes them on.
var roles = map[string]func(ctx context.Context, ex *pipes) error{}

func TestMain(m *testing.M) {
	role, ok := roles[os.Getenv(roleEnv)]
	if !ok {
		os.Exit(m.Run())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	ex := &pipes{in: os.Stdin, out: os.Stdout}
	if _, err := fmt.Sscan(os.Getenv(roleEnv+"_RANK"), &ex.rank, &ex.size); err != nil {
		panic(err)
	}
	if err := role(ctx, ex); err != nil {
		fmt.Fprintf(os.Stderr, "rank %d: %v\n", ex.rank, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// pipes is one end of the conversation between a test and a rank; for a rank,
// also its Exchanger.
type pipes struct {
	rank, size int
	in         io.Reader
	out        io.Writer
}

func (p *pipes) Rank() int { return p.rank }
func (p *pipes) Size() int { return p.size }

func (p *pipes) AllGather(_ context.Context, mine []byte) ([][]byte, error) {
	if err := p.say(mine); err != nil {
		return nil, err
	}
	blobs := make([][]byte, p.size)
	for rank := range blobs {
		var err error
		if blobs[rank], err = p.hear(); err != nil {
			return nil, err
		}
	}
	return blobs, nil
}

func (p *pipes) say(b []byte) error {
	_, err := p.out.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

func (p *pipes) hear() ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(p.in, size[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.LittleEndian.Uint32(size[:]))
	_, err := io.ReadFull(p.in, b)
	return b, err
}

func (p *pipes) sayNumbers(numbers ...uint64) error {
	var b []byte
	for _, n := range numbers {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return p.say(b)
}

func (p *pipes) hearNumbers() (numbers []uint64, err error) {
	b, err := p.hear()
	for ; len(b) >= 8; b = b[8:] {
		numbers = append(numbers, binary.LittleEndian.Uint64(b))
	}
	return numbers, err
}

// rank is a rank in a process of its own.
type rank struct {
	*pipes
	cmd *exec.Cmd
	t   testing.TB
}

// place is where a rank runs.
type place struct {
	namespace string // a network namespace, or empty
	listen    string
}

// loopback is n ranks on this machine's loopback interface.
func loopback(n int) []place { return make([]place, n) }

// spawn starts a rank in each place, the first of which is rank first of all.
// The test must call end, or kill, for each.
func spawn(t testing.TB, role string, first int, places []place, env ...string) []*rank {
	t.Helper()
	ranks := make([]*rank, len(places))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for i, at := range places {
		args := []string{self}
		if at.namespace != "" {
			args = append([]string{"ip", "netns", "exec", at.namespace}, args...)
		}
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = append(append(os.Environ(), env...), roleEnv+"="+role,
			fmt.Sprintf("%s_RANK=%d %d", roleEnv, first+i, first+len(places)), roleEnv+"_LISTEN="+at.listen)
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
		ranks[i] = &rank{&pipes{first + i, first + len(places), out, in}, cmd, t}
	}
	return ranks
}

// beside is the Exchanger of rank 0 of two, which is the test, where rank 1 is a
// process of its own.
type beside struct{ *rank }

func (beside) Rank() int { return 0 }

func (b beside) AllGather(_ context.Context, mine []byte) ([][]byte, error) {
	theirs, err := b.hear()
	return [][]byte{mine, theirs}, errors.Join(err, b.say(mine), b.say(theirs))
}

// allGather passes on what every rank gives its Exchanger.
func allGather(t testing.TB, ranks []*rank) {
	t.Helper()
	var all [][]byte
	for _, r := range ranks {
		b, err := r.hear()
		if err != nil {
			t.Fatalf("rank %d says nothing: %v", r.rank, err)
		}
		all = append(all, b)
	}
	for _, r := range ranks {
		for _, b := range all {
			if err := r.say(b); err != nil {
				t.Fatalf("rank %d does not listen: %v", r.rank, err)
			}
		}
	}
}

// said is hearNumbers for tests.
func (r *rank) said() []uint64 {
	r.t.Helper()
	numbers, err := r.hearNumbers()
	if err != nil {
		r.t.Fatalf("rank %d says nothing: %v", r.rank, err)
	}
	return numbers
}

// told is sayNumbers for tests.
func (r *rank) told(numbers ...uint64) {
	r.t.Helper()
	if err := r.sayNumbers(numbers...); err != nil {
		r.t.Fatalf("rank %d does not listen: %v", r.rank, err)
	}
}

// end waits for a rank, which must be content.
func (r *rank) end() {
	r.t.Helper()
	if err := r.cmd.Wait(); err != nil {
		r.t.Errorf("rank %d: %v", r.rank, err)
	}
}

// kill ends a rank and waits until its parent has taken note.
func (r *rank) kill() {
	r.t.Helper()
	var exit *exec.ExitError
	if err := errors.Join(r.cmd.Process.Kill(), r.cmd.Wait()); err != nil && !errors.As(err, &exit) {
		r.t.Error(err)
	}
}

// signal sends a rank a signal.
func (r *rank) signal(s unix.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Error(err)
	}
}

// namespaces makes n network namespaces on one bridge, a rank in each. It skips
// where that takes privileges that the test has not got.
func namespaces(t testing.TB, n int) []place {
	t.Helper()
	name := func(i int) string { return fmt.Sprintf("tutti-%d-%d", os.Getpid(), i) }
	hub := name(n)
	var undo []string
	t.Cleanup(func() {
		for _, ns := range undo {
			_ = exec.Command("ip", "netns", "del", ns).Run()
		}
	})
	ip := func(command string) {
		out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput()
		if err == nil {
			return
		}
		why := fmt.Sprintf("NOT TESTED here: ip %s: %v: %s (it takes root and iproute2)", command, err, out)
		if os.Getenv("CI") == "true" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	add := func(ns string) {
		ip("netns add " + ns)
		undo = append(undo, ns)
		ip("-n " + ns + " link set lo up")
	}
	var places []place
	join := func(i int, device string) {
		at := place{name(i), fmt.Sprintf("10.213.0.%d", i+1)}
		ip(fmt.Sprintf("-n %s addr add %s/24 dev %s", at.namespace, at.listen, device))
		ip(fmt.Sprintf("-n %s link set %s up", at.namespace, device))
		places = append(places, at)
	}
	for i := range n {
		add(name(i))
	}
	if n == 2 {
		ip(fmt.Sprintf("link add veth0 netns %s type veth peer name veth0 netns %s", name(0), name(1)))
		join(0, "veth0")
		join(1, "veth0")
		return places
	}
	add(hub)
	ip("-n " + hub + " link add hub type bridge")
	ip("-n " + hub + " link set hub up")
	for i := range n {
		ip(fmt.Sprintf("link add veth0 netns %s type veth peer name to%d netns %s", name(i), i, hub))
		ip(fmt.Sprintf("-n %s link set to%d master hub up", hub, i))
		join(i, "veth0")
	}
	return places
}

// configured is the Config of a rank in a process of its own.
func configured() Config {
	cfg := Config{Listen: os.Getenv(roleEnv + "_LISTEN")}
	cfg.Stripes, _ = strconv.Atoi(os.Getenv(roleEnv + "_STRIPES")) // 0 where it is not set
	cfg.SocketBytes, _ = strconv.Atoi(os.Getenv(roleEnv + "_BYTES"))
	cfg.Congestion = os.Getenv(roleEnv + "_CONGESTION")
	return cfg
}
