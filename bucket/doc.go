// Package bucket averages gradients over the ranks of data-parallel training
// while the backward pass still computes: tensors are put together into
// buckets, and each bucket goes through an asynchronous allreduce of its own as
// soon as it is full.
//
// The tensors are registered once, in the order of the layers:
//
//	b, err := bucket.NewFlat(ctx, comm, bucket.Config{},
//		bucket.Shape{Type: mem.F32, Elements: in * hidden},
//		bucket.Shape{Type: mem.F32, Elements: hidden * out})
//	...
//	defer b.Close()
//	gradient := mem.Slice[float32](b.Bytes(0))
//
// and each step of training says when they are ready, from the last layer to
// the first, as the backward pass finishes them:
//
//	for layer := last; layer >= 0; layer-- {
//		backward(layer)
//		if err := b.Ready(ctx, layer); err != nil { ... }
//	}
//	if err := b.Wait(ctx); err != nil { ... } // the tensors hold the averages
//
// # Order
//
// Which tensor lies in which bucket, and in which order buckets are reduced,
// follows from the registration alone. All ranks must register the same tensors
// in the same order, which New and NewFlat compare. Tensors may become ready in
// any order, and in a different one on every rank: a bucket that is full before
// its turn waits for it.
//
// # Copies
//
// [NewFlat] gives out the tensors as views into the buckets, so nothing is ever
// copied. [New] takes tensors that lie elsewhere already, and copies each into
// its bucket in Ready and back in Wait; a tensor as large as a bucket or larger
// has its bucket for itself and is reduced where it is.
package bucket
