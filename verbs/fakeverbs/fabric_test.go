package fakeverbs

import (
	"strings"
	"testing"
)

const whole = "begin 7\napplied 123\nhost 2\nseed 18446744073709551615\ncontexts 1\npds 2\nmrs 3\ncqs 4\nqps 5\nsrqs 6\nahs 7\nchannels 8\nleaked 9\n" +
	"error refused: port state=9\nend 7\n"

func TestProcess(t *testing.T) {
	want := Process{
		Host: 2, Seed: 1<<64 - 1, Contexts: 1, PDs: 2, MRs: 3, CompletionQueues: 4, QueuePairs: 5, SRQs: 6, AddressHandles: 7, Channels: 8,
		Leaked: 9, applied: 123, complaint: "refused: port state=9",
	}
	var p Process
	if !p.parse([]byte(whole)) || p != want {
		t.Errorf("%+v", p)
	}
	// Whatever is cut off or mixed with another version is not whole.
	for n := range len(whole) - 1 {
		if p.parse([]byte(whole[:n])) {
			t.Errorf("%d bytes of it are taken for all", n)
		}
	}
	if p.parse([]byte(strings.Replace(whole, "end 7", "end 8", 1))) {
		t.Error("two versions are taken for one")
	}
}

func FuzzProcess(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte("begin 1\nseed -1\nqps 99999999999999999999\nend 1"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var p Process
		if p.parse(text) && !strings.Contains(string(text), "begin") {
			t.Error("taken for whole without a beginning")
		}
	})
}
