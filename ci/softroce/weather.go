package softroce

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Netem disturbs what the machine sends, in the words of tc-netem(8): "loss
// 1%", "delay 10ms reorder 5% 50%". It replaces what was set before.
func (n *Node) Netem(ctx context.Context, words string) error {
	_, err := n.Run(ctx, append(strings.Fields("tc qdisc replace dev eth0 root netem"), strings.Fields(words)...)...)
	return err
}

// Calm ends Netem. Without one it does nothing.
func (n *Node) Calm(ctx context.Context) error {
	out, err := n.Run(ctx, "tc", "qdisc", "show", "dev", "eth0")
	if err != nil || !strings.Contains(out, "netem") {
		return err
	}
	_, err = n.Run(ctx, "tc", "qdisc", "del", "dev", "eth0", "root")
	return err
}

// Link takes eth0, and with it rxe0's port, down or up.
func (n *Node) Link(ctx context.Context, up bool) error {
	state := "down"
	if up {
		state = "up"
	}
	_, err := n.Run(ctx, "ip", "link", "set", "eth0", state)
	return err
}

// Pull takes the link down for a while, as a cable that is pulled and put
// back. It blocks that long. The link comes back even when ctx ends meanwhile:
// the machine sees to it.
func (n *Node) Pull(ctx context.Context, d time.Duration) error {
	_, err := n.Shell(context.WithoutCancel(ctx), fmt.Sprintf(
		"ip link set eth0 down && sleep %.3f; ip link set eth0 up", d.Seconds()))
	return err
}

// PinNeighbours writes all machines' hardware addresses into each one's table
// for good, so that no lost ARP packet keeps queue pairs from connecting.
func (c *Cluster) PinNeighbours(ctx context.Context) error {
	return c.each(ctx, func(ctx context.Context, n *Node) error {
		for _, peer := range c.nodes {
			if peer == n {
				continue
			}
			mac := fmt.Sprintf("52:54:00:00:00:%02x", peer.Index+1)
			if _, err := n.Run(ctx, "ip", "neigh", "replace", peer.Address, "lladdr", mac, "nud", "permanent", "dev", "eth0"); err != nil {
				return err
			}
		}
		return nil
	})
}
