package tcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/internal/mesh"
	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
)

// byeTimeout is how long Close waits for peers that do not read.
const byeTimeout = time.Second

// Fabric is one rank's end of the socket medium. It implements link.Fabric,
// link.Progresser and link.Exposer.
//
// Who reads a connection: whoever has its lock, which everybody only tries to
// get, in turn: waiting ranks by Progress, ranks whose Put finds the socket
// full, and the fabric's own goroutine (attend_linux.go) when none of these has
// looked for a millisecond. Nobody waits for anything while it holds that lock,
// so the connection is always being read or free to be.
//
// Who writes to one: whoever has its link's lock. A Put may hold that for as
// long as the socket is full, but it reads meanwhile: two ranks that put to each
// other take in each other's bytes, and neither waits for the other to return.
// What a reader has to answer therefore waits in a queue of the link, which the
// holder of the lock empties between its frames (link_linux.go).
type Fabric struct {
	rank  int
	cfg   Config
	log   *slog.Logger
	mesh  *mesh.Mesh
	peers []peer // indexed by rank; ours is unused

	life    context.Context // until Close
	end     context.CancelFunc
	running sync.WaitGroup

	conns  atomic.Pointer[[]*conn] // those of all links; only grows; written under mu
	looked atomic.Bool             // somebody has called Progress since the fabric's goroutine cleared it
	held   atomic.Bool             // some link may have bytes that it has not sent yet

	awaiting atomic.Int32 // goroutines in Await
	readable unix.PollFd  // for poll(2): something can be read. What the kernel writes there nobody reads

	epoll    int // of all conns, and of bell
	bell     int // an eventfd that ends the goroutine's sleep
	sweeping sync.Mutex
	events   [64]unix.EpollEvent // under sweeping

	regions atomic.Pointer[map[mem.RegionID]*region] // written under mu

	mu        sync.Mutex // never held over anything that blocks
	told      map[mem.RegionID]map[*tcpLink]struct{}
	next      mem.RegionID
	exposes   bool                              // regions are exposed, not allocated
	watchers  map[int]func(peer int, err error) // by number, see Lost
	watched   int                               // numbers given out
	gone      map[int]error                     // peers that were reported
	firstLost *link.PeerLostError               // the first peer that went without a bye
	closed    bool

	closing atomic.Int64 // the time, in Unix nanoseconds, when Close gives up on peers; 0 before Close
}

var (
	_ link.Fabric     = (*Fabric)(nil)
	_ link.Progresser = (*Fabric)(nil)
	_ link.Exposer    = (*Fabric)(nil)
)

// Open makes this rank's fabric and tells the others where it listens. All
// ranks call it; it blocks until all have. Errors: *ConfigError, ErrUnavailable,
// those of package mesh and of the exchange.
func Open(ctx context.Context, ex Exchanger, cfg Config) (*Fabric, error) {
	if err := errors.Join(cfg.check(), cfg.try()); err != nil {
		return nil, err
	}
	if cfg.Stripes == 0 {
		cfg.Stripes = DefaultStripes
	}
	f := &Fabric{
		rank:     ex.Rank(),
		cfg:      cfg,
		log:      cfg.Log,
		told:     map[mem.RegionID]map[*tcpLink]struct{}{},
		watchers: map[int]func(int, error){},
		gone:     map[int]error{},
		epoll:    -1,
		bell:     -1,
	}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	f.conns.Store(new([]*conn))
	f.regions.Store(new(map[mem.RegionID]*region))
	f.life, f.end = context.WithCancel(context.Background())
	if err := f.openEpoll(); err != nil {
		return nil, errors.Join(err, f.closeEpoll())
	}
	m, err := mesh.Open(ctx, ex, mesh.Config{Listen: cfg.Listen, Advertise: cfg.Advertise, Silence: cfg.Silence, Log: cfg.Log})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("tcp: %w", err), f.closeEpoll())
	}
	f.mesh = m
	f.peers = make([]peer, m.Size())
	for rank := range f.peers {
		f.peers[rank] = peer{fabric: f, rank: rank, up: make(chan struct{})}
	}
	f.running.Go(f.attend)
	f.handleCalls()
	return f, nil
}

// Medium implements link.Fabric.
func (f *Fabric) Medium() string { return "tcp" }

// Lost implements link.Fabric. A peer is watched once there is a link to it or
// from it.
func (f *Fabric) Lost(fn func(peer int, err error)) (forget func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watched++
	number := f.watched
	f.watchers[number] = fn
	if !f.closed {
		for peer, err := range f.gone {
			go fn(peer, err)
		}
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.watchers, number)
	}
}

// report tells everybody who asked that a peer is gone, unless they were told
// before or it is we who are leaving. One lock covers the record and the list,
// so each function hears of each peer once, from here or from Lost. It does not
// call the functions itself: it may have been called by a rank that waits.
func (f *Fabric) report(peer int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	if lost := (*link.PeerLostError)(nil); f.firstLost == nil && errors.As(err, &lost) {
		f.firstLost = lost
	}
	if _, told := f.gone[peer]; told {
		return
	}
	f.gone[peer] = err
	tell := slices.Collect(maps.Values(f.watchers))
	f.running.Go(func() {
		for _, fn := range tell {
			fn(peer, err)
		}
	})
}

// Mourn implements link.Mourner.
func (f *Fabric) Mourn(lost *link.PeerLostError) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.firstLost == nil {
		f.firstLost = lost
	}
}

func (f *Fabric) isClosed() bool { return f.closing.Load() != 0 }

// outOfTime reports whether Close waits no longer for what is under way.
func (f *Fabric) outOfTime() bool {
	end := f.closing.Load()
	return end != 0 && time.Now().UnixNano() > end
}

// Close implements link.Fabric. What was put before reaches peers that read;
// for others Close waits a second at most.
func (f *Fabric) Close() error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil
	}
	f.closed = true
	f.closing.Store(time.Now().Add(byeTimeout).UnixNano())
	bye := farewell(f.firstLost)
	f.mu.Unlock()

	f.end()
	errs := []error{f.mesh.Close()}
	var links []*tcpLink
	for i := range f.peers {
		if l := f.peers[i].close(); l != nil {
			links = append(links, l)
		}
	}
	f.leave(links, bye)
	f.ring()
	f.running.Wait()
	for _, l := range links {
		errs = append(errs, l.close())
	}
	errs = append(errs, f.closeEpoll(), f.unmapAll())
	return errors.Join(errs...)
}

// leave says goodbye to all peers and waits until they have heard it. A
// connection that is closed with something unread in it takes what is under way
// with it; so we read until the peer hangs up too.
func (f *Fabric) leave(links []*tcpLink, bye frame) {
	for _, l := range links {
		l.sayBye(bye)
	}
	for pause := 10 * time.Microsecond; !f.outOfTime(); pause = min(2*pause, time.Millisecond) {
		waiting := false
		f.progress()
		for _, l := range links {
			waiting = waiting || !l.hungUp()
		}
		if !waiting {
			return
		}
		time.Sleep(pause)
	}
}

// farewell is the bye of a rank that lost a peer before it closed, or nil: the
// others, who may not have noticed yet, are to hear of the cause and not only
// of its consequence. Region is the lost rank plus one.
func farewell(lost *link.PeerLostError) frame {
	bye := frame{kind: kindBye}
	if lost != nil {
		bye.region = mem.RegionID(lost.Rank) + 1
	}
	return bye
}
