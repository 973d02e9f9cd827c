package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-go/tutti/internal/cpu"
	"github.com/tutti-go/tutti/plan"
	"github.com/tutti-go/tutti/reduce"
)

// table prints the columns of nccl-tests, so that what reads those reads this.
type table struct {
	w          io.Writer
	o          *options
	model, isa string

	headed bool
	rows   int
	wrong  int64
	busbw  []float64
}

func newTable(w io.Writer, o *options) *table {
	return &table{w: w, o: o, model: cpu.Model(), isa: reduce.ISA()}
}

func (t *table) hello(h *hello) {
	o := t.o
	if o.roofline {
		if !t.headed {
			t.headed = true
			fmt.Fprintf(t.w, "# commbench roofline, %s, %s kernels\n", t.model, t.isa)
			fmt.Fprintf(t.w, "#\n# %5s %12s %8s %6s %10s %7s %7s %8s %7s %7s %7s  %s\n",
				"ranks", "size", "type", "redop", "time", "algbw", "busbw", "traffic", "read", "copy", "reduce", "loop")
			fmt.Fprintf(t.w, "# %5s %12s %8s %6s %10s %7s %7s %8s %7s %7s %7s\n",
				"", "(B)", "", "", "(us)", "(GB/s)", "(GB/s)", "(GB/s)", "(GB/s)", "(GB/s)", "(GB/s)")
		}
		return
	}
	fmt.Fprintf(t.w, "# commbench %v, %d ranks, %s, %s kernels\n", o.collective, len(h.Ranks), t.model, t.isa)
	for _, m := range h.Ranks {
		fmt.Fprintf(t.w, "#  rank %2d  pid %7d  %s\n", m.Rank, m.Pid, coreNames(m.Cores))
	}
	fmt.Fprintf(t.w, "# path %s, algo %s\n", h.Path, strings.Join(h.Algos, ", "))
	if o.collective == plan.AllReduce {
		fmt.Fprintf(t.w, "# memory %s, seed %d\n", o.memory, o.seed)
	}
	title := func(s string) string { return center(s, t.groupWidth()) }
	fmt.Fprintf(t.w, "#\n# %58s  %s  %s\n", "", title("out-of-place"), strings.TrimRight(title("in-place"), " "))
	group := fmt.Sprintf("%9s %7s %7s %6s", "time", "algbw", "busbw", "#wrong")
	units := fmt.Sprintf("%9s %7s %7s %6s", "(us)", "(GB/s)", "(GB/s)", "")
	if o.vsRoofline {
		group += fmt.Sprintf(" %8s", "roofline")
		units += fmt.Sprintf(" %8s", "ratio")
	}
	fmt.Fprintf(t.w, "# %12s %13s %11s %9s %9s  %s  %s\n", "size", "count", "type", "redop", "root", group, group)
	fmt.Fprintln(t.w, strings.TrimRight(fmt.Sprintf("# %12s %13s %11s %9s %9s  %s  %s", "(B)", "(elements)", "", "", "", units, units), " "))
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
	fmt.Fprintf(t.w, "  %12d %13d %11s %9s %9d  %s  %s\n", r.Bytes, r.Count, r.DType, r.RedOp, r.Root, t.group(p.OutOfPlace), t.group(p.InPlace))
	t.rows++
	for _, r := range all {
		if r.Wrong != nil {
			t.wrong += *r.Wrong
		}
		t.busbw = append(t.busbw, r.BusBW)
	}
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
	switch {
	case !t.o.check || t.o.collective == plan.Barrier:
		fmt.Fprintln(t.w, "# Out of bounds values : not checked")
	case t.wrong == 0:
		fmt.Fprintln(t.w, "# Out of bounds values : 0 OK")
	default:
		fmt.Fprintf(t.w, "# Out of bounds values : %d FAILED\n", t.wrong)
	}
	if t.o.collective == plan.AllReduce {
		avg := 0.0
		for _, x := range t.busbw {
			avg += x / float64(len(t.busbw))
		}
		fmt.Fprintf(t.w, "# Avg bus bandwidth    : %s\n", significant(avg))
	}
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
