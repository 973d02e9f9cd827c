package bootstrap

import (
	"encoding/binary"
	"fmt"
	"io"
)

// What goes over a stream between two ends of a bootstrap: a kind, a length
// and a payload.
//
//	gather   to a parent: blobs for the next round
//	result   from a parent: all blobs of the round, each behind its length
//	fail     the job has failed, and why
//	leave    between ranks: one has left, and how many rounds it took part in
//	waiting  from rank 0: who is missing while the job forms
//	place    from rank 0: a rank's parent in the tree, and where that listens
//	linked   to rank 0: this rank has all its links in the tree
//	formed   from rank 0: so have all
const (
	frameGather = iota + 1
	frameResult
	frameFail
	frameLeave
	frameWaiting
	framePlace
	frameLinked
	frameFormed

	frameLast = frameFormed

	frameHeader = 9
)

// FrameError says that the other end sent what it must not.
type FrameError struct{ Reason string }

func (e *FrameError) Error() string { return "bootstrap: " + e.Reason }

func appendHeader(b []byte, kind byte, length int) []byte {
	return binary.LittleEndian.AppendUint64(append(b, kind), uint64(length))
}

func writeFrame(w io.Writer, kind byte, payload []byte) error {
	b := appendHeader(make([]byte, 0, frameHeader+len(payload)), kind, len(payload))
	_, err := w.Write(append(b, payload...))
	return err
}

// parseHeader reads a header. limit says how long a payload of a kind may be,
// and less than 0 that this kind must not come.
func parseHeader(header [frameHeader]byte, limit func(kind byte) int) (kind byte, length int, err error) {
	kind = header[0]
	if kind < frameGather || kind > frameLast {
		return 0, 0, &FrameError{fmt.Sprintf("a frame of unknown kind %d", kind)}
	}
	most := limit(kind)
	if most < 0 {
		return 0, 0, &FrameError{fmt.Sprintf("a frame of kind %d, which has no place here", kind)}
	}
	n := binary.LittleEndian.Uint64(header[1:])
	if n > uint64(most) {
		return 0, 0, &FrameError{fmt.Sprintf("a frame of %d bytes where %d are allowed", n, most)}
	}
	return kind, int(n), nil
}

// step is how much of a payload is asked for at once: a length alone, without
// the bytes, does not make the reader allocate.
const step = 1 << 20

// readPayload reads exactly n bytes.
func readPayload(r io.Reader, n int) ([]byte, error) {
	b := make([]byte, 0, min(n, step))
	for len(b) < n {
		if len(b) == cap(b) {
			b = append(make([]byte, 0, min(n, 2*cap(b))), b...)
		}
		more := b[len(b):cap(b)]
		if _, err := io.ReadFull(r, more); err != nil {
			return nil, &FrameError{"a frame that ends early"}
		}
		b = b[:cap(b)]
	}
	return b, nil
}

// readFrame reads one frame of at most limit payload bytes.
func readFrame(r io.Reader, limit int) (kind byte, payload []byte, err error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, nil, err
	}
	kind, n, err := parseHeader(header, func(byte) int { return limit })
	if err != nil {
		return 0, nil, err
	}
	payload, err = readPayload(r, n)
	return kind, payload, err
}

func encodeBlobs(blobs [][]byte) []byte {
	var b []byte
	for _, blob := range blobs {
		b = appendBlob(b, blob)
	}
	return b
}

func appendBlob(b, blob []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(blob))), blob...)
}

// decodeBlobs takes apart what encodeBlobs made of size blobs. The blobs lie
// in b.
func decodeBlobs(b []byte, size int) ([][]byte, error) {
	blobs := make([][]byte, size)
	for i := range blobs {
		if len(b) < 4 {
			return nil, &FrameError{"a result that ends early"}
		}
		n := binary.LittleEndian.Uint32(b)
		b = b[4:]
		if n > MaxBlob || uint64(n) > uint64(len(b)) {
			return nil, &FrameError{fmt.Sprintf("a result whose blob %d has %d bytes of %d left", i, n, len(b))}
		}
		blobs[i], b = b[:n:n], b[n:]
	}
	if len(b) != 0 {
		return nil, &FrameError{fmt.Sprintf("a result with %d bytes too many", len(b))}
	}
	return blobs, nil
}

// resultLimit bounds the blobs of a number of ranks.
func resultLimit(size int) int { return size * (4 + MaxBlob) }
