package main

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
