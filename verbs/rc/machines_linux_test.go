//go:build softroce

package rc

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tutti-go/tutti/ci/softroce"
)

const programThere = "/rc.test"

// machines boots two machines with this binary in them.
func machines(t *testing.T, log func(string, ...any)) *softroce.Cluster {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c, err := softroce.Boot(t.Context(), softroce.Config{Files: map[string]string{programThere: self}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// launch runs a job of this binary, one rank in each machine, and returns what
// the ranks printed.
func launch(t *testing.T, c *softroce.Cluster, job string, env ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	var out bytes.Buffer
	err := c.Launch(ctx, softroce.Job{Args: []string{programThere}, Stdout: &out, Env: func(r softroce.Rank) []string {
		return append([]string{
			"TUTTI_RC_REAL=1", "TUTTI_RC_CHILD=" + job, "TUTTI_RC_LISTEN=" + c.Node(r.Node).Address,
			fmt.Sprintf("RANK=%d", r.Rank), fmt.Sprintf("WORLD_SIZE=%d", r.Size), "MASTER_ADDR=" + r.RootAddress, fmt.Sprintf("MASTER_PORT=%d", r.RootPort),
		}, env...)
	}})
	if err != nil {
		t.Fatalf("%s: %v\n%s", job, err, out.String())
	}
	return out.String()
}

// TestMachinesBench prints this package's figures beside perftest's, taken in
// turns between the same two machines.
func TestMachinesBench(t *testing.T) {
	c := machines(t, t.Logf)
	const rounds = 500
	for range 3 {
		lat, err := c.MeasureLatency(t.Context(), "ib_write_lat", 8, rounds)
		if err != nil {
			t.Fatal(err)
		}
		small, err := c.MeasureBandwidth(t.Context(), "ib_write_bw", 64<<10, 256)
		if err != nil {
			t.Fatal(err)
		}
		large, err := c.MeasureBandwidth(t.Context(), "ib_write_bw", 1<<20, 16)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("perftest: latency %+v, bandwidth %.2f at 64 KiB, %.2f at 1 MiB", lat, small.Average, large.Average)
		for _, signal := range []string{"immediate", "direct"} {
			out := launch(t, c, "bench", fmt.Sprintf("TUTTI_RC_ROUNDS=%d", rounds), VarSignal+"="+signal)
			t.Logf("%s: %s", signal, strings.ReplaceAll(strings.TrimSpace(out), "\n", "; "))
		}
	}
}
