package move

import (
	"bytes"
	"fmt"
	"testing"
)

// ways are the two copies that must not differ.
var ways = map[string]func(dst, src []byte){"Bytes": Bytes, "Stream": Stream}

// TestCopies copies every length around the thresholds, at every alignment of
// both ends, between canaries.
func TestCopies(t *testing.T) {
	pattern := make([]byte, 5000)
	for i := range pattern {
		pattern[i] = byte(i*7 + i>>8)
	}
	for name, way := range ways {
		for _, n := range []int{0, 1, 7, 63, 64, 65, 127, 128, 129, 1024, 2047, 2048, 2049, 4097} {
			for shift := range 64 {
				src := pattern[shift:][:n]
				to := bytes.Repeat([]byte{0xEE}, n+256)
				dst := to[64+(shift*5)%64:][:n]
				before, after := 64+(shift*5)%64, 64+(shift*5)%64+n
				way(dst, src)
				if !bytes.Equal(dst, src) {
					t.Fatalf("%s: %d bytes at shift %d differ", name, n, shift)
				}
				for i, x := range to {
					if (i < before || i >= after) && x != 0xEE {
						t.Fatalf("%s: %d bytes at shift %d: wrote outside, at %d", name, n, shift, i-before)
					}
				}
			}
		}
	}
}

func FuzzCopies(f *testing.F) {
	f.Add([]byte("some bytes"), uint16(3))
	f.Add(make([]byte, 3000), uint16(61))
	f.Fuzz(func(t *testing.T, src []byte, shift uint16) {
		for name, way := range ways {
			to := make([]byte, len(src)+int(shift%128))
			dst := to[shift%128:]
			way(dst, src)
			if !bytes.Equal(dst, src) {
				t.Errorf("%s differs", name)
			}
		}
	})
}

func BenchmarkBytes(b *testing.B) {
	for _, n := range []int{64, 512, 1024, 4096, 32 << 10, 1 << 20} {
		src, dst := make([]byte, n), make([]byte, n)
		b.Run(fmt.Sprintf("move/%d", n), func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				Bytes(dst, src)
			}
		})
		b.Run(fmt.Sprintf("copy/%d", n), func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				copy(dst, src)
			}
		})
	}
}
