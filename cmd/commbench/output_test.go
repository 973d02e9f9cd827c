package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tutti-go/tutti/mem"
)

var update = flag.Bool("update", false, "write the golden files again")

func fixedHello(ops ...described) *hello {
	return &hello{Ranks: []member{{0, 101, []int{0}}, {1, 102, []int{1}}, {2, 103, []int{2, 3}}, {3, 104, nil}}, Path: "shm", Ops: ops}
}

// fixed are events as ranks would send them.
func fixed(o *options) []event {
	zero, three := int64(0), int64(3)
	us := times{Min: 100.5, P50: 123.456, P99: 150, Max: 200.25, Avg: 125}
	one := fixedHello(described{"allreduce", []string{"oneshot from 8", "direct from 64K"}})
	res := func(bytes int, inPlace bool, t times, wrong *int64) *result {
		r := &result{
			Op: "allreduce", Path: "shm", Algo: "direct", Ranks: 4, Bytes: bytes, Count: bytes / 4, DType: "f32", RedOp: "sum",
			Root: -1, InPlace: inPlace, Memory: "alloc", Iters: 100, Time: t, Wrong: wrong, factor: 1.5,
		}
		r.bandwidths()
		if o.vsRoofline {
			ratio := 0.913
			r.Ratio = &ratio
		}
		return r
	}
	evs := []event{
		{Hello: one},
		{Progress: &progress{0, "timing"}},
	}
	if o.roofline {
		f := &floor{
			Op: "roofline", Kernel: "fused", Ranks: 2, Bytes: 1 << 20, Count: 1 << 18, DType: "f32", RedOp: "sum", Iters: 1000, Time: us,
			AlgBW: 8.5, BusBW: 8.5, Traffic: 34, Read: 20.1, Copy: 21, Reduce: 33.3,
		}
		return append(evs, event{Floor: f}, evs[0], event{Floor: f})
	}
	return append(evs,
		event{Point: &point{res(8, false, times{0.2, 0.21434, 0.3, 0.5, 0.22}, &zero), res(8, true, times{0.1, 0.15, 0.3, 0.5, 0.2}, &zero)}},
		event{Note: "rank 1: 3 wrong: element 7 is 1, not 2 within 0.1"},
		event{Point: &point{res(1<<20, false, us, &three), res(1<<20, true, us, nil)}},
		event{Point: &point{nil, res(1<<30, true, times{1e5, 1.1e5, 1.2e5, 1.3e5, 1.1e5}, &zero)}},
	)
}

// golden compares what is printed with a file.
func golden(t *testing.T, name string, o *options, evs []event, wrong int64) (stderr string) {
	t.Helper()
	var stdout, errs bytes.Buffer
	out := newOutput(o, &stdout, &errs)
	if table, ok := out.format.(*table); ok {
		table.model, table.isa = "Test Processor", "avx2"
	}
	for _, ev := range evs {
		out.take(ev)
	}
	err := out.finish()
	var found *wrongError
	if wrong > 0 && (!errors.As(err, &found) || found.wrong != wrong) || wrong == 0 && err != nil {
		t.Errorf("finish: %v", err)
	}
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, stdout.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(stdout.Bytes(), want) {
		t.Errorf("%s: got:\n%s\nwant:\n%s", name, stdout.Bytes(), want)
	}
	return errs.String()
}

func TestGolden(t *testing.T) {
	for name, line := range map[string]string{
		"table":          "",
		"table-floor":    "--vs-roofline",
		"table-roofline": "roofline",
		"json":           "--format json",
		"json-floor":     "--format json --vs-roofline",
		"json-roofline":  "roofline --format json",
		"csv":            "--format csv",
		"csv-floor":      "--format csv --vs-roofline",
		"csv-roofline":   "roofline --format csv",
	} {
		t.Run(name, func(t *testing.T) {
			o, err := parse(t, line)
			if err != nil {
				t.Fatal(err)
			}
			wrong := int64(3)
			if o.roofline {
				wrong = 0
			}
			stderr := golden(t, name, o, fixed(o), wrong)
			if !o.roofline && strings.Count(stderr, "\n") != 1 {
				t.Errorf("on standard error: %q", stderr)
			}
		})
	}
}

// several are events of a run over several operations.
func several(o *options) []event {
	zero, two := int64(0), int64(2)
	us := times{Min: 100.5, P50: 123.456, P99: 150, Max: 200.25, Avg: 125}
	evs := []event{{Hello: fixedHello(
		described{"allreduce", []string{"staged"}}, described{"alltoallv", []string{"direct"}}, described{"barrier", []string{"direct"}},
	)}}
	for _, op := range o.ops {
		for _, bytes := range []int{1 << 20, 2 << 20} {
			t := task{bytes, mem.F32, mem.Sum, op}
			r := &result{
				Op: op.name, Path: "shm", Algo: "direct", Ranks: 4, Bytes: bytes, Count: t.count(4), DType: t.dtypeName(), RedOp: t.redopName(),
				Root: -1, Memory: "alloc", Iters: 100, Time: us, Wrong: &zero, Uneven: op.vector, factor: op.factor(4),
			}
			if op.alike() {
				r.Wire, r.Wrong = o.wire.String(), &two
			}
			if !op.moves() {
				r.Bytes, r.Count = 0, 0
			}
			r.bandwidths()
			if o.overlap {
				r.Overlap = &overlap{Comm: 120, Compute: 121.5, Both: 150, Hidden: 0.7625, Low: 0.71, High: 1.01}
			}
			evs = append(evs, event{Point: &point{OutOfPlace: r}})
		}
	}
	return evs
}

func TestGoldenOfSeveral(t *testing.T) {
	for _, format := range []string{"table", "json", "csv"} {
		o, err := parse(t, "--op allreduce,alltoallv,barrier --uneven --wire q8 --overlap --fixed-order --format "+format)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, format+"-several", o, several(o), 4)
	}
}

// TestJSONFields: other programs rely on exactly these.
func TestJSONFields(t *testing.T) {
	want := strings.Fields("algbw_gbs algo busbw_gbs bytes count dtype in_place iters memory op path ranks redop root time_us wrong")
	b, err := json.Marshal(&result{})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range got {
		names = append(names, name)
	}
	slices.Sort(names)
	if !slices.Equal(names, want) {
		t.Errorf("fields %v, want %v", names, want)
	}
	if len(got["time_us"].(map[string]any)) != 5 {
		t.Errorf("times %v", got["time_us"])
	}
}

func TestInterruptedTableSaysSo(t *testing.T) {
	o, err := parse(t, "")
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	out := newOutput(o, &stdout, &stderr)
	for _, ev := range fixed(o)[:3] {
		out.take(ev)
	}
	out.interrupted(context.Canceled)
	if s := stdout.String(); !strings.Contains(s, "# incomplete, 1 rows") || strings.Contains(s, "OK") {
		t.Errorf("got %s", s)
	}
}

func TestProgressLine(t *testing.T) {
	o, err := parse(t, "-b 1M -e 4M")
	if err != nil {
		t.Fatal(err)
	}
	var w bytes.Buffer
	p := newProgressLine(o, &w)
	now := p.began
	p.now = func() time.Time { return now }
	p.update(&progress{0, "timing"})
	if w.Len() != 0 {
		t.Errorf("shown at once: %q", w.String())
	}
	now = now.Add(2 * time.Second)
	p.update(&progress{1, "checking"})
	if s := w.String(); !strings.Contains(s, "2 of 3: allreduce 2M f32 sum, checking, 4s left") || strings.Contains(s, "\n") {
		t.Errorf("got %q", s)
	}
	w.Reset()
	p.clear()
	p.clear()
	if w.String() != "\r\x1b[K" {
		t.Errorf("cleared by %q", w.String())
	}
	p.update(&progress{99, "x"}) // nonsense is not an index
	var nobody *progressLine
	nobody.update(&progress{0, "x"})
	nobody.clear()
}

func TestSummarize(t *testing.T) {
	samples := make([]time.Duration, 200)
	for i := range samples {
		samples[i] = time.Duration(200-i) * 10 * time.Microsecond
	}
	got := summarize(samples, 10)
	want := times{Min: 1, P50: 100.5, P99: 198, Max: 200, Avg: 100.5}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := summarize(nil, 1); got != (times{}) {
		t.Errorf("of nothing: %+v", got)
	}
	if got := summarize([]time.Duration{2000}, 1); got != (times{2, 2, 2, 2, 2}) {
		t.Errorf("of one: %+v", got)
	}
}

func TestSamplesFollowSizeAndTime(t *testing.T) {
	o := &options{warmup: -1}
	for _, tt := range []struct {
		bytes, batch, warmup int
	}{{8, 100, 5}, {4 << 10, 100, 5}, {8 << 10, 10, 5}, {64 << 10, 10, 5}, {128 << 10, 1, 5}, {1 << 30, 1, 2}} {
		if b, w := batchFor(o, tt.bytes), warmupFor(o, tt.bytes); b != tt.batch || w != tt.warmup {
			t.Errorf("%d bytes: batch %d, warm-up %d", tt.bytes, b, w)
		}
	}
	for _, tt := range []struct {
		batch  int
		sample time.Duration
		want   int
	}{{100, 0, 200}, {1, time.Second, 5}, {1, 10 * time.Millisecond, 50}, {1, time.Microsecond, 1000}, {10, time.Microsecond, 2000}} {
		if got := itersFor(o, tt.batch, tt.sample, pointTime); got != tt.want {
			t.Errorf("samples of %v: %d, want %d", tt.sample, got, tt.want)
		}
	}
	o = &options{warmup: 0, batch: 3, iters: 9}
	if batchFor(o, 8) != 3 || warmupFor(o, 8) != 0 || itersFor(o, 3, time.Hour, 1) != 9 {
		t.Error("what was asked for is not done")
	}
}

func TestSignificant(t *testing.T) {
	for x, want := range map[float64]string{0: "0.000", 0.21434: "0.214", 1.5: "1.50", 21.41: "21.41", 123.456: "123.5", 110000: "110000", 0.9999: "1.00", 999.96: "1000"} {
		if got := significant(x); got != want {
			t.Errorf("significant(%v) = %q, want %q", x, got, want)
		}
	}
}

// TestEventsSurviveATornLine: a rank that is killed may leave half a line.
func TestEventsSurviveATornLine(t *testing.T) {
	var b bytes.Buffer
	e := &events{w: &b}
	for range 2 {
		if err := e.send(event{Note: "hello"}); err != nil {
			t.Fatal(err)
		}
	}
	b.WriteString(`{"note":"hal`)
	n := 0
	if err := readEvents(&b, func(event) { n++ }); err != nil || n != 2 {
		t.Errorf("%d events, %v", n, err)
	}
}
