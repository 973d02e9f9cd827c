package bootstrap

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// network is a bridge with nodes, each a network namespace with a cable to it.
type network struct {
	bridge string
	nodes  []string
}

// newNetwork makes nodes at 10.77.0.1 and up and fd77::1 and up, on an
// interface called net0. Each also has a docker0 that leads nowhere, with the
// same address everywhere.
func newNetwork(t *testing.T, nodes int) *network {
	t.Helper()
	cannot := t.Skipf
	if os.Getenv("CI") == "true" {
		cannot = t.Fatalf
	}
	if os.Geteuid() != 0 {
		cannot("NOT TESTED: network namespaces take root")
	}
	if out, err := exec.Command("ip", "netns", "list").CombinedOutput(); err != nil {
		cannot("NOT TESTED, which takes iproute2: ip netns: %v: %s", err, out)
	}
	n := &network{bridge: fmt.Sprintf("tutti-br-%d", os.Getpid())}
	run := func(words ...string) {
		t.Helper()
		if out, err := exec.Command("ip", words...).CombinedOutput(); err != nil {
			if strings.Contains(string(out), "not permitted") || strings.Contains(string(out), "not supported") {
				cannot("NOT TESTED: ip %s: %v: %s", strings.Join(words, " "), err, out)
			}
			t.Fatalf("ip %s: %v: %s", strings.Join(words, " "), err, out)
		}
	}
	in := func(ns string, words ...string) { t.Helper(); run(append([]string{"-n", ns}, words...)...) }
	t.Cleanup(func() {
		for _, ns := range append(n.nodes, n.bridge) {
			_ = exec.Command("ip", "netns", "del", ns).Run()
		}
	})
	run("netns", "add", n.bridge)
	in(n.bridge, "link", "add", "br0", "type", "bridge")
	in(n.bridge, "link", "set", "br0", "up")
	for i := range nodes {
		ns := fmt.Sprintf("tutti-%d-%d", i, os.Getpid())
		run("netns", "add", ns)
		n.nodes = append(n.nodes, ns)
		in(n.bridge, "link", "add", fmt.Sprintf("p%d", i), "type", "veth", "peer", "name", "net0", "netns", ns)
		in(n.bridge, "link", "set", fmt.Sprintf("p%d", i), "master", "br0", "up")
		in(ns, "link", "set", "lo", "up")
		in(ns, "link", "add", "docker0", "type", "veth", "peer", "name", "inside")
		in(ns, "link", "set", "inside", "up")
		in(ns, "addr", "add", "10.0.0.1/24", "dev", "docker0")
		in(ns, "link", "set", "docker0", "up")
		in(ns, "addr", "add", fmt.Sprintf("10.77.0.%d/24", i+1), "dev", "net0")
		in(ns, "addr", "add", fmt.Sprintf("fd77::%d/64", i+1), "dev", "net0", "nodad")
		in(ns, "link", "set", "net0", "up")
		in(ns, "addr", "add", fmt.Sprintf("fe80::77:%d/64", i+1), "dev", "net0", "nodad")
	}
	return n
}

// start starts a rank on a node.
func (n *network) start(t *testing.T, node int, role string, env ...string) *far {
	return startFar(t, role, []string{"ip", "netns", "exec", n.nodes[node]}, env...)
}

// TestNodes: two ranks on each of four nodes meet, over IPv4 and IPv6, and
// every rank listens where every other reaches it.
func TestNodes(t *testing.T) {
	net := newNetwork(t, 4)
	secret := EnvSecret + "=" + string(testSecret)
	for _, at := range []string{"10.77.0.1", "fd77::1", "fe80::77:1%net0"} {
		for _, extra := range []string{secret, EnvOpen + "=1"} {
			var all []*far
			for _, r := range []int{5, 0, 7, 2, 1, 6, 3, 4} {
				all = append(all, net.start(t, r/2, "far-address", append(farJob(r, 8, "tcp://["+at+"]"), extra)...))
			}
			counts := map[netip.Addr]int{}
			for _, f := range all {
				said, err := f.wait(t)
				if err != nil {
					t.Errorf("%s: %v:\n%s", at, err, said)
				}
				_, address, _ := strings.Cut(said, "address ")
				if a, err := netip.ParseAddr(strings.TrimSpace(address)); err == nil {
					counts[a]++
				}
			}
			for node := range 4 {
				a := netip.MustParseAddr(at)
				for range node {
					a = a.Next()
				}
				if counts[a] != 2 {
					t.Errorf("%d ranks at %s, want 2 (%v)", counts[a], a, counts)
				}
			}
		}
	}
}

// TestNodesByLauncher: the same by the variables of torchrun and Slurm; one
// interface is asked for by name.
func TestNodesByLauncher(t *testing.T) {
	net := newNetwork(t, 2)
	hosts := "10.77.0.[1-2]"
	for name, env := range map[string]func(r int) []string{
		"torchrun": func(r int) []string {
			return []string{fmt.Sprintf("RANK=%d", r), "WORLD_SIZE=4", fmt.Sprintf("LOCAL_RANK=%d", r%2), "LOCAL_WORLD_SIZE=2",
				"MASTER_ADDR=10.77.0.1", "MASTER_PORT=29500", EnvInterface + "==net0"}
		},
		"Slurm": func(r int) []string {
			return []string{fmt.Sprintf("SLURM_PROCID=%d", r), "SLURM_STEP_NUM_TASKS=4", fmt.Sprintf("SLURM_LOCALID=%d", r%2), "SLURM_STEP_NUM_NODES=2",
				"SLURM_STEP_ID=0", "SLURM_JOB_ID=7", "SLURM_STEP_NODELIST=" + hosts, EnvInterface + "=^docker"}
		},
	} {
		var all []*far
		for r := range 4 {
			all = append(all, net.start(t, r/2, "far-address", append(env(r), EnvSecret+"="+string(testSecret))...))
		}
		for _, f := range all {
			if said, err := f.wait(t); err != nil {
				t.Errorf("%s: %v:\n%s", name, err, said)
			}
		}
	}
}

// TestNodesWithoutSecret: nobody serves or joins beyond its own machine
// without one, and every rank says so at once.
func TestNodesWithoutSecret(t *testing.T) {
	net := newNetwork(t, 2)
	root := net.start(t, 0, "far-gather", farJob(0, 2, "tcp://10.77.0.1:17171")...)
	if said, err := root.wait(t); err == nil || !strings.Contains(said, EnvOpen+"=1") {
		t.Errorf("rank 0: %v:\n%s", err, said)
	}
	// A rank 0 that is open does not make the others so.
	root = net.start(t, 0, "far-gather", append(farJob(0, 2, "tcp://10.77.0.1:17171"), EnvOpen+"=1", EnvTimeout+"=2s")...)
	other := net.start(t, 1, "far-gather", farJob(1, 2, "tcp://10.77.0.1:17171")...)
	if said, err := other.wait(t); err == nil || !strings.Contains(said, EnvOpen+"=1") {
		t.Errorf("rank 1: %v:\n%s", err, said)
	}
	if said, err := root.wait(t); err == nil || !strings.Contains(said, "rank 1 of 2") {
		t.Errorf("rank 0, alone: %v:\n%s", err, said)
	}
}

// TestNodeWithTheWrongInterface: an address that the others cannot reach is
// named, and so is the variable.
func TestNodeWithTheWrongInterface(t *testing.T) {
	net := newNetwork(t, 2)
	secret := EnvSecret + "=" + string(testSecret)
	// Rank 2 has a child, rank 3, on the other node.
	var all []*far
	for r := range 4 {
		env := append(farJob(r, 4, "tcp://10.77.0.1"), secret, EnvTimeout+"=10s")
		if r == 2 {
			env = append(env, EnvInterface+"=lo")
		}
		all = append(all, net.start(t, r%2, "far-gather", env...))
	}
	for r, f := range all {
		if said, err := f.wait(t); err == nil || !strings.Contains(said, "rank 2 at 127.0.0.1") || !strings.Contains(said, EnvInterface) {
			t.Errorf("rank %d: %v:\n%s", r, err, said)
		}
	}
}

// TestVanishedNode: a node whose cable is cut is noticed, although nothing
// says so.
func TestVanishedNode(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds: the network must be silent for a while")
	}
	net := newNetwork(t, 3)
	var all []*far
	for r := range 3 {
		// Rank 2 is alone on its node, and has no children.
		all = append(all, net.start(t, r, "far-cut", append(farJob(r, 3, "tcp://10.77.0.1"), EnvOpen+"=1", victimVariable+"=2")...))
	}
	for _, f := range all {
		<-f.joined
	}
	began := time.Now()
	if out, err := exec.Command("ip", "-n", net.bridge, "link", "set", "p2", "down").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for r, f := range all[:2] {
		if said, err := f.wait(t); err != nil {
			t.Errorf("rank %d: %v:\n%s", r, err, said)
		}
	}
	t.Logf("noticed after %v, where silence is given 2 s instead of %v", time.Since(began), silence)
}
