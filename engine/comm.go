package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"

	"github.com/tutti-go/tutti/internal/cpu"
	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/plan"
	"github.com/tutti-go/tutti/tune"
)

// Exchanger is what New needs of a bootstrap.
type Exchanger interface {
	// AllGather gives every rank's blob to every rank, indexed by rank.
	AllGather(ctx context.Context, blob []byte) ([][]byte, error)
}

// Config says who a Comm is and what it works with.
type Config struct {
	Rank, Size int
	Exchanger  Exchanger
	Fabric     link.Fabric // owned by the Comm from New on, also when New fails

	// Nodes is the node of each rank: ranks of one node map each other's memory
	// on this fabric. It is the same on all ranks. nil means that all ranks are
	// one node, or where the fabric maps nothing, that each is one.
	Nodes plan.Nodes

	// Plan makes the plan of a name for ranks grouped into nodes and a root:
	// algo.NewOver.
	Plan func(name string, nodes plan.Nodes, root int) (*plan.Plan, error)
	// Choose picks among plans: tune.Choose. All ranks must be given the same,
	// and the same Rules as the name for it: New refuses ranks that differ.
	Choose func(tune.Request) tune.Choice
	Rules  string
	// FixedOrder keeps to plans that combine contributions in rank order, so
	// that results depend neither on the algorithm nor on how ranks are spread.
	FixedOrder bool

	// FetchByAddress lets receivers fetch long messages of ordinary memory by
	// address, where the machine permits it, instead of having them passed
	// through slots. It spares a copy, and costs system calls that have been
	// slower than that copy wherever we measured.
	FetchByAddress bool

	// Cores is how many cores the ranks of a machine may use in all, and Sharers
	// how many ranks that are, on the machine where they have fewest each. They
	// are the same numbers on all ranks; 0 means GOMAXPROCS, and all ranks.
	Cores   int
	Sharers int
	// CacheBytes is how much of what a call moves stays in the cache that the
	// ranks share: the results of larger calls are written past it. 0 means what
	// the machine tells of its last cache, or 32 MiB.
	CacheBytes int
	// Threads reduce for this rank when a message is large; 0 means cores
	// divided by those who share them, at least one.
	Threads int
	// Logger takes changes of state; nil discards them.
	Logger *slog.Logger
	// AfterClose, if not nil, is the last thing that Close does.
	AfterClose func() error
}

// Comm is one rank's membership in a job, or in a sub-group of it.
type Comm struct {
	rank, size int
	family     *family
	parent     *Comm // nil for the one that New made
	// fabricRanks are the numbers that the fabric knows our ranks by, where
	// they differ: in a sub-group.
	fabricRanks []int
	cfg         Config
	log         *slog.Logger
	crowded     bool        // more ranks than cores
	crowd       *link.Crowd // nil unless crowded, and without mapped memory
	threads     int

	failures   failures
	patience   link.Patience // of a call
	besides    link.Patience // of a call that runs beside a computation
	waiters    []link.Waiter // by the rank that is waited for
	closed     atomic.Bool
	forgetLost func()

	layout      layout
	nodes       plan.Nodes      // who is near whom
	nodeCount   int             // how many nodes there are,
	neighbours  int             // and how many ranks the largest has
	links       []link.Link     // by rank; ours is nil
	seen        []*link.Counter // progress of each rank, our own included
	own         *link.Counter   // our progress
	mapped      bool            // raising own tells everybody, and all read everybody's notices
	told        []uint64        // by rank: the progress that it was last notified of, where it is not mapped
	progresser  link.Progresser // what waits lend their thread to, or nil
	mappers     []link.Mapper   // by rank; nil where nothing is mapped
	copiers     []link.Copier   // by rank; nil where ordinary memory is out of reach
	control     *mem.Buffer
	peerRegions []mem.RegionID // control regions, by rank
	controls    [][]byte       // the same mapped, where the medium maps; ours always
	release     []func() error // what keeps them mapped
	notices     [2][][]byte    // by parity of the call and rank: where its notice is read
	door        door
	post        post

	// The state of calls. One goroutine at a time may be inside a call; calling
	// is its word for that. It is a plain word, like the one by which Go's maps
	// notice concurrent writers: it catches most mistakes, and an atomic one
	// would cost a good part of the smallest allreduce.
	calling  bool
	calls    uint64  // how many have begun
	met      uint64  // how often ranks have met who may have given notice
	said     notice  // our last notice; peers are fetching the one that they see
	in, out  located // the buffers of the current call, where notice was given of them
	pinner   runtime.Pinner
	base     uint64 // progress before the current call
	before   uint64 // what every rank's progress has reached that has entered the last call of a program; see enter
	half     uint8  // of scratch that the current call uses, where not all ranks are mapped
	knocks   [collectives]knock
	vectors  [collectives]vectorCall
	knocked  knock // the last call of the door that is not among them
	shape    shape
	rows     [][]uint64 // of the present call, by rank; for v forms
	shown    [][]uint64 // the same as the door shows them
	programs map[programKey]*program
	team     *team
	coder    *coder  // nil until a call is compressed
	worker   *worker // runs asynchronous calls; nil until there is one
}

// usualCacheBytes is the last cache of a machine that does not tell.
const usualCacheBytes = 32 << 20

// collectives is how many there are; the barrier is the last.
const collectives = int(plan.Barrier) + 1

// New joins the job as cfg.Rank. All ranks call it with the same sizes; it
// blocks until all have. After an error nothing is left open.
func New(ctx context.Context, cfg Config) (*Comm, error) {
	if cfg.Cores <= 0 {
		cfg.Cores = runtime.GOMAXPROCS(0)
	}
	if cfg.Sharers <= 0 {
		cfg.Sharers = cfg.Size
	}
	if cfg.CacheBytes <= 0 {
		cfg.CacheBytes = usualCacheBytes
		if bytes, err := cpu.CacheBytes(); err == nil {
			cfg.CacheBytes = bytes
		}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c := newComm(cfg, cfg.Rank, cfg.Size)
	c.family = &family{fabric: cfg.Fabric}
	c.nodes = cfg.Nodes
	c.patience = link.PatienceFor(cfg.Sharers, cfg.Cores)
	if c.besides = c.patience; cfg.Cores < 2*cfg.Sharers {
		c.besides = beside
	}
	c.crowded = cfg.Sharers > cfg.Cores
	if c.threads = cfg.Threads; c.threads <= 0 {
		c.threads = max(1, cfg.Cores/cfg.Sharers)
	}
	if err := c.join(ctx, cfg.Exchanger); err != nil {
		return nil, errors.Join(fmt.Errorf("rank %d: joining: %w", c.rank, err), cfg.Fabric.Close())
	}
	c.start()
	return c, nil
}

// newComm makes the parts of a Comm that need nobody else.
func newComm(cfg Config, rank, size int) *Comm {
	return &Comm{
		rank: rank, size: size, cfg: cfg, log: cfg.Logger,
		layout:      layoutFor(size),
		failures:    failures{of: make([]link.Fault, size)},
		waiters:     make([]link.Waiter, size),
		links:       make([]link.Link, size),
		seen:        make([]*link.Counter, size),
		told:        make([]uint64, size),
		mappers:     make([]link.Mapper, size),
		copiers:     make([]link.Copier, size),
		peerRegions: make([]mem.RegionID, size),
		controls:    make([][]byte, size),
		programs:    map[programKey]*program{},
	}
}

// start makes what calls need, once the control regions are connected.
func (c *Comm) start() {
	if !c.mapped {
		c.progresser, _ = c.family.fabric.(link.Progresser)
	}
	if c.crowded && c.mapped {
		seats := make([]*link.Seat, c.size)
		for rank, control := range c.controls {
			seats[rank] = c.layout.seatIn(control)
		}
		c.crowd = link.NewCrowd(c.rank, seats)
	}
	for rank := range c.waiters {
		c.waiters[rank] = link.Waiter{Patience: c.patience, Fault: &c.failures.of[rank], Crowd: c.crowd, Progress: c.progresser}
	}
	c.own = progressIn(c.control.Bytes())
	for rank := range c.size {
		if c.near(rank) {
			c.seen[rank] = progressIn(c.controls[rank])
		} else {
			c.seen[rank] = link.CounterAt(c.control.Bytes()[c.layout.mirror(rank):])
		}
	}
	for half := range c.notices {
		for rank := range c.size {
			from := c.control.Bytes()
			if c.mapped {
				from = c.controls[rank]
			}
			at := c.layout.notice(rank, uint64(half))
			c.notices[half] = append(c.notices[half], from[at:][:c.layout.noticeBytes])
		}
	}
	if c.mapped {
		c.door = newDoor(&c.layout, c.controls, c.rank)
	}
	c.post = newPost(c)
	c.team = newTeam(c.threads)
}

// Rank is this rank's number, from 0.
func (c *Comm) Rank() int { return c.rank }

// Size is the number of ranks.
func (c *Comm) Size() int { return c.size }

// Abort makes the running call, if any, and all later ones return err. It may
// be called from any goroutine. Peers learn of it when the Comm is closed.
func (c *Comm) Abort(err error) {
	if err == nil {
		err = link.ErrAborted
	}
	c.fail(err)
}

// fail ends all waits of this communicator, and reports whether err was the
// first error.
func (c *Comm) fail(err error) bool {
	c.family.failed.Store(true)
	return c.failures.fail(err)
}

// Close leaves the job. The Comm that New returned closes its sub-groups with
// it and frees every buffer; a sub-group frees what is its own. It does not
// wait for the other ranks; what this rank owed them is done when its last
// call has returned. Calling it again does nothing.
//
// It must not run beside a call: the call might still be at work in a buffer.
// If Close notices one, also in a sub-group that it would close, it ends it
// with link.ErrClosed, frees nothing and returns ErrBusy; Close again when the
// call has returned. Asynchronous calls
// that have not run yet end with link.ErrClosed.
func (c *Comm) Close() error {
	if c.worker == nil && c.calling {
		c.fail(link.ErrClosed)
		return ErrBusy
	}
	var children error
	if c.parent == nil && !c.closed.Load() {
		// Before the fabric takes the memory under their feet.
		if children = c.family.closeChildren(); errors.Is(children, ErrBusy) {
			return children
		}
	}
	if !c.closed.CompareAndSwap(false, true) {
		return nil
	}
	c.failures.fail(link.ErrClosed)
	if c.worker != nil {
		c.worker.stop()
	}
	c.team.close()
	c.forgetLost()
	if c.parent != nil {
		return c.leave()
	}
	err := errors.Join(children, c.family.releaseAdopted(), c.family.fabric.Close())
	if c.cfg.AfterClose != nil {
		err = errors.Join(err, c.cfg.AfterClose())
	}
	return err
}

// leave gives back what a sub-group has of its own. Peers that are slower keep
// the control region mapped until they leave too.
func (c *Comm) leave() error {
	var errs []error
	for _, release := range c.release {
		errs = append(errs, release())
	}
	errs = append(errs, c.control.Free())
	c.family.forget(c)
	return errors.Join(errs...)
}

// settle waits for the calls that were issued asynchronously. If ctx ends
// before they do, it ends them too: the communicator has failed.
func (c *Comm) settle(ctx context.Context, call string) error {
	if c.worker == nil {
		return nil
	}
	if err := c.worker.settle(ctx); err != nil {
		return c.giveUp(call, err)
	}
	return nil
}

// giveUp ends what was issued asynchronously because of err, which is not of
// those calls but of the one that waits for them.
func (c *Comm) giveUp(call string, err error) error {
	c.fail(err)
	c.worker.drain()
	return c.failed(call, err)
}

// begin begins a call; the caller leaves by exit.
func (c *Comm) begin(call string) error {
	if c.calling || c.failures.comm.Err() != nil {
		return c.refuse(call)
	}
	c.calling = true
	c.calls++
	return nil
}

// refuse says why a collective cannot begin.
func (c *Comm) refuse(call string) error {
	if c.calling {
		return ErrBusy
	}
	return c.explain(call, c.failures.comm.Err())
}

// exit ends a collective. The first error stays with the communicator.
func (c *Comm) exit(call string, err error) error {
	c.calling = false
	if err == nil {
		return nil
	}
	return c.failed(call, err)
}

// failed takes an error that a call has come to, and returns it as the caller
// is to see it.
func (c *Comm) failed(call string, err error) error {
	if recoverable(err) {
		return err
	}
	failure := c.explain(call, err)
	if c.fail(failure) {
		c.log.Error("the communicator failed", "rank", c.rank, "cause", failure)
	}
	return failure
}

// explain says of which call an error is, unless it says so itself.
func (c *Comm) explain(call string, err error) error {
	var failure *CallError
	if errors.As(err, &failure) {
		return err
	}
	return &CallError{Call: call, Rank: c.rank, Seq: c.calls, Err: err}
}

// recoverable reports whether err leaves all ranks in step.
func recoverable(err error) bool {
	var arg *ArgumentError
	return errors.As(err, &arg)
}
