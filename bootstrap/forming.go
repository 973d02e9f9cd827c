package bootstrap

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// How a job forms: every rank dials rank 0 and keeps that connection. When all
// have come, rank 0 tells each where its parent is (place); each dials its
// parent, waits for its children, and says so (linked); when all have, rank 0
// tells all (formed), and the connections to it that are none of the tree are
// closed. Whatever goes wrong until then goes to all over these connections.
//
// In the tree the ranks prove to each other that rank 0 let them in: it gives
// each the seed of a key.

// progressEvery is how often rank 0 tells who have come of those who have not.
const progressEvery = time.Second

const (
	seedSize   = 32
	placeLimit = seedSize + addressSize
	mostNotes  = 8
)

// forming is what a node knows while the job forms. What rank 0 keeps is under
// the mutex of the node.
type forming struct {
	node *node

	// Of rank 0.
	addresses []string // by rank, where each listens
	from      []string // by rank, where each came from; empty: has not come
	stars     []*link  // by rank
	came      int
	linked    []bool
	links     int
	over      bool
	notes     []string // of those that were turned away
	allCame   chan struct{}
	allLinked chan struct{}

	// Of the others.
	progress chan []int // who is missing; holds the newest
	placed   chan place
	formed   chan struct{}
}

// place is what rank 0 tells a rank of the tree.
type place struct {
	seed   []byte
	parent string // its address; empty where that is rank 0
}

func newForming(n *node) *forming {
	f := &forming{node: n}
	if n.rank == 0 {
		f.addresses, f.from = make([]string, n.size), make([]string, n.size)
		f.stars, f.linked = make([]*link, n.size), make([]bool, n.size)
		f.allCame, f.allLinked = make(chan struct{}), make(chan struct{})
	} else {
		f.progress, f.placed, f.formed = make(chan []int, 1), make(chan place, 1), make(chan struct{})
	}
	return f
}

// handle takes the frames of the forming. That each comes from where it may
// has been checked.
func (f *forming) handle(l *link, kind byte, payload []byte) error {
	switch kind {
	case frameWaiting:
		missing, err := decodeRanks(payload, f.node.size)
		if err != nil {
			return err
		}
		select {
		case <-f.progress:
		default:
		}
		f.progress <- missing // only this goroutine sends
	case framePlace:
		if len(payload) < seedSize {
			return &FrameError{"a place that ends early"}
		}
		select {
		case f.placed <- place{payload[:seedSize], string(payload[seedSize:])}:
		default:
			return &FrameError{"a second place"}
		}
	case frameFormed:
		select {
		case <-f.formed:
			return &FrameError{"a job that forms twice"}
		default:
		}
		n := f.node
		n.mu.Lock()
		l.retired = n.parent != l // rank 0 hangs up if this is no link of the tree
		n.mu.Unlock()
		close(f.formed)
	case frameLinked:
		n := f.node
		n.mu.Lock()
		defer n.mu.Unlock()
		if f.linked[l.rank] || f.came < n.size-1 {
			return &FrameError{"a rank that has its links at the wrong time"}
		}
		f.linked[l.rank] = true
		if f.links++; f.links == n.size-1 {
			close(f.allLinked)
		}
	}
	return nil
}

func encodeRanks(list []int) []byte {
	var b []byte
	for _, r := range list {
		b = binary.LittleEndian.AppendUint32(b, uint32(r))
	}
	return b
}

func decodeRanks(b []byte, size int) ([]int, error) {
	if len(b)%4 != 0 || len(b) > 4*size {
		return nil, &FrameError{fmt.Sprintf("a list of ranks of %d bytes", len(b))}
	}
	list := make([]int, len(b)/4)
	for i := range list {
		r := binary.LittleEndian.Uint32(b[4*i:])
		if r >= uint32(size) {
			return nil, &FrameError{fmt.Sprintf("rank %d of %d in a list", r, size)}
		}
		list[i] = int(r)
	}
	return list, nil
}

// claim is rank 0's gate deciding about a rank.
func (f *forming) claim(h hello, address string, conn net.Conn) *JoinError {
	n := f.node
	e := &JoinError{Rank: int(h.rank), Address: addressOf(conn.RemoteAddr())}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case int(h.size) != n.size:
		e.Cause, e.Detail = ErrSize, fmt.Sprintf("it was told %d ranks, rank 0 was told %d", h.size, n.size)
	case int(h.rank) >= n.size:
		e.Cause, e.Detail = ErrRank, fmt.Sprintf("there are %d", n.size)
	case h.rank == 0:
		e.Cause, e.Detail = ErrDuplicate, "the other one serves the rendezvous"
	case f.from[h.rank] != "":
		e.Cause, e.Detail = ErrDuplicate, "the other one came from "+f.from[h.rank]
	case !validAddress(address):
		e.Cause, e.Detail = ErrAddress, fmt.Sprintf("it says %q", address)
	default:
		f.from[h.rank], f.addresses[h.rank] = e.Address, address
		return nil
	}
	return e
}

// enter takes a rank in whose claim was granted.
func (f *forming) enter(h hello, _ string, w *wire) {
	n := f.node
	l := n.add(w, int(h.rank), true)
	n.mu.Lock()
	defer n.mu.Unlock()
	f.stars[h.rank] = l
	if f.came++; f.came == n.size-1 {
		close(f.allCame)
	}
}

// refused is rank 0's gate telling whom it has sent away. Where that can only
// be one of ours, the job cannot form.
func (f *forming) refused(e *JoinError, proven bool) {
	n := f.node
	n.mu.Lock()
	if len(f.notes) < mostNotes {
		f.notes = append(f.notes, e.Error())
	}
	fatal := proven && !f.over
	n.mu.Unlock()
	if fatal && !errors.Is(e, ErrOtherJob) {
		n.fail(e, nil)
	}
}

// missing lists who has not come.
func (f *forming) missing() []int {
	n := f.node
	n.mu.Lock()
	defer n.mu.Unlock()
	var list []int
	for r := 1; r < n.size; r++ {
		if f.stars[r] == nil {
			list = append(list, r)
		}
	}
	return list
}

// unlinked lists who has come but has not all its links.
func (f *forming) unlinked() []int {
	n := f.node
	n.mu.Lock()
	defer n.mu.Unlock()
	var list []int
	for r := 1; r < n.size; r++ {
		if !f.linked[r] {
			list = append(list, r)
		}
	}
	return list
}

// tell sends a frame to all that have come, and reports who got it; the others
// are dying, as their readers will say.
func (f *forming) tell(kind byte, payload func(rank int) []byte) {
	n := f.node
	n.mu.Lock()
	stars := slices.Clone(f.stars)
	n.mu.Unlock()
	for r, l := range stars {
		if l != nil {
			_ = l.writeWithin(handshakeTime, kind, payload(r))
		}
	}
}

// serve is the forming as rank 0 sees it.
func (f *forming) serve(ctx context.Context, timeout time.Duration) error {
	began := time.Now()
	n := f.node
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	progress := time.NewTicker(progressEvery)
	defer progress.Stop()
	for came := false; !came; {
		select {
		case <-f.allCame:
			came = true
		case <-n.done:
			return n.Err()
		case <-progress.C:
			missing := encodeRanks(f.missing())
			f.tell(frameWaiting, func(int) []byte { return missing })
		case <-deadline.C:
			return f.late(began)
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return f.late(began)
			}
			return &WaitError{0, ranks(f.missing()), context.Cause(ctx)}
		}
	}
	if err := f.checkAddresses(); err != nil {
		return err
	}
	seed := make([]byte, seedSize)
	_, _ = rand.Read(seed) // never fails
	f.tell(framePlace, func(r int) []byte {
		place := slices.Clone(seed)
		if p := parentOf(r); p != 0 {
			place = append(place, f.addresses[p]...)
		}
		return place
	})
	// Those that came last get some time for this, too.
	deadline.Reset(max(timeout-time.Since(began), 2*handshakeTime))
	select {
	case <-f.allLinked:
	case <-n.done:
		return n.Err()
	case <-deadline.C:
		return &WaitError{0, ranks(f.unlinked()) + " to link up in the tree", context.DeadlineExceeded}
	case <-ctx.Done():
		return &WaitError{0, ranks(f.unlinked()) + " to link up in the tree", context.Cause(ctx)}
	}
	n.mu.Lock()
	f.over = true
	var spare []*link
	for _, l := range f.stars {
		if l != nil && l.child < 0 {
			l.retired = true // its rank closes it when it hears
			spare = append(spare, l)
		}
	}
	n.mu.Unlock()
	f.tell(frameFormed, func(int) []byte { return nil })
	for _, l := range spare {
		n.retire(l)
	}
	return nil
}

func (f *forming) late(began time.Time) error {
	e := &MissingError{Ranks: f.missing(), Size: f.node.size, After: time.Since(began)}
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	e.Notes = slices.Clone(f.notes)
	return e
}

// checkAddresses refuses a job of which some ranks can be reached from this
// machine only, and others are elsewhere.
func (f *forming) checkAddresses() error {
	n := f.node
	n.mu.Lock()
	defer n.mu.Unlock()
	near, far := -1, -1
	for r := range n.size {
		addr := n.address
		if r != 0 {
			if strings.HasPrefix(f.addresses[r], "unix:") {
				continue
			}
			addr = netip.MustParseAddrPort(f.addresses[r]).Addr()
		}
		if addr.IsLoopback() {
			near = r
		} else {
			far = r
		}
	}
	if near < 0 || far < 0 {
		return nil
	}
	where := func(r int) string {
		if r == 0 {
			return n.address.String()
		}
		return f.addresses[r]
	}
	return &JoinError{ErrAddress, near, where(near), fmt.Sprintf("rank %d is at %s; set %s", far, where(far), EnvInterface)}
}

// validAddress is whether a rank can be told that another listens there.
func validAddress(s string) bool {
	if name, ok := strings.CutPrefix(s, "unix:@"); ok {
		return abstractSockets && name != "" && len(name) < 100 && !strings.ContainsAny(name, "\x00")
	}
	a, err := netip.ParseAddrPort(s)
	return err == nil && a.Addr().Zone() == "" && !a.Addr().IsUnspecified() && !a.Addr().IsMulticast()
}
