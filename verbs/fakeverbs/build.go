package fakeverbs

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
)

//go:embed src/*.c src/*.h src/libibverbs.map
var sources embed.FS

// ErrUnavailable says that the library cannot be built here: the machine runs
// no Linux, or has no C compiler.
var ErrUnavailable = errors.New("fakeverbs: cannot be built")

// Library is the name of the file that Build makes.
const Library = "libibverbs.so.1"

var flags = []string{
	"-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-fPIC", "-fvisibility=hidden", "-pthread",
	"-shared", "-Wl,-soname," + Library, "-Wl,-z,nodelete", // its threads stay
}

// Build compiles the library, unless it has been before, and returns the path
// of the file. It lies in a directory of its own, which suits LD_LIBRARY_PATH,
// beneath dir; an empty dir stands for the user's cache. The compiler is $CC,
// or the first of gcc, cc and clang. Several processes may build at a time.
func Build(dir string) (string, error) {
	return build(dir, nil)
}

func build(dir string, extra []string) (string, error) {
	if runtime.GOOS != "linux" {
		return "", fmt.Errorf("%w on %s", ErrUnavailable, runtime.GOOS)
	}
	cc, err := compiler()
	if err != nil {
		return "", err
	}
	if dir == "" {
		if dir, err = os.UserCacheDir(); err != nil {
			dir = os.TempDir()
		}
		dir = filepath.Join(dir, "tutti", "fakeverbs")
	}
	args := append(append([]string{}, flags...), extra...)
	id, err := fingerprint(append([]string{cc, runtime.GOARCH}, args...))
	if err != nil {
		return "", err
	}
	final := filepath.Join(dir, id)
	lib := filepath.Join(final, Library)
	if _, err := os.Stat(lib); err == nil {
		return lib, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("fakeverbs: %w", err)
	}
	work, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return "", fmt.Errorf("fakeverbs: %w", err)
	}
	defer os.RemoveAll(work)
	if err := compile(cc, args, work); err != nil {
		return "", err
	}
	// Who comes second finds the first one's, which is the same.
	if err := os.Rename(work, final); err != nil {
		if _, missing := os.Stat(lib); missing != nil {
			return "", fmt.Errorf("fakeverbs: %w", err)
		}
	}
	return lib, nil
}

func compiler() (string, error) {
	names := []string{"gcc", "cc", "clang"}
	if cc := os.Getenv("CC"); cc != "" {
		names = []string{cc}
	}
	for _, name := range names {
		if p, err := exec.LookPath(name); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("%w: no C compiler (%s) in PATH", ErrUnavailable, strings.Join(names, ", "))
}

// fingerprint names what the sources and the arguments make.
func fingerprint(args []string) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%q\n", args)
	err := fs.WalkDir(sources, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := sources.ReadFile(name)
		fmt.Fprintf(h, "%s %d\n%s", name, len(text), text)
		return err
	})
	return hex.EncodeToString(h.Sum(nil)[:12]), err
}

func compile(cc string, args []string, work string) error {
	entries, err := sources.ReadDir("src")
	if err != nil {
		return err
	}
	args = append(args, "-o", Library, "-Wl,--version-script=libibverbs.map")
	for _, e := range entries {
		text, err := sources.ReadFile(path.Join("src", e.Name()))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(work, e.Name()), text, 0o600); err != nil {
			return fmt.Errorf("fakeverbs: %w", err)
		}
		if strings.HasSuffix(e.Name(), ".c") {
			args = append(args, e.Name())
		}
	}
	cmd := exec.Command(cc, args...)
	cmd.Dir = work
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("fakeverbs: %s: %w\n%s", cc, err, out)
	}
	return nil
}
