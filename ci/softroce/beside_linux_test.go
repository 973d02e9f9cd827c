//go:build softroce

package softroce

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// BenchmarkBesideOpenMPI measures an allreduce between two machines, one rank on
// each, in turn: Tutti over verbs, Open MPI over UCX on the same device in two
// ways, and Open MPI over sockets. It prints medians over rounds, and what
// Tutti's are of the best UCX. Only ratios mean anything where machines are
// emulated.
//
//	go test -tags softroce -run '^$' -bench BesideOpenMPI -benchtime 1x ./ci/softroce
func BenchmarkBesideOpenMPI(b *testing.B) {
	c, err := Boot(b.Context(), Config{MPI: true, Log: b.Logf})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	folder := b.TempDir()
	ours, theirs := filepath.Join(folder, "commbench"), filepath.Join(folder, "bench")
	for _, cmd := range []*exec.Cmd{
		exec.Command("go", "build", "-o", ours, "../../cmd/commbench"),
		exec.Command("mpicc", "-O2", "-o", theirs, "../../bench/peers/src/mpi.c", "-lm"),
	} {
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	}
	for _, n := range c.Nodes() {
		for there, here := range map[string]string{"/commbench": ours, "/bench": theirs} {
			if err := n.Put(b.Context(), there, here); err != nil {
				b.Fatal(err)
			}
		}
	}
	const rounds = 5
	for _, size := range []struct{ bytes, batch, calls int }{{8, 20, 10}, {64 << 10, 1, 20}, {4 << 20, 1, 5}} {
		args := []string{"--op", "allreduce", "-b", fmt.Sprint(size.bytes), "-n", fmt.Sprint(size.calls), "--batch", fmt.Sprint(size.batch), "-w", "2"}
		times := map[string][]float64{}
		for range rounds {
			var out bytes.Buffer
			err := c.Launch(b.Context(), Job{
				PerNode: 1, Stdout: &out, Stderr: &out,
				Args: slices.Concat([]string{"/commbench", "--path", "shm+verbs", "-e", fmt.Sprint(size.bytes), "--in-place", "-c", "0", "--format", "json"}, args),
			})
			if err != nil {
				b.Fatalf("%v\n%s", err, &out)
			}
			times["tutti"] = append(times["tutti"], median(b, out.String()))
			for _, over := range []Transport{MPIOverRC, MPIOverUD, MPIOverTCP} {
				out, err := c.MPIRun(b.Context(), over, 1, append([]string{"/bench", "--in-place"}, args...)...)
				if err != nil {
					b.Fatalf("%v\n%s", err, out)
				}
				times[string(over)] = append(times[string(over)], median(b, out))
			}
		}
		line := fmt.Sprintf("%d B:", size.bytes)
		middle := map[string]float64{}
		for _, who := range []string{"tutti", string(MPIOverRC), string(MPIOverUD), string(MPIOverTCP)} {
			all := slices.Sorted(slices.Values(times[who]))
			middle[who] = all[len(all)/2]
			line += fmt.Sprintf("  %s %.0f us (%.0f-%.0f)", who, middle[who], all[0], all[len(all)-1])
		}
		best := min(middle[string(MPIOverRC)], middle[string(MPIOverUD)])
		b.Logf("%s  ratio to UCX %.2f", line, best/middle["tutti"])
		b.ReportMetric(best/middle["tutti"], fmt.Sprintf("x-ucx-%dB", size.bytes))
	}
}

// median is the median time in what a benchmark prints for one size.
func median(b *testing.B, out string) float64 {
	for s := bufio.NewScanner(strings.NewReader(out)); s.Scan(); {
		_, text, found := strings.Cut(s.Text(), `{"op"`)
		var line struct {
			Time struct {
				P50 float64 `json:"p50"`
			} `json:"time_us"`
		}
		if found && json.Unmarshal([]byte(`{"op"`+text), &line) == nil {
			return line.Time.P50
		}
	}
	b.Fatalf("no result in\n%s", out)
	return 0
}
