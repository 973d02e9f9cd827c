// Package linktest defines the contract of package link by two things: Memory,
// a medium between goroutines of one process that needs no machine support,
// and Run, the conformance suite that it and every real medium pass.
package linktest

import (
	"context"
	"fmt"
	"sync"

	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
)

// Options are the properties of a Memory medium.
type Options struct {
	// Mapped gives the links Map and the fabrics Own, as shared memory has.
	// Without it, bytes travel by Put alone, as over a network.
	Mapped bool

	// Late delivers puts and notifications from a goroutine of its own, in
	// order for each link, so that nothing is visible when Put or Notify
	// returns. It is for links that are not Mapped.
	Late bool
}

// Memory returns the fabrics of n ranks that live in this process.
func Memory(n int, o Options) []link.Fabric {
	hub := &hub{ranks: make([]*fabric, n)}
	out := make([]link.Fabric, n)
	for r := range hub.ranks {
		f := &fabric{hub: hub, rank: r, o: o, own: newCounter(), regions: map[mem.RegionID][]byte{}, links: map[int]*memoryLink{}}
		hub.ranks[r] = f
		if o.Mapped {
			out[r] = boardFabric{f}
		} else {
			out[r] = f
		}
	}
	return out
}

func newCounter() *link.Counter { return link.CounterAt(aligned(link.CounterBytes)) }

// aligned returns n zero bytes that start on a cache line.
func aligned(n int) []byte {
	words := make([]uint64, (n+2*link.LineBytes)/8)
	b := mem.Bytes(words)
	return b[offsetToLine(b):][:n:n]
}

type hub struct {
	mu    sync.Mutex
	ranks []*fabric
}

type fabric struct {
	hub  *hub
	rank int
	o    Options
	own  *link.Counter

	// Guarded by hub.mu.
	regions map[mem.RegionID][]byte
	next    mem.RegionID
	links   map[int]*memoryLink
	lost    func(int, error)
	closed  bool

	couriers sync.WaitGroup
}

// boardFabric adds Own to the fabrics of a mapped medium.
type boardFabric struct{ *fabric }

func (f boardFabric) Own() *link.Counter { return f.own }

var (
	_ link.Fabric = (*fabric)(nil)
	_ link.Board  = boardFabric{}
	_ link.Mapper = mappedLink{}
)

func (f *fabric) Medium() string { return "memory" }

func (f *fabric) Alloc(bytes int) (*mem.Buffer, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("alloc of %d bytes: %w", bytes, link.ErrRange)
	}
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	if f.closed {
		return nil, link.ErrClosed
	}
	f.next++
	id, b := f.next, aligned(bytes)
	f.regions[id] = b
	return mem.NewBuffer(id, b, func() error {
		f.hub.mu.Lock()
		defer f.hub.mu.Unlock()
		delete(f.regions, id)
		return nil
	}), nil
}

func (f *fabric) Lost(fn func(int, error)) {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	f.lost = fn
}

func (f *fabric) Connect(_ context.Context, peer int) (link.Link, error) {
	if peer < 0 || peer >= len(f.hub.ranks) || peer == f.rank {
		return nil, fmt.Errorf("rank %d cannot connect to rank %d: %w", f.rank, peer, link.ErrRange)
	}
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	if f.closed {
		return nil, link.ErrClosed
	}
	l, ok := f.links[peer]
	if !ok {
		to := f.hub.ranks[peer]
		l = &memoryLink{from: f, to: to, seen: to.own}
		if !f.o.Mapped {
			l.seen = newCounter() // raised by the peer's courier or Notify
		}
		if f.o.Late {
			l.queue = make(chan func(), 256)
			f.couriers.Go(func() {
				for deliver := range l.queue {
					deliver()
				}
			})
		}
		f.links[peer] = l
	}
	if f.o.Mapped {
		return mappedLink{l}, nil
	}
	return l, nil
}

func (f *fabric) Close() error {
	f.hub.mu.Lock()
	if f.closed {
		f.hub.mu.Unlock()
		return nil
	}
	f.closed = true
	for _, l := range f.links {
		if l.queue != nil {
			close(l.queue)
		}
	}
	f.regions = nil
	var tell []func(int, error)
	for _, p := range f.hub.ranks {
		if p != f && !p.closed && p.lost != nil {
			tell = append(tell, p.lost)
		}
	}
	f.hub.mu.Unlock()
	f.couriers.Wait() // what was put before Close still arrives
	for _, lost := range tell {
		go lost(f.rank, link.ErrClosed)
	}
	return nil
}

type memoryLink struct {
	from, to *fabric
	seen     *link.Counter
	queue    chan func()
}

func (l *memoryLink) Seen() *link.Counter { return l.seen }

func (l *memoryLink) Put(dst mem.Remote, src []byte) error {
	l.from.hub.mu.Lock()
	defer l.from.hub.mu.Unlock()
	if l.from.closed {
		return link.ErrClosed
	}
	region := l.to.regions[dst.Region]
	if dst.Offset < 0 || dst.Offset > len(region) || len(src) > len(region)-dst.Offset {
		return fmt.Errorf("put of %d bytes at %d of region %d (%d bytes) of rank %d: %w",
			len(src), dst.Offset, dst.Region, len(region), l.to.rank, link.ErrRange)
	}
	to := region[dst.Offset:][:len(src)]
	if l.queue == nil {
		copy(to, src)
		return nil
	}
	sent := append([]byte(nil), src...)
	l.queue <- func() { copy(to, sent) }
	return nil
}

func (l *memoryLink) Notify(v uint64) error {
	l.from.hub.mu.Lock()
	defer l.from.hub.mu.Unlock()
	if l.from.closed {
		return link.ErrClosed
	}
	if l.from.o.Mapped {
		l.from.own.Raise(v)
		return nil
	}
	// The counter belongs to the peer's end, which may not be connected yet.
	back, ok := l.to.links[l.from.rank]
	if !ok {
		return fmt.Errorf("rank %d has not connected to rank %d yet: %w", l.to.rank, l.from.rank, link.ErrClosed)
	}
	if l.queue == nil {
		back.seen.Raise(v)
		return nil
	}
	l.queue <- func() { back.seen.Raise(v) }
	return nil
}

// mappedLink adds Map to the links of a mapped medium.
type mappedLink struct{ *memoryLink }

func (l mappedLink) Map(_ context.Context, region mem.RegionID) ([]byte, error) {
	l.from.hub.mu.Lock()
	defer l.from.hub.mu.Unlock()
	b, ok := l.to.regions[region]
	if !ok {
		return nil, fmt.Errorf("region %d of rank %d: %w", region, l.to.rank, link.ErrRange)
	}
	return b, nil
}
