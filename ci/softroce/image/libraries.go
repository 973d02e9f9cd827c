package image

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"os/exec"
	"strings"
)

// A MissingLibraryError says that a program needs a library which is not here.
type MissingLibraryError struct{ Program, Library string }

func (e *MissingLibraryError) Error() string {
	return fmt.Sprintf("image: %s needs the library %s, which is not installed", e.Program, e.Library)
}

// Libraries are the paths of the shared libraries that a program or library
// needs, the loader among them. Of a static program, and of what is no ELF
// file, there are none.
func Libraries(ctx context.Context, program string) ([]string, error) {
	if !dynamic(program) {
		return nil, nil
	}
	out, err := exec.CommandContext(ctx, "ldd", program).CombinedOutput()
	if err != nil {
		if bytes.Contains(out, []byte("not a dynamic executable")) {
			return nil, nil
		}
		return nil, fmt.Errorf("ldd %s: %w: %s", program, err, bytes.TrimSpace(out))
	}
	return parseLdd(program, string(out))
}

func dynamic(program string) bool {
	f, err := elf.Open(program)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	libraries, err := f.ImportedLibraries()
	return f.Type == elf.ET_DYN || err == nil && len(libraries) > 0
}

// parseLdd reads ldd's lines: "name => /path (0x1234)", "/path (0x1234)" for
// the loader, "name => not found", and "name (0x1234)" for the kernel's own.
func parseLdd(program, out string) ([]string, error) {
	var found []string
	for line := range strings.Lines(out) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), " (0x")
		name, where, arrow := strings.Cut(line, " => ")
		if !arrow {
			where = name
		}
		switch {
		case where == "not found":
			return nil, &MissingLibraryError{program, name}
		case strings.HasPrefix(where, "/"):
			found = append(found, where)
		}
	}
	return found, nil
}
