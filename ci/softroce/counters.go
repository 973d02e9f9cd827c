package softroce

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Counters are a device's hardware counters by name: sent_pkts, rcvd_pkts,
// duplicate_request, out_of_seq_request, rcvd_seq_err, retry_exceeded_err,
// completer_retry_err, send_rnr_err, link_downed and others.
type Counters map[string]uint64

// Since returns how far the counters have come since an earlier look.
func (c Counters) Since(before Counters) Counters {
	d := Counters{}
	for name, value := range c {
		d[name] = value - before[name]
	}
	return d
}

// Counters reads the hardware counters of rxe0.
func (n *Node) Counters(ctx context.Context) (Counters, error) {
	out, err := n.Shell(ctx, "cd /sys/class/infiniband/rxe0/ports/1/hw_counters && grep . *")
	if err != nil {
		return nil, err
	}
	c, err := parseCounters(out)
	if err != nil {
		return nil, fmt.Errorf("softroce: node%d: %w", n.Index, err)
	}
	return c, nil
}

// parseCounters reads lines "name:value". Beside the counters lies the
// lifespan of their cached values, which is none.
func parseCounters(out string) (Counters, error) {
	c := Counters{}
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "lifespan" {
			continue
		}
		v, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("hardware counter %q: %w", line, err)
		}
		c[name] = v
	}
	if len(c) == 0 {
		return nil, fmt.Errorf("no hardware counters")
	}
	return c, nil
}

// Resources counts the RDMA objects of rxe0, as netlink has them: pd, cq, qp,
// mr, ctx and others. The kernel has a few of its own.
func (n *Node) Resources(ctx context.Context) (map[string]int, error) {
	out, err := n.Run(ctx, "rdma", "-j", "resource", "show")
	if err != nil {
		return nil, err
	}
	c, err := parseResources(out)
	if err != nil {
		return nil, fmt.Errorf("softroce: node%d: %w", n.Index, err)
	}
	return c, nil
}

func parseResources(out string) (map[string]int, error) {
	var devices []map[string]any
	if err := json.Unmarshal([]byte(out), &devices); err != nil {
		return nil, fmt.Errorf("rdma resource show: %w", err)
	}
	for _, d := range devices {
		if d["ifname"] != "rxe0" {
			continue
		}
		counts := map[string]int{}
		for name, value := range d {
			if v, ok := value.(float64); ok && name != "ifindex" {
				counts[name] = int(v)
			}
		}
		return counts, nil
	}
	return nil, fmt.Errorf("rdma resource show: no rxe0")
}

// A LeakError says that a machine has more RDMA objects than when it came up.
type LeakError struct {
	Node int
	More map[string]int
}

func (e *LeakError) Error() string {
	return fmt.Sprintf("softroce: node%d: RDMA objects that nobody took back: %v", e.Node, e.More)
}

// Idle waits, for two seconds at most, until the machine has no more RDMA
// objects than when it came up; otherwise the error is a *LeakError. A process
// that has just ended may still be losing its own.
func (n *Node) Idle(ctx context.Context) error {
	for deadline := time.Now().Add(2 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		now, err := n.Resources(ctx)
		if err != nil {
			return err
		}
		more := map[string]int{}
		for name, count := range now {
			if count > n.idle[name] {
				more[name] = count - n.idle[name]
			}
		}
		if len(more) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return &LeakError{n.Index, more}
		}
	}
}
