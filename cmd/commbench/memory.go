package main

import "fmt"

// rankSlack is what a rank needs beside its buffers: the program itself,
// scratch memory, samples.
const rankSlack = 48 << 20

// memoryNeeded is what all ranks take together.
func memoryNeeded(o *options) uint64 {
	samples := 24 * uint64(o.iters) // this rank's, the slowest's, the floor's
	if o.overlap {
		samples *= 2
	}
	largest := o.largestLoads(o.ranks)
	need := uint64(o.ranks) * (samples + rankSlack)
	for rank := range o.ranks {
		if o.roofline {
			break
		}
		send, recv := o.room(rank, largest)
		need += uint64(max(0, send) + max(0, recv) + 2*guardBytes)
	}
	if o.roofline || o.vsRoofline {
		need += uint64(rigBytes(o.ranks, o.largest()))
	}
	return need
}

// checkMemory refuses what does not fit before anything is touched: running
// out later kills processes, and not always ours.
func checkMemory(o *options, available func() (uint64, error)) error {
	there, err := available()
	if err != nil {
		return fmt.Errorf("cannot tell how much memory there is: %w (is /proc mounted?)", err)
	}
	if need := memoryNeeded(o); need > there {
		return &memoryError{o.ranks, need, there}
	}
	return nil
}

// room is the bytes that a rank's two buffers need for the given rows; recv is
// negative where all is in place.
func (o *options) room(rank int, largest []load) (send, recv int) {
	send, recv = -1, -1
	for _, t := range largest {
		s := newShape(t.task, rank, o.root, t.counts)
		if o.outOfPlace(t.op) {
			send, recv = max(send, s.inBytes()), max(recv, s.outBytes())
		}
		if o.within(t.op) {
			send = max(send, s.wholeBytes())
		}
	}
	return send, recv
}

// outOfPlace and within say how an operation is measured.
func (o *options) outOfPlace(op *operation) bool { return !o.inPlace || op.apart }

func (o *options) within(op *operation) bool {
	return !op.apart && (o.inPlace || !o.overlap)
}

// load is a row and the elements of every rank's block.
type load struct {
	task
	counts []int
}

// largestLoads are the largest of each operation and width of type.
func (o *options) largestLoads(ranks int) []load {
	type kind struct {
		op    *operation
		width int
	}
	index, largest := map[kind]int{}, []load(nil)
	for _, t := range o.tasks {
		if !t.op.moves() {
			continue
		}
		k := kind{t.op, t.dtype.Size()}
		i, known := index[k]
		switch {
		case !known:
			index[k] = len(largest)
			largest = append(largest, load{task: t})
		case t.bytes > largest[i].bytes:
			largest[i].task = t
		}
	}
	for i, t := range largest {
		largest[i].counts = t.task.counts(ranks, o.uneven)
	}
	return largest
}

// buffers makes and touches the memory of all points.
func (r *rank) buffers() error {
	if r.roofline {
		return nil
	}
	send, recv := r.room(r.ex.Rank(), r.largestLoads(r.ex.Size()))
	for _, b := range []struct {
		bytes int
		to    *[]byte
	}{{send, &r.send}, {recv, &r.recv}} {
		if b.bytes < 0 {
			continue
		}
		var err error
		if *b.to, err = r.buffer(b.bytes + guardBytes); err != nil {
			return rankError(r.ex.Rank(), err)
		}
		fillWith(*b.to, guardByte) // a page that was never written has no memory
	}
	return nil
}

// The kinds of memory.
const (
	memoryAlloc    = "alloc"
	memoryUser     = "user"
	memoryMmap     = "mmap"
	memoryRegister = "register"
)

var memories = []string{memoryAlloc, memoryUser, memoryMmap, memoryRegister}

// leastRegistered: small memory is not worth registering, and refused.
const leastRegistered = 1 << 20

// reached: ranks map each other's buffers.
func (o *options) reached() bool { return o.memory == memoryAlloc || o.memory == memoryRegister }

// buffer makes memory of the kind asked for. What Comm.Alloc made and what was
// registered, Comm.Close gives back.
func (r *rank) buffer(bytes int) ([]byte, error) {
	if r.memory == memoryAlloc {
		b, err := r.comm.Alloc(bytes)
		if err != nil {
			return nil, err
		}
		return b.Bytes(), nil
	}
	if r.memory == memoryRegister {
		bytes = max(bytes, leastRegistered)
	}
	b, err := mapPrivate(bytes)
	if err != nil || r.memory == memoryMmap {
		return b, err
	}
	if r.memory == memoryUser { // there is room for it: make would end the process
		if err := unmapShared(b); err != nil {
			return nil, err
		}
		return make([]byte, bytes), nil
	}
	fillWith(b, guardByte)
	if err := r.comm.Register(b); err != nil {
		return nil, fmt.Errorf("--memory %s: %w", memoryRegister, err)
	}
	return b, nil
}
