package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
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
	Ops        []string `json:"ops"`
	Dtype      string   `json:"dtype"`
	Redop      string   `json:"redop"`
	InPlace    bool     `json:"in_place"`
	Memory     []string `json:"memory"` // Tutti's buffers
	Rounds     int      `json:"rounds"`
	CapMS      int64    `json:"cap_ms"`
	Contenders int      `json:"contenders"`      // most peers measured at a point
	Nodes      int      `json:"nodes,omitempty"` // between which the ranks are divided; 0: one machine
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
	Op      string        `json:"op"`
	Ranks   int           `json:"ranks"`
	Bytes   int64         `json:"bytes"`
	Skipped string        `json:"skipped,omitempty"`
	Peers   []PeerOutcome `json:"peers,omitempty"`
	Alloc   *TuttiOutcome `json:"tutti_alloc,omitempty"`
	User    *TuttiOutcome `json:"tutti_user,omitempty"`
}

// PeerOutcome is a peer at a point. The ratios are its time over Tutti's,
// taken within each round: above 1, Tutti is the faster. A peer that was not
// near the best in the calibrating run has that run's time only.
type PeerOutcome struct {
	Name         string  `json:"name"`
	Variant      string  `json:"variant,omitempty"`
	CalibratedUS float64 `json:"calibrated_us,omitempty"`
	US           *Spread `json:"p50_us,omitempty"`
	RatioAlloc   *Spread `json:"ratio_to_tutti_alloc,omitempty"`
	RatioUser    *Spread `json:"ratio_to_tutti_user,omitempty"`
	Wrong        int64   `json:"wrong"`
	Error        string  `json:"error,omitempty"`
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
	place := "in place where there is such a form"
	if !r.Work.InPlace {
		place = "out of place"
	}
	between := ""
	if r.Work.Nodes > 0 {
		between = fmt.Sprintf(" over sockets between %d nodes", r.Work.Nodes)
	}
	fmt.Fprintf(w, "# Tutti and its peers%s: %s %s, %s\n\n", between, r.Work.Dtype, r.Work.Redop, place)
	fmt.Fprintf(w, "%s; %s, %d cores usable, %s of memory; Linux %s; %s.\n\n",
		r.Date, r.Machine.CPU, r.Machine.Cores, sizeName(r.Machine.MemoryMiB<<20), r.Machine.Kernel, r.Machine.Go)
	fmt.Fprintf(w, "Command: `%s`\n\n", r.Command)
	if r.Incomplete != "" {
		fmt.Fprintf(w, "**Incomplete: %s**\n\n", r.Incomplete)
	}
	fmt.Fprintf(w, "Times are microseconds a call: the slowest rank's, median over iterations, median over rounds: %d (least to most of them). "+
		"Peers and Tutti ran in turn, rank i on core i mod %d. Ratios are the best peer's time over Tutti's, divided within each round: above 1, Tutti is the faster; **bold** where it is the slower.\n\n",
		r.Work.Rounds, r.Machine.Cores)
	if r.Work.Nodes > 0 {
		fmt.Fprintf(w, "The nodes are network namespaces of this machine, joined by veth pairs and a bridge: no wire, the kernel's TCP, and cores that all share. Node i has the i-th part of the ranks.\n\n")
	}
	r.writePeers(w)
	r.writeSummary(w)
	for _, t := range r.tables() {
		r.writeTable(w, t)
	}
	r.writeTries(w)
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

// A table is the points of one collective and number of ranks.
type table struct {
	op     string
	ranks  int
	points []*PointState
}

func (r *Report) tables() []table {
	var all []table
	for i := range r.Points {
		p := &r.Points[i]
		at := slices.IndexFunc(all, func(t table) bool { return t.op == p.Op && t.ranks == p.Ranks })
		if at < 0 {
			all = append(all, table{op: p.Op, ranks: p.Ranks})
			at = len(all) - 1
		}
		all[at].points = append(all[at].points, p)
	}
	for _, t := range all {
		slices.SortStableFunc(t.points, func(a, b *PointState) int { return cmp.Compare(a.Bytes, b.Bytes) })
	}
	return all
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

// A mean gathers ratios: their geometric mean, and how many were below 1.
type mean struct {
	logs  float64
	cells int
	slow  int
}

func (m *mean) add(s *Spread) {
	if s == nil || s.Median <= 0 {
		return
	}
	m.logs += math.Log(s.Median)
	m.cells++
	if s.Median < 1 {
		m.slow++
	}
}

func (m *mean) String() string {
	if m.cells == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", math.Exp(m.logs/float64(m.cells)))
}

func (m *mean) slower() string {
	if m.cells == 0 {
		return "–"
	}
	return fmt.Sprintf("%d of %d", m.slow, m.cells)
}

// A slowCell is a point at which Tutti, with one kind of memory, is slower
// than the best peer.
type slowCell struct {
	point  *PointState
	memory string
	peer   *PeerOutcome
	ratio  float64
}

// summarise takes the means over the points of each collective, and over all,
// and lists the slow cells, the slowest first.
func (r *Report) summarise() (names []string, means map[string]*[2]mean, slow []slowCell) {
	means = map[string]*[2]mean{everything: {}}
	for i := range r.Points {
		p := &r.Points[i]
		if means[p.Op] == nil {
			means[p.Op] = &[2]mean{}
			names = append(names, p.Op)
		}
		b := p.best()
		if b == nil {
			continue
		}
		for m, s := range []*Spread{b.RatioAlloc, b.RatioUser} {
			means[p.Op][m].add(s)
			means[everything][m].add(s)
			if s != nil && s.Median < 1 {
				slow = append(slow, slowCell{p, []string{memoryAlloc, memoryUser}[m], b, s.Median})
			}
		}
	}
	slices.SortStableFunc(slow, func(a, b slowCell) int { return cmp.Compare(a.ratio, b.ratio) })
	return append(names, everything), means, slow
}

const everything = "all"

func (r *Report) writeSummary(w io.Writer) {
	names, means, slow := r.summarise()
	if means[everything][0].cells+means[everything][1].cells == 0 {
		return
	}
	fmt.Fprintf(w, "## Summary\n\nGeometric means of the ratios, and the cells where Tutti is the slower.\n\n"+
		"| collective | best/alloc | slower | best/user | slower |\n| --- | ---: | ---: | ---: | ---: |\n")
	for _, n := range names {
		m := means[n]
		if n == everything {
			n = "**" + n + "**"
		}
		fmt.Fprintf(w, "| %s | %v | %s | %v | %s |\n", n, &m[0], m[0].slower(), &m[1], m[1].slower())
	}
	fmt.Fprintln(w)
	if len(slow) == 0 {
		return
	}
	fmt.Fprintf(w, "| slower: collective | ranks | size | memory | ratio | best peer |\n| --- | ---: | ---: | --- | ---: | --- |\n")
	for _, s := range slow {
		fmt.Fprintf(w, "| %s | %d | %s | %s | %.2f | %s |\n", s.point.Op, s.point.Ranks, pointSize(s.point), s.memory, s.ratio, s.peer.with())
	}
	fmt.Fprintln(w)
}

// with is the peer and its setting.
func (o *PeerOutcome) with() string {
	if o.Variant == "" || o.Variant == "default" {
		return cell(o.Name)
	}
	return cell(o.Name + ": " + o.Variant)
}

func pointSize(p *PointState) string {
	if p.Op == barrierOp {
		return "–"
	}
	return sizeName(p.Bytes)
}

func (r *Report) writeTable(w io.Writer, t table) {
	fmt.Fprintf(w, "## %s, %d ranks\n\n", t.op, t.ranks)
	fmt.Fprintf(w, "| size | best peer | its time | tutti alloc | best/alloc | tutti user | best/user |\n| ---: | --- | ---: | ---: | ---: | ---: | ---: |\n")
	var notes notes
	for _, p := range t.points {
		at := pointSize(p)
		if p.Skipped != "" {
			notes.add(at, "skipped: "+p.Skipped)
			continue
		}
		alloc, user := cmp.Or(p.Alloc, &TuttiOutcome{}), cmp.Or(p.User, &TuttiOutcome{})
		best := cmp.Or(p.best(), &PeerOutcome{Name: "–"})
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s |\n", at, best.with(), timeCell(best.US, 0, ""),
			timeCell(alloc.US, alloc.Wrong, alloc.Error), ratioCell(best.RatioAlloc),
			timeCell(user.US, user.Wrong, user.Error), ratioCell(best.RatioUser))
		for i := range p.Peers {
			notes.failure(at, p.Peers[i].Name, p.Peers[i].Error, p.Peers[i].Wrong)
		}
		notes.failure(at, "tutti alloc", alloc.Error, alloc.Wrong)
		notes.failure(at, "tutti user", user.Error, user.Wrong)
	}
	fmt.Fprintln(w)
	for i, text := range notes.texts {
		fmt.Fprintf(w, "- %s: %s\n", strings.Join(notes.sizes[i], ", "), cell(text))
	}
	if len(notes.texts) > 0 {
		fmt.Fprintln(w)
	}
}

// writeTries says how every peer did with its best setting: in the rounds
// where it was measured in them, in the calibrating run (in brackets) where not.
func (r *Report) writeTries(w io.Writer) {
	names := r.present()
	if len(names) == 0 || len(r.Points) == 0 {
		return
	}
	fmt.Fprintf(w, "## Every peer\n\nWith the setting that was its fastest in a calibrating run. In brackets that run's time: the peer was not near the best, and was not measured again. A dash: it has no such collective, or was not near the best at a smaller size.\n\n")
	fmt.Fprintf(w, "| collective | ranks | size | %s |\n| --- | ---: | ---: |%s\n", strings.Join(names, " | "), strings.Repeat(" --- |", len(names)))
	for _, t := range r.tables() {
		for _, p := range t.points {
			if p.Skipped != "" {
				continue
			}
			fmt.Fprintf(w, "| %s | %d | %s |", t.op, t.ranks, pointSize(p))
			for _, n := range names {
				fmt.Fprintf(w, " %s |", p.peer(n).tried())
			}
			fmt.Fprintln(w)
		}
	}
	fmt.Fprintln(w)
}

func (o *PeerOutcome) tried() string {
	variant := ""
	if o.Variant != "" && o.Variant != "default" {
		variant = " " + cell(o.Variant)
	}
	switch {
	case o.Wrong > 0:
		return "**wrong**" + variant
	case o.US != nil:
		return number(o.US.Median) + variant
	case o.Error != "":
		return "failed"
	case o.CalibratedUS > 0:
		return "(" + number(o.CalibratedUS) + variant + ")"
	default:
		return "–"
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

// notes go below a table: each text once, with the sizes it is about.
type notes struct {
	texts []string
	sizes [][]string
}

func (n *notes) add(size, text string) {
	i := slices.Index(n.texts, text)
	if i < 0 {
		n.texts = append(n.texts, text)
		n.sizes = append(n.sizes, nil)
		i = len(n.texts) - 1
	}
	n.sizes[i] = append(n.sizes[i], size)
}

func (n *notes) failure(size, who, err string, wrong int64) {
	if wrong > 0 {
		n.add(size, fmt.Sprintf("%s: **%d wrong elements**", who, wrong))
	}
	if err != "" {
		n.add(size, who+": "+err)
	}
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
	if s.Median < 1 {
		return fmt.Sprintf("**%.2f**", s.Median)
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
