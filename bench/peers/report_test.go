package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

func sampleReport() *Report {
	return &Report{
		Date: "2026-01-02 03:04 UTC", Command: "go run ./bench/peers --rounds 3",
		Machine: Machine{CPU: "Some CPU", Cores: 2, Kernel: "6.1", MemoryMiB: 24 << 10, Go: "go1.26"},
		Work: Work{
			Ops: []string{"allreduce", "barrier"}, Dtype: "f32", Redop: "sum", InPlace: true,
			Memory: []string{memoryAlloc, memoryUser}, Rounds: 3, CapMS: 500, Contenders: 2,
		},
		Tutti: TuttiState{Version: "v1-2-gabc"},
		Peers: []PeerState{
			{Name: "a", Title: "Peer A", Version: "1.2", Settings: "as it comes"},
			{Name: "b", Title: "Peer B", Unavailable: "compiling x.c: no a | b\nhere"},
			{Name: "c", Title: "Peer C", Version: "3", Settings: "-x"},
		},
		Points: []PointState{
			{Op: "allreduce", Ranks: 2, Bytes: 8,
				Peers: []PeerOutcome{
					{Name: "a", Variant: "yield", US: &Spread{0.87, 0.8, 0.9, 3}, RatioAlloc: &Spread{4.2, 4, 5, 3}, RatioUser: &Spread{3.1, 3, 4, 3}},
					{Name: "c", Variant: "default", US: &Spread{1234.5, 1000, 2000, 3}},
				},
				Alloc: &TuttiOutcome{US: &Spread{0.2, 0.19, 0.21, 9}, Roofline: &Spread{0.95, 0.9, 1, 9}},
				User:  &TuttiOutcome{US: &Spread{0.28, 0.27, 0.3, 9}}},
			{Op: "allreduce", Ranks: 2, Bytes: 1 << 20,
				Peers: []PeerOutcome{
					{Name: "a", Variant: "default", US: &Spread{10, 10, 10, 1}, Wrong: 7},
					{Name: "c", Error: "default: not done after 30s"},
				},
				Alloc: &TuttiOutcome{Error: "commbench: exit status 1: no memory"},
				User:  &TuttiOutcome{US: &Spread{50, 50, 50, 1}}},
			{Op: "allreduce", Ranks: 4, Bytes: 1 << 30, Skipped: "needs 6 GiB of memory, 5 GiB are available"},
			{Op: "barrier", Ranks: 2,
				Peers: []PeerOutcome{
					{Name: "a", Variant: "default", CalibratedUS: 0.3, US: &Spread{0.2, 0.1, 0.3, 3}, RatioAlloc: &Spread{0.8, 0.7, 1.1, 3}, RatioUser: &Spread{0.9, 0.8, 1, 3}},
					{Name: "c", Variant: "x | y", CalibratedUS: 17},
				},
				Alloc: &TuttiOutcome{US: &Spread{0.25, 0.2, 0.3, 3}},
				User:  &TuttiOutcome{US: &Spread{0.22, 0.2, 0.3, 3}}},
		},
	}
}

func TestReportGolden(t *testing.T) {
	r := sampleReport()
	var md, js bytes.Buffer
	r.writeMarkdown(&md)
	if err := r.writeJSON(&js); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/report.md", md.Bytes())
	golden(t, "testdata/report.json", js.Bytes())
	var back Report
	if err := json.Unmarshal(js.Bytes(), &back); err != nil || len(back.Points) != len(r.Points) {
		t.Errorf("report.json does not read back: %v", err)
	}
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (go test ./bench/peers -update rewrites it); got:\n%s", path, got)
	}
}

func TestBestIgnoresWrongAnswers(t *testing.T) {
	p := sampleReport().Points
	if b := p[0].best(); b == nil || b.Name != "a" {
		t.Errorf("best at 8 bytes is %v, want a", b)
	}
	if b := p[1].best(); b != nil {
		t.Errorf("best at 1 MiB is %v, want none: one is wrong, one failed", b)
	}
}
