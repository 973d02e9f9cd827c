//go:build cgo

package shm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/internal/cmalloc"
	"github.com/tutti-go/tutti/link"
)

func init() { roles["malloc"] = mallocRole }

// mallocRole adopts what malloc returns, and lets malloc have it back in every
// order. It tells how many blocks were adopted.
func mallocRole(ctx context.Context, ex *pipes) error {
	f, err := Open(ctx, bootstrap.Single(), nil)
	if err != nil {
		return err
	}
	defer f.Close()
	adopted, refused := 0, 0
	var reason error
	for round := range 2 {
		for _, n := range []int{200_001, 5<<20 + 12345, 33 << 20} {
			for name, use := range map[string]func(*Fabric, int) error{
				"release then free": releaseThenFree, "free then release": freeThenRelease, "realloc": reallocAdopted,
			} {
				err := use(f, n)
				var e *link.AdoptError
				if errors.As(err, &e) {
					refused++
					reason = err
				} else if err != nil {
					return fmt.Errorf("round %d, %d bytes, %s: %w", round, n, name, err)
				} else {
					adopted++
				}
			}
		}
	}
	why := ""
	if reason != nil {
		why = ", for instance: " + reason.Error()
	}
	_, err = ex.swap(fmt.Appendf(nil, "%d adopted, %d refused%s", adopted, refused, why))
	return err
}

func releaseThenFree(f *Fabric, n int) error {
	b := cmalloc.Malloc(n)
	defer cmalloc.Free(b)
	pattern(b, 1)
	a, err := f.Adopt(b)
	if err != nil {
		return err
	}
	if !a.Current() || !bytes.Equal(b, patterned(n, 1)) {
		return errors.New("not what was there")
	}
	pattern(b, 2)
	if err := a.Release(); err != nil {
		return err
	}
	if !bytes.Equal(b, patterned(n, 2)) {
		return errors.New("Release has changed it")
	}
	return nil
}

func freeThenRelease(f *Fabric, n int) error {
	b := cmalloc.Malloc(n)
	pattern(b, 1)
	a, err := f.Adopt(b)
	if err != nil {
		cmalloc.Free(b)
		return err
	}
	cmalloc.Free(b)
	next := cmalloc.Calloc(n)
	defer cmalloc.Free(next)
	for i, x := range next {
		if x != 0 {
			return fmt.Errorf("calloc returns a block that is not zero at %d", i)
		}
	}
	pattern(next, 3)
	if err := a.Release(); err != nil {
		return err
	}
	if !bytes.Equal(next, patterned(n, 3)) {
		return errors.New("Release has changed somebody else's memory")
	}
	return nil
}

func reallocAdopted(f *Fabric, n int) error {
	b := cmalloc.Malloc(n)
	pattern(b, 1)
	a, err := f.Adopt(b)
	if err != nil {
		cmalloc.Free(b)
		return err
	}
	for _, m := range []int{n + n/2, n / 3} {
		if b = cmalloc.Realloc(b, m); b == nil {
			return errors.New("realloc fails")
		}
		if k := min(m, n); !bytes.Equal(b[:k], patterned(k, 1)) {
			return fmt.Errorf("realloc to %d bytes has lost something", m)
		}
	}
	pattern(b, 2)
	if err := a.Release(); err != nil {
		return err
	}
	if !bytes.Equal(b, patterned(len(b), 2)) {
		return errors.New("Release has changed it")
	}
	cmalloc.Free(b)
	return nil
}

// TestAdoptMalloc: with the allocators that programs use.
func TestAdoptMalloc(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT TESTED: takes seconds")
	}
	for library, want := range map[string]string{
		"glibc":                    ", 0 refused",
		"libjemalloc.so.2":         "0 adopted",
		"libmimalloc.so.2":         ", 0 refused",
		"libtcmalloc_minimal.so.4": "", // takes all it has from brk where it can
	} {
		t.Run(library, func(t *testing.T) {
			env := "LD_PRELOAD="
			if library == "glibc" { // or it keeps large blocks in its heap from the second time on
				env = "MALLOC_MMAP_THRESHOLD_=131072"
			} else {
				found, _ := filepath.Glob("/usr/lib/*/" + library)
				if len(found) == 0 {
					t.Skipf("NOT TESTED: there is no %s here", library)
				}
				env += found[0]
			}
			o := spawn(t, "malloc", env)
			told, err := o.swap(nil)
			if err != nil {
				t.Error(err)
			}
			t.Log(string(told))
			if !strings.Contains(string(told), want) {
				t.Errorf("want %q", want)
			}
			o.end()
		})
	}
}
