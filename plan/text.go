package plan

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// MaxText is the length of the longest text that [Parse] reads, in bytes.
const MaxText = 1 << 26

// textVersion is the version of the text form; it changes when an old
// reader would misread a new text.
const textVersion = "v1"

// String returns the text form of the plan, which [Parse] reads back: two
// header lines and one line for each step. See docs/plan-format.md.
func (p *Plan) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "plan %s %s\n", textVersion, p.Name)
	fmt.Fprintf(&s, "%v ranks %d", p.Collective, p.Ranks)
	if p.Collective.Rooted() {
		fmt.Fprintf(&s, " root %d", p.Root)
	}
	fmt.Fprintf(&s, " chunks %d scratch %d\n", p.Chunks, p.Scratch)
	for id := range p.Steps {
		fmt.Fprintf(&s, "%d %v\n", id, &p.Steps[id])
	}
	return s.String()
}

// String returns the step as in the text form, without its number.
func (s *Step) String() string {
	var t strings.Builder
	fmt.Fprintf(&t, "rank %d %v", s.Rank, s.Op)
	for i, q := range s.Srcs {
		if i > 0 {
			t.WriteString(" +")
		}
		t.WriteString(" " + q.String())
	}
	t.WriteString(" ->")
	for _, q := range s.Dsts {
		t.WriteString(" " + q.String())
	}
	if len(s.After) > 0 {
		t.WriteString(" after")
		for _, a := range s.After {
			t.WriteString(" " + strconv.Itoa(int(a)))
		}
	}
	if s.Last {
		t.WriteString(" last")
	}
	return t.String()
}

// A ParseError reports the line of a text that is not a plan.
type ParseError struct {
	Line   int // from 1
	Detail string
}

// Error returns one line: where and what.
func (e *ParseError) Error() string { return fmt.Sprintf("plan: line %d: %s", e.Line, e.Detail) }

// Parse reads the text form of a plan. Blank lines and lines that begin with
// # are skipped. The plan it returns is well formed, but may be wrong: call
// [Plan.Check] before running what somebody else wrote. The error is a
// [*ParseError].
func Parse(text string) (*Plan, error) {
	if len(text) > MaxText {
		return nil, &ParseError{1, fmt.Sprintf("%d bytes, want at most %d", len(text), MaxText)}
	}
	ps := &parser{p: &Plan{}}
	for line := range strings.Lines(text) {
		ps.line++
		ps.words = strings.Fields(line)
		if len(ps.words) == 0 || strings.HasPrefix(ps.words[0], "#") {
			continue
		}
		var detail string
		switch ps.seen {
		case 0:
			detail = ps.name()
		case 1:
			detail = ps.header()
		default:
			detail = ps.step()
		}
		if detail != "" {
			return nil, &ParseError{ps.line, detail}
		}
		ps.seen++
	}
	if ps.seen < 2 {
		return nil, &ParseError{ps.line + 1, "the text ends before the header does"}
	}
	return ps.p, nil
}

// A parser reads a plan line by line. Its methods return what is wrong.
type parser struct {
	p     *Plan
	line  int
	seen  int // lines that were not skipped
	words []string
}

func (ps *parser) next() string {
	if len(ps.words) == 0 {
		return ""
	}
	w := ps.words[0]
	ps.words = ps.words[1:]
	return w
}

// word consumes the wanted word.
func (ps *parser) word(want string) string {
	if w := ps.next(); w != want {
		return fmt.Sprintf("found %q, want %q", w, want)
	}
	return ""
}

// number consumes a decimal number without sign or leading zeros.
func (ps *parser) number(n *int) string {
	w := ps.next()
	var ok bool
	if *n, ok = parseNumber(w); !ok {
		return fmt.Sprintf("found %q, want a number", w)
	}
	return ""
}

func parseNumber(w string) (int, bool) {
	n, err := strconv.Atoi(w)
	return n, err == nil && strconv.Itoa(n) == w && 0 <= n && n <= 1<<30
}

// end consumes the end of the line.
func (ps *parser) end() string {
	if len(ps.words) > 0 {
		return fmt.Sprintf("found %q, want the end of the line", ps.words[0])
	}
	return ""
}

// first returns the first detail that is not empty.
func first(details ...string) string {
	for _, d := range details {
		if d != "" {
			return d
		}
	}
	return ""
}

func (ps *parser) name() string {
	if d := first(ps.word("plan"), ps.word(textVersion)); d != "" {
		return d
	}
	ps.p.Name = ps.next()
	if !validName(ps.p.Name) {
		return fmt.Sprintf("the name %q is not made of letters, digits and -_./", ps.p.Name)
	}
	return ps.end()
}

func (ps *parser) header() string {
	c, err := ParseCollective(ps.next())
	if err != nil {
		return err.Error()
	}
	ps.p.Collective = c
	if d := first(ps.word("ranks"), ps.number(&ps.p.Ranks)); d != "" {
		return d
	}
	if c.Rooted() {
		if d := first(ps.word("root"), ps.number(&ps.p.Root)); d != "" {
			return d
		}
	}
	if d := first(
		ps.word("chunks"), ps.number(&ps.p.Chunks),
		ps.word("scratch"), ps.number(&ps.p.Scratch),
		ps.end(),
	); d != "" {
		return d
	}
	var fault *CheckError
	if errors.As(ps.p.checkHeader(), &fault) {
		return fault.Detail
	}
	return ""
}

func (ps *parser) step() string {
	var id int
	var s Step
	if d := first(ps.number(&id), ps.word("rank"), ps.number(&s.Rank)); d != "" {
		return d
	}
	if id != len(ps.p.Steps) || id >= MaxSteps {
		return fmt.Sprintf("step %d, want step %d of at most %d", id, len(ps.p.Steps), MaxSteps)
	}
	switch w := ps.next(); w {
	case Copy.String():
		s.Op = Copy
	case Reduce.String():
		s.Op = Reduce
	default:
		return fmt.Sprintf("found %q, want copy or reduce", w)
	}
	for sep := "+"; sep == "+"; {
		q, d := ps.place()
		if d != "" {
			return d
		}
		s.Srcs = append(s.Srcs, q)
		if sep = ps.next(); sep != "+" && sep != "->" {
			return fmt.Sprintf("found %q, want + or ->", sep)
		}
	}
	for len(ps.words) > 0 && ps.words[0] != "after" && ps.words[0] != "last" {
		q, d := ps.place()
		if d != "" {
			return d
		}
		s.Dsts = append(s.Dsts, q)
	}
	if len(ps.words) > 0 && ps.words[0] == "after" {
		ps.next()
		for len(ps.words) > 0 && ps.words[0] != "last" || len(s.After) == 0 {
			var a int
			if d := ps.number(&a); d != "" {
				return d
			}
			s.After = append(s.After, StepID(a))
		}
	}
	if len(ps.words) > 0 && ps.words[0] == "last" {
		ps.next()
		s.Last = true
	}
	if d := first(ps.end(), ps.p.stepFault(&s), afterFault(&s, id)); d != "" {
		return d
	}
	ps.p.Steps = append(ps.p.Steps, s)
	return ""
}

// place consumes a place such as 2.in[0].
func (ps *parser) place() (Place, string) {
	w := ps.next()
	rank, rest, ok1 := strings.Cut(w, ".")
	buf, rest, ok2 := strings.Cut(rest, "[")
	chunk, ok3 := strings.CutSuffix(rest, "]")
	var q Place
	if ok1 && ok2 && ok3 {
		q.Rank, ok1 = parseNumber(rank)
		q.Chunk, ok3 = parseNumber(chunk)
		for b, name := range bufNames {
			if name == buf && ok1 && ok3 {
				q.Buf = Buf(b)
				return q, ""
			}
		}
	}
	return Place{}, fmt.Sprintf("found %q, want a place such as 2.in[0]", w)
}
