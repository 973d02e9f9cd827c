package main

import "math/rand/v2"

// The network: out = w2 · relu(w1 · x + b1) + b2, with one output.
const (
	inputs, hidden = 2, 32
	samples        = 240 // of all ranks together
)

// The tensors of the network, in the order of the layers.
const (
	w1 = iota
	b1
	w2
	b2
)

var sizes = []int{w1: hidden * inputs, b1: hidden, w2: hidden, b2: 1}

// tensors has the parameters of the network, or their gradients.
type tensors [][]float32

func zeros() tensors {
	t := make(tensors, len(sizes))
	for i, n := range sizes {
		t[i] = make([]float32, n)
	}
	return t
}

// initial is the same on all ranks, which is why no broadcast is needed.
func initial() tensors {
	t, rng := zeros(), rand.New(rand.NewPCG(1, 2))
	for _, weights := range []int{w1, w2} {
		for i := range t[weights] {
			t[weights][i] = rng.Float32() - 0.5
		}
	}
	return t
}

type sample struct {
	x [inputs]float32
	y float32
}

// shard is the samples of one rank: every n-th of a set that all can make.
func shard(rank, ranks int) []sample {
	var mine []sample
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range samples / ranks * ranks {
		s := sample{x: [inputs]float32{2*rng.Float32() - 1, 2*rng.Float32() - 1}}
		s.y = s.x[0]*s.x[1] + 0.5*s.x[0] // what the network is to learn
		if i%ranks == rank {
			mine = append(mine, s)
		}
	}
	return mine
}

// backward computes the gradients of the mean squared error over a shard, and
// returns that error. It calls ready for each tensor when its gradient is
// complete, the last layer's first.
func backward(p tensors, shard []sample, gradients tensors, ready func(tensor int)) (loss float32) {
	for _, g := range gradients {
		clear(g)
	}
	// Forward, and through the last layer.
	activations := make([][hidden]float32, len(shard))
	slopes := make([]float32, len(shard)) // of the loss, by the output
	for n, s := range shard {
		out := p[b2][0]
		for h := range hidden {
			sum := p[b1][h]
			for i, x := range s.x {
				sum += p[w1][h*inputs+i] * x
			}
			activations[n][h] = max(0, sum)
			out += p[w2][h] * activations[n][h]
		}
		loss += (out - s.y) * (out - s.y) / float32(len(shard))
		slopes[n] = 2 * (out - s.y) / float32(len(shard))
		gradients[b2][0] += slopes[n]
		for h, a := range activations[n] {
			gradients[w2][h] += slopes[n] * a
		}
	}
	ready(b2)
	ready(w2)
	// Through the first layer, where its units are not off.
	for n, s := range shard {
		for h, a := range activations[n] {
			if a > 0 {
				slope := slopes[n] * p[w2][h]
				gradients[b1][h] += slope
				for i, x := range s.x {
					gradients[w1][h*inputs+i] += slope * x
				}
			}
		}
	}
	ready(b1)
	ready(w1)
	return loss
}
