package engine

import (
	"context"
	"math"
	"sync"
	"testing"

	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/link/linktest"
	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/reduce"
	"github.com/tutti-go/tutti/tune"
)

// TestControlLayout: what is shared starts on cache lines.
func TestControlLayout(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 8, 64, 1000} {
		l := layoutFor(ranks)
		end := link.CounterBytes
		for _, part := range []struct {
			name      string
			at, bytes int
		}{
			{"seat", l.seat, link.SeatBytes},
			{"mirrors", l.mirrors, ranks * link.CounterBytes},
			{"notices", l.notices, 2 * ranks * l.noticeBytes},
			{"lines", l.lines, doorLines * link.CounterBytes},
			{"annexes", l.annexes, doorLines * annexStride},
			{"slots", l.slots, doorSlots * slotStride},
			{"post", l.post, postBytes(ranks)},
			{"scratch", l.scratch, scratchBytes},
		} {
			if part.at%link.LineBytes != 0 || part.at < end {
				t.Errorf("%d ranks: %s start at %d, after what ends at %d", ranks, part.name, part.at, end)
			}
			end = part.at + part.bytes
		}
		if end != l.bytes {
			t.Errorf("%d ranks: the parts end at %d, the region at %d", ranks, end, l.bytes)
		}
	}
}

// TestDoorReadsOwnInputInPlace: a rank computes with its input where the caller
// has it, not with the copy that its peers are fetching; and keeps no pointer
// to it.
func TestDoorReadsOwnInputInPlace(t *testing.T) {
	kernel, err := reduce.Lookup(mem.Sum, mem.I32)
	if err != nil {
		t.Fatal(err)
	}
	for _, elements := range []int{2, 1000} { // in the line, in the slot
		l := layoutFor(2)
		controls := make([][]byte, 2)
		for r := range controls {
			controls[r] = make([]byte, l.bytes)
		}
		doors := []door{newDoor(&l, controls, 0), newDoor(&l, controls, 1)}
		// What rank 1 publishes is lost on the way: rank 0 sees zeros.
		astray := make([]byte, slotBytes)
		doors[1].lines[1].mine = astray[:len(doors[1].lines[1].mine)]
		doors[1].slots[1].mine = astray

		var fault link.Fault
		waiters := make([]link.Waiter, 2)
		for r := range waiters {
			waiters[r] = link.Waiter{Patience: link.PatienceFor(2, 1), Fault: &fault}
		}
		got := make([][]int32, 2)
		var ranks sync.WaitGroup
		for r := range doors {
			got[r] = make([]int32, elements)
			ranks.Go(func() {
				x := make([]int32, elements)
				for i := range x {
					x[i] = int32(r + 1)
				}
				in, out := mem.Bytes(x), mem.Bytes(got[r])
				c := &Comm{rank: r, size: 2}
				n := c.knockOf(&call{dtype: mem.I32, in: in, out: out, block: len(in), kernel: kernel, divisor: 1})
				err := doors[r].call(t.Context(), waiters, &n, in, out)
				if err != nil {
					t.Errorf("rank %d: %v", r, err)
				}
			})
		}
		ranks.Wait()
		for r, want := range []int32{1, 3} {
			for i, v := range got[r] {
				if v != want {
					t.Fatalf("%d elements: rank %d has %d at %d, want %d", elements, r, v, i, want)
				}
			}
			if d := &doors[r]; d.lines[1].at[r] != nil || d.slots[1].at[r] != nil || d.dst[0] != nil {
				t.Errorf("%d elements: rank %d keeps the caller's buffers", elements, r)
			}
		}
	}
}

// BenchmarkDoorAlone is what a call of 8 bytes costs a rank whose peer is
// always there already: everything but the way of a cache line between cores.
func BenchmarkDoorAlone(b *testing.B) {
	ex := bootstrap.Memory(2)
	fabrics := linktest.Memory(2, linktest.Options{Mapped: true})
	comms := make([]*Comm, 2)
	joined := make(chan error)
	for r := range comms {
		go func() {
			var err error
			comms[r], err = New(b.Context(), Config{Rank: r, Size: 2, Exchanger: ex[r], Fabric: fabrics[r], Choose: tune.Choose})
			joined <- err
		}()
	}
	for range comms {
		if err := <-joined; err != nil {
			b.Fatal(err)
		}
	}
	defer comms[0].Close()
	defer comms[1].Close()
	for i := range doorLines {
		peer := comms[1].door.lines[i].counters[1]
		*stampIn(peer) = stampOf(&call{block: 8, dtype: mem.F32})
		peer.Raise(math.MaxUint64)
	}
	x := mem.Bytes([]float32{1, 2})
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if err := comms[0].AllReduce(ctx, x, x, mem.F32, mem.Sum); err != nil {
			b.Fatal(err)
		}
	}
}
