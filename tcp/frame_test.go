package tcp

import (
	"bytes"
	"testing"
)

// FuzzHeader: what a peer says is refused or means what it says.
func FuzzHeader(f *testing.F) {
	for kind := range uint8(11) {
		f.Add((&frame{kind: kind, region: 3, offset: 8, value: 16}).append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < headerBytes {
			return
		}
		b = b[:headerBytes]
		h, err := decodeHeader((*[headerBytes]byte)(b))
		if err != nil {
			return
		}
		if !bytes.Equal(h.append(nil), b) {
			t.Errorf("%x decodes to %+v, which encodes otherwise", b, h)
		}
		if h.bytes() > maxFrame {
			t.Errorf("%x is a frame of %d bytes", b, h.bytes())
		}
	})
}
