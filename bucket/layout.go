package bucket

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"math"
	"slices"

	"github.com/tutti-go/tutti/mem"
)

// alignment of tensors in a bucket: no two share a cache line.
const alignment = 64

// layout deals tensors out to buckets, in the order in which they are expected
// to become ready: from the last layer to the first.
type layout struct {
	limit   int
	op      mem.Op
	tensors map[int]laid
	buckets []plannedBucket
	open    map[mem.DType]int // the bucket of a type that still has room
	hash    hash.Hash64       // of all that ranks must agree in
}

// laid is where a tensor goes.
type laid struct {
	bucket, offset, bytes int
	data                  []byte // the caller's memory, or nil
}

type plannedBucket struct {
	dtype   mem.DType
	bytes   int
	tensors []int
	inPlace bool // the one tensor is reduced where it is
}

func newLayout(cfg Config) *layout {
	l := &layout{
		limit: cfg.Bytes, op: mem.Avg,
		tensors: map[int]laid{}, open: map[mem.DType]int{}, hash: fnv.New64a(),
	}
	if l.limit <= 0 {
		l.limit = DefaultBytes
	}
	if cfg.Sum {
		l.op = mem.Sum
	}
	l.note(l.limit, int(l.op))
	return l
}

func (l *layout) note(numbers ...int) {
	for _, x := range numbers {
		l.hash.Write(binary.LittleEndian.AppendUint64(nil, uint64(x)))
	}
}

// add places the next tensor.
func (l *layout) add(i int, t mem.DType, bytes int, data []byte) {
	alone := bytes >= l.limit
	l.note(int(t), bytes)
	at, found := l.open[t]
	if !found || alone || l.buckets[at].bytes+bytes > l.limit {
		at = len(l.buckets)
		l.buckets = append(l.buckets, plannedBucket{dtype: t, inPlace: alone && data != nil})
		if !alone {
			l.open[t] = at
		}
	}
	k := &l.buckets[at]
	l.tensors[i] = laid{at, k.bytes, bytes, data}
	k.tensors = append(k.tensors, i)
	if k.bytes += bytes; !alone {
		k.bytes = aligned(k.bytes)
	}
}

func aligned(bytes int) int { return (bytes + alignment - 1) / alignment * alignment }

// order sorts the buckets by when they are expected to be full: by their last
// tensor, which is the one of the first layer.
func (l *layout) order() {
	from := make([]int, len(l.buckets))
	for i := range from {
		from[i] = i
	}
	last := func(i int) int { return slices.Min(l.buckets[i].tensors) }
	slices.SortFunc(from, func(a, b int) int { return cmp.Compare(last(b), last(a)) })
	sorted := make([]plannedBucket, len(from))
	for to, i := range from {
		sorted[to] = l.buckets[i]
		for _, tensor := range sorted[to].tensors {
			t := l.tensors[tensor]
			t.bucket = to
			l.tensors[tensor] = t
		}
	}
	l.buckets = sorted
}

// build makes the Bucketer, if all ranks have come to the same layout.
func (l *layout) build(ctx context.Context, c Comm) (*Bucketer, error) {
	l.order()
	b := &Bucketer{comm: c, op: l.op, tensors: make([]place, len(l.tensors))}
	total := 0
	for _, k := range l.buckets {
		if !k.inPlace {
			total += aligned(k.bytes)
		}
	}
	var err error
	if total > 0 {
		b.flat, err = c.Alloc(total)
	}
	if err := l.agree(ctx, c, err); err != nil {
		if b.flat != nil {
			err = errors.Join(err, b.flat.Free())
		}
		return nil, err
	}
	at := 0
	for i, k := range l.buckets {
		made := bucket{dtype: k.dtype, tensors: k.tensors, missing: len(k.tensors)}
		switch {
		case k.inPlace:
			made.bytes = l.tensors[k.tensors[0]].data
		case k.bytes > 0:
			made.bytes = b.flat.Bytes()[at:][:k.bytes:k.bytes]
			at += aligned(k.bytes)
		}
		for _, tensor := range k.tensors {
			t := l.tensors[tensor]
			there := made.bytes[t.offset:][:t.bytes:t.bytes]
			p := place{bytes: there, bucket: i}
			if t.data != nil && !k.inPlace {
				p.bytes, p.staged = t.data, there
			}
			b.tensors[tensor] = p
		}
		b.buckets = append(b.buckets, made)
	}
	return b, nil
}

// refuse reports a wrong tensor, to the other ranks too.
func (l *layout) refuse(ctx context.Context, c Comm, i int, format string, args ...any) error {
	return l.agree(ctx, c, &TensorError{i, fmt.Sprintf(format, args...)})
}

// agree compares the layouts of all ranks. failed is what this rank found wrong
// with its own; the others then learn that something is.
//
// The greatest hash, and the greatest of their complements, are those of this
// rank on every rank only where all are alike.
func (l *layout) agree(ctx context.Context, c Comm, failed error) error {
	mine := [2]uint64{l.hash.Sum64(), ^l.hash.Sum64()}
	if failed != nil {
		mine = [2]uint64{math.MaxUint64, math.MaxUint64} // no hash and its complement
	}
	all := mine
	x := mem.Bytes(all[:])
	work, err := c.AllReduceAsync(ctx, x, x, mem.U64, mem.Max)
	if err == nil {
		err = work.Wait(ctx)
	}
	switch {
	case failed != nil:
		return failed
	case err != nil:
		return err
	case all != mine:
		return &LayoutError{}
	}
	return nil
}
