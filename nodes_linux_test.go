package tutti_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/bootstrap"
)

// TestNodes: ranks of several nodes, on one machine, find out who shares memory
// with whom, and compute the same as on one.
func TestNodes(t *testing.T) {
	for _, tt := range []struct {
		ranks int
		nodes string
	}{{2, "2"}, {3, "2"}, {4, "2"}, {5, "3"}, {4, "4"}} {
		for _, role := range []string{"sums", "mixed"} {
			t.Setenv(nodesVariable, tt.nodes)
			if err := start(t, tt.ranks, role).Wait(); err != nil {
				t.Errorf("%s of %d ranks on %s nodes: %v", role, tt.ranks, tt.nodes, err)
			}
		}
	}
}

// TestPaths: every path that one machine can have, and those that cannot be.
func TestPaths(t *testing.T) {
	for path, medium := range map[string]string{"": "shm", "auto": "shm", "shm": "shm", "tcp": "tcp", "shm+tcp": "shm+tcp"} {
		t.Run("path "+path, func(t *testing.T) {
			ex := bootstrap.Memory(2)
			for rank, err := range errorsOf(2, func(rank int) error {
				c, err := tutti.Init(t.Context(), tutti.Config{Exchanger: ex[rank], Path: path})
				if err != nil {
					return err
				}
				if got, _ := c.Describe(0, 8, false); got != medium {
					return errors.Join(errors.New("the medium is "+got), c.Close())
				}
				return errors.Join(c.Barrier(t.Context()), c.Close())
			}) {
				if err != nil {
					t.Errorf("rank %d: %v", rank, err)
				}
			}
		})
	}
	t.Run("two paths", func(t *testing.T) {
		ex := bootstrap.Memory(2)
		paths := []string{"tcp", "shm"}
		for rank, err := range errorsOf(2, func(rank int) error {
			_, err := tutti.Init(t.Context(), tutti.Config{Exchanger: ex[rank], Path: paths[rank]})
			return err
		}) {
			var bad *tutti.PathError
			if !errors.As(err, &bad) || bad.Rank != rank || bad.Path != paths[rank] {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
	})
	t.Run("no path", func(t *testing.T) {
		_, err := tutti.Init(t.Context(), tutti.Config{Exchanger: bootstrap.Single(), Path: "carrier+pigeon"})
		var bad *tutti.ConfigError
		if !errors.As(err, &bad) || bad.Field != "Path" {
			t.Error(err)
		}
	})
}

// errorsOf runs f for each rank side by side.
func errorsOf(n int, f func(rank int) error) []error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for rank := range n {
		all.Go(func() { errs[rank] = f(rank) })
	}
	all.Wait()
	return errs
}
