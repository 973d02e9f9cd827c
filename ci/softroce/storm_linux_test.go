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

// TestPulledCable: the link is gone for two seconds in the middle of a job. If it
// is a rank's own port that is down, requests fail at once on this device: the
// job goes on with right results, or every rank ends by itself and somebody
// names device, port and peer. If packets are lost on the way, they are sent
// again for longer than that, and nobody notices.
func TestPulledCable(t *testing.T) {
	c := machines(t)
	ctx := within(t, 6*time.Minute)
	c.putAll(ctx, t, "/commbench", suite{pkg: "cmd/commbench", program: true, cgo: true}.build(t))
	for name, pull := range map[string]func() error{
		"port": func() error { return c.Node(1).Pull(ctx, 2*time.Second) },
		"way": func() error {
			if err := c.Node(1).Netem(ctx, "loss 100%"); err != nil {
				return err
			}
			time.Sleep(2 * time.Second)
			return c.Node(1).Calm(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			type end struct {
				out string
				err error
			}
			over := make(chan end, 1)
			go func() {
				out, err := c.bench(ctx, "shm+verbs", []string{"TUTTI_IB_TIMEOUT=18"},
					"--op", "allreduce", "--size", "64K", "-n", "300", "--timeout", "60s")
				over <- end{out, err}
			}()
			time.Sleep(8 * time.Second) // it is at work by then, and for long
			select {
			case e := <-over:
				t.Fatalf("over before the cable was pulled: %v\n%s", e.err, lastBytes(e.out, 4000))
			default:
			}
			if err := pull(); err != nil {
				t.Fatal(err)
			}
			e := <-over
			switch {
			case e.err == nil && strings.Contains(e.out, "# Out of bounds values : 0 OK"):
			case e.err == nil:
				t.Errorf("no error, and no verdict:\n%s", lastBytes(e.out, 4000))
			case name == "way":
				t.Errorf("%v\n%s", e.err, lastBytes(e.out, 4000))
			case !strings.Contains(e.out, "rxe0 port 1 to rank") || strings.Contains(e.out, "ended by signal"):
				t.Errorf("nobody names device, port and peer, or a rank had to be stopped:\n%s", lastBytes(e.out, 4000))
			}
			t.Logf("%v\n%s", e.err, lastBytes(e.out, 1200))
		})
	}
}
