package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/plan"
)

// options are the command line, checked as far as it can be without touching
// the machine.
type options struct {
	roofline bool // commbench roofline

	collective plan.Collective
	tasks      []task
	ranks      int // 0: one for each usable core, at least 2
	iters      int // 0: chosen by time
	warmup     int // -1: chosen by size
	batch      int // 0: chosen by size
	check      bool
	inPlace    bool // only in place
	memory     string
	path, algo string
	threads    int
	timeout    time.Duration
	seed       uint64
	format     string
	vsRoofline bool
}

// task is the work of one row.
type task struct {
	bytes int
	dtype mem.DType
	redop mem.Op
}

// largest is the most bytes one buffer must hold.
func (o *options) largest() int {
	largest := 0
	for _, t := range o.tasks {
		largest = max(largest, t.bytes)
	}
	return largest
}

// buffers is how many buffers of that size each rank has.
func (o *options) buffers() int {
	switch {
	case o.collective == plan.Barrier:
		return 0
	case o.inPlace:
		return 1
	}
	return 2
}

const (
	memoryAlloc = "alloc"
	memoryUser  = "user"

	formatTable = "table"
	formatJSON  = "json"
	formatCSV   = "csv"
)

// raw is the command line as it is typed.
type raw struct {
	op, dtype, redop, check string
	size, begin, end, step  sizeValue
	factor                  float64
}

const examples = `  commbench --op allreduce --size 1G             one size
  commbench -b 8 -e 1G -f 2                      a sweep: 8, 16, ... 1G
  commbench -b 1M -e 64M -d all -o sum --in-place
  commbench --ranks 4 --format json > points.json
  commbench -b 1M -e 1G --vs-roofline            beside what the memory allows
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
		Long: `Measures collectives between the ranks of this machine and checks their results.
Ranks are processes that commbench starts itself, rank i on usable core i modulo
their number. Sizes are bytes of one rank's buffer; K, M, G are powers of 1024.
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
	f.StringVar(&r.op, "op", "allreduce", "collective: allreduce, barrier")
	sizeFlags(f, o, r, "8", "64M")
	f.IntVarP(&o.batch, "batch", "m", 0, "calls in one timed sample (default 100 to 4K, 10 to 64K, then 1)")
	f.StringVarP(&r.check, "check", "c", "1", "check every element of every result: 1 or 0")
	f.BoolVar(&o.inPlace, "in-place", false, "only in place (default: out of place and in place)")
	f.StringVar(&o.memory, "memory", memoryAlloc, "buffers: alloc (Comm.Alloc), user (any other memory)")
	f.StringVar(&o.path, "path", "auto", "medium: auto, shm")
	f.StringVar(&o.algo, "algo", "auto", "algorithm: auto, direct, oneshot, staged, ring, tree, ...")
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

// into checks what was typed and completes o.
func (r *raw) into(o *options, f *pflag.FlagSet) error {
	var err error
	if !o.roofline {
		if o.collective, err = plan.ParseCollective(r.op); err != nil {
			return unknown("op", r.op, []string{"allreduce", "barrier"})
		}
		switch strings.ToLower(r.check) {
		case "1", "true", "yes", "on":
			o.check = true
		case "0", "false", "no", "off":
		default:
			return unknown("check", r.check, []string{"1", "0"})
		}
		if known := []string{memoryAlloc, memoryUser}; !slices.Contains(known, o.memory) {
			return unknown("memory", o.memory, known)
		}
		if o.vsRoofline && o.collective != plan.AllReduce {
			return usagef("--vs-roofline is for --op allreduce")
		}
	}
	if known := []string{formatTable, formatJSON, formatCSV}; !slices.Contains(known, o.format) {
		return unknown("format", o.format, known)
	}
	for _, c := range []struct {
		flag               string
		value, least, most int
	}{
		{"ranks", o.ranks, 1, 4096},
		{"iters", o.iters, 1, 1e7},
		{"warmup", o.warmup, 0, 1e8},
		{"batch", o.batch, 1, 1e8},
		{"threads", o.threads, 1, 4096},
	} {
		if f.Changed(c.flag) && (c.value < c.least || c.value > c.most) {
			return usagef("--%s %d: valid are %d to %d", c.flag, c.value, c.least, c.most)
		}
	}
	if o.timeout <= 0 {
		return usagef("--timeout %v: valid is any time above 0", o.timeout)
	}
	return r.work(o)
}

// work fills in the tasks: types, operators, sizes.
func (r *raw) work(o *options) error {
	dtypes, err := list("dtype", r.dtype, mem.DTypes(), mem.ParseDType)
	if err != nil {
		return err
	}
	redops, err := list("redop", r.redop, mem.Ops(), mem.ParseOp)
	if err != nil {
		return err
	}
	sizes, err := r.sizes(o.roofline)
	if err != nil {
		return err
	}
	if o.collective == plan.Barrier {
		o.tasks = []task{{}}
		return nil
	}
	all := r.dtype == "all" || r.redop == "all"
	for _, t := range dtypes {
		for _, op := range redops {
			if !op.Supports(t) {
				if all {
					continue
				}
				return usagef("--redop %v is not defined on --dtype %v", op, t)
			}
			for _, bytes := range sizes {
				if bytes%t.Size() != 0 {
					return usagef("size %d is not a multiple of %d, the size of one %v", bytes, t.Size(), t)
				}
				o.tasks = append(o.tasks, task{bytes, t, op})
			}
		}
	}
	if len(o.tasks) == 0 {
		return usagef("--redop %s is not defined on --dtype %s", r.redop, r.dtype)
	}
	return nil
}

func (r *raw) sizes(roofline bool) ([]int, error) {
	if r.size.set {
		if r.begin.set || r.end.set || r.step.set {
			return nil, usagef("--size excludes --begin, --end and --step")
		}
		if r.size.bytes == 0 {
			return nil, usagef("--size must be at least 1 byte")
		}
		return []int{r.size.bytes}, nil
	}
	begin, end := 8, 64<<20
	if roofline {
		begin, end = 1<<20, 256<<20
	}
	if r.begin.set {
		begin = r.begin.bytes
		end = max(end, begin)
	}
	if r.end.set {
		end = r.end.bytes
		if !r.begin.set {
			begin = min(begin, end)
		}
	}
	if r.step.set && r.step.bytes == 0 {
		return nil, usagef("--step must be at least 1 byte")
	}
	return sweep(begin, end, r.step.bytes, r.factor)
}

// list reads "all" or names with commas.
func list[T fmt.Stringer](flag, text string, all []T, parse func(string) (T, error)) ([]T, error) {
	if text == "all" {
		return all, nil
	}
	var chosen []T
	for name := range strings.SplitSeq(text, ",") {
		x, err := parse(strings.TrimSpace(name))
		if err != nil {
			known := make([]string, len(all), len(all)+1)
			for i, a := range all {
				known[i] = a.String()
			}
			return nil, unknown(flag, name, append(known, "all"))
		}
		chosen = append(chosen, x)
	}
	return chosen, nil
}
