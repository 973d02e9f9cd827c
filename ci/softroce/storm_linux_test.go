//go:build softroce

package softroce

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"
)

// bench runs commbench with two ranks on each machine, over a path, and returns
// what it printed.
func (c *Cluster) bench(ctx context.Context, path string, vars []string, args ...string) (string, error) {
	var out bytes.Buffer
	err := c.Launch(ctx, Job{
		PerNode: 2, Stdout: &out, Stderr: &out,
		Args: append([]string{"/commbench", "--path", path, "--batch", "1", "-w", "1"}, args...),
		Env:  func(r Rank) []string { return append(append(TuttiEnv(r), suiteEnv...), vars...) },
	})
	return out.String(), err
}

// TestStorm: packets that are lost, late or out of order make a job slow, not
// wrong, with RDMA and with sockets.
func TestStorm(t *testing.T) {
	c := machines(t)
	ctx := within(t, 8*time.Minute)
	c.putAll(ctx, t, "/commbench", suite{pkg: "cmd/commbench", program: true, cgo: true}.build(t))
	if err := c.PinNeighbours(ctx); err != nil {
		t.Fatal(err)
	}
	for _, weather := range []string{"loss 1%", "delay 2ms reorder 5% 50%", "delay 20ms"} {
		for _, path := range []string{"shm+verbs", "shm+tcp"} {
			t.Run(weather+" "+path, func(t *testing.T) {
				before := counters(ctx, t, c)
				for _, n := range c.Nodes() {
					if err := n.Netem(ctx, weather); err != nil {
						t.Fatal(err)
					}
				}
				out, err := c.bench(ctx, path, nil, "--op", "allreduce,alltoall,broadcast", "-b", "8", "-e", "64K", "-f", "8192", "-n", "3")
				for _, n := range c.Nodes() {
					if err := n.Calm(ctx); err != nil {
						t.Fatal(err)
					}
				}
				if err != nil || !strings.Contains(out, "# Out of bounds values : 0 OK") {
					t.Fatalf("%v\n%s", err, lastBytes(out, 6000))
				}
				for i, after := range counters(ctx, t, c) {
					if moved := after.Since(before[i]); (moved["sent_pkts"] > 0) != (path == "shm+verbs") {
						t.Errorf("%s over %s: rxe0 of node%d sent %d packets", weather, path, i, moved["sent_pkts"])
					}
				}
			})
		}
	}
}

// TestPulledCable: when the link is gone for two seconds in the middle of a job,
// the job either goes on with right results, or every rank ends within its
// deadline and somebody names device, port and peer.
func TestPulledCable(t *testing.T) {
	c := machines(t)
	ctx := within(t, 5*time.Minute)
	c.putAll(ctx, t, "/commbench", suite{pkg: "cmd/commbench", program: true, cgo: true}.build(t))
	// Acknowledgements are waited for long enough to live through it, or not.
	for timeout, lives := range map[string]bool{"18": true, "10": false} {
		t.Run("timeout "+timeout, func(t *testing.T) {
			type end struct {
				out string
				err error
			}
			over := make(chan end, 1)
			go func() {
				out, err := c.bench(ctx, "shm+verbs", []string{"TUTTI_IB_TIMEOUT=" + timeout, "TUTTI_IB_PORT_GRACE=20s"},
					"--op", "allreduce", "--size", "64K", "-n", "400", "--timeout", "60s")
				over <- end{out, err}
			}()
			time.Sleep(8 * time.Second) // it is at work by then, and for long
			select {
			case e := <-over:
				t.Fatalf("over before the cable was pulled: %v\n%s", e.err, lastBytes(e.out, 4000))
			default:
			}
			if err := c.Node(1).Pull(ctx, 2*time.Second); err != nil {
				t.Fatal(err)
			}
			e := <-over
			switch {
			case e.err == nil && strings.Contains(e.out, "# Out of bounds values : 0 OK"):
			case e.err == nil:
				t.Errorf("no error, and no verdict:\n%s", lastBytes(e.out, 4000))
			case lives:
				t.Errorf("%v\n%s", e.err, lastBytes(e.out, 4000))
			case !strings.Contains(e.out, "rxe0 port 1 to rank"):
				t.Errorf("nobody names device, port and peer: %v\n%s", e.err, lastBytes(e.out, 4000))
			}
			t.Logf("%v\n%s", e.err, lastBytes(e.out, 1500))
		})
	}
}
