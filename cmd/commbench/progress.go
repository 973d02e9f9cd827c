package main

import (
	"fmt"
	"io"
	"time"
)

// progressLine keeps one line of a terminal up to date. A nil one does
// nothing.
type progressLine struct {
	w     io.Writer
	tasks []task
	began time.Time
	shown bool
	now   func() time.Time
}

// quietFor is how long a run goes on before anything is shown.
const quietFor = time.Second

func newProgressLine(o *options, w io.Writer) *progressLine {
	return &progressLine{w: w, tasks: o.tasks, began: time.Now(), now: time.Now}
}

func (p *progressLine) update(at *progress) {
	if p == nil || at.Point < 0 || at.Point >= len(p.tasks) {
		return
	}
	elapsed := p.now().Sub(p.began)
	if elapsed < quietFor {
		return
	}
	done, all := 0.0, 0.0
	for i, t := range p.tasks {
		if i < at.Point {
			done += weight(t)
		}
		all += weight(t)
	}
	left := ""
	if done > 0 {
		eta := time.Duration(float64(elapsed) * (all - done) / done)
		left = fmt.Sprintf(", %v left", eta.Round(time.Second))
	}
	fmt.Fprintf(p.w, "\r\x1b[K%d of %d: %s, %s%s", at.Point+1, len(p.tasks), p.tasks[at.Point], at.Phase, left)
	p.shown = true
}

// clear makes room for a line of output.
func (p *progressLine) clear() {
	if p == nil || !p.shown {
		return
	}
	fmt.Fprint(p.w, "\r\x1b[K")
	p.shown = false
}

// String is a row in words.
func (t task) String() string {
	switch {
	case !t.op.moves():
		return t.op.name
	case !t.op.reduces():
		return fmt.Sprintf("%v %s %v", t.op, shortBytes(t.bytes), t.dtype)
	}
	return fmt.Sprintf("%v %s %v %v", t.op, shortBytes(t.bytes), t.dtype, t.redop)
}

// weight is about how long a row takes: half a second, and more where filling
// and checking go through memory for long.
func weight(t task) float64 { return 0.5 + float64(t.bytes)/(256<<20) }
