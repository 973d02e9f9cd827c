package bootstrap

import (
	"bytes"
	"errors"
	"net"
	"strings"
	"testing"
)

// FuzzHandshake: whatever bytes come in a handshake are taken apart without a
// fault, and what is taken apart is what they say.
func FuzzHandshake(f *testing.F) {
	h := hello{version: wireVersion, role: roleLink, hasSecret: true, rank: 3, size: 7, nonce: newNonce()}
	fine, refusal := answer{version: wireVersion, hasSecret: true, nonce: newNonce()}, answer{version: 9, code: codeVersion, text: "no"}
	f.Add(h.encode())
	f.Add(fine.encode())
	f.Add(refusal.encode())
	f.Add((&verdict{code: codeSecret, text: "no"}).encode())
	f.Add((&verdict{}).encode())
	f.Add(append([]byte{11}, append([]byte("127.0.0.1:5"), make([]byte, macSize)...)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, raw, err := readHello(bytes.NewReader(b), wireVersion); err == nil && (!bytes.Equal(raw, b[:helloSize]) || !bytes.Equal(h.encode(), raw)) {
			t.Errorf("%x reads as hello %+v", b, h)
		}
		if a, raw, err := readAnswer(bytes.NewReader(b), wireVersion); err == nil && (!bytes.HasPrefix(b, raw) || !bytes.Equal(a.encode(), raw)) {
			t.Errorf("%x reads as answer %+v", b, a)
		}
		if v, err := readVerdict(bytes.NewReader(b)); err == nil && !bytes.HasPrefix(b, v.encode()) {
			t.Errorf("%x reads as verdict %+v", b, v)
		}
		if address, raw, mac, err := readProof(bytes.NewReader(b)); err == nil {
			if !bytes.HasPrefix(b, append(raw, mac[:]...)) || len(address) > addressSize {
				t.Errorf("%x reads as proof of %q", b, address)
			}
			if validAddress(address) {
				if _, err := parseTarget(address); err != nil && !strings.HasSuffix(address, ":0") {
					t.Errorf("%q is valid, but: %v", address, err)
				}
			}
		}
	})
}

// FuzzNews: what ranks tell each other beside blobs.
func FuzzNews(f *testing.F) {
	for _, err := range []error{
		&MissingError{Ranks: []int{1, 2}, Size: 4}, &LostError{Rank: 3}, &leftError{2}, &WaitError{Rank: 1, Err: ErrClosed},
		&JoinError{Cause: ErrDuplicate, Rank: 1}, errors.New("other"),
	} {
		f.Add(encodeFailure(err), uint16(4))
	}
	f.Add(encodeRanks([]int{1, 2, 3}), uint16(4))
	f.Fuzz(func(t *testing.T, b []byte, size uint16) {
		n := 1 + int(size)
		if e, err := decodeFailure(b, n); err == nil {
			if !bytes.Equal(encodeFailure(e), b) {
				t.Errorf("%x is passed on as %x", b, encodeFailure(e))
			}
			_ = e.Error()
		}
		if list, err := decodeRanks(b, n); err == nil && !bytes.Equal(encodeRanks(list), b) {
			t.Errorf("%x reads as %v", b, list)
		}
	})
}

// FuzzLink: whatever comes over a link to any rank is an error or is taken,
// and nothing else happens.
func FuzzLink(f *testing.F) {
	f.Add(byte(frameGather), append(make([]byte, 4), appendBlob(nil, []byte("blob"))...), false)
	f.Add(byte(frameResult), make([]byte, 4+4*4), true)
	f.Add(byte(framePlace), append(make([]byte, seedSize), "127.0.0.1:5"...), true)
	f.Add(byte(frameLeave), []byte{2, 0, 0, 0, 9, 0, 0, 0}, true)
	f.Add(byte(frameLinked), []byte(nil), false)
	f.Add(byte(frameWaiting), []byte{2, 0, 0, 0}, true)
	f.Fuzz(func(t *testing.T, kind byte, payload []byte, fromRoot bool) {
		rank, peer := 0, 2
		if fromRoot {
			rank, peer = 2, 0
		}
		n := newNode(rank, 4, -1)
		here, there := net.Pipe()
		defer there.Close()
		l := &link{wire: newWire(here, [macSize]byte{}, [macSize]byte{}), rank: peer, star: true, child: map[bool]int{true: -1, false: 1}[fromRoot]}
		if limit := n.limit(l, kind); limit < 0 || len(payload) > limit {
			return
		}
		if kind == frameLinked || kind == frameFormed || kind == framePlace {
			// twice must not be a fault
			_ = n.handle(l, kind, payload)
		}
		err := n.handle(l, kind, payload)
		var frame *FrameError
		if err != nil && !errors.As(err, &frame) {
			t.Errorf("kind %d, %x: %v", kind, payload, err)
		}
		_ = n.Close()
	})
}

// TestFailuresArrive: what one rank fails of is what the others can tell apart.
func TestFailuresArrive(t *testing.T) {
	for _, err := range []error{
		&JoinError{Cause: ErrVersion, Rank: 1}, &JoinError{Cause: ErrSize, Rank: 2}, &JoinError{Cause: ErrRank, Rank: 77}, &JoinError{Cause: ErrDuplicate, Rank: 1},
		&JoinError{Cause: ErrAddress, Rank: -1}, &leftError{3},
	} {
		e, bad := decodeFailure(encodeFailure(err), 4)
		if bad != nil || !errors.Is(e, errors.Unwrap(err)) || e.Reason != err.Error() {
			t.Errorf("%v arrives as %v, %v", err, e, bad)
		}
	}
	long := &LostError{Rank: 2, Err: errors.New(strings.Repeat("äöü", 5000) + "\xff")}
	e, err := decodeFailure(encodeFailure(long), 4)
	var lost *LostError
	if err != nil || !errors.As(e, &lost) || lost.Rank != 2 || e.Rank != 2 || len(e.Reason) > longestText {
		t.Errorf("a long one arrives as %v, %v", e, err)
	}
	again, err := decodeFailure(encodeFailure(e), 4)
	if err != nil || again.Reason != e.Reason || again.Rank != 2 {
		t.Errorf("passed on: %v, %v", again, err)
	}
}

func TestRanksInWords(t *testing.T) {
	var odd []int
	for r := 1; r < 100; r += 2 {
		odd = append(odd, r)
	}
	for want, list := range map[string][]int{"rank 3": {3}, "ranks 3,5": {3, 5}, "ranks 0-2,7,9-10": {0, 1, 2, 7, 9, 10}} {
		if got := ranks(list); got != want {
			t.Errorf("%v: %q, want %q", list, got, want)
		}
	}
	if got := ranks(odd); !strings.HasSuffix(got, "…") || len(got) > 100 {
		t.Errorf("many: %q", got)
	}
}
