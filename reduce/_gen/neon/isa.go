package neon

import (
	"bytes"
	"fmt"
)

// A vec is the number of a vector register.
type vec uint32

// An asm is assembly being written.
type asm struct{ bytes.Buffer }

func (a *asm) line(format string, args ...any) { fmt.Fprintf(a, "\t"+format+"\n", args...) }

func (a *asm) label(name string) { fmt.Fprintf(a, "\n%s:\n", name) }

// word writes an instruction that Go's assembler lacks. The comment is in the
// syntax of GNU as, which a test has assemble it.
func (a *asm) word(bits uint32, format string, args ...any) {
	a.line("WORD $%#08x // "+format, append([]any{bits}, args...)...)
}

// Arrangements by the size of elements, as Go and the Arm manual write them.
var (
	goNames  = map[int]string{1: "B16", 2: "H8", 4: "S4", 8: "D2"}
	armNames = map[int]string{1: "16b", 2: "8h", 4: "4s", 8: "2d"}
)

// A three computes d from n and m. Go names them backwards.
type three func(a *asm, d, n, m vec)

func goThree(name string, size int) three {
	t := goNames[size]
	return func(a *asm, d, n, m vec) { a.line("%s V%d.%s, V%d.%s, V%d.%s", name, m, t, n, t, d, t) }
}

func wordThree(name string, bits uint32, size int) three {
	t := armNames[size]
	return func(a *asm, d, n, m vec) {
		a.word(bits|uint32(m<<16|n<<5|d), "%s v%d.%s, v%d.%s, v%d.%s", name, d, t, n, t, m, t)
	}
}

// integer encodes "Advanced SIMD three same" of integers of 1, 2, 4 or 8 bytes.
func integer(name string, opcode uint32, size int) three {
	return wordThree(name, 0x4e200400|opcode|map[int]uint32{1: 0, 2: 1, 4: 2, 8: 3}[size]<<22, size)
}

// float encodes "Advanced SIMD three same" of floats of 4 or 8 bytes.
func float(name string, opcode uint32, size int) three {
	return wordThree(name, 0x4e200400|opcode|map[int]uint32{4: 0, 8: 1}[size]<<22, size)
}

const uBit = 1 << 29 // U in the manual: unsigned, or another instruction altogether

func mul(size int) three  { return integer("mul", 0x13<<11, size) }
func smax(size int) three { return integer("smax", 0x0c<<11, size) }
func smin(size int) three { return integer("smin", 0x0d<<11, size) }
func cmgt(size int) three { return integer("cmgt", 0x06<<11, size) }
func cmhi(size int) three { return integer("cmhi", uBit|0x06<<11, size) }

func fadd(size int) three  { return float("fadd", 0x1a<<11, size) }
func fmul(size int) three  { return float("fmul", uBit|0x1b<<11, size) }
func fdiv(size int) three  { return float("fdiv", uBit|0x1f<<11, size) }
func fmax(size int) three  { return float("fmax", 0x1e<<11, size) }
func fmin(size int) three  { return float("fmin", 1<<23|0x1e<<11, size) }
func fcmeq(size int) three { return float("fcmeq", 0x1c<<11, size) }

// umlal is d += n·m, of the low halves of n and m, 32 bits to 64.
func umlal(a *asm, d, n, m vec) {
	a.word(0x2ea08000|uint32(m<<16|n<<5|d), "umlal v%d.2d, v%d.2s, v%d.2s", d, n, m)
}

// two encodes "Advanced SIMD two-register miscellaneous".
func two(name string, bits uint32, to, from string) func(a *asm, d, n vec) {
	return func(a *asm, d, n vec) { a.word(bits|uint32(n<<5|d), "%s v%d.%s, v%d.%s", name, d, to, n, from) }
}

var (
	fcvtl  = two("fcvtl", 0x0e217800, "4s", "4h")
	fcvtl2 = two("fcvtl2", 0x4e217800, "4s", "8h")
	fcvtn  = two("fcvtn", 0x0e216800, "4h", "4s")
	fcvtn2 = two("fcvtn2", 0x4e216800, "8h", "4s")
	uaddlp = two("uaddlp", 0x6ea02800, "2d", "4s")
	xtn    = two("xtn", 0x0ea12800, "2s", "2d")
)
