package engine

import (
	"context"
	"fmt"
	"sync"

	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/plan"
)

// join connects to every peer and learns where its control region is.
func (c *Comm) join(ctx context.Context, ex Exchanger) error {
	if err := c.makeControl(); err != nil {
		return err
	}
	c.forgetLost = c.family.fabric.Lost(c.lostPeer)

	mine := greeting{
		control: c.control.Region(), cores: c.cfg.Cores, sharers: c.cfg.Sharers, nodes: hashOf(c.cfg.Nodes), rules: c.cfg.Rules,
	}
	blobs, err := ex.AllGather(ctx, mine.encode())
	if err != nil {
		return err
	}
	if len(blobs) != c.size {
		return fmt.Errorf("the exchange knows %d ranks, not %d", len(blobs), c.size)
	}
	for rank, blob := range blobs {
		theirs, err := decodeGreeting(blob)
		if err == nil {
			err = mine.agrees(theirs)
		}
		if err != nil {
			return fmt.Errorf("rank %d: %w", rank, err)
		}
		c.peerRegions[rank] = theirs.control
		if rank == c.rank {
			continue
		}
		l, err := c.family.fabric.Connect(ctx, rank)
		if err != nil {
			return err
		}
		c.useLink(rank, l)
		if err := c.mapControl(ctx, rank); err != nil {
			return err
		}
	}
	if err := c.findNodes(); err != nil {
		return err
	}
	if err := c.agreeOnAttach(ctx, ex); err != nil {
		return err
	}
	for rank, l := range c.links {
		if !c.near(rank) {
			c.links[rank] = &sharedLink{link: l}
		}
	}
	return nil
}

// sharedLink is a link for several goroutines: those of sub-groups.
type sharedLink struct {
	mu   sync.Mutex
	link link.Link
}

// Put implements link.Link.
func (l *sharedLink) Put(dst mem.Remote, src []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.link.Put(dst, src)
}

// Notify implements link.Link.
func (l *sharedLink) Notify(dst mem.Remote, v uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.link.Notify(dst, v)
}

// makeControl allocates this rank's control region.
func (c *Comm) makeControl() error {
	control, err := c.family.fabric.Alloc(c.layout.bytes)
	if err != nil {
		return err
	}
	c.control, c.controls[c.rank] = control, control.Bytes()
	return nil
}

func (c *Comm) useLink(rank int, l link.Link) {
	c.links[rank] = l
	c.mappers[rank], _ = l.(link.Mapper)
	if copier, ok := l.(link.Copier); ok && copier.Attach() == nil {
		c.copiers[rank] = copier
	}
}

// mapControl maps a peer's control region, where the medium maps. It is kept
// until this communicator is closed: a peer that closes a sub-group earlier
// frees its region while this rank may still look at it.
func (c *Comm) mapControl(ctx context.Context, rank int) error {
	m := c.mappers[rank]
	if m == nil {
		return nil
	}
	memory, release, err := m.Keep(ctx, c.peerRegions[rank])
	if err != nil {
		return err
	}
	c.release = append(c.release, release)
	if len(memory) < c.layout.bytes {
		return fmt.Errorf("rank %d has a control region of %d bytes, not %d: are all ranks the same build?",
			rank, len(memory), c.layout.bytes)
	}
	c.controls[rank] = memory
	return nil
}

// near reports whether a rank's control region is within load and store: that
// of this rank itself, and of the others of its node.
func (c *Comm) near(rank int) bool { return c.controls[rank] != nil }

// findNodes learns who is near whom, and holds the fabric to what it was said
// to be.
func (c *Comm) findNodes() error {
	c.mapped = c.allMapped()
	switch {
	case c.nodes == nil && c.mapped:
		c.nodes = plan.OneNode(c.size)
	case c.nodes == nil:
		c.nodes = plan.Apart(c.size)
	}
	if len(c.nodes) != c.size {
		return fmt.Errorf("the nodes of %d ranks are given, of %d", len(c.nodes), c.size)
	}
	c.nodeCount, c.neighbours = c.nodes.Count(), mostOfANode(c.nodes)
	for rank := range c.size {
		if c.near(rank) != c.nodes.Together(rank, c.rank) {
			return fmt.Errorf("rank %d is on node %d and this rank on node %d, and that %s maps its memory is %v",
				rank, c.nodes[rank], c.nodes[c.rank], c.family.fabric.Medium(), c.near(rank))
		}
	}
	return nil
}

// mostOfANode returns how many ranks the largest node has.
func mostOfANode(nodes plan.Nodes) int {
	most := 0
	for _, ranks := range nodes.Members() {
		most = max(most, len(ranks))
	}
	return most
}

// allMapped reports whether all ranks' regions are within load and store.
func (c *Comm) allMapped() bool {
	for rank, m := range c.mappers {
		if rank != c.rank && m == nil {
			return false
		}
	}
	return true
}

// agreeOnAttach learns whether every rank can copy every other's ordinary
// memory. All must know the same, because they choose plans by it. It also is
// the synchronisation without which nobody may put or notify: all have
// connected when it ends.
func (c *Comm) agreeOnAttach(ctx context.Context, ex Exchanger) error {
	why := ""
	if err := c.attachable(); err != nil {
		why = err.Error()
	}
	blobs, err := ex.AllGather(ctx, []byte(why))
	if err != nil {
		return err
	}
	c.family.attach = c.size > 1
	for rank, blob := range blobs {
		if len(blob) > 0 {
			c.family.attach = false
			c.family.attachErr = fmt.Errorf("rank %d: %s", rank, blob)
			c.log.Info("ranks cannot copy each other's ordinary memory by address; it is staged", "rank", c.rank, "cause", c.family.attachErr)
			break
		}
	}
	return nil
}

// attachable returns why this rank cannot reach the ordinary memory of some
// peer.
func (c *Comm) attachable() error {
	for rank, l := range c.links {
		if rank == c.rank || c.copiers[rank] != nil {
			continue
		}
		copier, ok := l.(link.Copier)
		if !ok {
			return fmt.Errorf("%s has no copies by address", c.family.fabric.Medium())
		}
		return copier.Attach()
	}
	return nil
}

// lostPeer takes what the fabric reports of one of its ranks.
func (c *Comm) lostPeer(rank int, err error) { c.failures.lost(rank, err) }

// notify raises this rank's progress at a peer. A peer that has closed its
// communicator needs to know no more.
func (c *Comm) notify(rank int, progress uint64) error {
	c.told[rank] = progress
	return c.unlessGone(c.links[rank].Notify(mem.Remote{Region: c.peerRegions[rank], Offset: c.layout.mirror(c.rank)}, progress))
}

// Attachable reports whether all ranks can copy each other's ordinary memory
// by address, and if not, why not.
func (c *Comm) Attachable() (ok bool, why error) { return c.family.attach, c.family.attachErr }
