package bucket

import "fmt"

// TensorError says what is wrong with a tensor, or with a call for it. Nothing
// has been done.
type TensorError struct {
	Tensor int // by its place in the registration
	Reason string
}

func (e *TensorError) Error() string { return fmt.Sprintf("tensor %d: %s", e.Tensor, e.Reason) }

// LayoutError says that the ranks have not registered the same tensors: other
// types, sizes or order, or another Config; or that a rank could not register
// its own, which then has the reason.
type LayoutError struct{}

func (*LayoutError) Error() string {
	return "the ranks have not registered the same tensors in the same order with the same Config, or one of them failed to"
}

// MissingError says that tensors are not ready that Wait was to wait for.
type MissingError struct {
	Tensor  int // the first of them
	Missing int // how many
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("%d tensors are not ready, the first of them tensor %d: call Ready for each, or Flush", e.Missing, e.Tensor)
}

// ReduceError says that the allreduce of a bucket failed. Err is the Comm's
// error, and final.
type ReduceError struct {
	Bucket, Of int
	Err        error
}

func (e *ReduceError) Error() string {
	return fmt.Sprintf("bucket %d of %d: %v", e.Bucket, e.Of, e.Err)
}

// Unwrap is the Comm's error.
func (e *ReduceError) Unwrap() error { return e.Err }
