package engine

import (
	"context"
	"fmt"
	"runtime"

	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/plan"
)

// meet gives notice of a call, waits until every rank has, and compares. When
// it returns all ranks know the same about each other: what they bring and
// whether it can be mapped. They meet at the door, through which calls go that
// need no notice, so that those who do not agree find each other there. shown
// says that all payloads are in the door's slots.
func (c *Comm) meet(ctx context.Context, k *call) (shown bool, err error) {
	c.met++
	c.locate(k)
	c.writeNotice(k)
	if !c.mapped {
		if err := c.arrive(); err != nil {
			return false, err
		}
		for rank, seen := range c.seen {
			if rank == c.rank {
				continue
			}
			if err := c.waiters[rank].Wait(ctx, seen, c.base+plan.Arrived); err != nil {
				return false, err
			}
		}
		return false, c.compare(k)
	}
	fits := c.fitsDoor(k)
	shown, err = c.door.meet(ctx, c.waiters, k, fits && c.shows(k))
	if err == nil && fits { // the door has compared all there is
		c.shape.uniform(k.block)
	} else if err == nil {
		err = c.compare(k)
	}
	return shown, err
}

// shows reports whether a rank should show its payload as it gives notice of a
// call: where that would be all, if the others did. Ranks that can map each
// other's buffers do so only with more ranks than cores, when a copy costs less
// than meeting again at the end; but in an allreduce each would read everything.
func (c *Comm) shows(k *call) bool {
	if c.locatedAll(k) && (!c.crowded || k.collective == plan.AllReduce) {
		return false
	}
	return c.choose(k, c.request(k)).IsOneShot()
}

// arrive tells everybody that this rank has entered the call and what it
// calls, where not all are mapped.
func (c *Comm) arrive() error {
	at := c.layout.notice(c.rank, c.met)
	mine := c.notices[c.met&1][c.rank]
	for rank, l := range c.links {
		if rank == c.rank {
			continue
		}
		if c.near(rank) {
			copyBytes(c.controls[rank][at:], mine)
			continue
		}
		err := l.Put(mem.Remote{Region: c.peerRegions[rank], Offset: at}, mine)
		if err == nil {
			err = c.notify(rank, c.base+plan.Arrived)
		}
		if err := c.unlessGone(err); err != nil {
			return err
		}
	}
	c.own.Raise(c.base + plan.Arrived)
	return nil
}

// locate finds out in which regions this rank's buffers are, and keeps them
// there until they are let go.
func (c *Comm) locate(k *call) { c.in, c.out = c.family.locate(k.in), c.family.locate(k.out) }

// locatedAll reports whether peers can map all of this rank's buffers.
func (c *Comm) locatedAll(k *call) bool {
	return (c.in.region != 0 || len(k.in) == 0) && (c.out.region != 0 || len(k.out) == 0)
}

// writeNotice says what this rank calls and where its buffers are.
func (c *Comm) writeNotice(k *call) {
	n := notice{
		bytes: uint64(k.block), collective: uint8(k.collective), dtype: uint8(k.dtype), op: uint8(k.op),
		root: uint16(k.root), wire: uint8(k.wire),
		inBytes: uint64(len(k.in)), outBytes: uint64(len(k.out)),
	}
	n.inRegion, n.inAt = c.in.notice(k.in)
	n.outRegion, n.outAt = c.out.notice(k.out)
	if c.cfg.FetchByAddress && c.family.attach {
		pin(&c.pinner, k.in, n.inRegion)
		pin(&c.pinner, k.out, n.outRegion)
	}
	if c.in.view != nil {
		c.in.show(k.in)
	}
	mine := c.notices[c.met&1][c.rank]
	if k.vector {
		n.bytes, n.flags = 0, flagVector
		c.writeRows(k, rowsIn(mine, c.size))
	}
	c.said = n
	*noticeIn(mine) = n
}

// notice returns how peers find the buffer b: its region and the offset there,
// or region 0 and its address.
func (l *located) notice(b []byte) (region uint32, at uint64) {
	switch {
	case len(b) == 0:
		return 0, 0
	case l.region != 0:
		return uint32(l.region), uint64(l.at)
	}
	return 0, uint64(address(b))
}

// pin keeps a buffer where it is while peers know its address, should it be
// Go's and the collector one day move what it keeps.
func pin(p *runtime.Pinner, b []byte, region uint32) {
	if region == 0 && len(b) > 0 {
		p.Pin(&b[0])
	}
}

// writeRows writes the sizes of this rank's blocks.
func (c *Comm) writeRows(k *call, rows []uint64) {
	size := k.dtype.Size()
	for buf, b := range [2]struct {
		bytes  int
		counts []int
	}{{len(k.in), k.inCounts}, {len(k.out), k.outCounts}} {
		row := rows[buf*c.size:][:c.size]
		row[0] = uint64(b.bytes)
		for i, n := range b.counts {
			row[i] = uint64(n * size)
		}
	}
}

// noticeOf is what a rank has said about the current call.
func (c *Comm) noticeOf(rank int) *notice {
	if rank == c.rank {
		return &c.said
	}
	return noticeIn(c.notices[c.met&1][rank])
}

// compare holds all ranks to the same call.
func (c *Comm) compare(k *call) error {
	mine := &c.said
	for rank := range c.size {
		theirs := c.noticeOf(rank)
		if theirs.bytes != mine.bytes || theirs.collective != mine.collective || theirs.dtype != mine.dtype ||
			theirs.op != mine.op || theirs.root != mine.root || theirs.flags != mine.flags || theirs.wire != mine.wire {
			return &MismatchError{Rank: rank, Mine: mine.signature(), Theirs: theirs.signature()}
		}
	}
	if !k.vector {
		c.shape.uniform(k.block)
		return nil
	}
	rows := c.rowsOfAll()
	return c.shape.read(k, rows)
}

// rowsOfAll returns every rank's rows of the current call.
func (c *Comm) rowsOfAll() [][]uint64 {
	if c.rows == nil {
		c.rows = make([][]uint64, c.size)
	}
	for rank, b := range c.notices[c.met&1] {
		c.rows[rank] = rowsIn(b, c.size)
	}
	return c.rows
}

// allReachable reports whether every buffer of the current call that its plan
// may want peers to touch is one that they can map.
func (c *Comm) allReachable() bool {
	for rank := range c.size {
		if !c.reachable(rank) {
			return false
		}
	}
	return true
}

// reachable reports whether the buffers that a rank gave notice of can be
// mapped.
func (c *Comm) reachable(rank int) bool {
	n := c.noticeOf(rank)
	return (n.inRegion != 0 || n.inBytes == 0) && (n.outRegion != 0 || n.outBytes == 0)
}

func (n *notice) signature() Signature {
	k := call{
		collective: plan.Collective(n.collective), vector: n.flags&flagVector != 0, block: int(n.bytes),
		root: int(n.root), dtype: mem.DType(n.dtype), op: mem.Op(n.op), wire: Wire(n.wire),
	}
	return k.signature()
}

// mapPeer returns a piece of a peer's region, after checking that it is one.
func (c *Comm) mapPeer(ctx context.Context, rank int, region mem.RegionID, offset, bytes uint64) ([]byte, error) {
	memory, err := c.mappers[rank].Map(ctx, region)
	if err != nil {
		return nil, err
	}
	if offset > uint64(len(memory)) || bytes > uint64(len(memory))-offset {
		return nil, fmt.Errorf("rank %d announced %d bytes at %d of its region %d, which has %d: %w",
			rank, bytes, offset, region, len(memory), link.ErrRange)
	}
	return memory[offset:][:bytes], nil
}
