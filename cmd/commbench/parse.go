package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/tutti-go/tutti/engine"
	"github.com/tutti-go/tutti/mem"
)

// into checks what was typed and completes o.
func (r *raw) into(o *options, f *pflag.FlagSet) error {
	if o.roofline {
		o.ops = operations[:1]
	} else if err := r.calls(o, f); err != nil {
		return err
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

// calls reads what is called, and on what memory.
func (r *raw) calls(o *options, f *pflag.FlagSet) error {
	var err error
	if o.ops, err = list("op", r.op, operations, parseOperation); err != nil {
		return err
	}
	switch strings.ToLower(r.check) {
	case "1", "true", "yes", "on":
		o.check = true
	case "0", "false", "no", "off":
	default:
		return unknown("check", r.check, []string{"1", "0"})
	}
	if !slices.Contains(memories, o.memory) {
		return unknown("memory", o.memory, memories)
	}
	if o.wire, err = engine.ParseWire(r.wire); err != nil {
		return unknown("wire", r.wire, []string{"full", "f16", "bf16", "q8"})
	}
	some := func(f func(*operation) bool) bool { return slices.ContainsFunc(o.ops, f) }
	vector := func(op *operation) bool { return op.vector }
	apart := func(op *operation) bool { return op.apart }
	only := len(o.ops) == 1 && o.ops[0].alike()
	switch {
	case o.inPlace && r.op != "all" && some(apart):
		return usagef("--in-place: there is no such form of %s", which(o.ops, apart))
	case f.Changed("root") && !some((*operation).rooted):
		return usagef("--root is for --op %s", which(operations, (*operation).rooted))
	case o.root < 0:
		return usagef("--root %d: valid are 0 to the number of ranks less one", o.root)
	case o.uneven && !some(vector):
		return usagef("--uneven is for --op %s", which(operations, vector))
	case o.wire != engine.WireFull && !some((*operation).alike):
		return usagef("--wire %v is for --op allreduce", o.wire)
	case o.vsRoofline && !only:
		return usagef("--vs-roofline is for --op allreduce: no floor is known of others")
	case o.vsRoofline && o.overlap:
		return usagef("--vs-roofline excludes --overlap")
	}
	if f.Changed("ranks") {
		return o.checkRoot(o.ranks)
	}
	return nil
}

// checkRoot comes once the number of ranks is known.
func (o *options) checkRoot(ranks int) error {
	if o.root >= ranks && ranks > 0 {
		return usagef("--root %d: valid are 0 to %d with %d ranks", o.root, ranks-1, ranks)
	}
	return nil
}

// work fills in the tasks: operations, types, operators, sizes.
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
	for _, op := range o.ops {
		if !op.moves() {
			o.tasks = append(o.tasks, task{op: op, dtype: mem.U8})
			continue
		}
		for _, t := range dtypes {
			if err := r.rows(o, op, t, redops, sizes); err != nil {
				return err
			}
		}
	}
	if len(o.tasks) == 0 {
		return usagef("--redop %s is not defined on --dtype %s", r.redop, r.dtype)
	}
	return nil
}

// rows adds the tasks of an operation on a type.
func (r *raw) rows(o *options, op *operation, t mem.DType, redops []mem.Op, sizes []int) error {
	if !op.reduces() {
		redops = []mem.Op{mem.Sum} // stands for none
	}
	for _, redop := range redops {
		switch {
		case !op.reduces():
		case !redop.Supports(t) && (r.dtype == "all" || r.redop == "all"):
			continue
		case !redop.Supports(t):
			return usagef("--redop %v is not defined on --dtype %v", redop, t)
		case o.wireOf(op) != engine.WireFull && (t != mem.F32 || redop != mem.Sum && redop != mem.Avg):
			return usagef("--wire %v is for --dtype f32 and --redop sum or avg, not %v and %v", o.wire, t, redop)
		}
		for _, bytes := range sizes {
			if bytes%t.Size() != 0 && !op.parted() {
				return usagef("size %d is not a multiple of %d, the size of one %v", bytes, t.Size(), t)
			}
			o.tasks = append(o.tasks, task{bytes, t, redop, op})
		}
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
		if !slices.ContainsFunc(chosen, func(y T) bool { return y.String() == x.String() }) {
			chosen = append(chosen, x)
		}
	}
	return chosen, nil
}
