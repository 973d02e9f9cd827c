package mem

import (
	"errors"
	"strings"
	"testing"
)

func TestDTypeNames(t *testing.T) {
	for _, dt := range DTypes() {
		got, err := ParseDType(dt.String())
		if err != nil || got != dt {
			t.Errorf("ParseDType(%q) = %v, %v", dt.String(), got, err)
		}
		if alias := dtypes[dt].alias; alias != "" {
			if got, err := ParseDType(alias); err != nil || got != dt {
				t.Errorf("ParseDType(%q) = %v, %v", alias, got, err)
			}
		}
	}
	_, err := ParseDType("f128")
	if err == nil || !strings.Contains(err.Error(), "f128") || !strings.Contains(err.Error(), "bf16") {
		t.Errorf("error for an unknown type does not help: %v", err)
	}
}

func TestOpNames(t *testing.T) {
	for _, op := range Ops() {
		got, err := ParseOp(op.String())
		if err != nil || got != op {
			t.Errorf("ParseOp(%q) = %v, %v", op.String(), got, err)
		}
	}
	_, err := ParseOp("xor")
	if err == nil || !strings.Contains(err.Error(), "bxor") {
		t.Errorf("error for an unknown operator does not help: %v", err)
	}
}

func TestOpSupports(t *testing.T) {
	for _, op := range Ops() {
		for _, dt := range DTypes() {
			want := !dt.Float() || (op != Band && op != Bor && op != Bxor)
			if got := op.Supports(dt); got != want {
				t.Errorf("%v.Supports(%v) = %v", op, dt, got)
			}
		}
	}
	if Op(200).Supports(F32) || Sum.Supports(DType(200)) {
		t.Error("undeclared values are supported")
	}
}

func TestTypeOf(t *testing.T) {
	type named int16
	got := []DType{
		TypeOf[float32](), TypeOf[float64](),
		TypeOf[int8](), TypeOf[named](), TypeOf[int32](), TypeOf[int64](),
		TypeOf[uint8](), TypeOf[uint16](), TypeOf[uint32](), TypeOf[uint64](),
	}
	want := []DType{F32, F64, I8, I16, I32, I64, U8, U16, U32, U64}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("type %d: got %v, want %v", i, got[i], want[i])
		}
	}
}

func TestSliceSharesMemory(t *testing.T) {
	s := []uint32{1, 2, 3}
	b := Bytes(s)
	if len(b) != 12 {
		t.Fatalf("len = %d", len(b))
	}
	back := Slice[uint32](b)
	back[1] = 7
	if s[1] != 7 {
		t.Error("Slice made a copy")
	}
	if Bytes([]uint32{}) != nil || Slice[uint64](b[:7]) != nil {
		t.Error("empty views are not nil")
	}
}

func TestBufferFreesOnce(t *testing.T) {
	calls := 0
	boom := errors.New("boom")
	b := NewBuffer(3, make([]byte, 5), func() error { calls++; return boom })
	if b.Len() != 5 || b.Region() != 3 {
		t.Errorf("Len %d Region %d", b.Len(), b.Region())
	}
	if err := b.Free(); !errors.Is(err, boom) {
		t.Errorf("first Free: %v", err)
	}
	if err := b.Free(); !errors.Is(err, boom) || calls != 1 {
		t.Errorf("second Free: %v after %d calls", err, calls)
	}
}
