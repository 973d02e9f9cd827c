//go:build linux && cgo && (amd64 || arm64 || loong64 || ppc64le || riscv64 || s390x)

package verbs_test

import (
	"testing"

	"github.com/tutti-go/tutti/verbs"
)

// BenchmarkEmptyPoll is what a look at an empty queue costs: the call of C,
// mostly, and on the simulated device some of its work.
func BenchmarkEmptyPoll(b *testing.B) {
	s, _ := pair(b, options{})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.cq.Poll(s.done); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAdd is what a request costs before it is posted.
func BenchmarkAdd(b *testing.B) {
	s, peer := pair(b, options{})
	word := make([]byte, 8)
	segments := []verbs.Segment{s.seg(0, 8)}
	for name, r := range map[string]verbs.Request{
		"segment": {Opcode: verbs.Write, Segments: segments, RemoteAddr: peer.at(0), RKey: peer.mr.RKey()},
		"inline":  {Opcode: verbs.Write, Inline: word, RemoteAddr: peer.at(0), RKey: peer.mr.RKey()},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if s.send.Add(&r) != nil {
					s.send.Clear()
				}
			}
			s.send.Clear()
		})
	}
}

// BenchmarkBatch writes 16 words with one doorbell and waits for the last.
func BenchmarkBatch(b *testing.B) {
	s, peer := pair(b, options{})
	word := make([]byte, 8)
	b.ReportAllocs()
	for b.Loop() {
		for i := range 16 {
			r := verbs.Request{Opcode: verbs.Write, Inline: word, RemoteAddr: peer.at(8 * i), RKey: peer.mr.RKey()}
			if i == 15 {
				r.Flags = verbs.Signaled
			}
			if err := s.send.Add(&r); err != nil {
				b.Fatal(err)
			}
		}
		n, err := s.cq.PostAndPoll(s.done, nil, s.send)
		for n == 0 && err == nil {
			n, err = s.cq.Poll(s.done)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
