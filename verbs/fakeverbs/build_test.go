package fakeverbs

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func TestBuild(t *testing.T) {
	lib := func() string {
		p, err := Build("")
		if errors.Is(err, ErrUnavailable) && os.Getenv("CI") == "" {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := lib()
	before, err := os.Stat(first)
	if err != nil {
		t.Fatal(err)
	}
	if second := lib(); second != first {
		t.Errorf("built as %s, then as %s", first, second)
	}
	if after, err := os.Stat(first); err != nil || !after.ModTime().Equal(before.ModTime()) {
		t.Error("built again", err)
	}
}

// Several may build at a time, and all find the same.
func TestBuildTogether(t *testing.T) {
	dir := t.TempDir()
	var paths [2]string
	var errs [2]error
	var wg sync.WaitGroup
	for i := range paths {
		wg.Go(func() { paths[i], errs[i] = Build(dir) })
	}
	wg.Wait()
	for i, err := range errs {
		if errors.Is(err, ErrUnavailable) && os.Getenv("CI") == "" {
			t.Skip(err)
		}
		if err != nil || paths[i] != paths[0] {
			t.Errorf("%s, %v", paths[i], err)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestBuildWithoutCompiler(t *testing.T) {
	t.Setenv("CC", "no-such-compiler")
	if _, err := Build(t.TempDir()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}
