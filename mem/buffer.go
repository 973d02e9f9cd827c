package mem

import "sync"

// RegionID names a piece of a rank's memory that other ranks can reach. It is
// unique within the rank that made the region and never used again. Zero
// names no region.
type RegionID uint32

// Remote is a place in the memory of a peer: Offset bytes into its region.
type Remote struct {
	Region RegionID
	Offset int
}

// Buffer is memory that belongs to Tutti and that peers can reach: what
// Comm.Alloc returns. It starts on a page boundary, so any element type is
// aligned in it.
//
// The caller owns the bytes between collectives. During one, a buffer that is
// only sent from may be read by others, and a buffer that receives must not be
// touched by the caller.
type Buffer struct {
	region RegionID
	bytes  []byte

	freeOnce sync.Once
	free     func() error
	freeErr  error
}

// NewBuffer is for media: it wraps the memory of one region. free is called at
// most once and unmaps it.
func NewBuffer(region RegionID, bytes []byte, free func() error) *Buffer {
	return &Buffer{region: region, bytes: bytes, free: free}
}

// Bytes is the memory itself, not a copy. It must not be used after Free.
func (b *Buffer) Bytes() []byte { return b.bytes }

// Len is the size in bytes that was asked for.
func (b *Buffer) Len() int { return len(b.bytes) }

// Region is the name peers know the memory by.
func (b *Buffer) Region() RegionID { return b.region }

// Free gives the memory back. The caller must not be inside a collective on
// it; peers drop their mappings by themselves. Calling it again does nothing.
func (b *Buffer) Free() error {
	b.freeOnce.Do(func() { b.freeErr = b.free() })
	return b.freeErr
}
