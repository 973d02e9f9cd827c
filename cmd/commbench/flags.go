package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tutti-go/tutti/engine"
)

// options are the command line, checked as far as it can be without touching
// the machine.
type options struct {
	roofline bool // commbench roofline

	ops        []*operation
	tasks      []task
	ranks      int // 0: one for each usable core, at least 2
	root       int
	iters      int // 0: chosen by time
	warmup     int // -1: chosen by size
	batch      int // 0: chosen by size
	check      bool
	inPlace    bool // only in place, where there is such a form
	uneven     bool
	memory     string
	wire       engine.Wire // of allreduce
	fixedOrder bool
	overlap    bool
	path, algo string
	threads    int
	timeout    time.Duration
	seed       uint64
	format     string
	vsRoofline bool
}

// largest is the most bytes of a row.
func (o *options) largest() int {
	largest := 0
	for _, t := range o.tasks {
		largest = max(largest, t.bytes)
	}
	return largest
}

// wireOf is the form in which the elements of an operation travel.
func (o *options) wireOf(op *operation) engine.Wire {
	if op.alike() {
		return o.wire
	}
	return engine.WireFull
}

const (
	formatTable = "table"
	formatJSON  = "json"
	formatCSV   = "csv"
)

// raw is the command line as it is typed.
type raw struct {
	op, dtype, redop, check string
	wire                    string
	size, begin, end, step  sizeValue
	factor                  float64
}

const examples = `  commbench --op allreduce --size 1G             one size
  commbench -b 8 -e 1G -f 2                      a sweep: 8, 16, ... 1G
  commbench -b 1M -e 64M -d all -o sum --in-place
  commbench --ranks 4 --format json > points.json
  commbench -b 1M -e 1G --vs-roofline            beside what the memory allows
  commbench --op all --size 1M                   every operation, one after the other
  commbench --op gather,scatterv --root 1 --uneven
  commbench --op allgather --memory register     ordinary memory, registered
  commbench --op allreduce --wire q8 --size 64M  fewer bits on the way
  commbench --op allgather --size 4M --overlap   how much hides behind computing
  commbench roofline -b 1M -e 1G                 what the memory allows`

const helpTemplate = `Examples:
{{.Example}}

{{with (or .Long .Short)}}{{.}}

{{end}}{{.UsageString}}`

const usageTemplate = `Usage:
  {{.UseLine}}{{if .HasAvailableSubCommands}}
{{range .Commands}}{{if .IsAvailableCommand}}  commbench {{rpad .Name .NamePadding}} {{.Short}}
{{end}}{{end}}{{end}}
Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}
`

// newCommand is the command line. run is called with what was asked for.
func newCommand(run func(context.Context, *options) error, stdout, stderr io.Writer) *cobra.Command {
	o, r := &options{}, &raw{}
	root := &cobra.Command{
		Use:     "commbench [flags]",
		Example: examples,
		Long: `Measures collectives between the ranks of a job and checks their results.
Ranks are processes that commbench starts itself, rank i on usable core i modulo
their number; or what torchrun, mpirun, mpiexec, srun or a Kubernetes Indexed Job
has started on several machines. By hand, each rank needs TUTTI_RANK, TUTTI_SIZE
and TUTTI_BOOTSTRAP=tcp://host:port of rank 0, and all the same TUTTI_SECRET.
Sizes are bytes of one rank's buffer or, where a buffer has a block
for every rank, of all its blocks: each has a rank's share, in whole elements and
one at least. K, M, G are powers of 1024.
Exit status: 0 good, 1 wrong results, 2 bad usage, 3 could not run.`,
		Args:              cobra.NoArgs,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := r.into(o, cmd.Flags()); err != nil {
				return err
			}
			return run(cmd.Context(), o)
		},
	}
	floor := &cobra.Command{
		Use:   "roofline [flags]",
		Short: "measure what the memory allows: the floor of an allreduce",
		Long: `Measures, for 2 ranks and more, the memory traffic of an allreduce with nothing
around it but a barrier before and after: each rank owns a share of a mapping
that all ranks have, loads it from everybody's buffer, reduces, and stores it to
everybody's. Besides that: how fast all ranks together read, copy and reduce.`,
		Example: `  commbench roofline                    1M to 256M, 2 ranks to one for each core
  commbench roofline -b 8 -e 1G -f 4 --ranks 2 --format json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.roofline = true
			if err := r.into(o, cmd.Flags()); err != nil {
				return err
			}
			return run(cmd.Context(), o)
		},
	}
	root.AddCommand(floor)
	for _, cmd := range []*cobra.Command{root, floor} {
		cmd.SetHelpTemplate(helpTemplate)
		cmd.SetUsageTemplate(usageTemplate)
		cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usagef("%v", err) })
		cmd.Flags().SortFlags = false
		cmd.SetOut(stdout)
		cmd.SetErr(stderr)
	}
	root.SetHelpCommand(&cobra.Command{Hidden: true, Use: "no-help"})

	f := root.Flags()
	f.StringVar(&r.op, "op", "allreduce", "what to measure, several with commas, or all:\n"+opHelp())
	sizeFlags(f, o, r, "8", "64M")
	f.IntVarP(&o.batch, "batch", "m", 0, "calls in one timed sample (default 100 to 4K, 10 to 64K, then 1)")
	f.StringVarP(&r.check, "check", "c", "1", "check every element of every result: 1 or 0")
	f.BoolVar(&o.inPlace, "in-place", false, "only in place (default: out of place and in place)")
	f.IntVar(&o.root, "root", 0, "root of broadcast, reduce, gather(v), scatter(v)")
	f.BoolVar(&o.uneven, "uneven", false, "v forms: rank r's count in proportion to r+1 (default: equal)")
	f.StringVar(&o.memory, "memory", memoryAlloc, "buffers: alloc (Comm.Alloc), user (Go slices), mmap (anonymous),\nregister (anonymous and given to Comm.Register)")
	f.StringVar(&r.wire, "wire", "full", "form of f32 on its way in an allreduce: full, f16, bf16, q8")
	f.BoolVar(&o.fixedOrder, "fixed-order", false, "only algorithms that reduce in rank order")
	f.BoolVar(&o.overlap, "overlap", false, "also run each operation beside a computation that takes as long,\nout of place unless --in-place, and tell which share of it hides")
	f.StringVar(&o.path, "path", "auto", "media: auto, shm, tcp, verbs, or inside and between nodes: shm+tcp, shm+verbs")
	f.StringVar(&o.algo, "algo", "auto", "algorithm: auto, direct, oneshot, staged, ring, tree, ..., or with\nits collective: allreduce/ring")
	f.IntVarP(&o.threads, "threads", "t", 0, "threads of a rank that reduce (default: cores / ranks)")
	f.Uint64Var(&o.seed, "seed", 1, "of the pseudo-random data")
	f.BoolVar(&o.vsRoofline, "vs-roofline", false, "measure the floor, in place, in turn with each point")
	sizeFlags(floor.Flags(), o, r, "1M", "256M")
	return root
}

// sizeFlags are those that commbench and commbench roofline share.
func sizeFlags(f *pflag.FlagSet, o *options, r *raw, begin, end string) {
	f.Var(&r.size, "size", "one size instead of a sweep")
	f.VarP(&r.begin, "begin", "b", "first size (default "+begin+")")
	f.VarP(&r.end, "end", "e", "last size (default "+end+")")
	f.Float64VarP(&r.factor, "factor", "f", 2, "factor between sizes")
	f.VarP(&r.step, "step", "i", "step between sizes, instead of a factor")
	f.StringVarP(&r.dtype, "dtype", "d", "f32", "element type, several with commas, or all")
	f.StringVarP(&r.redop, "redop", "o", "sum", "reduction operator, several with commas, or all")
	f.IntVar(&o.ranks, "ranks", 0, "ranks to start (default: one for each usable core, at least 2)")
	f.IntVarP(&o.iters, "iters", "n", 0, "timed samples (default: half a second's worth, 5 at least)")
	f.IntVarP(&o.warmup, "warmup", "w", -1, "untimed calls before (default 5, 2 above 64M)")
	f.Lookup("warmup").DefValue = "0" // the help would say -1
	f.DurationVar(&o.timeout, "timeout", time.Minute, "deadline of a sample")
	f.StringVar(&o.format, "format", formatTable, "output: table, json, csv")
}

// execute runs the command line. Errors of the flags library become usage
// errors.
func execute(ctx context.Context, args []string, run func(context.Context, *options) error, stdout, stderr io.Writer) error {
	ran := false
	cmd := newCommand(func(ctx context.Context, o *options) error {
		ran = true
		return run(ctx, o)
	}, stdout, stderr)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	var usage *usageError
	if err != nil && !ran && !errors.As(err, &usage) {
		return usagef("%v", err)
	}
	return err
}
