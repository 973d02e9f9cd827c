package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// A network is the nodes of a campaign between nodes: network namespaces of
// this machine, joined by a bridge in one more. Nothing but this program's
// descriptors holds them, so that they end with it, however it ends, and no
// name of theirs can be left behind.
type network struct {
	nodes []node
	// agent is a command that does as ssh and rsh do: agent NODE COMMAND. It is
	// how launchers start their ranks on the nodes.
	agent string
	held  []*os.File
}

// A node has a host name, an address and a network of its own; processors,
// memory and files are the machine's.
type node struct {
	name, addr string
	ns         string // the namespace, as a path that other processes can open
}

const (
	mostNodes = 64
	nodeIface = "eth0" // on every node
	// A launcher's ranks find this port free: a namespace has no other listener.
	rendezvousPort = 17171
)

// networkTools are what it takes beside root.
var networkTools = []string{"ip", "nsenter", "unshare", "mount", "hostname"}

// enter is run in a node's network namespace: it gives the command that
// follows the host name, and the interfaces under /sys, of its node.
const enter = `mount -t sysfs none /sys && hostname "$0" && exec "$@"`

// checkAcross says why there can be no network here, or nothing.
func checkAcross() error {
	switch {
	case runtime.GOOS != "linux":
		return errors.New("--across makes network namespaces, which are Linux's")
	case os.Geteuid() != 0:
		return errors.New("--across makes network namespaces, which takes root: run it as root, or with sudo")
	}
	for _, tool := range networkTools {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("--across makes network namespaces, which takes %s: %w (Debian: apt-get install iproute2 util-linux mount hostname)", strings.Join(networkTools, ", "), err)
		}
	}
	return nil
}

// newNetwork makes some nodes. The agent is written to dir.
func newNetwork(ctx context.Context, count int, dir string) (*network, error) {
	if err := checkAcross(); err != nil {
		return nil, err
	}
	net := &network{agent: filepath.Join(dir, "agent")}
	if err := net.make(ctx, count); err != nil {
		net.close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("making %d network namespaces: %w (a container needs CAP_SYS_ADMIN and CAP_NET_ADMIN)", count, err)
	}
	if err := os.WriteFile(net.agent, []byte(net.agentScript()), 0o700); err != nil {
		net.close()
		return nil, err
	}
	return net, nil
}

func (net *network) make(ctx context.Context, count int) error {
	hub, err := net.hold()
	if err != nil {
		return err
	}
	if err := configure(ctx, hub, "link add name hub type bridge", "link set hub up"); err != nil {
		return err
	}
	for i := range count {
		n := node{name: fmt.Sprintf("node%d", i), addr: fmt.Sprintf("10.77.0.%d", i+1)}
		if n.ns, err = net.hold(); err != nil {
			return err
		}
		port := fmt.Sprintf("port%d", i)
		if err := configure(ctx, hub,
			"link add name "+port+" type veth peer name "+nodeIface+" netns "+n.ns,
			"link set "+port+" master hub up"); err != nil {
			return err
		}
		if err := configure(ctx, n.ns,
			"link set lo up",
			"addr add "+n.addr+"/24 dev "+nodeIface,
			"link set "+nodeIface+" up"); err != nil {
			return err
		}
		net.nodes = append(net.nodes, n)
	}
	return nil
}

// hold makes a namespace and keeps it until close.
func (net *network) hold() (path string, err error) {
	f, err := newNamespace()
	if err != nil {
		return "", err
	}
	net.held = append(net.held, f)
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()), nil
}

// close lets go of the namespaces. With the last process in them, the kernel
// takes away their links too.
func (net *network) close() {
	for _, f := range net.held {
		_ = f.Close() // only read
	}
	net.held = nil
	_ = os.Remove(net.agent)
}

// configure has ip do some things in a namespace.
func configure(ctx context.Context, ns string, lines ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nsenter", "--net="+ns, "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	ownGroup(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(lines, "; "), err, lastWords(out))
	}
	return nil
}

// on is the command line that runs one on a node. The process that is started
// becomes the command's own.
func (n node) on(args ...string) []string {
	return append([]string{"nsenter", "--net=" + n.ns, "unshare", "--mount", "--uts", "sh", "-c", enter, n.name}, args...)
}

// start is a command on a node.
func (n node) start(env []string, args ...string) Command {
	return Command{Name: filepath.Base(args[0]), Args: n.on(args...), Env: env}
}

// agentScript passes over options, which are ssh's own. Like ssh it has the
// node's shell read the command.
func (net *network) agentScript() string {
	var s strings.Builder
	s.WriteString("#!/bin/sh\nwhile case $1 in -*) true;; *) false;; esac; do shift; done\nnode=$1\nshift\ncase $node in\n")
	for _, n := range net.nodes {
		fmt.Fprintf(&s, "%s|%s) set -- %s %s \"$*\";;\n", n.addr, n.name, n.ns, n.name)
	}
	fmt.Fprintf(&s, "*) echo \"agent: no node $node\" >&2; exit 1;;\nesac\n")
	fmt.Fprintf(&s, "exec nsenter --net=\"$1\" unshare --mount --uts sh -c '%s' \"$2\" sh -c \"$3\"\n", enter)
	return s.String()
}

// of is the node of a rank, where each has the same number of consecutive ranks.
func (net *network) of(rank, ranks int) node { return net.nodes[rank/net.each(ranks)] }

func (net *network) each(ranks int) int { return ranks / len(net.nodes) }

// hosts are the nodes' addresses, each followed by a colon and its number of
// ranks, as launchers have it.
func (net *network) hosts(ranks int) string {
	var v []string
	for _, n := range net.nodes {
		v = append(v, fmt.Sprintf("%s:%d", n.addr, net.each(ranks)))
	}
	return strings.Join(v, ",")
}

// tutti starts commbench by hand on every node. Rank 0 prints the results. The
// namespaces are this campaign's alone, so the job needs no secret.
func (net *network) tutti(ranks int, args []string) []Command {
	var cmds []Command
	for r := range ranks {
		cmds = append(cmds, net.of(r, ranks).start([]string{
			"TUTTI_RANK=" + strconv.Itoa(r),
			"TUTTI_SIZE=" + strconv.Itoa(ranks),
			"TUTTI_LOCAL_RANK=" + strconv.Itoa(r%net.each(ranks)),
			fmt.Sprintf("TUTTI_BOOTSTRAP=tcp://%s:%d", net.nodes[0].addr, rendezvousPort),
			"TUTTI_OPEN=1",
		}, args...))
	}
	return cmds
}
