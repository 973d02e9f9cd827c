package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// testNetwork is nodes for a test, which are gone after it.
func testNetwork(t *testing.T, nodes int) *network {
	t.Helper()
	if err := checkAcross(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skipf("NOT TESTED: %v", err)
	}
	net, err := newNetwork(t.Context(), nodes, t.TempDir())
	if err != nil {
		if os.Getenv("CI") != "true" && errors.Is(err, os.ErrPermission) {
			t.Skipf("NOT TESTED: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(net.close)
	return net
}

// inside are the processes in the namespaces of a network.
func inside(t *testing.T, net *network) []string {
	t.Helper()
	of := map[string]bool{}
	for _, n := range net.nodes {
		name, err := os.Stat(n.ns)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range glob(t, "/proc/[0-9]*/ns/net") {
			if ns, err := os.Stat(path); err == nil && os.SameFile(name, ns) {
				of[strings.Split(path, "/")[2]] = true
			}
		}
	}
	var pids []string
	for pid := range of {
		pids = append(pids, pid)
	}
	return pids
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func TestNodes(t *testing.T) {
	net := testNetwork(t, 3)
	l := &launcher{tmp: t.TempDir()}
	const who = `hostname; ls /sys/class/net; cat /proc/sys/kernel/hostname; ip -brief -4 addr show dev eth0 scope global`
	for i, n := range net.nodes {
		name, addr := "node"+strconv.Itoa(i), "10.77.0."+strconv.Itoa(i+1)
		for kind, args := range map[string][]string{
			"on":    n.on("sh", "-c", who),
			"agent": {net.agent, "-x", addr, who},
			"named": {net.agent, name, who},
		} {
			out, err := l.run(t.Context(), time.Minute, nil, func(string) []Command { return []Command{{Args: args}} })
			if err != nil {
				t.Fatalf("%s %s: %v", kind, name, err)
			}
			f := strings.Fields(string(out))
			if len(f) < 6 || f[0] != name || f[1] != "eth0" || f[2] != "lo" || f[3] != name || !strings.Contains(string(out), addr+"/") {
				t.Errorf("%s %s says %q", kind, name, f)
			}
		}
	}
	_, err := l.run(t.Context(), time.Minute, nil, func(string) []Command {
		return []Command{{Args: []string{net.agent, "node3", "true"}}}
	})
	if err == nil || !strings.Contains(err.Error(), "no node node3") {
		t.Errorf("a node that is not: %v", err)
	}
	if name, err := os.Hostname(); err != nil || strings.HasPrefix(name, "node0") {
		t.Errorf("this machine's name is %q, %v", name, err)
	}
}

// Rank 0 hears from a rank that is on another node.
func TestNodesReachEachOther(t *testing.T) {
	net := testNetwork(t, 2)
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("NOT TESTED: no bash")
	}
	// The bridge forwards nothing before its ports are up: a moment at most.
	const knock = `for i in $(seq 200); do if (exec 3<>/dev/tcp/10.77.0.1/1) 2>&1 | grep -q refused; then echo there; exit; fi; sleep 0.05; done; exit 1`
	out, err := (&launcher{tmp: t.TempDir()}).run(t.Context(), time.Minute, nil, func(string) []Command {
		return []Command{{Args: net.nodes[1].on("bash", "-c", knock), Env: []string{"LC_ALL=C"}}}
	})
	if err != nil || string(out) != "there\n" {
		t.Errorf("node1 to node0: %q, %v; want its kernel's refusal", out, err)
	}
}

// When a campaign is interrupted no process, link, file or descriptor stays.
func TestNetworkLeavesNothing(t *testing.T) {
	adoptOrphans()
	net := testNetwork(t, 2)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for len(inside(t, net)) < 3 && ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		cancel()
	}()
	_, err := (&launcher{tmp: t.TempDir()}).run(ctx, time.Minute, nil, func(string) []Command {
		return []Command{
			{Args: net.nodes[0].on("sleep", "600")},
			{Args: net.nodes[1].on("sh", "-c", "setsid sleep 600 & exec sleep 600")},
		}
	})
	if err == nil || ctx.Err() == nil {
		t.Errorf("err = %v, want an error", err)
	}
	if pids := inside(t, net); len(pids) > 0 {
		t.Errorf("processes left: %v", pids)
	}
	// The links are in the namespaces, at both ends.
	for _, name := range []string{"hub", "port0", "port1"} {
		if _, err := os.Stat("/sys/class/net/" + name); err == nil {
			t.Errorf("this machine has a link %s", name)
		}
	}
	net.close()
	for _, n := range net.nodes {
		if _, err := os.Stat(n.ns); err == nil {
			t.Errorf("%s is still open", n.ns)
		}
	}
	if _, err := os.Stat(net.agent); err == nil {
		t.Error("the agent is still there")
	}
}

// A network that cannot be made whole is not left in part.
func TestNetworkFails(t *testing.T) {
	testNetwork(t, 2) // or skips
	before := len(glob(t, "/proc/self/fd/*"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if net, err := newNetwork(ctx, 2, t.TempDir()); !errors.Is(err, context.Canceled) || net != nil {
		t.Errorf("interrupted: %v, %v", net, err)
	}
	if net, err := newNetwork(t.Context(), 2, "/nowhere"); !errors.Is(err, os.ErrNotExist) || net != nil {
		t.Errorf("no folder for the agent: %v, %v", net, err)
	}
	if after := len(glob(t, "/proc/self/fd/*")); after > before {
		t.Errorf("%d descriptors, were %d", after, before)
	}
}

// The real commbench measures between two nodes, over sockets, with right
// answers.
func TestTuttiAcross(t *testing.T) {
	net := testNetwork(t, 2)
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	prog := filepath.Join(t.TempDir(), "commbench")
	if err := buildTutti(t.Context(), root, prog); err != nil {
		t.Fatal(err)
	}
	c := &campaign{
		work: Work{Dtype: "f32", Redop: "sum", InPlace: true}, limit: 2 * time.Minute,
		launcher: &launcher{tmp: t.TempDir()}, net: net, tutti: prog, say: t.Logf,
	}
	op, _ := opByName("allreduce")
	for _, ranks := range []int{2, 4} {
		for _, memory := range []string{memoryAlloc, memoryUser} {
			l, err := c.commbench(t.Context(), group{op: op, ranks: ranks}, 64<<10, memory, 3, true)
			if err != nil {
				t.Fatalf("%d ranks, %s: %v", ranks, memory, err)
			}
			if l.Ranks != ranks || l.Bytes != 64<<10 || l.Memory != memory || l.Wrong != 0 || !strings.Contains(l.Path, "tcp") {
				t.Errorf("%d ranks, %s: %+v, want right answers over tcp", ranks, memory, l)
			}
		}
	}
}

// Each launcher that this machine has starts rank i on its node, and what it
// starts is on that node's network.
func TestRanksAreOnTheirNodes(t *testing.T) {
	adoptOrphans()
	net := testNetwork(t, 2)
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	in := &installer{dir: filepath.Join(root, "build", "peers")}
	prog := filepath.Join(t.TempDir(), "who")
	text := "#!/bin/sh\necho rank $PEERS_RANK$OMPI_COMM_WORLD_RANK$PMI_RANK $(hostname) $(ip -brief -4 addr show eth0)\n"
	if err := os.WriteFile(prog, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	l := &launcher{tmp: t.TempDir()}
	for _, p := range across() {
		t.Run(p.Name, func(t *testing.T) {
			start := func(tmp string) []Command {
				return p.Launch(place{venv: in.venv(p), tmp: tmp, net: net}, p.Variants[0], 4, []string{prog})
			}
			if c := start(l.tmp)[0]; c.Name != filepath.Base(prog) {
				if _, err := exec.LookPath(c.program()); err != nil {
					t.Skipf("NOT TESTED: %v", err)
				}
			}
			out, err := l.run(t.Context(), 2*time.Minute, nil, start)
			if err != nil {
				t.Fatal(err)
			}
			seen := map[string]bool{}
			for line := range strings.Lines(string(out)) {
				if f := strings.Fields(line); len(f) > 4 && f[0] == "rank" {
					seen[f[1]+" "+f[2]+" "+strings.TrimSuffix(f[len(f)-1], "/24")] = true
				}
			}
			for _, want := range []string{"0 node0 10.77.0.1", "1 node0 10.77.0.1", "2 node1 10.77.0.2", "3 node1 10.77.0.2"} {
				if !seen[want] {
					t.Errorf("no rank %s; output %q", want, out)
				}
			}
		})
	}
}

// program is the one that a command on a node runs.
func (c Command) program() string {
	for _, a := range c.Args {
		if filepath.Base(a) == c.Name {
			return a
		}
	}
	return c.Args[0]
}
