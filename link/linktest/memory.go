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
	// Mapped makes the links Mappers, as those of shared memory are. Without
	// it, bytes travel by Put alone, as over a network.
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
		f := &fabric{
			hub: hub, rank: r, o: o,
			regions: map[mem.RegionID][]byte{}, links: map[int]*memoryLink{},
			watchers: map[int]func(int, error){}, gone: map[int]error{},
		}
		hub.ranks[r], out[r] = f, f
	}
	return out
}

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

	// Guarded by hub.mu.
	regions  map[mem.RegionID][]byte
	next     mem.RegionID
	links    map[int]*memoryLink
	watchers map[int]func(int, error) // by number, see Lost
	watched  int
	gone     map[int]error // peers that have closed
	closed   bool

	couriers sync.WaitGroup
}

var (
	_ link.Fabric  = (*fabric)(nil)
	_ link.Exposer = (*fabric)(nil)
	_ link.Mapper  = mappedLink{}
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
	return mem.NewBuffer(id, b, f.withdraw(id)), nil
}

func (f *fabric) Expose(region mem.RegionID, memory []byte) (func() error, error) {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	if f.closed {
		return nil, link.ErrClosed
	}
	f.regions[region] = memory
	return f.withdraw(region), nil
}

// withdraw returns what takes a region out of reach.
func (f *fabric) withdraw(region mem.RegionID) func() error {
	return func() error {
		f.hub.mu.Lock()
		defer f.hub.mu.Unlock()
		delete(f.regions, region)
		return nil
	}
}

func (f *fabric) Lost(fn func(int, error)) (forget func()) {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	f.watched++
	number := f.watched
	f.watchers[number] = fn
	if !f.closed {
		for peer, err := range f.gone {
			go fn(peer, err)
		}
	}
	return func() {
		f.hub.mu.Lock()
		defer f.hub.mu.Unlock()
		delete(f.watchers, number)
	}
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
		l = &memoryLink{from: f, to: f.hub.ranks[peer], kept: map[mem.RegionID]*keep{}}
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
		if p == f || p.closed {
			continue
		}
		p.gone[f.rank] = link.ErrClosed
		for _, fn := range p.watchers {
			tell = append(tell, fn)
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
	queue    chan func()
	kept     map[mem.RegionID]*keep // guarded by hub.mu
}

// keep is a region of the peer that stays in reach when the peer frees it.
type keep struct {
	memory []byte
	count  int
}

// reach returns the memory of one of the peer's regions; hub.mu is held.
func (l *memoryLink) reach(region mem.RegionID) ([]byte, error) {
	if l.from.closed {
		return nil, link.ErrClosed
	}
	if b, ok := l.to.regions[region]; ok {
		return b, nil
	}
	if k, ok := l.kept[region]; ok {
		return k.memory, nil
	}
	if l.to.closed {
		return nil, fmt.Errorf("region %d: rank %d: %w", region, l.to.rank, link.ErrClosed)
	}
	return nil, fmt.Errorf("region %d of rank %d: %w", region, l.to.rank, link.ErrRange)
}

func (l *memoryLink) Put(dst mem.Remote, src []byte) error {
	l.from.hub.mu.Lock()
	defer l.from.hub.mu.Unlock()
	region, err := l.reach(dst.Region)
	if err != nil {
		return err
	}
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

func (l *memoryLink) Notify(dst mem.Remote, v uint64) error {
	l.from.hub.mu.Lock()
	defer l.from.hub.mu.Unlock()
	region, err := l.reach(dst.Region)
	if err != nil {
		return err
	}
	c, err := link.CounterIn(region, dst.Offset)
	if err != nil {
		return fmt.Errorf("region %d of rank %d: %w", dst.Region, l.to.rank, err)
	}
	if l.queue == nil {
		c.Raise(v)
		return nil
	}
	l.queue <- func() { c.Raise(v) }
	return nil
}

// mappedLink adds Map and Keep to the links of a mapped medium.
type mappedLink struct{ *memoryLink }

func (l mappedLink) Map(_ context.Context, region mem.RegionID) ([]byte, error) {
	l.from.hub.mu.Lock()
	defer l.from.hub.mu.Unlock()
	return l.reach(region)
}

func (l mappedLink) Keep(_ context.Context, region mem.RegionID) ([]byte, func() error, error) {
	l.from.hub.mu.Lock()
	defer l.from.hub.mu.Unlock()
	memory, err := l.reach(region)
	if err != nil {
		return nil, nil, err
	}
	k, ok := l.kept[region]
	if !ok {
		k = &keep{memory: memory}
		l.kept[region] = k
	}
	k.count++
	var once sync.Once
	return memory, func() error {
		once.Do(func() {
			l.from.hub.mu.Lock()
			defer l.from.hub.mu.Unlock()
			if k.count--; k.count == 0 {
				delete(l.kept, region)
			}
		})
		return nil
	}, nil
}
