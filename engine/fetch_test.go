package engine_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/tutti-go/tutti/algo"
	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/engine"
	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/tune"
)

// TestFetchByAddress: long messages of ordinary memory arrive whole when their
// receivers fetch them by address, and so do registered ones beside them.
func TestFetchByAddress(t *testing.T) {
	const n = 2
	ex := bootstrap.Memory(n)
	fabrics := media[0].open(t, ex)
	j := make(job, n)
	onEveryRank(t, n, func(r int) error {
		c, err := engine.New(t.Context(), engine.Config{
			Rank: r, Size: n, Exchanger: ex[r], Fabric: fabrics[r], Plan: algo.NewOver, Choose: tune.Choose,
			Cores: n, Threads: 1, FetchByAddress: true,
		})
		j[r] = c
		return err
	})
	defer func() {
		for _, c := range j {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	}()
	if ok, why := j[0].Attachable(); !ok {
		if os.Getenv("CI") == "true" { // ranks of one process reach each other anywhere but under seccomp
			t.Fatal(why)
		}
		t.Skip("NOT TESTED here: ", why)
	}
	for _, registered := range []bool{false, true} {
		for _, size := range []int{1, 8 << 10, 8<<10 + 1, 100_003, 5<<20 + 7} {
			out, in := j.buffers(t, size, registered), j.buffers(t, size, false)
			for r, b := range out {
				rng := rand.New(rand.NewPCG(uint64(size), uint64(r)))
				for i := range b {
					b[i] = byte(rng.Uint32())
				}
			}
			onEveryRank(t, n, func(r int) error {
				return j[r].SendRecv(t.Context(), out[r], 1-r, in[r], 1-r, mem.U8)
			})
			for r := range in {
				if !bytes.Equal(in[r], out[1-r]) {
					t.Errorf("%d bytes, registered %v: rank %d has not what was sent", size, registered, r)
				}
			}
		}
	}
}
