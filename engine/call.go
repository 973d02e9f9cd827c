package engine

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/plan"
	"github.com/tutti-go/tutti/reduce"
	"github.com/tutti-go/tutti/tune"
)

// call is one collective as this rank sees it.
type call struct {
	collective plan.Collective
	dtype      mem.DType
	op         mem.Op
	in, out    []byte
	count      int // elements
	kernel     reduce.Func
	divisor    int // of the last reduction: the number of ranks for avg, else 1
	request    tune.Request
}

// run takes a call from arrival to return.
func (c *Comm) run(ctx context.Context, k *call) error {
	if c.board {
		return c.runMapped(ctx, k)
	}
	p, err := c.program(c.choose(k.request))
	if err != nil {
		return err
	}
	// Only those who exchange bytes need to know of each other that they have
	// arrived, that is, that the scratch of the previous call is free.
	for _, rank := range p.touchedBy {
		if err := c.notify(rank, c.base+plan.Arrived); err != nil {
			return err
		}
	}
	for _, rank := range p.touches {
		if err := c.waiters[rank].Wait(ctx, c.seen[rank], c.base+plan.Arrived); err != nil {
			return err
		}
	}
	p.bindOwn(c, k)
	return c.execute(ctx, p, k)
}

// runMapped is run on a medium where every rank reads every announcement.
func (c *Comm) runMapped(ctx context.Context, k *call) error {
	c.met++
	c.said = c.announcement(k)
	*announcementIn(c.controls[c.rank], c.met) = c.said
	c.own.Raise(c.base + plan.Arrived)
	for rank, seen := range c.seen {
		if rank == c.rank {
			continue
		}
		if err := c.waiters[rank].Wait(ctx, seen, c.base+plan.Arrived); err != nil {
			return err
		}
	}
	all, err := c.agree()
	if err != nil {
		return err
	}
	if k.collective == plan.Barrier {
		c.base += plan.Arrived // all have arrived: that was the barrier
		return nil
	}
	k.request.MappedData = all
	choice := c.choose(k.request)
	if choice.Algo == oneShot && len(k.in) <= tune.OneShotBytes {
		c.base += plan.Arrived
		return c.door.allReduce(ctx, c.waiters, k.in, k.out, stampOf(len(k.in), k.dtype, k.op), k.kernel, k.count, k.divisor)
	}
	p, err := c.program(choice)
	if err == nil {
		err = p.fits(all)
	}
	if err != nil {
		c.base += plan.Arrived // every rank comes to the same end
		return err
	}
	p.bindOwn(c, k)
	if all {
		if err := c.bindPeers(ctx, p, k); err != nil {
			return err
		}
	}
	return c.execute(ctx, p, k)
}

// announcement is what peers must know before they touch this rank's memory.
func (c *Comm) announcement(k *call) announcement {
	in, inOffset := c.buffers.find(k.in)
	out, outOffset := c.buffers.find(k.out)
	return announcement{
		bytes: uint64(len(k.in)), inOffset: uint64(inOffset), outOffset: uint64(outOffset),
		inRegion: uint32(in), outRegion: uint32(out),
		collective: uint8(k.collective), dtype: uint8(k.dtype), op: uint8(k.op),
	}
}

// agree compares all announcements, and reports whether all ranks brought
// buffers that peers can map.
func (c *Comm) agree() (mapped bool, err error) {
	mine := &c.said
	mapped = mine.inRegion != 0 && mine.outRegion != 0
	for rank := range c.controls {
		if rank == c.rank {
			continue
		}
		theirs := announcementIn(c.controls[rank], c.met)
		if theirs.bytes != mine.bytes || theirs.collective != mine.collective || theirs.dtype != mine.dtype || theirs.op != mine.op {
			return false, &MismatchError{Rank: rank, Mine: signature(mine), Theirs: signature(theirs)}
		}
		mapped = mapped && theirs.inRegion != 0 && theirs.outRegion != 0
	}
	return mapped, nil
}

func signature(a *announcement) Signature {
	return Signature{
		Call: plan.Collective(a.collective).String(), Bytes: int(a.bytes),
		Type: mem.DType(a.dtype), Op: mem.Op(a.op),
	}
}

// bindOwn points the program at this rank's buffers.
func (p *program) bindOwn(c *Comm, k *call) {
	p.setBase(plan.In, c.rank, k.in)
	p.setBase(plan.Out, c.rank, k.out)
}

// bindPeers points the program at the buffers that the peers announced.
func (c *Comm) bindPeers(ctx context.Context, p *program, k *call) error {
	for _, rank := range p.touches {
		a := announcementIn(c.controls[rank], c.met)
		in, err := c.mapPeer(ctx, rank, mem.RegionID(a.inRegion), a.inOffset, len(k.in))
		if err != nil {
			return err
		}
		out, err := c.mapPeer(ctx, rank, mem.RegionID(a.outRegion), a.outOffset, len(k.out))
		if err != nil {
			return err
		}
		p.setBase(plan.In, rank, in)
		p.setBase(plan.Out, rank, out)
	}
	return nil
}

// mapPeer returns a piece of a peer's region, after checking that it is one.
func (c *Comm) mapPeer(ctx context.Context, rank int, region mem.RegionID, offset uint64, bytes int) ([]byte, error) {
	memory, err := c.mappers[rank].Map(ctx, region)
	if err != nil {
		return nil, err
	}
	if offset > uint64(len(memory)) || uint64(bytes) > uint64(len(memory))-offset {
		return nil, fmt.Errorf("rank %d announced %d bytes at %d of its region %d, which has %d: %w",
			rank, bytes, offset, region, len(memory), link.ErrRange)
	}
	return memory[offset:][:bytes], nil
}

// fits refuses a program that needs what the buffers of this call are not.
func (p *program) fits(mappedData bool) error {
	if p.reach.PeerData && !mappedData {
		return &ArgumentError{p.collective.String(), fmt.Sprintf(
			"%s reads and writes the buffers of all ranks in place; they must all come from Alloc", p.name)}
	}
	return nil
}

// recoverable reports whether err leaves all ranks in step.
func recoverable(err error) bool {
	var arg *ArgumentError
	return errors.As(err, &arg)
}

func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }
