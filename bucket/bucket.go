package bucket

import (
	"context"
	"fmt"
	"math"

	"github.com/tutti-go/tutti/engine"
	"github.com/tutti-go/tutti/mem"
)

// Comm is what a Bucketer needs of a communicator; *tutti.Comm is one.
type Comm interface {
	Alloc(bytes int) (*mem.Buffer, error)
	AllReduceAsync(ctx context.Context, send, recv []byte, t mem.DType, op mem.Op) (engine.Work, error)
}

// DefaultBytes is the size of a bucket, unless Config has another.
const DefaultBytes = 25 << 20

// Config must be the same on all ranks. The zero value will do.
type Config struct {
	// Bytes is how large a bucket may grow; 0 means DefaultBytes. Larger
	// buckets make better use of the path, smaller ones start earlier.
	Bytes int
	// Sum leaves out the division by the number of ranks.
	Sum bool
}

// Shape is a tensor that has no memory yet.
type Shape struct {
	Type     mem.DType
	Elements int
}

// Tensor is a tensor in memory of the caller's, which must stay where it is as
// long as the Bucketer is in use.
type Tensor struct {
	Type mem.DType
	Data []byte
}

// Of is the tensor that has the memory of s.
func Of[T mem.Element](s []T) Tensor { return Tensor{mem.TypeOf[T](), mem.Bytes(s)} }

// Bucketer averages a fixed set of tensors over all ranks, once a step. It is
// for one goroutine at a time.
//
// From Ready to the end of Wait a tensor belongs to the Bucketer, and from the
// first Ready of a step so does the Comm: as ranks may have their tensors ready
// in different orders, any other call of it would come before a bucket on one
// rank and behind it on another. A group that was split from the Comm is free.
type Bucketer struct {
	comm    Comm
	op      mem.Op
	flat    *mem.Buffer // nil where nothing needs one
	tensors []place     // as they were registered
	buckets []bucket    // in the order in which they are reduced

	issued, finished int   // buckets of this step
	err              error // of the first bucket that failed
}

// place is where a tensor lies.
type place struct {
	bytes  []byte // the tensor
	staged []byte // its copy in the bucket, or nil: it lies there itself
	bucket int
	ready  bool
}

// bucket is a run of memory that is reduced by one call.
type bucket struct {
	dtype   mem.DType
	bytes   []byte
	tensors []int
	missing int // tensors that are not ready
	work    engine.Work
}

// NewFlat makes the tensors and a Bucketer for them. Bytes gives out their
// memory: zeroed, aligned to 64 bytes, reached by all ranks without a copy. It
// is a collective and blocks until all ranks have called it.
//
// Errors: *TensorError; *LayoutError where ranks disagree; those of the Comm.
func NewFlat(ctx context.Context, c Comm, cfg Config, shapes ...Shape) (*Bucketer, error) {
	l := newLayout(cfg)
	for i := len(shapes) - 1; i >= 0; i-- {
		s := shapes[i]
		if !s.Type.Valid() || s.Elements < 0 || s.Elements > math.MaxInt/8 {
			return nil, l.refuse(ctx, c, i, "%d elements of %v", s.Elements, s.Type)
		}
		l.add(i, s.Type, s.Elements*s.Type.Size(), nil)
	}
	return l.build(ctx, c)
}

// New makes a Bucketer for tensors that have memory already. It is a collective
// and blocks until all ranks have called it. Errors are those of NewFlat.
func New(ctx context.Context, c Comm, cfg Config, tensors ...Tensor) (*Bucketer, error) {
	l := newLayout(cfg)
	for i := len(tensors) - 1; i >= 0; i-- {
		t := tensors[i]
		if !t.Type.Valid() || len(t.Data)%t.Type.Size() != 0 {
			return nil, l.refuse(ctx, c, i, "%d bytes are not whole elements of %v", len(t.Data), t.Type)
		}
		l.add(i, t.Type, len(t.Data), t.Data)
	}
	return l.build(ctx, c)
}

// Bytes is the memory of tensor i, not a copy; mem.Slice makes elements of it.
// Made by NewFlat, it must not be used after Close.
func (b *Bucketer) Bytes(i int) []byte { return b.tensors[i].bytes }

// Buckets is how many buckets there are: the allreduces of a step.
func (b *Bucketer) Buckets() int { return len(b.buckets) }

// Ready says that this rank's gradient for tensor i is there. It does not wait
// for other ranks: where the tensor fills its bucket, that and full ones behind
// it are issued. ctx ends these calls too, so it should be that of the step.
//
// Errors: *TensorError where i is no tensor, or ready already; *ReduceError.
func (b *Bucketer) Ready(ctx context.Context, i int) error {
	switch {
	case i < 0 || i >= len(b.tensors):
		return &TensorError{i, fmt.Sprintf("not among the %d that were registered", len(b.tensors))}
	case b.tensors[i].ready:
		return &TensorError{i, "ready already in this step"}
	}
	t := &b.tensors[i]
	copy(t.staged, t.bytes)
	b.arrived(t)
	return b.issue(ctx)
}

func (b *Bucketer) arrived(t *place) {
	t.ready = true
	b.buckets[t.bucket].missing--
}

// Flush ends a step in which some tensors have no gradient on this rank: they
// count as zeros, and every bucket that has not been issued is. Ranks need not
// lack the same tensors, nor all of them Flush.
//
// Errors: *ReduceError.
func (b *Bucketer) Flush(ctx context.Context) error {
	for i := range b.tensors {
		if t := &b.tensors[i]; !t.ready {
			if t.staged != nil {
				clear(t.staged)
			} else {
				clear(t.bytes)
			}
			b.arrived(t)
		}
	}
	return b.issue(ctx)
}

// issue starts the buckets that are full, as far as all before them are.
func (b *Bucketer) issue(ctx context.Context) error {
	for b.err == nil && b.issued < len(b.buckets) && b.buckets[b.issued].missing == 0 {
		k := &b.buckets[b.issued]
		work, err := b.comm.AllReduceAsync(ctx, k.bytes, k.bytes, k.dtype, b.op)
		if err != nil {
			if ctx.Err() == nil {
				return b.fail(b.issued, err)
			}
			return err // it can be tried again
		}
		k.work = work
		b.issued++
	}
	return b.err
}

func (b *Bucketer) fail(i int, err error) error {
	b.err = &ReduceError{i, len(b.buckets), err}
	return b.err
}

// Wait blocks until every tensor holds the average over all ranks, and ends the
// step. Where some were never ready on this rank it returns a *MissingError at
// once, and the step can be completed; see Flush.
//
// When ctx ends Wait returns its cause, and may be called again. A *ReduceError
// is final.
func (b *Bucketer) Wait(ctx context.Context) error {
	if err := b.issue(ctx); err != nil {
		return err
	}
	if b.issued < len(b.buckets) {
		return b.missing()
	}
	for b.finished < len(b.buckets) {
		k := &b.buckets[b.finished]
		if err := k.work.Wait(ctx); err != nil {
			if err := k.work.Err(); err != nil {
				return b.fail(b.finished, err)
			}
			return err
		}
		for _, i := range k.tensors {
			t := &b.tensors[i]
			copy(t.bytes, t.staged)
			t.ready = false
		}
		k.missing, k.work = len(k.tensors), engine.Work{}
		b.finished++
	}
	b.issued, b.finished = 0, 0
	return nil
}

func (b *Bucketer) missing() error {
	e := &MissingError{Tensor: -1}
	for i := range b.tensors {
		if !b.tensors[i].ready {
			if e.Missing++; e.Tensor < 0 {
				e.Tensor = i
			}
		}
	}
	return e
}

// Close frees the memory of the buckets, and with it that of the tensors that
// NewFlat made. No step may be under way.
func (b *Bucketer) Close() error {
	if b.flat == nil {
		return nil
	}
	return b.flat.Free()
}
