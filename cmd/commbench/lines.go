package main

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"io"
	"strconv"

	"github.com/tutti-go/tutti/engine"
)

// jsonLines prints one object a line.
type jsonLines struct{ w io.Writer }

func (j *jsonLines) line(x any) {
	b, err := json.Marshal(x)
	if err != nil { // the types have nothing that could fail but an infinity
		return
	}
	_, _ = j.w.Write(append(b, '\n'))
}

func (j *jsonLines) hello(*hello) {}

func (j *jsonLines) point(p *point) {
	for _, r := range p.results() {
		j.line(r)
	}
}

func (j *jsonLines) floor(f *floor) { j.line(f) }

func (j *jsonLines) end(error) {}

// csvLines prints the same fields as jsonLines, the times flattened.
type csvLines struct {
	w      io.Writer
	o      *options
	headed bool
}

func (c *csvLines) hello(*hello) {}

func (c *csvLines) end(error) {}

func (c *csvLines) row(head, fields []string) {
	w := csv.NewWriter(c.w)
	if !c.headed {
		c.headed = true
		_ = w.Write(head)
	}
	_ = w.Write(fields)
	w.Flush()
}

func (c *csvLines) point(p *point) {
	for _, r := range p.results() {
		head := []string{"op", "path", "algo", "ranks", "bytes", "count", "dtype", "redop", "root", "in_place", "memory", "iters"}
		row := []string{
			r.Op, r.Path, r.Algo, strconv.Itoa(r.Ranks), strconv.Itoa(r.Bytes), strconv.Itoa(r.Count), r.DType, r.RedOp,
			strconv.Itoa(r.Root), strconv.FormatBool(r.InPlace), r.Memory, strconv.Itoa(r.Iters),
		}
		head, row = append(head, timeHead...), append(row, r.Time.fields()...)
		wrong := ""
		if r.Wrong != nil {
			wrong = strconv.FormatInt(*r.Wrong, 10)
		}
		head, row = append(head, "algbw_gbs", "busbw_gbs", "wrong"), append(row, decimal(r.AlgBW), decimal(r.BusBW), wrong)
		if c.o.vsRoofline {
			ratio := ""
			if r.Ratio != nil {
				ratio = decimal(*r.Ratio)
			}
			head, row = append(head, "roofline_ratio"), append(row, ratio)
		}
		if c.o.uneven {
			head, row = append(head, "uneven"), append(row, strconv.FormatBool(r.Uneven))
		}
		if c.o.wire != engine.WireFull {
			head, row = append(head, "wire"), append(row, cmp.Or(r.Wire, engine.WireFull.String()))
		}
		if c.o.overlap {
			head, row = append(head, overlapHead...), append(row, r.Overlap.fields()...)
		}
		c.row(head, row)
	}
}

var overlapHead = []string{"comm_us", "compute_us", "both_us", "hidden", "hidden_p25", "hidden_p75"}

func (v *overlap) fields() []string {
	if v == nil {
		return make([]string, len(overlapHead))
	}
	return []string{decimal(v.Comm), decimal(v.Compute), decimal(v.Both), decimal(v.Hidden), decimal(v.Low), decimal(v.High)}
}

func (c *csvLines) floor(f *floor) {
	head := []string{"op", "kernel", "ranks", "bytes", "count", "dtype", "redop", "iters"}
	row := []string{
		f.Op, f.Kernel, strconv.Itoa(f.Ranks), strconv.Itoa(f.Bytes), strconv.Itoa(f.Count), f.DType, f.RedOp, strconv.Itoa(f.Iters),
	}
	head, row = append(head, timeHead...), append(row, f.Time.fields()...)
	c.row(append(head, "algbw_gbs", "busbw_gbs", "traffic_gbs", "read_gbs", "copy_gbs", "reduce_gbs"),
		append(row, decimal(f.AlgBW), decimal(f.BusBW), decimal(f.Traffic), decimal(f.Read), decimal(f.Copy), decimal(f.Reduce)))
}

var timeHead = []string{"time_us_min", "time_us_p50", "time_us_p99", "time_us_max", "time_us_avg"}

func (t times) fields() []string {
	return []string{decimal(t.Min), decimal(t.P50), decimal(t.P99), decimal(t.Max), decimal(t.Avg)}
}

func decimal(x float64) string { return strconv.FormatFloat(x, 'g', 9, 64) }
