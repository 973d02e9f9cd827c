package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/engine"
	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/plan"
)

// operation is what can be measured: a collective, its v form, or an exchange.
type operation struct {
	name string
	// form tells how many blocks the buffers have. It is the collective that
	// is called, but for an exchange.
	form   plan.Collective
	vector bool // blocks may differ in size

	// apart: send and receive buffers are never the same memory.
	apart bool
	// factor is the bus bandwidth over the algorithm bandwidth, as nccl-tests
	// has it: what each rank's path must carry at least, so that numbers of
	// ranks can be compared.
	factor func(ranks float64) float64
	// want says what the receive buffer must hold; nil where nothing moves.
	want func(*shape) []piece

	run   func(context.Context, *binding) error
	issue func(context.Context, *binding) (engine.Work, error)
}

// binding is what a call is made with.
type binding struct {
	*shape
	comm     *tutti.Comm
	send     []byte
	recv     []byte
	wire     engine.Wire
	exchange *engine.Exchange
}

func once(float64) float64     { return 1 }
func others(n float64) float64 { return (n - 1) / n }
func twice(n float64) float64  { return 2 * (n - 1) / n }

// operations are all there are, in the order of --op all.
var operations = []*operation{
	{
		name: "allreduce", form: plan.AllReduce, factor: twice, want: reduction,
		run: func(ctx context.Context, b *binding) error {
			if b.wire != engine.WireFull {
				return b.comm.AllReduceOver(ctx, b.wire, b.send, b.recv, b.redop)
			}
			return b.comm.AllReduce(ctx, b.send, b.recv, b.dtype, b.redop)
		},
		issue: func(ctx context.Context, b *binding) (engine.Work, error) {
			if b.wire != engine.WireFull {
				return b.comm.AllReduceOverAsync(ctx, b.wire, b.send, b.recv, b.redop)
			}
			return b.comm.AllReduceAsync(ctx, b.send, b.recv, b.dtype, b.redop)
		},
	},
	{
		name: "broadcast", form: plan.Broadcast, factor: once, want: rootsData,
		run: func(ctx context.Context, b *binding) error {
			return b.comm.Broadcast(ctx, b.send, b.recv, b.dtype, b.root)
		},
		issue: func(ctx context.Context, b *binding) (engine.Work, error) {
			return b.comm.BroadcastAsync(ctx, b.send, b.recv, b.dtype, b.root)
		},
	},
	{
		name: "reduce", form: plan.Reduction, factor: once, want: reduction,
		run: func(ctx context.Context, b *binding) error {
			return b.comm.Reduce(ctx, b.send, b.recv, b.dtype, b.redop, b.root)
		},
		issue: func(ctx context.Context, b *binding) (engine.Work, error) {
			return b.comm.ReduceAsync(ctx, b.send, b.recv, b.dtype, b.redop, b.root)
		},
	},
	{
		name: "gather", form: plan.Gather, factor: others, want: everyonesData,
		run: func(ctx context.Context, b *binding) error {
			return b.comm.Gather(ctx, b.send, b.recv, b.dtype, b.root)
		},
		issue: func(ctx context.Context, b *binding) (engine.Work, error) {
			return b.comm.GatherAsync(ctx, b.send, b.recv, b.dtype, b.root)
		},
	},
	{
		name: "allgather", form: plan.AllGather, factor: others, want: everyonesData,
		run: func(ctx context.Context, b *binding) error {
			return b.comm.AllGather(ctx, b.send, b.recv, b.dtype)
		},
		issue: func(ctx context.Context, b *binding) (engine.Work, error) {
			return b.comm.AllGatherAsync(ctx, b.send, b.recv, b.dtype)
		},
	},
	{
		name: "scatter", form: plan.Scatter, factor: others, want: blockOfRoot,
		run: func(ctx context.Context, b *binding) error {
			return b.comm.Scatter(ctx, b.send, b.recv, b.dtype, b.root)
		},
		issue: func(ctx context.Context, b *binding) (engine.Work, error) {
			return b.comm.ScatterAsync(ctx, b.send, b.recv, b.dtype, b.root)
		},
	},
	{
		name: "reduce_scatter", form: plan.ReduceScatter, factor: others, want: blockOfReduction,
		run: func(ctx context.Context, b *binding) error {
			return b.comm.ReduceScatter(ctx, b.send, b.recv, b.dtype, b.redop)
		},
		issue: func(ctx context.Context, b *binding) (engine.Work, error) {
			return b.comm.ReduceScatterAsync(ctx, b.send, b.recv, b.dtype, b.redop)
		},
	},
	{
		name: "alltoall", form: plan.AllToAll, factor: others, want: blockOfEveryone, apart: true,
		run: func(ctx context.Context, b *binding) error {
			return b.comm.AllToAll(ctx, b.send, b.recv, b.dtype)
		},
		issue: func(ctx context.Context, b *binding) (engine.Work, error) {
			return b.comm.AllToAllAsync(ctx, b.send, b.recv, b.dtype)
		},
	},
	{
		name: "sendrecv", form: plan.AllReduce, factor: once, want: neighboursData, apart: true,
		run: func(ctx context.Context, b *binding) error {
			to, from := b.neighbours()
			return b.comm.SendRecv(ctx, b.send, to, b.recv, from, b.dtype)
		},
		issue: func(ctx context.Context, b *binding) (engine.Work, error) {
			to, from := b.neighbours()
			b.exchange.Send(b.send, b.dtype, to)
			b.exchange.Recv(b.recv, b.dtype, from)
			return b.exchange.RunAsync(ctx)
		},
	},
	{
		name: "barrier", form: plan.Barrier, factor: once, apart: true,
		run: func(ctx context.Context, b *binding) error { return b.comm.Barrier(ctx) },
		issue: func(ctx context.Context, b *binding) (engine.Work, error) {
			return b.comm.BarrierAsync(ctx)
		},
	},
	{
		name: "gatherv", form: plan.Gather, vector: true, factor: others, want: everyonesData,
		run: func(ctx context.Context, b *binding) error {
			return b.comm.GatherV(ctx, b.send, b.recv, b.out, b.dtype, b.root)
		},
		issue: func(ctx context.Context, b *binding) (engine.Work, error) {
			return b.comm.GatherVAsync(ctx, b.send, b.recv, b.out, b.dtype, b.root)
		},
	},
	{
		name: "allgatherv", form: plan.AllGather, vector: true, factor: others, want: everyonesData,
		run: func(ctx context.Context, b *binding) error {
			return b.comm.AllGatherV(ctx, b.send, b.recv, b.out, b.dtype)
		},
		issue: func(ctx context.Context, b *binding) (engine.Work, error) {
			return b.comm.AllGatherVAsync(ctx, b.send, b.recv, b.out, b.dtype)
		},
	},
	{
		name: "scatterv", form: plan.Scatter, vector: true, factor: others, want: blockOfRoot,
		run: func(ctx context.Context, b *binding) error {
			return b.comm.ScatterV(ctx, b.send, b.in, b.recv, b.dtype, b.root)
		},
		issue: func(ctx context.Context, b *binding) (engine.Work, error) {
			return b.comm.ScatterVAsync(ctx, b.send, b.in, b.recv, b.dtype, b.root)
		},
	},
	{
		name: "reduce_scatterv", form: plan.ReduceScatter, vector: true, factor: others, want: blockOfReduction,
		run: func(ctx context.Context, b *binding) error {
			return b.comm.ReduceScatterV(ctx, b.send, b.recv, b.in, b.dtype, b.redop)
		},
		issue: func(ctx context.Context, b *binding) (engine.Work, error) {
			return b.comm.ReduceScatterVAsync(ctx, b.send, b.recv, b.in, b.dtype, b.redop)
		},
	},
	{
		name: "alltoallv", form: plan.AllToAll, vector: true, factor: others, want: blockOfEveryone, apart: true,
		run: func(ctx context.Context, b *binding) error {
			return b.comm.AllToAllV(ctx, b.send, b.in, b.recv, b.out, b.dtype)
		},
		issue: func(ctx context.Context, b *binding) (engine.Work, error) {
			return b.comm.AllToAllVAsync(ctx, b.send, b.in, b.recv, b.out, b.dtype)
		},
	},
}

func (op *operation) String() string { return op.name }

// exchanges: sends and receives, and no collective.
func (op *operation) exchanges() bool { return op.name == "sendrecv" }

// moves reports whether there is anything to move.
func (op *operation) moves() bool { return op.want != nil }

func (op *operation) rooted() bool { return op.form.Rooted() }

func (op *operation) reduces() bool { return op.form.Reduces() && !op.exchanges() }

// parted: a buffer has a block for every rank, and the size is that of all.
func (op *operation) parted() bool {
	return op.form.Blocks(plan.In, 0, 0, 2) == 2 || op.form.Blocks(plan.Out, 0, 0, 2) == 2
}

// alike: every rank must have the same result, which takes the inputs of all
// of them to compute.
func (op *operation) alike() bool { return op.reduces() && op.form == plan.AllReduce }

func parseOperation(name string) (*operation, error) {
	i := slices.IndexFunc(operations, func(op *operation) bool { return op.name == name })
	if i < 0 {
		return nil, fmt.Errorf("unknown operation %q", name)
	}
	return operations[i], nil
}

func names(ops []*operation) []string {
	var all []string
	for _, op := range ops {
		all = append(all, op.name)
	}
	return all
}

// opHelp lists the operations in lines of the help.
func opHelp() string {
	all := names(operations)
	return strings.Join(all[:7], ", ") + ",\n" + strings.Join(all[7:], ", ")
}

// which are the names of the operations that f holds for, to be read.
func which(ops []*operation, f func(*operation) bool) string {
	var some []string
	for _, op := range ops {
		if f(op) {
			some = append(some, op.name)
		}
	}
	return strings.Join(some, ", ")
}

// redopName is the operator of a row; "none" where nothing is reduced.
func (t task) redopName() string {
	if t.op.reduces() {
		return t.redop.String()
	}
	return "none"
}

func (t task) dtypeName() string {
	if t.op.moves() {
		return t.dtype.String()
	}
	return "none"
}

// source is what a rank of so many brings.
func (t task) source(seed uint64, rank, ranks int) source {
	if t.op.reduces() {
		return newSource(seed, rank, ranks, t.dtype, t.redop)
	}
	return newSource(seed, rank, ranks, mem.U64, mem.Sum) // any bits
}
