package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// A Report is everything one campaign found; it is what report.json holds.
type Report struct {
	Date    string       `json:"date"`
	Command string       `json:"command"`
	Machine Machine      `json:"machine"`
	Work    Work         `json:"work"`
	Tutti   TuttiState   `json:"tutti"`
	Peers   []PeerState  `json:"peers"`
	Points  []PointState `json:"points"`
	// Incomplete says why the matrix was not measured to its end.
	Incomplete string `json:"incomplete,omitempty"`
}

// Work is what all were asked to do, and how it was timed.
type Work struct {
	Op      string `json:"op"`
	Dtype   string `json:"dtype"`
	Redop   string `json:"redop"`
	InPlace bool   `json:"in_place"`
	Rounds  int    `json:"rounds"`
	CapMS   int64  `json:"cap_ms"`
}

// TuttiState says which Tutti was measured, or why none was.
type TuttiState struct {
	Version     string `json:"version,omitempty"`
	Unavailable string `json:"unavailable,omitempty"`
}

// PeerState says which version of a peer was measured and how, or why not.
type PeerState struct {
	Name        string `json:"name"`
	Title       string `json:"title"`
	Version     string `json:"version,omitempty"`
	Settings    string `json:"settings,omitempty"`
	Unavailable string `json:"unavailable,omitempty"`
}

// PointState is one point's outcome.
type PointState struct {
	Ranks   int           `json:"ranks"`
	Bytes   int64         `json:"bytes"`
	Skipped string        `json:"skipped,omitempty"`
	Peers   []PeerOutcome `json:"peers,omitempty"`
	Alloc   *TuttiOutcome `json:"tutti_alloc,omitempty"`
	User    *TuttiOutcome `json:"tutti_user,omitempty"`
}

// PeerOutcome is a peer at a point. The ratios are its time over Tutti's,
// taken within each round: above 1, Tutti is the faster.
type PeerOutcome struct {
	Name       string  `json:"name"`
	Variant    string  `json:"variant,omitempty"`
	US         *Spread `json:"p50_us,omitempty"`
	RatioAlloc *Spread `json:"ratio_to_tutti_alloc,omitempty"`
	RatioUser  *Spread `json:"ratio_to_tutti_user,omitempty"`
	Wrong      int64   `json:"wrong"`
	Error      string  `json:"error,omitempty"`
}

// TuttiOutcome is Tutti at a point, with one kind of memory.
type TuttiOutcome struct {
	US       *Spread `json:"p50_us,omitempty"`
	Roofline *Spread `json:"roofline_ratio,omitempty"`
	Wrong    int64   `json:"wrong"`
	Error    string  `json:"error,omitempty"`
}

// best is the fastest peer of a point, or nil.
func (p *PointState) best() *PeerOutcome {
	var b *PeerOutcome
	for i := range p.Peers {
		o := &p.Peers[i]
		if o.US != nil && o.Wrong == 0 && (b == nil || o.US.Median < b.US.Median) {
			b = o
		}
	}
	return b
}

func (r *Report) writeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

func (r *Report) writeMarkdown(w io.Writer) {
	place := "in place"
	if !r.Work.InPlace {
		place = "out of place"
	}
	fmt.Fprintf(w, "# Tutti and its peers: %s, %s, %s %s\n\n", r.Work.Op, place, r.Work.Dtype, r.Work.Redop)
	fmt.Fprintf(w, "%s; %s, %d cores usable, %s of memory; Linux %s; %s.\n\n",
		r.Date, r.Machine.CPU, r.Machine.Cores, sizeName(r.Machine.MemoryMiB<<20), r.Machine.Kernel, r.Machine.Go)
	fmt.Fprintf(w, "Command: `%s`\n\n", r.Command)
	if r.Incomplete != "" {
		fmt.Fprintf(w, "**Incomplete: %s**\n\n", r.Incomplete)
	}
	fmt.Fprintf(w, "Times are microseconds a call: the slowest rank's, median over iterations, median over rounds: %d (least to most of them). "+
		"Peers and Tutti ran in turn, rank i on core i mod %d. Ratios are the best peer's time over Tutti's, divided within each round: above 1, Tutti is the faster.\n\n",
		r.Work.Rounds, r.Machine.Cores)
	r.writePeers(w)
	for _, ranks := range r.ranks() {
		r.writeTable(w, ranks)
	}
}

func (r *Report) writePeers(w io.Writer) {
	fmt.Fprintf(w, "| library | version | settings |\n| --- | --- | --- |\n")
	if r.Tutti.Unavailable != "" {
		fmt.Fprintf(w, "| tutti | **unavailable** | %s |\n", cell(r.Tutti.Unavailable))
	} else {
		fmt.Fprintf(w, "| tutti | %s | alloc: buffers from the library; user: any memory |\n", cell(r.Tutti.Version))
	}
	for _, p := range r.Peers {
		if p.Unavailable != "" {
			fmt.Fprintf(w, "| %s (%s) | **unavailable** | %s |\n", p.Name, p.Title, cell(p.Unavailable))
		} else {
			fmt.Fprintf(w, "| %s (%s) | %s | %s |\n", p.Name, p.Title, cell(p.Version), cell(p.Settings))
		}
	}
	fmt.Fprintln(w)
}

func (r *Report) ranks() []int {
	var v []int
	for _, p := range r.Points {
		if !slices.Contains(v, p.Ranks) {
			v = append(v, p.Ranks)
		}
	}
	return v
}

// present are the peers that can run here, as columns.
func (r *Report) present() []string {
	var names []string
	for _, p := range r.Peers {
		if p.Unavailable == "" {
			names = append(names, p.Name)
		}
	}
	return names
}

func (r *Report) writeTable(w io.Writer, ranks int) {
	names := r.present()
	fmt.Fprintf(w, "## %d ranks\n\n| size |", ranks)
	for _, n := range names {
		fmt.Fprintf(w, " %s |", n)
	}
	fmt.Fprintf(w, " tutti alloc | tutti user | best peer | best/alloc | best/user | roofline |\n|%s\n",
		strings.Repeat(" ---: |", len(names)+7))
	var notes []string
	for i := range r.Points {
		p := &r.Points[i]
		if p.Ranks != ranks {
			continue
		}
		at := sizeName(p.Bytes)
		if p.Skipped != "" {
			notes = append(notes, fmt.Sprintf("%s: skipped: %s", at, p.Skipped))
			continue
		}
		fmt.Fprintf(w, "| %s |", at)
		for _, n := range names {
			o := p.peer(n)
			fmt.Fprintf(w, " %s |", timeCell(o.US, o.Wrong, o.Error))
			notes = appendNote(notes, at+", "+n, o.Error, o.Wrong)
		}
		alloc, user := cmp.Or(p.Alloc, &TuttiOutcome{}), cmp.Or(p.User, &TuttiOutcome{})
		fmt.Fprintf(w, " %s | %s |", timeCell(alloc.US, alloc.Wrong, alloc.Error), timeCell(user.US, user.Wrong, user.Error))
		notes = appendNote(notes, at+", tutti alloc", alloc.Error, alloc.Wrong)
		notes = appendNote(notes, at+", tutti user", user.Error, user.Wrong)
		best := cmp.Or(p.best(), &PeerOutcome{Name: "–"})
		fmt.Fprintf(w, " %s | %s | %s | %s |\n", best.Name, ratioCell(best.RatioAlloc), ratioCell(best.RatioUser), ratioCell(alloc.Roofline))
	}
	fmt.Fprintln(w)
	r.writeVariants(w, ranks, names)
	for _, n := range notes {
		fmt.Fprintf(w, "- %s\n", cell(n))
	}
	if len(notes) > 0 {
		fmt.Fprintln(w)
	}
}

// writeVariants says which setting each peer was measured with, as one line a peer.
func (r *Report) writeVariants(w io.Writer, ranks int, names []string) {
	var lines []string
	for _, n := range names {
		var said []string
		for i := range r.Points {
			p := &r.Points[i]
			if v := p.peer(n).Variant; p.Ranks == ranks && v != "" {
				said = append(said, sizeName(p.Bytes)+" "+v)
			}
		}
		if len(said) > 0 {
			lines = append(lines, fmt.Sprintf("- %s: %s\n", n, strings.Join(said, "; ")))
		}
	}
	if len(lines) > 0 {
		fmt.Fprintf(w, "Fastest settings, by a calibrating run, and so the ones measured:\n\n%s\n", strings.Join(lines, ""))
	}
}

func (p *PointState) peer(name string) *PeerOutcome {
	for i := range p.Peers {
		if p.Peers[i].Name == name {
			return &p.Peers[i]
		}
	}
	return &PeerOutcome{}
}

func appendNote(notes []string, who, err string, wrong int64) []string {
	if wrong > 0 {
		notes = append(notes, fmt.Sprintf("%s: **%d wrong elements**", who, wrong))
	}
	if err != "" {
		notes = append(notes, who+": "+err)
	}
	return notes
}

func timeCell(s *Spread, wrong int64, err string) string {
	switch {
	case wrong > 0:
		return "**wrong**"
	case s == nil && err != "":
		return "failed"
	case s == nil:
		return "–"
	case s.Rounds < 2:
		return number(s.Median)
	default:
		return fmt.Sprintf("%s (%s–%s)", number(s.Median), number(s.Min), number(s.Max))
	}
}

func ratioCell(s *Spread) string {
	if s == nil {
		return "–"
	}
	return fmt.Sprintf("%.2f", s.Median)
}

// number prints three digits, or all of a number that has more before the point.
func number(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// cell keeps a text from breaking out of a table's cell.
func cell(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", "\\|")
}
