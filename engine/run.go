package engine

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/plan"
	"github.com/tutti-go/tutti/tune"
)

// do takes a call from its arguments to its end.
func (c *Comm) do(ctx context.Context, k *call) error {
	empty, err := c.check(k)
	if err == nil {
		err = k.reducingKernel(c.size)
	}
	if err != nil {
		return err
	}
	name := k.name()
	if err := c.begin(name); err != nil {
		return err
	}
	switch {
	case empty:
		return c.exit(name, nil)
	case c.size == 1:
		c.alone(k)
		return c.exit(name, nil)
	}
	err = c.run(ctx, k)
	c.dropBuffers()
	return c.exit(name, err)
}

// dropBuffers ends the use of the caller's buffers.
func (c *Comm) dropBuffers() {
	c.in.letGo()
	c.out.letGo()
	c.pinner.Unpin()
}

// alone is a collective among one rank.
func (c *Comm) alone(k *call) {
	if len(k.out) > 0 && pointer(k.out) != pointer(k.in) {
		copy(k.out, k.in)
	}
}

// request is what a choice of a plan for the call may depend on.
func (c *Comm) request(k *call) tune.Request {
	return tune.Request{
		Collective: k.collective, Bytes: k.block, Ranks: c.size, Crowded: c.crowded,
		Uneven: k.vector, Ordered: c.cfg.FixedOrder, Coded: k.wire != WireFull,
		MappedScratch: c.mapped, Nodes: c.nodeCount, Neighbours: c.neighbours,
		Attach: c.family.attach,
	}
}

// run takes a call from arrival to return.
func (c *Comm) run(ctx context.Context, k *call) error {
	if c.mapped {
		request := c.request(k)
		request.Blind = true
		choice := c.choose(k, request)
		switch {
		case choice.IsMessages() && k.vector:
			c.remember(k)
			return c.knockRooted(ctx, k)
		case choice.IsMessages():
			return c.byMessages(ctx, k)
		case k.vector && choice.IsOneShot():
			c.remember(k)
			return c.runVector(ctx, k)
		case k.collective == plan.Barrier || choice.IsOneShot():
			n := &c.knocks[k.collective]
			if k.async { // a blocking call may be looking at it before it waits for this one
				n = &c.knocked
			}
			return c.knock(ctx, k, n)
		}
	}
	if !c.mapped && !k.vector {
		request := c.request(k)
		request.Blind = true
		if choice := c.choose(k, request); choice.Algo != "" {
			return c.runAtOnce(ctx, k, choice)
		}
	}
	shown, err := c.meet(ctx, k)
	if err != nil {
		return err
	}
	return c.runNoticed(ctx, k, shown)
}

// runAtOnce runs a call of blocks of one size where not all ranks are mapped,
// without meeting them first.
func (c *Comm) runAtOnce(ctx context.Context, k *call, choice tune.Choice) error {
	c.shape.uniform(k.block)
	p, err := c.program(k, choice)
	if err != nil {
		return err
	}
	if p.reach.PeerData {
		return k.bad("%s reads and writes the buffers of others in place, and has been chosen before they gave notice of them", p.name)
	}
	if err := c.enter(ctx, p); err != nil {
		return err
	}
	return c.execute(ctx, p, k)
}

// runVector takes a v form from the door to its return.
func (c *Comm) runVector(ctx context.Context, k *call) error {
	done, noticed, err := c.knockVector(ctx, k)
	switch {
	case done || err != nil:
		return err
	case noticed:
		err = c.compare(k)
	default:
		_, err = c.meet(ctx, k)
	}
	if err != nil {
		return err
	}
	return c.runNoticed(ctx, k, false)
}

// remember leaves a v form for the next of its kind. A blocking call may be
// looking there before it waits for an asynchronous one.
func (c *Comm) remember(k *call) {
	if !k.async {
		c.vectors[k.collective].remember(k, c.inPlace(k))
	}
}

// runNoticed takes a call of which all have given notice to its return. shown
// is as for meet.
func (c *Comm) runNoticed(ctx context.Context, k *call, shown bool) error {
	request := c.request(k)
	if request.MappedData = !shown && c.allReachable(); k.vector {
		request.Bytes = c.shape.largest
	}
	choice := c.choose(k, request)
	if choice.IsOneShot() && c.fitsDoor(k) {
		c.base += plan.Arrived
		if shown {
			c.knocked = c.knockOf(k)
			c.door.takeShown(&c.knocked, k.in, k.out)
			return nil
		}
		return c.knock(ctx, k, &c.knocked)
	}
	p, err := c.program(k, choice)
	if err == nil {
		err = c.fits(p, request)
	}
	if err != nil {
		c.base += plan.Arrived // every rank comes to the same end
		return err
	}
	return c.execute(ctx, p, k)
}

// choose picks a plan.
func (c *Comm) choose(k *call, r tune.Request) tune.Choice {
	if k.own {
		return tune.Choose(r)
	}
	return c.cfg.Choose(r)
}

// fitsDoor reports whether the payload of a call fits the door's slots.
func (c *Comm) fitsDoor(k *call) bool {
	return c.mapped && !k.vector && k.wire == WireFull && payloadBytes(k.collective, k.block, c.size) <= slotBytes
}

// knock takes a call through the door, and leaves in n how. In knocks it is
// found by the next call of its kind: checks, kernel and choice would weigh in
// the smallest calls. A call that gave notice first is not remembered there,
// since the next one must give notice too: another rank may issue it
// asynchronously, and that way leads past the knocks.
func (c *Comm) knock(ctx context.Context, k *call, n *knock) error {
	if !c.fitsDoor(k) {
		return k.bad("%d bytes in a block are too many for %v/oneshot among %d ranks", k.block, k.collective, c.size)
	}
	*n = c.knockOf(k)
	return c.door.call(ctx, c.waiters, n, k.in, k.out)
}

// enter is meet where not all ranks are mapped and nobody needs to know more
// than that the scratch it writes to is free.
//
// Programs use the two halves of scratch in turn. So what a rank puts into the
// memory of one of another node it may put as soon as nobody is at work there
// in the call before the last: when it has heard of that rank in the last one.
// Mostly it has, from the last call itself, and enters at once. A rank that has
// not told a peer in the last call of anything tells it now that it has come.
//
// The scratch of a rank is also used by the others of its node. Those meet at
// the start of every call, which costs little; so whatever a rank tells others
// in a call, it tells when its whole node has finished the call before.
func (c *Comm) enter(ctx context.Context, p *program) error {
	c.own.Raise(c.base + plan.Arrived)
	for rank, seen := range c.seen {
		if rank != c.rank && c.near(rank) {
			if err := c.waiters[rank].Wait(ctx, seen, c.base+plan.Arrived); err != nil {
				return err
			}
		}
	}
	for _, rank := range p.touchedBy {
		if !c.near(rank) && c.told[rank] < c.before {
			if err := c.notify(rank, c.base+plan.Arrived); err != nil {
				return err
			}
		}
	}
	for _, rank := range p.touches {
		if !c.near(rank) {
			if err := c.waiters[rank].Wait(ctx, c.seen[rank], c.before); err != nil {
				return err
			}
		}
	}
	return nil
}

// fits refuses a program that needs what the buffers of this call are not.
func (c *Comm) fits(p *program, r tune.Request) error {
	if !p.reach.PeerData || r.MappedData {
		return nil
	}
	if !p.reach.AttachOnly() {
		return &ArgumentError{p.collective.String(), fmt.Sprintf(
			"%s reads and writes the buffers of all ranks in place; they must all come from Alloc or be registered", p.name)}
	}
	if !c.family.attach {
		return &ArgumentError{p.collective.String(), fmt.Sprintf(
			"%s copies between the buffers of ranks by address, which cannot be done here: %v", p.name, c.family.attachErr)}
	}
	return nil
}

// bind points the program at the buffers of a call.
func (c *Comm) bind(ctx context.Context, p *program, k *call) error {
	p.pieceUnit = k.wire.unit()
	p.tiles = p.tilesFor(c.shape.largest)
	p.streams = c.mapped && c.footprint() >= c.streamFrom(p)
	c.placeScratch(p)
	p.setBase(plan.In, c.rank, k.in)
	p.setBase(plan.Out, c.rank, k.out)
	if p.reach.PeerData {
		if !c.cfg.FetchByAddress { // else they are pinned already
			pin(&c.pinner, k.in, c.said.inRegion)
			pin(&c.pinner, k.out, c.said.outRegion)
		}
		// Where peers work in shadows of our buffers' edges, so do we.
		if c.in.view != nil {
			p.setBase(plan.In, c.rank, c.in.view)
		}
		if c.out.view != nil {
			p.setBase(plan.Out, c.rank, c.out.view)
		}
		for _, rank := range p.touches {
			if !c.near(rank) {
				continue
			}
			if err := c.bindPeer(ctx, p, rank); err != nil {
				return err
			}
		}
	}
	for i := range p.actions {
		a := &p.actions[i]
		a.bytes = p.pieceBytes(&c.shape, a.block, a.piece)
		for j := range a.srcs {
			p.place(&c.shape, a, &a.srcs[j])
		}
		for j := range a.dsts {
			p.place(&c.shape, a, &a.dsts[j])
		}
		a.way = p.wayOf(a)
	}
	return nil
}

// streamFrom is the footprint from which results are written past the cache.
// While it holds most of a call's bytes, what stays there saves more than is
// lost by fetching what is overwritten. A core on which nothing happens but
// that slots are emptied has no use for it, and only drives out what the others
// still have to read; and of a cache that is nearly full some may be anybody's.
func (c *Comm) streamFrom(p *program) int {
	if p.collective.Rooted() && !p.collective.Reduces() && !p.reach.PeerData && !c.crowded {
		return c.cfg.CacheBytes / 4 * 3
	}
	return c.cfg.CacheBytes / 2 * 3
}

// footprint is how many bytes the buffers of all ranks take in the present
// call, which all have given notice of.
func (c *Comm) footprint() int {
	total := 0
	for rank := range c.size {
		n := c.noticeOf(rank)
		bytes := n.inBytes + n.outBytes
		if n.inRegion == n.outRegion && n.inAt < n.outAt+n.outBytes && n.outAt < n.inAt+n.inBytes { // in place
			bytes = max(n.inBytes, n.outBytes)
		}
		total += int(bytes)
	}
	return total
}

// bindPeer points the program at the buffers that a peer gave notice of: where
// they are mapped here, or else at their addresses there.
func (c *Comm) bindPeer(ctx context.Context, p *program, rank int) error {
	n := c.noticeOf(rank)
	for _, b := range [2]struct {
		buf       plan.Buf
		region    uint32
		at, bytes uint64
	}{{plan.In, n.inRegion, n.inAt, n.inBytes}, {plan.Out, n.outRegion, n.outAt, n.outBytes}} {
		i := baseIndex(b.buf, rank, p.ranks)
		if p.far[i] = b.region == 0; p.far[i] {
			p.bases[i], p.addresses[i] = nil, uintptr(b.at)
			continue
		}
		memory, err := c.mapPeer(ctx, rank, mem.RegionID(b.region), b.at, b.bytes)
		if err != nil {
			return err
		}
		p.bases[i] = pointer(memory)
	}
	return nil
}

// interrupted returns why a call should end though nothing keeps it waiting.
func (c *Comm) interrupted(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	default:
		return c.failures.comm.Err()
	}
}

func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }
