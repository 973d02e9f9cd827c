package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"

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

	// Plan makes the plan of a name for a number of ranks and a root: algo.New.
	Plan func(name string, ranks, root int) (*plan.Plan, error)
	// Choose picks among plans: tune.Choose. All ranks must be given the same,
	// and the same Rules as the name for it: New refuses ranks that differ.
	Choose func(tune.Request) tune.Choice
	Rules  string

	// Cores is how many cores the ranks of this machine may use in all, the
	// same number on all ranks; 0 means GOMAXPROCS.
	Cores int
	// Threads reduce for this rank when a message is large; 0 means cores
	// divided by ranks, at least one.
	Threads int
	// Logger takes changes of state; nil discards them.
	Logger *slog.Logger
	// AfterClose, if not nil, is the last thing that Close does.
	AfterClose func() error
}

// Comm is one rank's membership in a job.
type Comm struct {
	rank, size int
	fabric     link.Fabric
	plan       func(name string, ranks, root int) (*plan.Plan, error)
	choose     func(tune.Request) tune.Choice
	cores      int
	log        *slog.Logger

	failures   failures
	waiters    []link.Waiter // by the rank that is waited for
	closed     atomic.Bool
	afterClose func() error

	links   []link.Link     // by rank; ours is nil
	seen    []*link.Counter // progress of each rank, our own included
	own     *link.Counter   // seen[rank]
	board   bool            // everything is mapped: raising own tells everybody
	mappers []link.Mapper   // by rank; nil where nothing is mapped
	buffers registry        // what Alloc gave out

	control     *mem.Buffer
	peerRegions []mem.RegionID // control regions, by rank
	controls    [][]byte       // the same mapped, where the medium maps; ours always
	door        door

	// The state of calls. One goroutine at a time may be inside a call; calling
	// is its word for that. It is a plain word, like the one by which Go's maps
	// notice concurrent writers: it catches most mistakes, and an atomic one
	// would cost a good part of the smallest allreduce.
	calling  bool
	calls    uint64       // how many have begun
	met      uint64       // how many of them were announced
	said     announcement // our last announcement; peers are fetching the one that they see
	base     uint64       // progress before the current call
	repeat   repeat
	programs map[programKey]*program
	team     *team
}

// New joins the job as cfg.Rank. All ranks call it with the same sizes; it
// blocks until all have. After an error nothing is left open.
func New(ctx context.Context, cfg Config) (*Comm, error) {
	c := &Comm{
		rank: cfg.Rank, size: cfg.Size, fabric: cfg.Fabric,
		plan: cfg.Plan, choose: cfg.Choose, cores: cfg.Cores, log: cfg.Logger,
		programs: map[programKey]*program{}, afterClose: cfg.AfterClose,
		failures: failures{of: make([]link.Fault, cfg.Size)},
		waiters:  make([]link.Waiter, cfg.Size),
	}
	if c.cores <= 0 {
		c.cores = runtime.GOMAXPROCS(0)
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	for rank := range c.waiters {
		c.waiters[rank] = link.Waiter{Patience: link.PatienceFor(c.size, c.cores), Fault: &c.failures.of[rank]}
	}
	if err := c.join(ctx, cfg.Exchanger, cfg.Rules); err != nil {
		return nil, errors.Join(fmt.Errorf("rank %d: joining: %w", c.rank, err), c.fabric.Close())
	}
	threads := cfg.Threads
	if threads <= 0 {
		threads = max(1, c.cores/c.size)
	}
	c.team = newTeam(threads)
	return c, nil
}

// join connects to every peer and learns where its control region is.
func (c *Comm) join(ctx context.Context, ex Exchanger, rules string) error {
	control, err := c.fabric.Alloc(controlBytes(c.size))
	if err != nil {
		return err
	}
	c.control = control
	c.fabric.Lost(c.failures.lost)

	mine := greeting{control: control.Region(), cores: c.cores, rules: rules}
	blobs, err := ex.AllGather(ctx, mine.encode())
	if err != nil {
		return err
	}
	n := c.size
	c.links, c.mappers = make([]link.Link, n), make([]link.Mapper, n)
	c.seen, c.controls, c.peerRegions = make([]*link.Counter, n), make([][]byte, n), make([]mem.RegionID, n)
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
		l, err := c.fabric.Connect(ctx, rank)
		if err != nil {
			return err
		}
		c.links[rank], c.seen[rank] = l, link.CounterAt(control.Bytes()[mirrorAt(rank):])
		if m, ok := l.(link.Mapper); ok {
			c.mappers[rank] = m
			if c.controls[rank], err = m.Map(ctx, c.peerRegions[rank]); err != nil {
				return err
			}
			if len(c.controls[rank]) < controlBytes(c.size) {
				return fmt.Errorf("rank %d has a control region of %d bytes, not %d: are all ranks the same build?",
					rank, len(c.controls[rank]), controlBytes(c.size))
			}
		}
	}
	c.controls[c.rank] = control.Bytes()
	c.own = link.CounterAt(control.Bytes()[progressOffset:])
	c.seen[c.rank] = c.own
	if c.board = c.mapped(); c.board {
		for rank, theirs := range c.controls {
			c.seen[rank] = link.CounterAt(theirs[progressOffset:])
		}
		c.door = newDoor(c.controls, c.rank)
	}
	// Nobody may put or notify before everybody has connected.
	_, err = ex.AllGather(ctx, nil)
	return err
}

// mapped reports whether all ranks' scratch is within load and store.
func (c *Comm) mapped() bool {
	for rank, m := range c.mappers {
		if rank != c.rank && m == nil {
			return false
		}
	}
	return true
}

// Rank is this rank's number, from 0.
func (c *Comm) Rank() int { return c.rank }

// Size is the number of ranks.
func (c *Comm) Size() int { return c.size }

// Alloc makes a zeroed buffer that every rank reaches without a copy. It is
// not a collective. The pages are there when it returns.
func (c *Comm) Alloc(bytes int) (*mem.Buffer, error) {
	if bytes <= 0 {
		return nil, &ArgumentError{"alloc", fmt.Sprintf("%d bytes asked for; want at least 1", bytes)}
	}
	b, err := c.fabric.Alloc(bytes)
	if err != nil {
		return nil, fmt.Errorf("rank %d: alloc: %w", c.rank, err)
	}
	c.buffers.add(extentOf(b))
	return mem.NewBuffer(b.Region(), b.Bytes(), func() error {
		c.buffers.remove(b.Region())
		if c.failures.comm.Err() != nil {
			// A call of ours failed half-way: a slow peer may still be at work
			// in this memory. It goes with everything else when we close.
			return nil
		}
		return b.Free()
	}), nil
}

// Abort makes the running call, if any, and all later ones return err. It may
// be called from any goroutine. Peers learn of it when the Comm is closed.
func (c *Comm) Abort(err error) {
	if err == nil {
		err = link.ErrAborted
	}
	c.failures.fail(err)
}

// Close leaves the job and frees every buffer. It does not wait for the other
// ranks; what this rank owed them is done when its last call has returned.
// Calling it again does nothing.
//
// It must not run beside a call: the call might still be at work in a buffer.
// If Close notices one, it ends it with link.ErrClosed, frees nothing and
// returns ErrBusy; Close again when the call has returned.
func (c *Comm) Close() error {
	if c.calling {
		c.failures.fail(link.ErrClosed)
		return ErrBusy
	}
	if !c.closed.CompareAndSwap(false, true) {
		return nil
	}
	c.failures.fail(link.ErrClosed)
	c.team.close()
	err := c.fabric.Close()
	if c.afterClose != nil {
		err = errors.Join(err, c.afterClose())
	}
	return err
}

// enter begins a collective; the caller leaves by exit.
func (c *Comm) enter(call string) error {
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
	return c.failed(call, c.failures.comm.Err())
}

// exit ends a collective. The first error stays with the communicator.
func (c *Comm) exit(call string, err error) error {
	c.calling = false
	if err == nil {
		return nil
	}
	return c.failed(call, err)
}

func (c *Comm) failed(call string, err error) error {
	var failure *CallError
	if recoverable(err) || errors.As(err, &failure) {
		return err
	}
	failure = &CallError{Call: call, Rank: c.rank, Seq: c.calls, Err: err}
	if c.failures.fail(failure) {
		c.log.Error("the communicator failed", "rank", c.rank, "cause", failure)
	}
	return failure
}
