package bootstrap

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"sync"
)

// Memory returns the exchangers of ranks that are goroutines of this process.
// When one is closed the others go on, but an AllGather without it waits until
// its ctx ends.
func Memory(size int) []Exchanger {
	t := &table{size: size, rounds: map[int]*round{}}
	all := make([]Exchanger, size)
	for i := range all {
		all[i] = &member{table: t, rank: i, done: make(chan struct{})}
	}
	return all
}

// Single is the Exchanger of a job of one rank.
func Single() Exchanger { return Memory(1)[0] }

// table is where the members of a Memory job meet, one round after another.
type table struct {
	mu     sync.Mutex
	size   int
	rounds map[int]*round
}

type round struct {
	blobs    [][]byte
	there    int
	complete chan struct{}
}

type member struct {
	table *table
	rank  int
	turn  int
	close sync.Once
	done  chan struct{}
	err   error // set before done is closed
}

func (m *member) Rank() int             { return m.rank }
func (m *member) Size() int             { return m.table.size }
func (m *member) LocalRank() int        { return m.rank }
func (m *member) Address() netip.Addr   { return loopback }
func (m *member) Done() <-chan struct{} { return m.done }

func (m *member) Err() error {
	select {
	case <-m.done:
		return m.err
	default:
		return nil
	}
}

func (m *member) fail(err error) {
	m.close.Do(func() {
		m.err = err
		close(m.done)
	})
}

func (m *member) Close() error {
	m.fail(ErrClosed)
	return nil
}

func (m *member) AllGather(ctx context.Context, blob []byte) ([][]byte, error) {
	if len(blob) > MaxBlob {
		return nil, fmt.Errorf("rank %d: %w (%d)", m.rank, ErrTooLarge, len(blob))
	}
	if err := m.Err(); err != nil {
		return nil, err
	}
	r := m.table.arrive(m.turn, m.rank, bytes.Clone(blob))
	m.turn++
	select {
	case <-r.complete:
	case <-m.done:
		return nil, m.err
	case <-ctx.Done():
		m.fail(context.Cause(ctx))
		return nil, m.err
	}
	mine := make([][]byte, len(r.blobs))
	for i, b := range r.blobs {
		mine[i] = bytes.Clone(b)
	}
	return mine, nil
}

// arrive puts a rank's blob on the table for a round.
func (t *table) arrive(turn, rank int, blob []byte) *round {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok := t.rounds[turn]
	if !ok {
		r = &round{blobs: make([][]byte, t.size), complete: make(chan struct{})}
		t.rounds[turn] = r
	}
	r.blobs[rank] = blob
	if r.there++; r.there == t.size {
		close(r.complete)
		delete(t.rounds, turn)
	}
	return r
}
