package link

import "sync/atomic"

// Fault is the first error of a communicator. Every wait looks at it, so
// setting it frees them all. The zero value is no fault.
type Fault struct {
	err atomic.Pointer[error]
}

// Fail records err unless a fault is there already, and reports whether it
// was the first. A wait that sleeps notices within its nap.
func (f *Fault) Fail(err error) bool {
	return f.err.CompareAndSwap(nil, &err)
}

// Err returns the first error, or nil.
func (f *Fault) Err() error {
	if p := f.err.Load(); p != nil {
		return *p
	}
	return nil
}
