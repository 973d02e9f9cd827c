package main

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// A Line is one JSON line of a benchmark program: commbench's fields, which
// the peer programs print as well.
type Line struct {
	Op       string  `json:"op"`
	Path     string  `json:"path"`
	Algo     string  `json:"algo"`
	Ranks    int     `json:"ranks"`
	Bytes    int64   `json:"bytes"`
	Count    int64   `json:"count"`
	Dtype    string  `json:"dtype"`
	Redop    string  `json:"redop"`
	Root     int     `json:"root"`
	InPlace  bool    `json:"in_place"`
	Memory   string  `json:"memory"`
	Iters    int     `json:"iters"`
	TimeUS   Times   `json:"time_us"`
	AlgbwGBs float64 `json:"algbw_gbs"`
	BusbwGBs float64 `json:"busbw_gbs"`
	Wrong    int64   `json:"wrong"`
	Roofline float64 `json:"roofline_ratio"` // with --vs-roofline
}

// Times are of the slowest rank of each iteration, in microseconds.
type Times struct {
	Min float64 `json:"min"`
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
	Avg float64 `json:"avg"`
}

// parseLines takes the result lines out of a program's output. Launchers and
// libraries print among them, so what is no result line is passed over; a line
// that starts as one and cannot be read is an error.
func parseLines(out []byte) ([]Line, error) {
	var lines []Line
	for raw := range bytes.Lines(out) {
		raw = bytes.TrimSpace(raw)
		if !bytes.HasPrefix(raw, []byte(`{`)) || !bytes.Contains(raw, []byte(`"time_us"`)) {
			continue
		}
		var l Line
		if err := json.Unmarshal(raw, &l); err != nil {
			return lines, fmt.Errorf("result line %q: %w", raw, err)
		}
		if (l.Bytes <= 0 && l.Op != barrierOp) || l.TimeUS.P50 <= 0 {
			return lines, fmt.Errorf("result line %q: no size or no time", raw)
		}
		lines = append(lines, l)
	}
	return lines, nil
}
