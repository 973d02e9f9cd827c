package main

import "fmt"

// guardBytes follow the data in every buffer. They must survive.
const guardBytes = 4096

// ground is where one call works. A rank without a send or a receive buffer
// has an empty one.
type ground struct {
	inPlace              bool
	in, out              []byte
	whole                []byte // in place, what holds both
	sendGuard, recvGuard []byte // in place there is one
}

// outOfPlace lays the call out in two buffers.
func (s *shape) outOfPlace(send, recv []byte) *ground {
	if !s.op.moves() {
		return &ground{}
	}
	in, out := s.inBytes(), s.outBytes()
	return &ground{
		in: send[:in:in], sendGuard: send[in : in+guardBytes],
		out: recv[:out:out], recvGuard: recv[out : out+guardBytes],
	}
}

// within lays the call out in one buffer.
func (s *shape) within(buffer []byte) *ground {
	inAt, outAt := s.inPlace()
	whole := s.wholeBytes()
	return &ground{
		inPlace: true, whole: buffer[:whole],
		in: buffer[inAt:][:s.inBytes()], out: buffer[outAt:][:s.outBytes()],
		recvGuard: buffer[whole : whole+guardBytes],
	}
}

// room is the bytes that a rank's two buffers need for all rows; recv is
// negative where all is in place.
func (o *options) room(rank, ranks int) (send, recv int) {
	send, recv = -1, -1
	for _, t := range o.largestTasks() {
		s := newShape(t, rank, o.root, t.counts(ranks, o.uneven))
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

// largestTasks are the largest of each operation and type.
func (o *options) largestTasks() []task {
	type kind struct {
		op    *operation
		width int
	}
	index, largest := map[kind]int{}, []task(nil)
	for _, t := range o.tasks {
		if !t.op.moves() {
			continue
		}
		k := kind{t.op, t.dtype.Size()}
		i, known := index[k]
		switch {
		case !known:
			index[k] = len(largest)
			largest = append(largest, t)
		case t.bytes > largest[i].bytes:
			largest[i] = t
		}
	}
	return largest
}

// buffers makes and touches the memory of all points.
func (r *rank) buffers() error {
	if r.roofline {
		return nil
	}
	send, recv := r.room(r.ex.Rank(), r.ex.Size())
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
