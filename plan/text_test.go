package plan_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/tutti-go/tutti/plan"
)

const pairText = `plan v1 allreduce/pair
allreduce ranks 2 chunks 1 scratch 1
0 rank 1 copy 1.in[0] -> 0.scratch[0]
1 rank 0 reduce 0.in[0] + 0.scratch[0] -> 0.out[0] after 0 last
2 rank 0 copy 0.out[0] -> 1.scratch[0] after 1
3 rank 1 copy 1.scratch[0] -> 1.out[0] after 0 2
`

func TestText(t *testing.T) {
	p := pair(t)
	if got := p.String(); got != pairText {
		t.Errorf("got\n%s\nwant\n%s", got, pairText)
	}
	q, err := plan.Parse("# a comment\n\n" + strings.ReplaceAll(pairText, " ", "\t "))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(p, q) {
		t.Errorf("got %#v, want %#v", q, p)
	}
}

func TestParseErrors(t *testing.T) {
	head := "plan v1 x\nallreduce ranks 2 chunks 1 scratch 1\n"
	for _, c := range []struct {
		text string
		line int
		want string
	}{
		{"", 1, "before the header"},
		{"plan v1 x\n", 2, "before the header"},
		{"plan v2 x\n", 1, `want "v1"`},
		{"plan v1\n", 1, "the name"},
		{"plan v1 x y\n", 1, "the end of the line"},
		{"plan v1 x\nmagic ranks 2 chunks 1 scratch 0\n", 2, "unknown collective"},
		{"plan v1 x\nallreduce ranks 2 chunks 1\n", 2, `want "scratch"`},
		{"plan v1 x\nallreduce ranks 99999 chunks 1 scratch 0\n", 2, "99999 ranks"},
		{"plan v1 x\nallreduce ranks 4096 chunks 65536 scratch 0\n", 2, "over all ranks"},
		{head + "1 rank 0 copy 0.in[0] -> 0.out[0]\n", 3, "want step 0"},
		{head + "0 rank 0 move 0.in[0] -> 0.out[0]\n", 3, "want copy or reduce"},
		{head + "0 rank 0 copy 0.in[0]\n", 3, "want + or ->"},
		{head + "0 rank 0 copy 0.in[0] ->\n", 3, "no destination"},
		{head + "0 rank 0 copy 0.in[0] -> 0.out[00]\n", 3, "want a place"},
		{head + "0 rank 0 copy 0.in[0] -> 0.out\n", 3, "want a place"},
		{head + "0 rank 0 copy 0.in[-1] -> 0.out[0]\n", 3, "want a place"},
		{head + "0 rank 0 copy 0.in[0] -> 0.out[1]\n", 3, "chunk not among 1"},
		{head + "0 rank 0 copy 0.in[0] -> 0.out[0] after\n", 3, "want a number"},
		{head + "0 rank 0 copy 0.in[0] -> 0.out[0] after 0\n", 3, "no earlier step"},
		{head + "0 rank 0 copy 0.in[0] -> 0.out[0] last last\n", 3, "the end of the line"},
	} {
		_, err := plan.Parse(c.text)
		var pe *plan.ParseError
		if !errors.As(err, &pe) || pe.Line != c.line || !strings.Contains(pe.Detail, c.want) {
			t.Errorf("%q: got %v, want line %d and %q", c.text, err, c.line, c.want)
		}
	}
}

// FuzzParse: whatever the text, Parse does not panic, and what it reads it
// writes and reads again the same. Check, Lower and Verify do not panic
// either, and agree: what passes Check passes Verify.
func FuzzParse(f *testing.F) {
	f.Add(pairText)
	f.Add("plan v1 x\nbarrier ranks 1 chunks 1 scratch 0\n")
	f.Add("plan v1 x\nallreduce ranks 1 chunks 1 scratch 0\n0 rank 0 copy 0.in[0] -> 0.out[0]\n")
	f.Add(strings.Replace(pairText, "after 0 2", "after 2", 1))
	f.Fuzz(func(t *testing.T, text string) {
		p, err := plan.Parse(text)
		if err != nil {
			var pe *plan.ParseError
			if !errors.As(err, &pe) {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		again, err := plan.Parse(p.String())
		if err != nil {
			t.Fatalf("%v\n%v", err, p)
		}
		if !reflect.DeepEqual(p, again) {
			t.Fatalf("got\n%v\nwant\n%v", again, p)
		}
		if p.Ranks*max(p.Chunks, p.Scratch) > 1<<10 || len(p.Steps) > 1<<10 {
			return // correct for large plans too, but slow
		}
		checked := p.Check()
		l, err := plan.Lower(p, 2)
		if err != nil {
			if checked == nil {
				t.Fatalf("Check accepts, Lower does not: %v\n%v", err, p)
			}
			return
		}
		if err := l.Verify(); checked == nil && err != nil {
			t.Fatalf("Check accepts, Verify does not: %v\n%v", err, p)
		}
	})
}
