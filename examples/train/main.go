// Train fits a small network by data-parallel gradient descent: every rank has
// the whole network and a shard of the data, computes the gradients of its
// shard, and all take the average.
//
// Beside it each rank trains the network once more alone, on all shards: it adds
// the shards' gradients up in rank order and divides once. With
// tutti.Config.FixedOrder that is what the allreduce of an average does too, so
// both come to the same bits.
//
//	go run ./examples/train
package main

import (
	"context"
	"flag"
	"math"
	"slices"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/bucket"
	"github.com/tutti-go/tutti/examples/internal/job"
	"github.com/tutti-go/tutti/mem"
)

const (
	steps, report = 60, 10
	learningRate  = 0.1
)

func main() {
	ranks := flag.Int("ranks", 4, "how many ranks")
	flag.Parse()
	job.Main(*ranks, tutti.Config{FixedOrder: true}, train)
}

func train(ctx context.Context, r *job.Rank) error {
	// The gradients lie in the buckets themselves, so nothing is copied. Small
	// buckets, so that there are several.
	var shapes []bucket.Shape
	for _, elements := range sizes {
		shapes = append(shapes, bucket.Shape{Type: mem.F32, Elements: elements})
	}
	b, err := bucket.NewFlat(ctx, r.Comm, bucket.Config{Bytes: 256}, shapes...)
	if err != nil {
		return err
	}
	defer b.Close()
	gradients := make(tensors, len(sizes))
	for i := range gradients {
		gradients[i] = mem.Slice[float32](b.Bytes(i))
	}
	parameters, alone := initial(), initial()
	mine := shard(r.Rank(), r.Size())

	r.Headline("%d ranks with %d samples each; %d tensors in %d buckets", r.Size(), len(mine), len(sizes), b.Buckets())
	r.Headline("step  loss: %d ranks  one process  identical bits", r.Size())
	identical := true
	for step := range steps + 1 {
		// A tensor's gradient goes on its way as soon as it is there, while the
		// gradients of the layer below are computed.
		var failed error
		loss := backward(parameters, mine, gradients, func(tensor int) {
			if failed == nil {
				failed = b.Ready(ctx, tensor)
			}
		})
		if failed != nil {
			return failed
		}
		if err := b.Wait(ctx); err != nil {
			return err
		}
		descend(parameters, gradients)
		losses := []float32{loss}
		if err := tutti.AllReduce(ctx, r.Comm, losses, losses, mem.Avg); err != nil {
			return err
		}

		lossAlone := stepAlone(alone, r.Size())
		same := equalBits(losses, []float32{lossAlone}) && slices.EqualFunc(parameters, alone, equalBits)
		if identical = identical && same; step%report == 0 {
			r.Headline("%4d  %13.4f  %11.4f  %v", step, losses[0], lossAlone, same)
		}
	}
	return r.Check(ctx, identical, "identical bits")
}

// stepAlone is a step of training in one process. It returns the mean loss
// before the step.
func stepAlone(parameters tensors, ranks int) (loss float32) {
	sum := zeros()
	for rank := range ranks {
		gradients := zeros()
		loss += backward(parameters, shard(rank, ranks), gradients, func(int) {})
		for t := range sum {
			for i, g := range gradients[t] {
				sum[t][i] += g
			}
		}
	}
	for t := range sum {
		for i := range sum[t] {
			sum[t][i] /= float32(ranks)
		}
	}
	descend(parameters, sum)
	return loss / float32(ranks)
}

func descend(parameters, gradients tensors) {
	for t := range parameters {
		for i, g := range gradients[t] {
			parameters[t][i] -= learningRate * g
		}
	}
}

func equalBits(x, y []float32) bool {
	return slices.EqualFunc(x, y, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) })
}
