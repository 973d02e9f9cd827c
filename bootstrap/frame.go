package bootstrap

import (
	"encoding/binary"
	"fmt"
	"io"
)

// What goes over the socket between a rank and its parent: a kind, a length
// and a payload.
//
//	gather   rank to parent: this rank's blob for the next round
//	result   parent to rank: all blobs of the round, each behind its length
//	fail     parent to rank: the job has failed, and why
const (
	frameGather = 1
	frameResult = 2
	frameFail   = 3

	frameHeader = 5
)

// FrameError says that the other end sent what it must not.
type FrameError struct{ Reason string }

func (e *FrameError) Error() string { return "bootstrap: " + e.Reason }

func writeFrame(w io.Writer, kind byte, payload []byte) error {
	b := make([]byte, frameHeader, frameHeader+len(payload))
	b[0] = kind
	binary.LittleEndian.PutUint32(b[1:], uint32(len(payload)))
	_, err := w.Write(append(b, payload...))
	return err
}

// readFrame reads one frame of at most limit payload bytes.
func readFrame(r io.Reader, limit int) (kind byte, payload []byte, err error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, nil, err
	}
	kind = header[0]
	if kind < frameGather || kind > frameFail {
		return 0, nil, &FrameError{fmt.Sprintf("a frame of unknown kind %d", kind)}
	}
	n := binary.LittleEndian.Uint32(header[1:])
	if uint64(n) > uint64(limit) {
		return 0, nil, &FrameError{fmt.Sprintf("a frame of %d bytes where %d are allowed", n, limit)}
	}
	payload = make([]byte, n)
	if _, err := io.ReadFull(r, payload); err != nil {
		return 0, nil, &FrameError{"a frame that ends early"}
	}
	return kind, payload, nil
}

func encodeBlobs(blobs [][]byte) []byte {
	var b []byte
	for _, blob := range blobs {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(blob)))
		b = append(b, blob...)
	}
	return b
}

func decodeBlobs(b []byte, size int) ([][]byte, error) {
	blobs := make([][]byte, size)
	for i := range blobs {
		if len(b) < 4 {
			return nil, &FrameError{"a result that ends early"}
		}
		n := binary.LittleEndian.Uint32(b)
		b = b[4:]
		if uint64(n) > uint64(len(b)) {
			return nil, &FrameError{fmt.Sprintf("a result whose blob %d has %d bytes of %d left", i, n, len(b))}
		}
		blobs[i], b = b[:n:n], b[n:]
	}
	if len(b) != 0 {
		return nil, &FrameError{fmt.Sprintf("a result with %d bytes too many", len(b))}
	}
	return blobs, nil
}

// resultLimit bounds the result of a job's AllGather.
func resultLimit(size int) int { return size * (4 + MaxBlob) }
