package mem

import "sync"

// Adopted is memory of the caller's that peers can reach where it lies; see
// link.Adopter. Its whole pages are those of a region. The partial pages at its
// two ends hold other people's bytes as well, so they stay the caller's own, and
// the region has shadows in their place: whoever lets peers work in the region
// copies the first Head and the last Tail bytes into the shadows before, and
// out of them after.
//
// The methods are for one goroutine at a time.
type Adopted struct {
	region RegionID
	offset int
	window []byte
	head   int
	tail   int

	current func() bool

	releaseOnce sync.Once
	release     func() error
	releaseErr  error
	released    bool
}

// Adoption is what a medium knows about memory that it has adopted.
type Adoption struct {
	Region RegionID
	Offset int          // where the memory starts in the region, in bytes
	Window []byte       // the same bytes as a peer sees them
	Head   int          // how many bytes at the start are shadow
	Tail   int          // how many bytes at the end are shadow
	Check  func() bool  // whether the caller's address still shows the region
	Undo   func() error // what Release does
}

// NewAdopted is for media. Undo is called at most once.
func NewAdopted(a Adoption) *Adopted {
	return &Adopted{
		region: a.Region, offset: a.Offset, window: a.Window, head: a.Head, tail: a.Tail,
		current: a.Check, release: a.Undo,
	}
}

// Region is the name peers know the memory by.
func (a *Adopted) Region() RegionID { return a.region }

// Offset is where the memory starts in the region, in bytes.
func (a *Adopted) Offset() int { return a.offset }

// Window is the memory as peers see it, as long as the memory itself: all but
// Head and Tail are the same bytes at a second address. It must not be used
// after Release.
func (a *Adopted) Window() []byte { return a.window }

// Head is how many bytes at the start of Window are shadow.
func (a *Adopted) Head() int { return a.head }

// Tail is how many bytes at the end of Window are shadow.
func (a *Adopted) Tail() int { return a.tail }

// Current reports whether the caller's address still shows the region, which it
// ceases to do when the caller unmaps it or maps something else there. It makes
// no system call. It changes two bytes for a moment, so nobody else may touch
// the memory meanwhile, and it reads the memory: as with any pointer, the
// caller must have something mapped there. What it finds holds for those two
// places, the first and the last whole page.
//
// After Release, or when the fabric was closed, it is false.
func (a *Adopted) Current() bool { return !a.released && a.current() }

// Release makes the memory private again, with the contents that it has, as far
// as the caller's address still shows the region; what the caller has unmapped
// or replaced is left alone. Then the region is freed as Buffer.Free does it.
// Nobody may touch the memory meanwhile, nor a peer be at work in the region.
// Calling it again does nothing.
func (a *Adopted) Release() error {
	a.releaseOnce.Do(func() {
		a.released = true
		a.releaseErr = a.release()
	})
	return a.releaseErr
}
