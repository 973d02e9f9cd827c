package verbs

import (
	"fmt"
	"syscall"
)

// SRQ is a shared receive queue: several queue pairs take receives from it.
type SRQ struct {
	node    node
	pd      *PD
	h       handle
	options SRQOptions
}

// SRQOptions say what shared receive queue is wanted.
type SRQOptions struct {
	Requests int // that may be posted
	Segments int // in one receive
}

// CreateSRQ makes a shared receive queue. Errors: *Error.
func (pd *PD) CreateSRQ(o SRQOptions) (*SRQ, error) {
	s := &SRQ{pd: pd, options: o}
	device := pd.device.info.Name
	fail := func(errno syscall.Errno, advice string) (*SRQ, error) {
		return nil, &Error{Op: fmt.Sprintf("creating a shared receive queue of %d", o.Requests), Device: device, Err: errno, Advice: advice}
	}
	if o.Requests < 1 || o.Requests > 1<<30 || o.Segments < 0 || o.Segments > 1<<30 {
		return fail(syscall.EINVAL, "it must hold at least one receive")
	}
	if err := s.node.begin(kindSRQ, "shared receive queue of "+device, &pd.node); err != nil {
		return nil, err
	}
	h, errno := sysCreateSRQ(pd.h, &s.options)
	if errno != 0 {
		s.node.abandon()
		advice := ""
		if errno == syscall.ENOMEM {
			advice = noMemory()
		}
		if a, err := pd.device.Attr(); err == nil && (o.Requests > a.MaxSRQRequests || o.Segments > a.MaxSRQSegments) {
			advice = fmt.Sprintf("the device allows %d receives of %d segments", a.MaxSRQRequests, a.MaxSRQSegments)
		}
		return fail(errno, advice)
	}
	s.h = h
	pd.device.objects.Store(h, s)
	return s, nil
}

// Options returns what the device gave: what was asked for or more.
func (s *SRQ) Options() SRQOptions { return s.options }

func (s *SRQ) String() string {
	return fmt.Sprintf("%s: shared receive queue of %d", s.pd.device.info.Name, s.options.Requests)
}

// Arm asks for one EventSRQLimit when fewer than limit receives are left.
// Errors: *Error.
func (s *SRQ) Arm(limit int) error {
	if s.h == nil {
		return ErrClosed
	}
	errno := syscall.EINVAL
	if limit >= 0 && limit <= s.options.Requests {
		errno = sysArmSRQ(s.h, uint32(limit))
	}
	if errno != 0 {
		return &Error{Op: fmt.Sprintf("arming for fewer than %d receives", limit), Device: s.pd.device.info.Name, Object: "shared receive queue", Err: errno}
	}
	return nil
}

// Limit returns what Arm set, 0 after its event came.
func (s *SRQ) Limit() (int, error) {
	if s.h == nil {
		return 0, ErrClosed
	}
	limit, errno := sysQuerySRQ(s.h)
	if errno != 0 {
		return 0, &Error{Op: "querying", Device: s.pd.device.info.Name, Object: "shared receive queue", Err: errno}
	}
	return int(limit), nil
}

// Close destroys the queue and forgets the receives posted to it. Errors:
// *BusyError, *Error.
func (s *SRQ) Close() error {
	return s.node.end(func() error {
		objects := &s.pd.device.objects
		objects.Delete(s.h)
		if errno := sysDestroySRQ(s.h); errno != 0 {
			objects.Store(s.h, s)
			return &Error{Op: "destroying", Device: s.pd.device.info.Name, Object: "shared receive queue", Err: errno}
		}
		s.h = nil
		return nil
	})
}

// AddressHandle is the way to a peer for datagrams.
type AddressHandle struct {
	node    node
	pd      *PD
	h       handle
	address AddressVector
}

// CreateAH makes an address handle. Errors: *Error.
func (pd *PD) CreateAH(av AddressVector) (*AddressHandle, error) {
	ah := &AddressHandle{pd: pd, address: av}
	device := pd.device.info.Name
	fail := func(errno syscall.Errno, advice string) (*AddressHandle, error) {
		return nil, &Error{Op: fmt.Sprintf("creating an address handle for %v", av.DGID), Device: device, Err: errno, Advice: advice}
	}
	if why := av.wrong(); why != "" {
		return fail(syscall.EINVAL, why)
	}
	if err := ah.node.begin(kindAH, fmt.Sprintf("address handle for %v of %s", av.DGID, device), &pd.node); err != nil {
		return nil, err
	}
	h, errno := sysCreateAH(pd.h, &av)
	if errno != 0 {
		ah.node.abandon()
		return fail(errno, pd.device.addressAdvice(av, 0))
	}
	ah.h = h
	return ah, nil
}

// Close destroys the address handle. No request may be under way that names
// it. Errors: *Error.
func (ah *AddressHandle) Close() error {
	return ah.node.end(func() error {
		if errno := sysDestroyAH(ah.h); errno != 0 {
			return &Error{Op: "destroying", Device: ah.pd.device.info.Name, Object: "address handle", Err: errno}
		}
		ah.h = nil
		return nil
	})
}
