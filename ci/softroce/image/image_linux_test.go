package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestLayout(t *testing.T) {
	b := New()
	host := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(host, []byte("12345"), 0o640); err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(b.Bytes("/etc/deep/name", []byte("abc"), 0o600))
	must(b.File("/bin/tool", host))
	must(b.Link("/bin/alias", "tool"))
	for path, want := range map[string]bool{"/bin/tool": true, "/usr/bin/tool": true, "/etc/deep": true, "/etc/x": false, "relative": false} {
		if b.Has(path) != want {
			t.Errorf("Has(%q) is %v", path, !want)
		}
	}
	for _, err := range []error{
		b.Bytes("relative", nil, 0), b.Bytes("/etc/deep/name/below", nil, 0),
		b.File("/x", filepath.Join(t.TempDir(), "none")), b.File("/x", t.TempDir()),
	} {
		if err == nil {
			t.Error("a bad path was taken")
		}
	}

	var out bytes.Buffer
	must(b.Write(&out))
	got := map[string]string{}
	for _, e := range parse(t, out.Bytes()) {
		got[e.name] = fmt.Sprintf("%o %s", e.mode, e.data)
	}
	for name, want := range map[string]string{
		"etc/deep/name": "100600 abc", "etc/deep": "40755 ", "usr/bin/tool": "100640 12345",
		"usr/bin/alias": "120777 tool", "bin": "120777 usr/bin", "dev": "40755 ",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
}

type entry struct {
	name string
	mode uint64
	data string
}

// parse reads an archive by the format's description, and checks what the
// kernel relies on: folders before what is in them, everything aligned.
func parse(t *testing.T, b []byte) []entry {
	t.Helper()
	var all []entry
	seen := map[string]bool{}
	for at := 0; ; {
		if at%4 != 0 || len(b) < at+110 || string(b[at:at+6]) != "070701" {
			t.Fatalf("no header at %d", at)
		}
		field := func(i int) (n int) {
			if _, err := fmt.Sscanf(string(b[at+6+8*i:at+14+8*i]), "%X", &n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		mode, size, nameSize := field(1), field(6), field(11)
		name := string(b[at+110 : at+110+nameSize-1])
		data := (at + 110 + nameSize + 3) / 4 * 4
		at = (data + size + 3) / 4 * 4
		if name == "TRAILER!!!" {
			return all
		}
		if up := filepath.Dir(name); up != "." && !seen[up] {
			t.Errorf("%s comes before its folder", name)
		}
		seen[name] = true
		all = append(all, entry{name, uint64(mode), string(b[data : data+size])})
	}
}

func TestLddLines(t *testing.T) {
	out := "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f2a)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f2b)\n"
	got, err := parseLdd("p", out)
	if want := []string{"/lib/x86_64-linux-gnu/libm.so.6", "/lib64/ld-linux-x86-64.so.2"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if got, err := parseLdd("p", "\tstatically linked\n"); err != nil || len(got) != 0 {
		t.Errorf("static: %v, %v", got, err)
	}
	var missing *MissingLibraryError
	if _, err := parseLdd("p", "\tlibx.so.1 => not found\n"); !errors.As(err, &missing) || missing.Library != "libx.so.1" {
		t.Errorf("missing: %v", err)
	}
}

func TestProgramBringsItsLibraries(t *testing.T) {
	if _, err := exec.LookPath("ldd"); err != nil {
		t.Skipf("NOT RUN: %v", err)
	}
	b := New()
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.Program(context.Background(), "/sh", "/bin/sh"), b.Program(context.Background(), "/script", script)); err != nil {
		t.Fatal(err)
	}
	libraries := 0
	for _, n := range b.names() {
		if strings.HasPrefix(filepath.Base(n), "libc.so") || strings.HasPrefix(filepath.Base(n), "ld-linux") {
			libraries++
		}
	}
	if libraries != 2 {
		t.Errorf("%d of libc and loader are in the image: %v", libraries, b.names())
	}
}

func TestModuleOrder(t *testing.T) {
	dep := "kernel/a/rdma_rxe.ko: kernel/a/ib_uverbs.ko kernel/a/ib_core.ko\n" +
		"kernel/a/ib_uverbs.ko: kernel/a/ib_core.ko\nkernel/a/ib_core.ko:\nkernel/b/crc32-pclmul.ko.zst:\n"
	tree := parseModules("6.1", dep, "kernel/c/virtio.ko\n")
	got, err := tree.order([]string{"virtio", "crc32_pclmul", "rdma_rxe", "ib_core"})
	want := []string{"kernel/b/crc32-pclmul.ko.zst", "kernel/a/ib_core.ko", "kernel/a/ib_uverbs.ko", "kernel/a/rdma_rxe.ko"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	var none *NoModuleError
	if _, err := tree.order([]string{"siw"}); !errors.As(err, &none) || none.Module != "siw" || none.Kernel != "6.1" {
		t.Errorf("siw: %v", err)
	}
}

func TestModulesAreUnpacked(t *testing.T) {
	if _, err := exec.LookPath("gzip"); err != nil {
		t.Skipf("NOT RUN: %v", err)
	}
	dir := filepath.Join(t.TempDir(), "6.1")
	for name, text := range map[string]string{"modules.dep": "k/one.ko.gz:\nk/two.ko: k/one.ko.gz\n", "modules.builtin": "", "k/one.ko": "first", "k/two.ko": "second"} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := exec.Command("gzip", filepath.Join(dir, "k/one.ko")).Run(); err != nil {
		t.Fatal(err)
	}
	b := New()
	if err := b.Modules(context.Background(), dir, "two"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{ModuleList: "/modules/one.ko\n/modules/two.ko\n", "/modules/one.ko": "first", "/modules/two.ko": "second"} {
		if got := string(b.files[name].data); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}
