// Package tutti runs collective operations between the ranks of a job over
// the fastest path that connects them.
//
//	comm, err := tutti.Init(ctx, tutti.Config{})
//	...
//	defer comm.Close()
//	buf, err := comm.Alloc(1 << 20)
//	x := mem.Slice[float32](buf.Bytes())
//	...
//	err = tutti.AllReduce(ctx, comm, x, x, mem.Sum)
//
// The packages beneath, from the ground up; each imports only what stands
// above it in this list:
//
//	mem        element types, operators, buffers
//	reduce     SIMD kernels
//	plan       a collective as data, its lowering and its proof
//	algo       the algorithms, each a function to a plan
//	tune       which algorithm, which tile size
//	link       the contract between two ranks: put, signal, wait
//	shm        the medium inside a machine
//	bootstrap  how ranks find each other
//	engine     communicators and the executor
//	bucket     gradients of data-parallel training, averaged while they come
//	tutti      puts them together
package tutti
