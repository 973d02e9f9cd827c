package main

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

// paperNetwork has nodes that are nowhere.
func paperNetwork(nodes int) *network {
	net := &network{agent: "/tmp/agent"}
	for range nodes {
		name := "node" + string(rune('0'+len(net.nodes)))
		net.nodes = append(net.nodes, node{name: name, addr: "10.77.0." + string(rune('1'+len(net.nodes))), ns: "/nowhere/" + name})
	}
	return net
}

// Every peer starts its ranks on the nodes: by itself on each, or by a launcher
// on the first that is told of all.
func TestAcrossCatalogue(t *testing.T) {
	at := place{venv: "/venv", tmp: "/tmp/run", net: paperNetwork(2)}
	for _, p := range across() {
		if p.Launch == nil || p.Settings == "" || len(p.Variants) == 0 {
			t.Fatalf("peer %s: no way to run between nodes", p.Name)
		}
		if strings.Contains(p.Settings, "loopback") {
			t.Errorf("peer %s: settings %q are those of one machine", p.Name, p.Settings)
		}
		checkVariants(t, p, at, 4, 8)
		for _, v := range p.Variants {
			cmds := p.Launch(at, v, 4, []string{"/bin/prog"})
			for i, c := range cmds {
				on := at.net.nodes[i*len(at.net.nodes)/len(cmds)]
				if c.Args[0] != "nsenter" || c.Args[1] != "--net="+on.ns {
					t.Errorf("peer %s, %s: command %d of %d is %q, want it on %s", p.Name, v.Name, i, len(cmds), c.Args, on.name)
				}
				if c.Name == "nsenter" || c.Name == "" {
					t.Errorf("peer %s, %s: its name in errors is %q", p.Name, v.Name, c.Name)
				}
			}
			if line := strings.Join(cmds[0].Args, " "); len(cmds) == 1 && (!strings.Contains(line, at.net.hosts(4)) || !strings.Contains(line, at.net.agent)) {
				t.Errorf("peer %s, %s: %s: does not name the hosts and the agent", p.Name, v.Name, line)
			}
		}
	}
}

func TestTuttiOnNodes(t *testing.T) {
	cmds := paperNetwork(2).tutti(4, []string{"commbench", "--op", "barrier"})
	if len(cmds) != 4 {
		t.Fatalf("%d commands for 4 ranks", len(cmds))
	}
	for r, want := range []struct{ node, rank, local string }{
		{"node0", "0", "0"}, {"node0", "1", "1"}, {"node1", "2", "0"}, {"node1", "3", "1"},
	} {
		c := cmds[r]
		for _, e := range []string{"TUTTI_RANK=" + want.rank, "TUTTI_LOCAL_RANK=" + want.local, "TUTTI_SIZE=4", "TUTTI_BOOTSTRAP=tcp://10.77.0.1:17171", "TUTTI_OPEN=1"} {
			if !slices.Contains(c.Env, e) {
				t.Errorf("rank %d: %q lacks %s", r, c.Env, e)
			}
		}
		if c.Args[1] != "--net=/nowhere/"+want.node {
			t.Errorf("rank %d: %q, want it on %s", r, c.Args, want.node)
		}
	}
}

func TestAcrossOptions(t *testing.T) {
	for _, c := range []struct {
		args  string
		ranks []int
		err   string
	}{
		{"--across 2", []int{2}, ""},
		{"--across 4 --quick", []int{4}, ""},
		{"--across 2 --ranks 2,4", []int{2, 4}, ""},
		{"--across 4 --ranks 6", nil, "not a multiple of the 4 nodes"},
		{"--across 4 --ranks 2", nil, "not a multiple of the 4 nodes"},
		{"--across 1", nil, "from 2 to 64 nodes"},
		{"--across 65", nil, "from 2 to 64 nodes"},
		{"--across -2", nil, "from 2 to 64 nodes"},
	} {
		o, err := parseOptions(append(strings.Fields(c.args), "--ops", "allreduce"), io.Discard)
		var gs []group
		if err == nil {
			gs, err = o.matrix()
		}
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: err = %v, want one with %q", c.args, err, c.err)
			}
			continue
		}
		var ranks []int
		for _, g := range gs {
			ranks = append(ranks, g.ranks)
		}
		if err != nil || !slices.Equal(ranks, c.ranks) {
			t.Errorf("%s: ranks %v, %v; want %v", c.args, ranks, err, c.ranks)
		}
	}
}

// A variant that hangs above a size is not tried there, and does not keep
// slower ones from being tried.
func TestVariantsUpToASize(t *testing.T) {
	short := Variant{Name: "short", Most: 1 << 20}
	long := Variant{Name: "long"}
	if got := short.upTo([]int64{8, 1 << 20, 1<<20 + 1}); !slices.Equal(got, []int64{8, 1 << 20}) {
		t.Errorf("short is tried at %v", got)
	}
	if got := long.upTo([]int64{8, 1 << 30}); len(got) != 2 {
		t.Errorf("long is tried at %v", got)
	}
	ch := &choices{tries: []try{
		{peer: "a", variant: short, bytes: 1 << 20, us: 1},
		{peer: "a", variant: long, bytes: 1 << 20, us: 10},
	}}
	if !ch.near("a", "long", 1<<20) || ch.near("a", "short", 1<<20) {
		t.Error("above the size, the variant that can be tried there is not the best")
	}
	dir := t.TempDir()
	c := fakeCampaign(t, dir)
	c.runners, c.rounds, c.cap = c.runners[:1], 1, time.Millisecond
	c.runners[0].Variants = []Variant{short, long}
	r := &Report{Work: c.work}
	if err := c.all(t.Context(), r, groupsOf(ops[:1], []int{2}, []int64{1 << 20, everyVariant, 64 << 20}), noSave); err != nil {
		t.Fatal(err)
	}
	if b := r.Points[2].best(); b == nil || b.Variant != "long" {
		t.Errorf("best above the size is %+v, want long", b)
	}
}

func TestReportAcross(t *testing.T) {
	r := sampleReport()
	r.Work.Nodes = 2
	var md bytes.Buffer
	r.writeMarkdown(&md)
	if head, rest, _ := strings.Cut(md.String(), "\n"); !strings.Contains(head, "sockets between 2 nodes") || !strings.Contains(rest, "network namespaces") {
		t.Errorf("the report does not say what it is of: %s", head)
	}
	if r.name() != "across" || sampleReport().name() != "report" {
		t.Error("a report between nodes would write over the other")
	}
}
