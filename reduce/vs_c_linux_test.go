package reduce

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/mem"
)

// BenchmarkSumF32VsC measures how near the sum of two sources comes to the
// same loop in C with vectors of the same width, in the caches and out of
// them. The two take turns; "of-C" is the median of C's time divided by ours:
// 1 is as fast, more is faster.
func BenchmarkSumF32VsC(b *testing.B) {
	width, known := map[string]int{"avx512": 64, "avx2": 32, "neon": 16}[ISA()]
	if !known {
		b.Skipf("no vectors to compare: the instruction set is %s", ISA())
	}
	c := startC(b, width)
	kernel, err := Lookup(mem.Sum, mem.F32)
	if err != nil {
		b.Fatal(err)
	}
	for _, size := range []struct {
		name    string
		bytes   int // of an array
		inPlace int // 1: the destination is the first source
	}{
		{"L1/16KiB/in place", 16 << 10, 1},
		{"L1/8KiB/out of place", 8 << 10, 0},
		{"L2/128KiB/in place", 128 << 10, 1},
		{"L2/128KiB/out of place", 128 << 10, 0},
		{"memory/128MiB/in place", largest, 1},
		{"memory/128MiB/out of place", largest, 0},
	} {
		b.Run(size.name, func(b *testing.B) {
			count := size.bytes / 4
			at := func(i int) unsafe.Pointer { return unsafe.Pointer(&c.memory[i*(size.bytes+pad)]) }
			dsts, srcs := []unsafe.Pointer{at(size.inPlace)}, []unsafe.Pointer{at(1), at(2)}
			repetitions := max(1, (4<<20)/size.bytes)
			var ours, theirs, ratios []float64
			b.ResetTimer()
			for range max(b.N, 21) {
				start := time.Now()
				for range repetitions {
					kernel(dsts, srcs, count, 1)
				}
				ours = append(ours, float64(time.Since(start).Nanoseconds())/float64(repetitions))
				theirs = append(theirs, c.ask(b, count, size.inPlace, repetitions))
				ratios = append(ratios, theirs[len(theirs)-1]/ours[len(ours)-1])
			}
			b.ReportMetric(0, "ns/op") // of both in turn: means nothing
			b.ReportMetric(median(ours), "ns/sum")
			b.ReportMetric(median(theirs), "ns/C-sum")
			b.ReportMetric(median(ratios), "of-C")
		})
	}
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return x[len(x)/2]
}

// cTwin is testdata/sum.c as a process. It works on the same memory: how fast
// memory is depends on which pages one happened to get.
type cTwin struct {
	memory []byte // three arrays, each followed by pad bytes
	in     io.Writer
	out    *bufio.Reader
}

const (
	largest = 128 << 20 // bytes of an array
	pad     = 192       // lest arrays of a power of two meet in the same sets
)

func startC(b *testing.B, width int) *cTwin {
	compiler, err := exec.LookPath("cc")
	if err != nil {
		b.Skip("no C compiler to compare with: ", err)
	}
	program := filepath.Join(b.TempDir(), "sum")
	compile := exec.Command(compiler, "-O3", "-march=native", "-o", program, "testdata/sum.c",
		fmt.Sprintf("-DWIDTH=%d", width), fmt.Sprintf("-DPAD=%d", pad), fmt.Sprintf("-DMEMORY=%d", 3*(largest+pad)))
	if out, err := compile.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	file, memory := sharedFloats(b, 3*(largest+pad))
	cmd := exec.Command(program)
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{file}
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	return &cTwin{memory, in, bufio.NewReader(out)}
}

// sharedFloats is memory that the holders of a descriptor share.
func sharedFloats(b *testing.B, bytes int) (*os.File, []byte) {
	fd, err := unix.MemfdCreate("floats", unix.MFD_CLOEXEC)
	if err != nil {
		b.Skip("no shared memory: ", err)
	}
	file := os.NewFile(uintptr(fd), "floats")
	b.Cleanup(func() { file.Close() })
	if err := file.Truncate(int64(bytes)); err != nil {
		b.Fatal(err)
	}
	memory, err := unix.Mmap(fd, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = unix.Munmap(memory) })
	floats := unsafe.Slice((*float32)(unsafe.Pointer(&memory[0])), bytes/4)
	for i := range floats {
		floats[i] = float32(i % 7)
	}
	return file, memory
}

// ask returns the nanoseconds of one sum of count floats.
func (c *cTwin) ask(b *testing.B, count, inPlace, repetitions int) float64 {
	b.Helper()
	var ns float64
	if _, err := fmt.Fprintln(c.in, count, inPlace, repetitions); err != nil {
		b.Fatal(err)
	}
	if _, err := fmt.Fscan(c.out, &ns); err != nil {
		b.Fatal("the C twin: ", err)
	}
	return ns
}
