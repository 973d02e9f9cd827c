package shm

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"

	"github.com/tutti-go/tutti/internal/futex"
	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
)

// Fabric is one rank's end of the shared-memory medium. It implements
// link.Fabric.
type Fabric struct {
	rank  int
	cards []card
	log   *slog.Logger

	server *server
	down   chan struct{} // closed by Close, under mu

	mu        sync.Mutex // never held over anything that blocks
	segments  map[mem.RegionID]*segment
	adopted   map[mem.RegionID]*adoption
	next      mem.RegionID
	watchers  map[int]func(peer int, err error) // by number, see Lost
	watched   int                               // numbers given out
	gone      map[int]error                     // peers that were reported
	firstLost *link.PeerLostError               // the first peer that went without a bye

	peers      []peer     // indexed by rank; ours is unused
	adopting   sync.Mutex // one Adopt or Release at a time; neither sees half of another
	sayNoLocks sync.Once
}

var _ link.Fabric = (*Fabric)(nil)

// Open makes this rank's fabric and tells the others where it is. All ranks
// call it; it blocks until all have. log takes what happens only once, such as
// memory that could not be locked; nil discards it. Errors wrap
// ErrUnavailable where the machine refuses what the medium needs.
func Open(ctx context.Context, ex Exchanger, log *slog.Logger) (*Fabric, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if err := futex.Probe(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	f := &Fabric{
		rank:     ex.Rank(),
		log:      log,
		down:     make(chan struct{}),
		segments: map[mem.RegionID]*segment{},
		adopted:  map[mem.RegionID]*adoption{},
		watchers: map[int]func(int, error){},
		gone:     map[int]error{},
		peers:    make([]peer, ex.Size()),
	}
	var mine card
	rand.Read(mine.name[:])
	rand.Read(mine.token[:])
	mine.probe = ownProbe()
	var err error
	if f.server, err = listen(f, mine); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	blobs, err := ex.AllGather(ctx, mine.encode())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("shm: telling the other ranks: %w", err), f.Close())
	}
	for rank, blob := range blobs {
		c, err := decodeCard(blob)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("shm: rank %d: %w", rank, err), f.Close())
		}
		f.cards = append(f.cards, c)
	}
	return f, nil
}

// Medium implements link.Fabric.
func (f *Fabric) Medium() string { return "shm" }

// Alloc implements link.Fabric. The pages are there when it returns: faulted
// in, on this thread's NUMA node, locked where RLIMIT_MEMLOCK allows.
func (f *Fabric) Alloc(bytes int) (*mem.Buffer, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("shm: alloc of %d bytes: %w", bytes, link.ErrRange)
	}
	if f.isClosed() {
		return nil, &ClosedError{f.rank, "alloc"}
	}
	for i := range f.peers { // there may be no memory before their memory goes
		f.peers[i].mu.Lock()
		f.peers[i].tidy()
		f.peers[i].mu.Unlock()
	}
	s, err := f.newSegment(bytes)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.isClosed() {
		return nil, errors.Join(&ClosedError{f.rank, "alloc"}, s.close())
	}
	f.next++
	region := f.next
	f.segments[region] = s
	return mem.NewBuffer(region, s.memory[:bytes:bytes], func() error { return f.free(region) }), nil
}

// newSegment makes a segment and says so, once, if it could not be locked.
func (f *Fabric) newSegment(bytes int) (*segment, error) {
	s, granted, err := newSegment(bytes)
	if err != nil {
		return nil, fmt.Errorf("shm: %w", err)
	}
	if granted.lockErr != nil {
		f.sayNoLocks.Do(func() {
			f.log.Warn("shared memory is not locked and may be swapped; raise RLIMIT_MEMLOCK (ulimit -l)",
				"rank", f.rank, "bytes", bytes, "cause", granted.lockErr)
		})
	}
	return s, nil
}

// free takes a region out of service; peers that mapped it are told. Whoever
// frees it vouches that none of them is at work in it.
func (f *Fabric) free(region mem.RegionID) error {
	f.mu.Lock()
	s, ok := f.segments[region]
	delete(f.segments, region)
	f.mu.Unlock()
	if !ok {
		return nil // freed by Close
	}
	f.server.freed(region)
	return s.close()
}

// Lost implements link.Fabric.
func (f *Fabric) Lost(fn func(peer int, err error)) (forget func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watched++
	number := f.watched
	f.watchers[number] = fn
	if !f.isClosed() {
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
	var lost *link.PeerLostError
	f.mu.Lock()
	if f.firstLost == nil && errors.As(err, &lost) {
		f.firstLost = lost
	}
	var tell []func(int, error)
	if _, told := f.gone[peer]; !told && !f.isClosed() {
		f.gone[peer] = err
		tell = slices.Collect(maps.Values(f.watchers))
	}
	f.mu.Unlock()
	for _, fn := range tell {
		fn(peer, err)
	}
}

// Mourn implements link.Mourner.
func (f *Fabric) Mourn(lost *link.PeerLostError) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.firstLost == nil {
		f.firstLost = lost
	}
}

func (f *Fabric) isClosed() bool {
	select {
	case <-f.down:
		return true
	default:
		return false
	}
}

// Connect implements link.Fabric.
func (f *Fabric) Connect(ctx context.Context, rank int) (link.Link, error) {
	if rank < 0 || rank >= len(f.peers) || rank == f.rank {
		return nil, fmt.Errorf("shm: rank %d of %d cannot connect to rank %d: %w", f.rank, len(f.peers), rank, link.ErrRange)
	}
	p := &f.peers[rank]
	p.connecting.Lock()
	defer p.connecting.Unlock()
	if f.isClosed() { // Close locks connecting after it has said so
		return nil, &ClosedError{f.rank, "connect"}
	}
	if p.link != nil {
		return p.link, nil
	}
	if err := p.connect(ctx, f, rank); err != nil {
		return nil, fmt.Errorf("shm: rank %d: connect to rank %d: %w", f.rank, rank, err)
	}
	return p.link, nil
}

// Close implements link.Fabric. Adopted memory stays where it is and becomes
// private again; the program may work with it meanwhile.
func (f *Fabric) Close() error {
	f.mu.Lock()
	if f.isClosed() {
		f.mu.Unlock()
		return nil
	}
	close(f.down)
	f.mu.Unlock()

	f.adopting.Lock() // waits for what is under way; more will not come
	defer f.adopting.Unlock()
	f.mu.Lock()
	segments, adopted := f.segments, f.adopted
	f.segments, f.adopted = map[mem.RegionID]*segment{}, map[mem.RegionID]*adoption{}
	f.mu.Unlock()

	var errs []error
	if f.server != nil {
		errs = append(errs, f.server.close())
	}
	for i := range f.peers {
		errs = append(errs, f.peers[i].close())
	}
	for _, a := range adopted {
		errs = append(errs, a.detach())
	}
	for _, s := range segments {
		errs = append(errs, s.close())
	}
	return errors.Join(errs...)
}

// sameUser refuses the other end of a connection that is not this user's, and
// returns its process id.
func sameUser(c *net.UnixConn) (pid int, err error) {
	cred, err := peerCredentials(c)
	if err != nil {
		return 0, fmt.Errorf("peer credentials: %w", err)
	}
	if uid := os.Geteuid(); int(cred.Uid) != uid {
		return 0, fmt.Errorf("process %d belongs to user %d, not %d: %w", cred.Pid, cred.Uid, uid, os.ErrPermission)
	}
	return int(cred.Pid), nil
}
