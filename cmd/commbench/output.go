package main

import (
	"fmt"
	"io"
)

// format takes what is measured, in one format.
type format interface {
	hello(h *hello)
	point(p *point)
	floor(f *floor)
	// end comes last: err is why the run ended early, or nil.
	end(err error)
}

// checkedWriter keeps the first error, and calls failed. Whoever writes hears
// of none, so that it is reported once.
type checkedWriter struct {
	w      io.Writer
	failed func(error)
	err    error
}

func (c *checkedWriter) Write(b []byte) (int, error) {
	if c.err != nil {
		return len(b), nil
	}
	if _, err := c.w.Write(b); err != nil {
		c.err = fmt.Errorf("the results could not be written: %w", err)
		c.failed(c.err)
	}
	return len(b), nil
}

// output prints what the ranks report. One goroutine at a time uses it.
type output struct {
	format
	stderr   io.Writer
	progress *progressLine // nil where nobody watches
	wrong    int64
}

func newOutput(o *options, stdout, stderr io.Writer) *output {
	out := &output{stderr: stderr}
	switch o.format {
	case formatJSON:
		out.format = &jsonLines{w: stdout}
	case formatCSV:
		out.format = &csvLines{w: stdout, o: o}
	default:
		out.format = newTable(stdout, o)
	}
	if isTerminal(stderr) {
		out.progress = newProgressLine(o, stderr)
	}
	return out
}

func (out *output) take(ev event) {
	if ev.Progress != nil {
		out.progress.update(ev.Progress)
		return
	}
	out.progress.clear()
	switch {
	case ev.Hello != nil:
		out.hello(ev.Hello)
	case ev.Point != nil:
		for _, r := range ev.Point.results() {
			if r.Wrong != nil {
				out.wrong += *r.Wrong
			}
		}
		out.point(ev.Point)
	case ev.Floor != nil:
		out.floor(ev.Floor)
	case ev.Note != "":
		fmt.Fprintln(out.stderr, "commbench: "+ev.Note)
	}
}

// finish ends the output of a run that came to its end.
func (out *output) finish() error {
	out.progress.clear()
	out.end(nil)
	if out.wrong > 0 {
		return &wrongError{out.wrong}
	}
	return nil
}

// interrupted ends the output of one that did not.
func (out *output) interrupted(err error) {
	out.progress.clear()
	out.end(err)
}
