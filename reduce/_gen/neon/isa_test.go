package neon

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestWords has GNU as assemble the comment of every word.
func TestWords(t *testing.T) {
	const tools = "aarch64-linux-gnu-"
	if _, err := exec.LookPath(tools + "as"); err != nil {
		const missing = "NOT COMPARED: no GNU as for arm64 (Debian: apt-get install binutils-aarch64-linux-gnu)"
		if os.Getenv("CI") == "true" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	words := regexp.MustCompile(`WORD \$(0x[0-9a-f]{8}) // (.*)\n`).FindAllSubmatch(Assembly(), -1)
	if n := bytes.Count(Assembly(), []byte("WORD")); n == 0 || n != len(words) {
		t.Fatalf("%d words, of which %d have a comment", n, len(words))
	}
	var source bytes.Buffer
	for _, w := range words {
		fmt.Fprintf(&source, "%s\n", w[2])
	}
	dir := t.TempDir()
	object, text := filepath.Join(dir, "words.o"), filepath.Join(dir, "words")
	as := exec.Command(tools+"as", "-o", object, "-")
	as.Stdin = &source
	if out, err := as.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.Command(tools+"objcopy", "-O", "binary", "-j", ".text", object, text).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	assembled, err := os.ReadFile(text)
	if err != nil {
		t.Fatal(err)
	}
	if len(assembled) != 4*len(words) {
		t.Fatalf("%d words became %d bytes", len(words), len(assembled))
	}
	for i, w := range words {
		if got := fmt.Sprintf("%#08x", binary.LittleEndian.Uint32(assembled[4*i:])); got != string(w[1]) {
			t.Errorf("%s is %s, not %s", w[2], got, w[1])
		}
	}
	t.Logf("%d words agree", len(words))
}
