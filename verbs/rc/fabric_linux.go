package rc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/internal/mesh"
	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
)

// byeTimeout is how long Close waits for peers that do not answer.
const byeTimeout = time.Second

// Fabric is one rank's end of the RDMA medium. It implements link.Fabric,
// link.Progresser and link.Exposer.
//
// Who polls a completion queue: whoever has its lock, which everybody only tries
// to get, in turn: waiting ranks by Progress, ranks whose Put or Notify must wait
// for room, and a goroutine of the rail (attend_linux.go) when none of these has
// looked for a millisecond.
//
// Who posts to the queue pairs of a link: whoever has the link's lock. A Put may
// hold that while it waits for room, and polls meanwhile. Who polls never waits
// for it: credits that it has to return are left to the holder, if there is one.
//
// Locks are taken in this order: a link's, a queue's, a link's rx, the fabric's.
type Fabric struct {
	rank  int
	cfg   Config
	log   *slog.Logger
	mesh  *mesh.Mesh
	rails []*rail

	// Where a device is software, what a rank waits for needs a core too.
	software bool
	copyMost int
	yieldful bool          // and there may be none but that of the rank that waits
	empty    atomic.Uint32 // looks at the queues in vain

	peers []peer // indexed by rank; ours is unused

	life    context.Context // until Close
	end     context.CancelFunc
	running sync.WaitGroup

	queues  atomic.Pointer[[]*queue]                 // grows only; written under mu
	lanes   atomic.Pointer[[]*lane]                  // by number, which their requests carry; grows only; written under mu
	bell    int                                      // an eventfd that ends the rails' goroutines
	looked  atomic.Bool                              // somebody has called Progress since the rails' goroutines cleared it
	regions atomic.Pointer[map[mem.RegionID]*region] // written under mu
	known   atomic.Pointer[memoryTable]              // what the devices know; written under mu

	mu        sync.Mutex // never held over anything that blocks
	told      map[mem.RegionID]map[*rcLink]struct{}
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

// Open opens the devices, makes this rank's fabric, and tells the others where
// its control connections listen. All ranks call it; it blocks until all have.
// Errors: ErrUnavailable where there is no library or no device that can be
// used, *ConfigError, those of package verbs, mesh and the exchange.
func Open(ctx context.Context, ex Exchanger, cfg Config) (_ *Fabric, err error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	f := &Fabric{
		rank:     ex.Rank(),
		cfg:      cfg,
		log:      cfg.Log,
		told:     map[mem.RegionID]map[*rcLink]struct{}{},
		watchers: map[int]func(int, error){},
		gone:     map[int]error{},
	}
	f.queues.Store(new([]*queue))
	f.lanes.Store(new([]*lane))
	f.regions.Store(new(map[mem.RegionID]*region))
	f.known.Store(new(memoryTable))
	if f.bell, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, fmt.Errorf("%w: eventfd: %w", ErrUnavailable, err)
	}
	f.life, f.end = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			f.end()
			err = fmt.Errorf("rc: rank %d: %w", f.rank, errors.Join(err, f.closeRails(), unix.Close(f.bell)))
		}
	}()
	if err := f.openRails(networksOf(cfg.Listen)); err != nil {
		return nil, err
	}
	f.copyMost = copyMost
	if f.software = slices.ContainsFunc(f.rails, (*rail).software); f.software {
		f.copyMost = copyMostSoftware
		f.yieldful = runtime.NumCPU() <= 2
	}
	m, err := mesh.Open(ctx, ex, mesh.Config{Listen: cfg.Listen, Advertise: cfg.Advertise, Silence: cfg.Silence, Log: cfg.Log})
	if err != nil {
		return nil, err
	}
	f.mesh = m
	f.peers = make([]peer, m.Size())
	for rank := range f.peers {
		f.peers[rank] = peer{fabric: f, rank: rank, up: make(chan struct{})}
	}
	for _, r := range f.rails {
		f.running.Go(func() { r.watch(f.life) })
		f.running.Go(func() { r.attend(f.life) })
	}
	f.handleCalls()
	return f, nil
}

// Medium implements link.Fabric.
func (f *Fabric) Medium() string { return "verbs" }

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
// so each function hears of each peer once, from here or from Lost.
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

// start runs a goroutine that Close waits for, unless it is too late for that.
func (f *Fabric) start(run func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	f.running.Go(run)
	return true
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

// Close implements link.Fabric. What was put before reaches peers that are
// alive; for others Close waits a second at most.
func (f *Fabric) Close() error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil
	}
	f.closed = true
	f.closing.Store(time.Now().Add(byeTimeout).UnixNano())
	var lost uint32
	if f.firstLost != nil {
		lost = uint32(f.firstLost.Rank) + 1
	}
	f.mu.Unlock()

	f.end()
	f.ring()
	errs := []error{f.mesh.Close()}
	var links []*rcLink
	for i := range f.peers {
		if l := f.peers[i].take(); l != nil {
			links = append(links, l)
		}
	}
	f.leave(links, lost)
	for _, l := range links {
		l.control.Close()
	}
	f.running.Wait()
	for _, l := range links {
		errs = append(errs, l.close())
	}
	for _, q := range *f.queues.Load() {
		errs = append(errs, q.close())
	}
	errs = append(errs, f.freeAll(), f.closeRails(), unix.Close(f.bell))
	return errors.Join(errs...)
}

// leave lets everything that was posted arrive, says goodbye to all peers and
// waits until they have heard it: they write to this rank's memory no more.
func (f *Fabric) leave(links []*rcLink, lost uint32) {
	for _, l := range links {
		l.finish()
	}
	waitFor := func(done func(*rcLink) bool) {
		for pause := 10 * time.Microsecond; !f.outOfTime(); pause = min(2*pause, time.Millisecond) {
			f.progress()
			if !slices.ContainsFunc(links, func(l *rcLink) bool { return l.gone.Load() == nil && !done(l) }) {
				return
			}
			time.Sleep(pause)
		}
	}
	waitFor((*rcLink).drained)
	for _, l := range links {
		l.say(kindBye, numberBytes(lost))
	}
	waitFor(func(l *rcLink) bool { return l.heard.Load() })
}

func (f *Fabric) closeRails() error {
	var errs []error
	for _, r := range f.rails {
		errs = append(errs, r.close())
	}
	return errors.Join(errs...)
}
