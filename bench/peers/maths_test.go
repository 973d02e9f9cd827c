package main

import (
	"math"
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
		p         Point
		explicit  bool
		available int64
		want      string
	}{
		{Point{2, gib}, false, 16 * gib, ""},
		{Point{4, gib}, false, 64 * gib, "two ranks only"},
		{Point{4, gib}, true, 64 * gib, ""},
		{Point{2, gib}, false, 2 * gib, "of memory"},
		{Point{8, 256 << 20}, false, 4 * gib, ""},
	} {
		got := skipReason(c.p, true, c.explicit, c.available)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("skipReason(%v, %v, %d) = %q, want %q", c.p, c.explicit, c.available, got, c.want)
		}
	}
}
