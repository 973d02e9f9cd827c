package engine

import (
	"fmt"
	"math"

	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/plan"
	"github.com/tutti-go/tutti/reduce"
)

// call is one collective as its caller describes it, and what follows from
// that alone.
type call struct {
	collective plan.Collective
	vector     bool // blocks of different sizes: the v form
	root       int
	dtype      mem.DType
	op         mem.Op
	wire       Wire
	own        bool // the communicator's own call, for which no algorithm is forced
	async      bool // the worker runs it
	in, out    []byte
	// counts are the elements of the blocks of In and Out, where the call is a
	// v form and the buffer has a block for every rank.
	inCounts, outCounts []int

	block   int // bytes of a block, where all are alike
	kernel  reduce.Func
	divisor int // of the last reduction: the number of ranks for avg, else 1
}

// name is the call's name: that of its collective, with a v where blocks
// differ.
func (k *call) name() string {
	if k.vector && int(k.collective) < len(vectorNames) {
		return vectorNames[k.collective]
	}
	return k.collective.String()
}

// vectorNames are the names of the v forms, so that a call does not make one.
var vectorNames = func() (names [collectives]string) {
	for _, c := range plan.Collectives() {
		names[c] = c.String() + "v"
	}
	return names
}()

func (k *call) bad(format string, args ...any) error {
	return &ArgumentError{k.name(), fmt.Sprintf(format, args...)}
}

// reducingKernel finds what combines elements, for calls that do.
func (k *call) reducingKernel(ranks int) error {
	k.divisor = 1
	if !k.collective.Reduces() {
		return nil
	}
	var err error
	if k.kernel, err = reduce.Lookup(k.op, k.dtype); err != nil {
		return err
	}
	if k.op == mem.Avg {
		k.divisor = ranks
	}
	return nil
}

// check finds what is wrong with a call in itself, drops the buffers that this
// rank does not bring, and works out the size of a block. empty means that
// every rank can see that there is nothing to do.
func (c *Comm) check(k *call) (empty bool, err error) {
	if k.collective == plan.Barrier {
		return false, nil
	}
	switch {
	case !k.dtype.Valid():
		return false, k.bad("unknown element type %v", k.dtype)
	case k.collective.Reduces() && !k.op.Supports(k.dtype):
		return false, k.bad("%v is not defined on %v", k.op, k.dtype)
	case k.root < 0 || k.root >= c.size:
		return false, k.bad("root %d is not among %d ranks", k.root, c.size)
	}
	if err := k.wire.check(k); err != nil {
		return false, err
	}
	ins := k.collective.Blocks(plan.In, c.rank, k.root, c.size)
	outs := k.collective.Blocks(plan.Out, c.rank, k.root, c.size)
	if ins == 0 {
		k.in, k.inCounts = nil, nil
	}
	if outs == 0 {
		k.out, k.outCounts = nil, nil
	}
	size := k.dtype.Size()
	for _, b := range []struct {
		what   string
		bytes  int
		counts []int
		blocks int
	}{{"send", len(k.in), k.inCounts, ins}, {"receive", len(k.out), k.outCounts, outs}} {
		switch {
		case b.blocks == 0:
		case b.bytes%size != 0:
			return false, k.bad("%d bytes to %s are not a whole number of %v elements of %d bytes", b.bytes, b.what, k.dtype, size)
		case b.counts != nil:
			if err := k.checkCounts(b.what, b.bytes/size, b.counts, c.size); err != nil {
				return false, err
			}
		case k.vector:
		case b.bytes%(b.blocks*size) != 0:
			return false, k.bad("%d bytes to %s are not %d equal blocks of %v elements", b.bytes, b.what, b.blocks, k.dtype)
		default:
			k.block = b.bytes / b.blocks
		}
	}
	if !k.vector && ins > 0 && outs > 0 && len(k.in)/ins != len(k.out)/outs {
		return false, k.bad("blocks of %d bytes to send and of %d to receive", len(k.in)/ins, len(k.out)/outs)
	}
	inPlace := c.inPlace(k)
	if !legalAlias(k.in, k.out, inPlace) {
		return false, k.badAlias(inPlace)
	}
	if k.vector {
		return false, c.checkOwnBlock(k)
	}
	return k.block == 0, nil
}

func (k *call) checkCounts(what string, elements int, counts []int, ranks int) error {
	if len(counts) != ranks {
		return k.bad("%d counts to %s for %d ranks", len(counts), what, ranks)
	}
	sum := 0
	for rank, n := range counts {
		if n < 0 || n > math.MaxInt/8-sum {
			return k.bad("count %d to %s for rank %d", n, what, rank)
		}
		sum += n
	}
	if sum != elements {
		return k.bad("counts of %d elements in all to %s, and a buffer of %d", sum, what, elements)
	}
	return nil
}

// checkOwnBlock compares what a rank sends to itself with what it expects of
// itself: of all blocks the one whose two sizes it knows without asking.
func (c *Comm) checkOwnBlock(k *call) error {
	in, out := len(k.in), len(k.out)
	if k.in == nil && k.out == nil {
		return nil
	}
	if k.inCounts != nil {
		in = k.inCounts[c.rank] * k.dtype.Size()
	}
	if k.outCounts != nil {
		out = k.outCounts[c.rank] * k.dtype.Size()
	}
	ins := k.collective.Blocks(plan.In, c.rank, k.root, c.size)
	outs := k.collective.Blocks(plan.Out, c.rank, k.root, c.size)
	if ins > 0 && outs > 0 && in != out {
		return k.bad("rank %d has %d bytes for itself and expects %d of itself", c.rank, in, out)
	}
	return nil
}

// noPlace: a collective that is never in place.
const noPlace = math.MinInt

// inPlace returns how far behind the send buffer the receive buffer lies when
// the call is in place: where one buffer has a block for every rank and the
// other one block, the latter is the rank's own block of the former.
func (c *Comm) inPlace(k *call) int {
	ins := k.collective.Blocks(plan.In, c.rank, k.root, c.size)
	outs := k.collective.Blocks(plan.Out, c.rank, k.root, c.size)
	switch {
	case k.collective == plan.AllToAll:
		return noPlace
	case c.size == 1 || ins == outs || ins == 0 || outs == 0:
		return 0
	case ins < outs:
		return -k.ownOffset(k.outCounts, c.rank)
	}
	return k.ownOffset(k.inCounts, c.rank)
}

// ownOffset is where the rank's own block begins, in bytes.
func (k *call) ownOffset(counts []int, rank int) int {
	if counts == nil {
		return rank * k.block
	}
	sum := 0
	for _, n := range counts[:rank] {
		sum += n
	}
	return sum * k.dtype.Size()
}

// legalAlias reports whether two buffers are apart, or as one is to be when
// the call is in place.
func legalAlias(in, out []byte, inPlace int) bool {
	apart := address(out) - address(in)
	if apart >= uintptr(len(in)) && -apart >= uintptr(len(out)) {
		return true
	}
	return len(in) == 0 || len(out) == 0 || apart == uintptr(inPlace) && inPlace != noPlace
}

func (k *call) badAlias(inPlace int) error {
	if inPlace == noPlace {
		return k.bad("send and receive buffers overlap; %v is never in place", k.collective)
	}
	return k.bad("send and receive buffers overlap in part; in place means that the receive buffer begins %d bytes from the send buffer", inPlace)
}

// signature is what peers are told of the call when they do not agree.
func (k *call) signature() Signature {
	s := Signature{Call: k.name(), Type: k.dtype, Op: k.op, Root: -1, Bytes: k.block, Wire: k.wire}
	if k.collective.Rooted() {
		s.Root = k.root
	}
	if k.vector {
		s.Bytes = -1
	}
	return s
}
