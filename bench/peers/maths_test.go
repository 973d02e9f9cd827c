package main

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want Spread
	}{
		{[]float64{3}, Spread{3, 3, 3, 1}},
		{[]float64{5, 1, 3}, Spread{3, 1, 5, 3}},
		{[]float64{4, 1, 2, 10}, Spread{3, 1, 10, 4}},
	} {
		if got := spread(c.in); *got != c.want {
			t.Errorf("spread(%v) = %v, want %v", c.in, *got, c.want)
		}
	}
	if got := spread(nil); got != nil {
		t.Errorf("spread(nil) = %v, want nil", got)
	}
}

// A machine that is half as fast in one round halves both sides of the pair:
// the ratio must not move, though the medians of the times do.
func TestRatiosArePaired(t *testing.T) {
	pairs := []Pair{{Peer: 10, Alloc: 2}, {Peer: 20, Alloc: 4}, {Peer: 10, Alloc: 2}, {Peer: 7}, {Alloc: 3}}
	got := spread(ratios(pairs, sideAlloc))
	if got == nil || *got != (Spread{5, 5, 5, 3}) {
		t.Errorf("ratios = %v, want 5 in each of 3 rounds", got)
	}
	if r := ratios(pairs, sideUser); r != nil {
		t.Errorf("ratios without a Tutti time = %v, want none", r)
	}
	if v := column(pairs, sidePeer); len(v) != 4 {
		t.Errorf("column = %v, want the 4 peer times", v)
	}
}

func TestParseLines(t *testing.T) {
	const good = `{"op":"allreduce","path":"x","algo":"","ranks":2,"bytes":8,"count":2,"dtype":"f32","redop":"sum","root":-1,"in_place":true,"memory":"user","iters":5,"time_us":{"min":1,"p50":1.5,"p99":2,"max":2,"avg":1.6},"algbw_gbs":0.1,"busbw_gbs":0.1,"wrong":3,"roofline_ratio":0.9}`
	lines, err := parseLines([]byte("WARNING: a launcher talks\n" + good + "\n\n{\"other\":1}\n  " + good + "\r\n"))
	if err != nil || len(lines) != 2 {
		t.Fatalf("parseLines = %v, %v; want 2 lines", lines, err)
	}
	l := lines[1]
	if l.Op != "allreduce" || l.Ranks != 2 || l.Bytes != 8 || l.TimeUS.P50 != 1.5 || l.Wrong != 3 || !l.InPlace || l.Roofline != 0.9 {
		t.Errorf("parseLines read %+v", l)
	}
	if v, err := parseLines([]byte(`{"op":"barrier","bytes":0,"time_us":{"p50":1},"wrong":null}`)); err != nil || len(v) != 1 {
		t.Errorf("a barrier, which has no bytes: %v, %v", v, err)
	}
	for _, bad := range []string{`{"time_us":`, `{"bytes":8,"time_us":{"p50":0}}`, `{"bytes":0,"time_us":{"p50":1}}`} {
		if _, err := parseLines([]byte(good + "\n" + bad)); err == nil || !strings.Contains(err.Error(), "result line") {
			t.Errorf("parseLines(%s) = %v, want an error naming the line", bad, err)
		}
	}
}

func TestItersFor(t *testing.T) {
	limit := 500 * time.Millisecond
	for _, c := range []struct {
		us    float64
		bytes int64
		want  int
	}{
		{0, 8, 5},                 // unknown
		{1, 8, 1000},              // 100 µs an iteration: as many as there may be
		{100, 8, 50},              // 10 ms an iteration
		{8000, 8, 3},              // a batch alone breaks the limit
		{1000, 16 << 20, 500},     // no batch
		{90_000, 256 << 20, 5},    // five fit
		{130_000, 256 << 20, 3},   // three fit, and that is enough
		{80_000, 256 << 20, 6},    // six fit
		{700_000, 1 << 30, 3},     // none fits
		{math.Inf(1), 1 << 30, 3}, // nonsense in, least out
	} {
		if got := itersFor(limit, c.us, c.bytes, 1000); got != c.want {
			t.Errorf("itersFor(%v µs, %d B) = %d, want %d", c.us, c.bytes, got, c.want)
		}
	}
}

func TestSizes(t *testing.T) {
	got, err := parseSizes("8, 1K,64k,2M,1G")
	want := []int64{8, 1 << 10, 64 << 10, 2 << 20, 1 << 30}
	if err != nil || len(got) != len(want) {
		t.Fatalf("parseSizes = %v, %v", got, err)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("size %d is %d, want %d", i, got[i], want[i])
		}
	}
	for _, bad := range []string{"", "K", "-1", "0", "8X", "8,,9", "1.5M"} {
		if v, err := parseSizes(bad); err == nil {
			t.Errorf("parseSizes(%q) = %v, want an error", bad, v)
		}
	}
	for b, want := range map[int64]string{8: "8 B", 1 << 10: "1 KiB", 64 << 10: "64 KiB", 1 << 20: "1 MiB", 1 << 30: "1 GiB", 1500: "1500 B"} {
		if got := sizeName(b); got != want {
			t.Errorf("sizeName(%d) = %q, want %q", b, got, want)
		}
	}
}

func TestSkip(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		op        string
		ranks     int
		bytes     int64
		available int64
		want      string
	}{
		{"allreduce", 2, gib, 16 * gib, ""},
		{"allreduce", 2, gib, 2 * gib, "of memory"},
		{"allreduce", 8, 256 << 20, 4 * gib, ""},
		{"alltoall", 8, 256 << 20, 4 * gib, "of memory"}, // two buffers a rank
		{"gather", 8, gib, 3 * gib, ""},                  // one big buffer in all
		{"barrier", 8, 0, 0, ""},
	} {
		op, _ := opByName(c.op)
		got := skipReason(op, c.ranks, c.bytes, true, c.available)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("skipReason(%s, %d, %d, %d) = %q, want %q", c.op, c.ranks, c.bytes, c.available, got, c.want)
		}
	}
}

func TestOps(t *testing.T) {
	for _, c := range []struct {
		in   string
		want int
	}{{"", 10}, {"all", 15}, {"broadcast, gatherv,broadcast", 2}} {
		if got, err := parseOps(c.in); err != nil || len(got) != c.want {
			t.Errorf("parseOps(%q) = %v, %v; want %d", c.in, got, err, c.want)
		}
	}
	if v, err := parseOps("bcast"); err == nil {
		t.Errorf("parseOps(bcast) = %v, want an error", v)
	}
	for _, o := range ops {
		if o.V && !slices.Contains(opNames(), strings.TrimSuffix(o.Name, "v")) {
			t.Errorf("%s is a v form of nothing", o.Name)
		}
	}
}

// The peer programs know the same ops, in whatever order.
func TestOpsAreTheSources(t *testing.T) {
	h, err := sources.ReadFile("src/bench.h")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range ops {
		if !strings.Contains(string(h), "\""+o.Name+"\"") {
			t.Errorf("bench.h does not know %s", o.Name)
		}
	}
}

func TestGroups(t *testing.T) {
	gs := groupsOf(ops, []int{2, 4}, []int64{1 << 20, 8, 8})
	if len(gs) != 2*len(ops) {
		t.Fatalf("%d groups, want two of each op", len(gs))
	}
	for _, g := range gs {
		want := []int64{8, 1 << 20}
		if g.op.Name == barrierOp {
			want = []int64{0}
		}
		if !slices.Equal(g.sizes, want) {
			t.Errorf("sizes of %s are %v, want %v", g.op.Name, g.sizes, want)
		}
	}
	got := bands([]int64{8, 64 << 10, 1 << 20, 16 << 20})
	if len(got) != 3 || !slices.Equal(got[0], []int64{8, 64 << 10}) || !slices.Equal(got[2], []int64{16 << 20}) {
		t.Errorf("bands = %v, want the small ones together", got)
	}
}

func TestChoices(t *testing.T) {
	ch := &choices{}
	for _, c := range []struct {
		peer, variant string
		us            float64
		wrong         int64
	}{
		{"a", "x", 10, 0}, {"a", "y", 9, 0}, {"a", "z", 1, 5}, {"b", "x", 13, 0}, {"c", "x", 13.4, 0}, {"d", "x", 14, 0}, {"e", "x", 2, 1},
	} {
		ch.tries = append(ch.tries, try{c.peer, Variant{Name: c.variant}, 8, c.us, c.wrong})
	}
	var got []string
	for _, c := range ch.contenders(8, 5) {
		got = append(got, c.peer+c.variant.Name)
	}
	if !slices.Equal(got, []string{"ay", "bx", "cx"}) {
		t.Errorf("contenders = %v, want a's best right one, b and c: d is too far, e is wrong", got)
	}
	if v := ch.contenders(8, 2); len(v) != 2 {
		t.Errorf("contenders of 2 = %v", v)
	}
	if b, ok := ch.of("e", 8); !ok || b.wrong != 1 {
		t.Errorf("of(e) = %v, %v; want its wrong try", b, ok)
	}
	if b, _ := ch.of("a", 8); b.variant.Name != "y" {
		t.Errorf("of(a) = %v, want y: z is wrong", b)
	}
	for _, c := range []struct {
		peer, variant string
		want          bool
	}{{"a", "y", true}, {"a", "x", true}, {"c", "x", true}, {"d", "x", false}, {"e", "x", false}} {
		if got := ch.near(c.peer, c.variant, 8); got != c.want {
			t.Errorf("near(%s, %s) = %v, want %v", c.peer, c.variant, got, c.want)
		}
	}
	if !ch.near("a", "y", 16) {
		t.Error("where nothing was tried, all are near")
	}
}

func TestSummary(t *testing.T) {
	point := func(op string, alloc, user float64) PointState {
		o := PeerOutcome{Name: "p", US: &Spread{1, 1, 1, 1}}
		if alloc > 0 {
			o.RatioAlloc = &Spread{alloc, alloc, alloc, 1}
		}
		if user > 0 {
			o.RatioUser = &Spread{user, user, user, 1}
		}
		return PointState{Op: op, Ranks: 2, Bytes: 8, Peers: []PeerOutcome{o}}
	}
	r := &Report{Points: []PointState{point("reduce", 4, 0.5), point("reduce", 1, 0), point("gather", 0.25, 2), {Op: "scatter"}}}
	names, means, slow := r.summarise()
	if !slices.Equal(names, []string{"reduce", "gather", "scatter", everything}) {
		t.Errorf("names = %v", names)
	}
	for _, c := range []struct {
		name, alloc, slowAlloc, user, slowUser string
	}{
		{"reduce", "2.00", "0 of 2", "0.50", "1 of 1"},
		{"gather", "0.25", "1 of 1", "2.00", "0 of 1"},
		{"scatter", "–", "–", "–", "–"},
		{everything, "1.00", "1 of 3", "1.00", "1 of 2"},
	} {
		m := means[c.name]
		if m[0].String() != c.alloc || m[0].slower() != c.slowAlloc || m[1].String() != c.user || m[1].slower() != c.slowUser {
			t.Errorf("%s: %v, %s, %v, %s; want %+v", c.name, &m[0], m[0].slower(), &m[1], m[1].slower(), c)
		}
	}
	if len(slow) != 2 || slow[0].point.Op != "gather" || slow[0].memory != memoryAlloc || slow[1].ratio != 0.5 || slow[1].memory != memoryUser {
		t.Errorf("slow cells = %+v, want gather's and then reduce's", slow)
	}
}
