package bootstrap

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// node is the Exchanger of a rank that joined by a rendezvous: a node of the
// tree of shape.go. A goroutine for each link reads from it.
//
// The links also say who is there. One that ends although its rank has not
// left is the death of that rank, and whoever notices tells its other links,
// which tell theirs. The first cause that a rank hears of is kept.
type node struct {
	rank, size, localRank int
	address               netip.Addr
	children              []int         // of this rank
	inbox                 []chan []byte // what each child has gathered for a round
	result                chan []byte   // what the parent sends of a round
	done                  chan struct{}
	forming               *forming
	// trace is for tests: it hears of each message of a round, when it is sent
	// and when it is taken.
	trace func(sent bool, kind byte, from, to int)

	mu     sync.Mutex
	links  []*link
	parent *link   // nil for rank 0
	below  []*link // by child
	turn   int     // rounds that this rank has taken part in
	inside bool    // a call of AllGather
	// early is the least number of rounds that a rank which has left took part
	// in, and whose that is: a round from it on can never end.
	early     int
	earlyRank int
	cause     error // why the job has failed; done is closed when the others are told
	err       error // set when done is closed
	shut      bool
	gates     []*gate

	reading sync.WaitGroup
	telling sync.WaitGroup // of a failure
	passing sync.WaitGroup // news of ranks that leave
}

// link is a connection to another rank.
type link struct {
	*wire
	rank  int
	child int  // its place among the children, or -1
	star  bool // made for the forming; may be one of the tree besides
	// The rest is under the mutex of the node.
	left    bool // the rank has said that it leaves
	retired bool // is of no more use
}

func newNode(rank, size, localRank int) *node {
	n := &node{
		rank: rank, size: size, localRank: localRank, children: childrenOf(rank, size),
		result: make(chan []byte, 1), done: make(chan struct{}), early: math.MaxInt,
	}
	n.forming = newForming(n)
	n.below = make([]*link, len(n.children))
	n.inbox = make([]chan []byte, len(n.children))
	for i := range n.inbox {
		n.inbox[i] = make(chan []byte, 1)
	}
	return n
}

func (n *node) Rank() int             { return n.rank }
func (n *node) Size() int             { return n.size }
func (n *node) LocalRank() int        { return n.localRank }
func (n *node) Address() netip.Addr   { return n.address }
func (n *node) Done() <-chan struct{} { return n.done }

func (n *node) Err() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

// add takes a connection to another rank into use.
func (n *node) add(w *wire, rank int, star bool) *link {
	l := &link{wire: w, rank: rank, star: star, child: slices.Index(n.children, rank)}
	keep(w.conn)
	if over := n.hold(l); over != nil {
		if !errors.Is(over, ErrClosed) {
			l.last(frameFail, encodeFailure(over))
		}
		hangUp(w.conn)
	}
	return l
}

// hold takes a link into use, unless this rank is closing; then it says why.
func (n *node) hold(l *link) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.shut && n.cause == nil {
		return ErrClosed
	}
	if n.shut {
		return n.cause
	}
	n.links = append(n.links, l)
	if l.child >= 0 {
		n.below[l.child] = l
	}
	if n.cause != nil { // it came too late to be told with the others
		failure := encodeFailure(n.cause)
		n.telling.Go(func() { l.last(frameFail, failure) })
	}
	n.reading.Go(func() { n.read(l) })
	return nil
}

// others lists the links in use but one. The caller holds the mutex.
func (n *node) others(but *link) []*link {
	var list []*link
	for _, l := range n.links {
		if l != but && !l.left && !l.retired {
			list = append(list, l)
		}
	}
	return list
}

// retire ends a link that was made for the forming only.
func (n *node) retire(l *link) {
	n.mu.Lock()
	l.retired = true
	n.links = slices.DeleteFunc(n.links, func(x *link) bool { return x == l })
	n.mu.Unlock()
	l.conn.Close()
}

func (n *node) read(l *link) {
	for {
		kind, payload, err := l.read(func(kind byte) int { return n.limit(l, kind) })
		if err == nil {
			err = n.handle(l, kind, payload)
		}
		if err != nil {
			n.ended(l, err)
			return
		}
	}
}

// limit bounds what may come over a link.
func (n *node) limit(l *link, kind byte) int {
	fromRoot := l.star && l.rank == 0
	switch {
	case kind == frameGather && l.child >= 0:
		return 4 + resultLimit(spanOf(l.rank, n.size))
	case kind == frameResult && l.rank == parentOf(n.rank) && n.rank != 0:
		return 4 + resultLimit(n.size)
	case kind == frameFail:
		return failureLimit(n.size)
	case kind == frameLeave:
		return 8
	case kind == frameWaiting && fromRoot:
		return 4 * n.size
	case kind == framePlace && fromRoot:
		return placeLimit
	case kind == frameLinked && l.star && n.rank == 0, kind == frameFormed && fromRoot:
		return 0
	}
	return -1
}

func (n *node) handle(l *link, kind byte, payload []byte) error {
	switch kind {
	case frameGather:
		return deliver(n.inbox[l.child], payload, spanOf(l.rank, n.size))
	case frameResult:
		return deliver(n.result, payload, n.size)
	case frameFail:
		e, err := decodeFailure(payload, n.size)
		if err == nil {
			n.fail(e, l)
		}
		return err
	case frameLeave:
		return n.hearLeave(l, payload)
	}
	return n.forming.handle(l, kind, payload)
}

// deliver checks what came for a round and hands it to who waits for it.
func deliver(to chan<- []byte, payload []byte, count int) error {
	if len(payload) < 4 {
		return &FrameError{"a round without number"}
	}
	if _, err := decodeBlobs(payload[4:], count); err != nil {
		return err
	}
	select {
	case to <- payload:
		return nil
	default:
		return &FrameError{"a round that is a step ahead of what can be"}
	}
}

// ended sees the end of a link.
func (n *node) ended(l *link, err error) {
	n.mu.Lock()
	known := l.left || l.retired || n.shut
	n.mu.Unlock()
	if known {
		return
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	n.fail(n.lost(l, err), l)
}

func (n *node) lost(l *link, err error) error {
	return &LostError{l.rank, addressOf(l.conn.RemoteAddr()), err}
}

// fail keeps the first cause, tells every rank that is linked to this one, but
// for the one who told, and then says so by Done. One that does not read is
// not waited for: it is given up after a while.
func (n *node) fail(err error, from *link) {
	n.mu.Lock()
	if n.cause != nil {
		n.mu.Unlock()
		return
	}
	n.cause = err
	links := n.others(from)
	n.telling.Add(1)
	n.mu.Unlock()
	failure := encodeFailure(err)
	told := make(chan struct{})
	go func() {
		defer n.telling.Done()
		var all sync.WaitGroup
		for _, l := range links {
			all.Go(func() { l.last(frameFail, failure) })
		}
		all.Wait()
		close(told)
	}()
	select {
	case <-told:
	case <-time.After(patience / 10):
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.err = err
	close(n.done)
}

// hearLeave notes that a rank has left, and passes it on if that tells the
// others more than they know.
func (n *node) hearLeave(l *link, payload []byte) error {
	if len(payload) != 8 {
		return &FrameError{"a leave that makes no sense"}
	}
	rank, rounds := int(binary.LittleEndian.Uint32(payload)), int(binary.LittleEndian.Uint32(payload[4:]))
	if rank >= n.size || rank == n.rank {
		return &FrameError{fmt.Sprintf("that rank %d of %d has left", rank, n.size)}
	}
	n.mu.Lock()
	l.left = l.left || rank == l.rank
	var pass []*link
	if rounds < n.early {
		n.early, n.earlyRank = rounds, rank
		pass = n.others(l)
	}
	late := n.inside && n.turn >= n.early
	if !n.shut { // else nobody would wait for these
		for _, other := range pass {
			n.passing.Go(func() { _ = other.write(frameLeave, payload) })
		}
	}
	n.mu.Unlock()
	if late {
		n.fail(&leftError{rank}, nil)
	}
	return nil
}

// AllGather gathers up the tree and sends down. See Exchanger.
func (n *node) AllGather(ctx context.Context, blob []byte) ([][]byte, error) {
	if len(blob) > MaxBlob {
		return nil, fmt.Errorf("rank %d: %w (%d)", n.rank, ErrTooLarge, len(blob))
	}
	n.mu.Lock()
	failed, late, leaver := n.cause != nil, n.turn >= n.early, n.earlyRank
	n.inside = true
	n.mu.Unlock()
	var blobs [][]byte
	switch {
	case failed:
	case late:
		n.fail(&leftError{leaver}, nil)
	default:
		var err error
		if blobs, err = n.round(ctx, blob); err != nil {
			n.fail(err, nil)
			blobs = nil
		}
	}
	if blobs == nil {
		<-n.done // the first cause may be another
		return nil, n.Err()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.turn++
	n.inside = false
	return blobs, nil
}

// round is one AllGather.
func (n *node) round(ctx context.Context, blob []byte) ([][]byte, error) {
	all := binary.LittleEndian.AppendUint32(nil, uint32(n.turn))
	all = appendBlob(all, blob)
	for i, child := range n.children {
		what := fmt.Sprintf("rank %d", child)
		if span := spanOf(child, n.size); span > 1 {
			what = fmt.Sprintf("ranks %d-%d", child, child+span-1)
		}
		part, err := n.take(ctx, n.inbox[i], frameGather, child, what)
		if err != nil {
			return nil, err
		}
		all = append(all, part[4:]...)
	}
	if n.rank != 0 {
		if err := n.send(ctx, n.parent, frameGather, all); err != nil {
			return nil, err
		}
		var err error
		if all, err = n.take(ctx, n.result, frameResult, n.parent.rank, "the others"); err != nil {
			return nil, err
		}
	}
	// Those with the most below them first.
	for _, l := range slices.Backward(n.below) {
		if err := n.send(ctx, l, frameResult, all); err != nil {
			return nil, err
		}
	}
	return decodeBlobs(all[4:], n.size)
}

// take waits for a message of this round.
func (n *node) take(ctx context.Context, from <-chan []byte, kind byte, rank int, what string) ([]byte, error) {
	var b []byte
	select {
	case b = <-from:
	case <-n.done:
		select {
		case b = <-from: // before the failure came
		default:
			return nil, n.Err()
		}
	case <-ctx.Done():
		return nil, &WaitError{n.rank, what, context.Cause(ctx)}
	}
	if turn := binary.LittleEndian.Uint32(b); turn != uint32(n.turn) {
		return nil, &LostError{Rank: rank, Err: &FrameError{fmt.Sprintf("it is in round %d, this rank in round %d", turn, n.turn)}}
	}
	if n.trace != nil {
		n.trace(false, kind, rank, n.rank)
	}
	return b, nil
}

// send sends a message of this round. A rank that is stopped does not read;
// then the connection fills up and only ctx ends the write.
func (n *node) send(ctx context.Context, l *link, kind byte, payload []byte) error {
	if n.trace != nil {
		n.trace(true, kind, n.rank, l.rank)
	}
	cut := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = l.conn.SetWriteDeadline(time.Unix(1, 0))
		close(cut)
	})
	err := l.write(kind, payload)
	if !stop() {
		<-cut
		return &WaitError{n.rank, fmt.Sprintf("rank %d to read", l.rank), context.Cause(ctx)}
	}
	if err == nil {
		return nil
	}
	// The reader knows better what has happened.
	select {
	case <-n.done:
		return n.Err()
	case <-time.After(patience):
		return n.lost(l, err)
	}
}

// Close leaves: it says so to those who are linked to this rank.
func (n *node) Close() error {
	n.mu.Lock()
	if n.shut {
		n.mu.Unlock()
		return nil
	}
	leave := n.cause == nil
	if leave {
		n.cause, n.err = ErrClosed, ErrClosed
		close(n.done)
	}
	n.shut = true
	last := binary.LittleEndian.AppendUint32(nil, uint32(n.rank))
	last = binary.LittleEndian.AppendUint32(last, uint32(n.turn))
	links, others := slices.Clone(n.links), n.others(nil)
	n.mu.Unlock()
	if leave {
		var all sync.WaitGroup
		for _, l := range others {
			all.Go(func() { l.last(frameLeave, last) })
		}
		all.Wait()
	}
	n.telling.Wait()
	n.mu.Lock()
	gates := n.gates
	n.mu.Unlock()
	for _, g := range gates {
		g.close()
	}
	for _, l := range links {
		if c, ok := l.conn.(interface{ CloseWrite() error }); ok {
			_ = c.CloseWrite()
		}
		l.conn.Close()
	}
	n.reading.Wait()
	n.passing.Wait()
	return nil
}
