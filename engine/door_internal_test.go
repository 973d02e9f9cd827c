package engine

import (
	"context"
	"math"
	"testing"

	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/link/linktest"
	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/tune"
)

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
		*stampIn(peer) = stampOf(8, mem.F32, mem.Sum)
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
