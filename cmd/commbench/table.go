package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-go/tutti/engine"
	"github.com/tutti-go/tutti/internal/cpu"
	"github.com/tutti-go/tutti/reduce"
)

// table prints the columns of nccl-tests, so that what reads those reads this.
// Several operations have a section each.
type table struct {
	w          io.Writer
	o          *options
	model, isa string

	headed bool
	algos  map[string]string // by operation
	op     string            // of the present section
	rows   int
	wrong  int64
	noise  bool // a share above 1
	busbw  []float64
}

func newTable(w io.Writer, o *options) *table {
	return &table{w: w, o: o, model: cpu.Model(), isa: reduce.ISA(), algos: map[string]string{}}
}

func (t *table) hello(h *hello) {
	o := t.o
	if o.roofline {
		t.rooflineHead()
		return
	}
	for _, d := range h.Ops {
		t.algos[d.Op] = strings.Join(d.Algos, ", ")
	}
	fmt.Fprintf(t.w, "# commbench %s, %d ranks, %s, %s kernels\n", strings.Join(names(o.ops), " "), len(h.Ranks), t.model, t.isa)
	for _, m := range h.Ranks {
		fmt.Fprintf(t.w, "#  rank %2d  pid %7d  %s\n", m.Rank, m.Pid, coreNames(m.Cores))
	}
	one := len(o.ops) == 1
	if one {
		fmt.Fprintf(t.w, "# path %s, algo %s\n", h.Path, t.algos[o.ops[0].name])
	} else {
		fmt.Fprintf(t.w, "# path %s\n", h.Path)
	}
	if slices.ContainsFunc(o.ops, (*operation).moves) {
		fmt.Fprintf(t.w, "# memory %s, seed %d%s\n", o.memory, o.seed, t.extras())
	}
	if one {
		t.op = o.ops[0].name
		t.columns()
	}
}

// extras are settings that are not the usual ones.
func (t *table) extras() string {
	s := ""
	if t.o.uneven {
		s += ", uneven"
	}
	if t.o.wire != engine.WireFull {
		s += ", wire " + t.o.wire.String()
	}
	if t.o.fixedOrder {
		s += ", fixed order"
	}
	return s
}

func (t *table) rooflineHead() {
	if t.headed {
		return
	}
	t.headed = true
	fmt.Fprintf(t.w, "# commbench roofline, %s, %s kernels\n", t.model, t.isa)
	fmt.Fprintf(t.w, "#\n# %5s %12s %8s %6s %10s %7s %7s %8s %7s %7s %7s  %s\n",
		"ranks", "size", "type", "redop", "time", "algbw", "busbw", "traffic", "read", "copy", "reduce", "loop")
	fmt.Fprintf(t.w, "# %5s %12s %8s %6s %10s %7s %7s %8s %7s %7s %7s\n",
		"", "(B)", "", "", "(us)", "(GB/s)", "(GB/s)", "(GB/s)", "(GB/s)", "(GB/s)", "(GB/s)")
}

// section begins the rows of an operation.
func (t *table) section(op string) {
	if op == t.op {
		return
	}
	t.average()
	t.op = op
	fmt.Fprintf(t.w, "#\n# %s, algo %s\n", op, t.algos[op])
	t.columns()
}

// columns names them.
func (t *table) columns() {
	title := func(s string) string { return center(s, t.groupWidth()) }
	group := fmt.Sprintf("%9s %7s %7s %6s", "time", "algbw", "busbw", "#wrong")
	units := fmt.Sprintf("%9s %7s %7s %6s", "(us)", "(GB/s)", "(GB/s)", "")
	if t.o.vsRoofline {
		group += fmt.Sprintf(" %8s", "roofline")
		units += fmt.Sprintf(" %8s", "ratio")
	}
	lines := [3][2]string{{title("out-of-place"), title("in-place")}, {group, group}, {units, units}}
	if t.o.overlap {
		// One form is measured, and has the other's place for its columns.
		form := "out-of-place"
		if t.o.inPlace {
			form = "in-place where that is"
		}
		lines = [3][2]string{
			{title(form), "overlap"},
			{group, fmt.Sprintf("%9s %9s %9s %6s  %s", "comm", "compute", "both", "hidden", "quartiles")},
			{units, fmt.Sprintf("%9s %9s %9s", "(us)", "(us)", "(us)")},
		}
	}
	heads := [3]string{
		fmt.Sprintf("%58s", ""),
		fmt.Sprintf("%12s %13s %11s %9s %9s", "size", "count", "type", "redop", "root"),
		fmt.Sprintf("%12s %13s %11s %9s %9s", "(B)", "(elements)", "", "", ""),
	}
	fmt.Fprintln(t.w, "#")
	for i, head := range heads {
		fmt.Fprintln(t.w, strings.TrimRight("# "+head+"  "+lines[i][0]+"  "+lines[i][1], " "))
	}
}

func (t *table) groupWidth() int {
	if t.o.vsRoofline {
		return 41
	}
	return 32
}

func center(s string, width int) string {
	left := (width - len(s)) / 2
	return strings.Repeat(" ", left) + s + strings.Repeat(" ", width-left-len(s))
}

func coreNames(cores []int) string {
	switch len(cores) {
	case 0:
		return "not pinned"
	case 1:
		return fmt.Sprintf("core %d", cores[0])
	}
	names := make([]string, len(cores))
	for i, c := range cores {
		names[i] = strconv.Itoa(c)
	}
	return "cores " + strings.Join(names, ",")
}

func (t *table) point(p *point) {
	all := p.results()
	if len(all) == 0 {
		return
	}
	r := all[0]
	t.section(r.Op)
	left, right := t.group(p.OutOfPlace), t.group(p.InPlace)
	if t.o.overlap {
		left, right = t.group(r), t.overlap(r.Overlap)
	}
	fmt.Fprintf(t.w, "  %12d %13d %11s %9s %9d  %s  %s\n", r.Bytes, r.Count, r.DType, r.RedOp, r.Root, left, right)
	t.rows++
	for _, r := range all {
		if r.Wrong != nil {
			t.wrong += *r.Wrong
		}
		if r.Bytes > 0 {
			t.busbw = append(t.busbw, r.BusBW)
		}
	}
}

// overlap is the columns of --overlap.
func (t *table) overlap(v *overlap) string {
	if v == nil {
		return ""
	}
	t.noise = t.noise || v.Hidden > 1
	return fmt.Sprintf("%9s %9s %9s %6.2f  %.2f to %.2f", significant(v.Comm), significant(v.Compute), significant(v.Both), v.Hidden, v.Low, v.High)
}

// average ends a section.
func (t *table) average() {
	if len(t.busbw) == 0 {
		return
	}
	avg := 0.0
	for _, x := range t.busbw {
		avg += x / float64(len(t.busbw))
	}
	fmt.Fprintf(t.w, "# Avg bus bandwidth    : %s\n", significant(avg))
	t.busbw = nil
}

// group is the columns of one kind of call.
func (t *table) group(r *result) string {
	if r == nil {
		s := fmt.Sprintf("%9s %7s %7s %6s", "-", "-", "-", "-")
		if t.o.vsRoofline {
			s += fmt.Sprintf(" %8s", "-")
		}
		return s
	}
	wrong := "N/A"
	if r.Wrong != nil {
		wrong = strconv.FormatInt(*r.Wrong, 10)
	}
	s := fmt.Sprintf("%9s %7s %7s %6s", significant(r.Time.P50), significant(r.AlgBW), significant(r.BusBW), wrong)
	if t.o.vsRoofline {
		ratio := "-"
		if r.Ratio != nil {
			ratio = strconv.FormatFloat(*r.Ratio, 'f', 2, 64)
		}
		s += fmt.Sprintf(" %8s", ratio)
	}
	return s
}

func (t *table) floor(f *floor) {
	fmt.Fprintf(t.w, "  %5d %12d %8s %6s %10s %7s %7s %8s %7s %7s %7s  %s\n", f.Ranks, f.Bytes, f.DType, f.RedOp,
		significant(f.Time.P50), significant(f.AlgBW), significant(f.BusBW), significant(f.Traffic),
		significant(f.Read), significant(f.Copy), significant(f.Reduce), f.Kernel)
	t.rows++
}

func (t *table) end(err error) {
	if err != nil {
		if t.rows > 0 {
			fmt.Fprintf(t.w, "# incomplete, %d rows: %s\n", t.rows, oneLine(err))
		}
		return
	}
	if t.o.roofline {
		return
	}
	if t.noise {
		fmt.Fprintln(t.w, "# A hidden share above 1 is as measured: comm or compute alone was slower than beside the other.")
	}
	if len(t.o.ops) > 1 {
		t.average()
		fmt.Fprintln(t.w, "#")
	}
	switch {
	case !t.o.check:
		fmt.Fprintln(t.w, "# Out of bounds values : not checked")
	case t.wrong == 0:
		fmt.Fprintln(t.w, "# Out of bounds values : 0 OK")
	default:
		fmt.Fprintf(t.w, "# Out of bounds values : %d FAILED\n", t.wrong)
	}
	t.average()
}

// significant prints about four digits: 0.214, 21.41, 2141, 214100.
func significant(x float64) string {
	steps := []float64{0.9995, 99.995, 999.95}
	decimals := []int{3, 2, 1, 0}
	i := slices.IndexFunc(steps, func(step float64) bool { return x < step })
	if i < 0 {
		i = len(steps)
	}
	return strconv.FormatFloat(x, 'f', decimals[i], 64)
}
