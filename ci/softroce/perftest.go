package softroce

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// perftestPort is where perftest's servers listen.
const perftestPort = 18515

// Bandwidth is what perftest's ib_*_bw measured, in MB/s of 2^20 bytes.
type Bandwidth struct{ Peak, Average float64 }

// Latency is what perftest's ib_*_lat measured, in microseconds: half a round
// trip.
type Latency struct{ Min, Max, Typical, Average float64 }

// MeasureBandwidth runs one of ib_write_bw, ib_read_bw and ib_send_bw from
// node 1 to node 0 over the RoCE v2 address of IPv4.
func (c *Cluster) MeasureBandwidth(ctx context.Context, program string, bytes, iterations int) (Bandwidth, error) {
	f, err := c.perftest(ctx, program, bytes, iterations)
	if err != nil {
		return Bandwidth{}, err
	}
	return Bandwidth{Peak: f[0], Average: f[1]}, nil
}

// MeasureLatency runs one of ib_write_lat, ib_read_lat, ib_send_lat and
// ib_atomic_lat as MeasureBandwidth does.
func (c *Cluster) MeasureLatency(ctx context.Context, program string, bytes, iterations int) (Latency, error) {
	f, err := c.perftest(ctx, program, bytes, iterations)
	if err != nil {
		return Latency{}, err
	}
	if len(f) < 4 {
		return Latency{}, fmt.Errorf("softroce: %s printed %v, no latencies", program, f)
	}
	return Latency{f[0], f[1], f[2], f[3]}, nil
}

// perftest runs a program again where it could not find out how fast its clock
// goes: on a busy host it sometimes cannot, and prints no finite figures.
func (c *Cluster) perftest(ctx context.Context, program string, bytes, iterations int) (f []float64, err error) {
	for range 3 {
		if f, err = c.perftestOnce(ctx, program, bytes, iterations); !errors.Is(err, errClock) {
			break
		}
	}
	return f, err
}

var errClock = errors.New("it could not measure its clock")

func (c *Cluster) perftestOnce(ctx context.Context, program string, bytes, iterations int) ([]float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // a server whose client fails waits for ever
	args := []string{program, "-d", "rxe0", "-x", "1", "-n", strconv.Itoa(iterations)}
	if bytes > 0 {
		args = append(args, "-s", strconv.Itoa(bytes))
	}
	server, err := c.Node(0).Start(ctx, Command{Args: args})
	if err != nil {
		return nil, err
	}
	err = c.Node(0).Listening(ctx, perftestPort)
	var out string
	if err == nil {
		out, err = c.Node(1).Run(ctx, append(args, c.Node(0).Address)...)
	}
	if err != nil {
		cancel()
		_ = server.Wait() // it was killed
		return nil, err
	}
	if err := server.Wait(); err != nil {
		return nil, err
	}
	f, err := parsePerftest(out, bytes)
	if err != nil {
		return nil, fmt.Errorf("softroce: %s: %w", program, err)
	}
	return f, nil
}

// parsePerftest returns the figures after bytes and iterations in the line of
// results, the first that is all numbers and begins with the bytes.
func parsePerftest(out string, bytes int) ([]float64, error) {
lines:
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		if len(words) < 4 || bytes > 0 && words[0] != strconv.Itoa(bytes) {
			continue
		}
		var f []float64
		for _, w := range words {
			v, err := strconv.ParseFloat(strings.TrimPrefix(w, "-"), 64) // Go knows no signed NaN
			if err != nil {
				continue lines
			}
			if math.IsInf(v, 0) || math.IsNaN(v) {
				return nil, fmt.Errorf("%w: %q", errClock, line)
			}
			f = append(f, v)
		}
		return f[2:], nil
	}
	return nil, fmt.Errorf("no figures in %q", out)
}

// Listening waits until something in the machine listens on a TCP port.
func (n *Node) Listening(ctx context.Context, port int) error {
	_, err := n.Shell(ctx, fmt.Sprintf("until grep -q ':%04X [0-9A-F:]* 0A ' /proc/net/tcp /proc/net/tcp6; do sleep 0.05; done", port))
	return err
}
