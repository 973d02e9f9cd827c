package tutti

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/plan"
	"github.com/tutti-go/tutti/shm"
	"github.com/tutti-go/tutti/span"
	"github.com/tutti-go/tutti/tcp"
)

// paths are what Config.Path may be, besides auto: one medium for all ranks, or
// one inside nodes and one across.
var paths = []string{"shm", "tcp", "shm+tcp"}

// checkPath refuses what is no path.
func checkPath(path string) error {
	if path == "" || path == "auto" || slices.Contains(paths, path) {
		return nil
	}
	return &ConfigError{"Path", path, append([]string{"auto"}, paths...)}
}

// PathError says that ranks cannot be connected as Config.Path, or what they
// found of each other's machines, demands.
type PathError struct {
	Path   string // that was asked for
	Rank   int    // who reports
	Reason string
	Err    error // what a medium said, or nil
}

func (e *PathError) Error() string {
	s := fmt.Sprintf("rank %d: path %s: %s", e.Rank, e.Path, e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *PathError) Unwrap() error { return e.Err }

// openFabric opens the media of a path. All ranks call it with the same path
// and nodes, and take the same ones. The nodes it returns are those of the
// fabric: where a medium that maps nothing is used inside machines too, nobody
// is on a node with anybody.
func openFabric(ctx context.Context, ex bootstrap.Exchanger, path string, nodes plan.Nodes, log *slog.Logger) (link.Fabric, plan.Nodes, error) {
	if path == "auto" {
		path = "shm"
		if nodes.Count() > 1 {
			path = "shm+tcp"
		}
	}
	if path == "shm" && nodes.Count() > 1 {
		far := slices.IndexFunc(nodes, func(node int) bool { return node != nodes[ex.Rank()] })
		return nil, nil, &PathError{Path: path, Rank: ex.Rank(),
			Reason: fmt.Sprintf("rank %d does not share this rank's memory: it is on another machine, or in another network namespace", far)}
	}
	inside, across, both := strings.Cut(path, "+")
	if !both {
		f, err := openMedium(ctx, ex, path, log)
		if path != "shm" {
			nodes = plan.Apart(ex.Size())
		}
		return f, nodes, err
	}
	near, err := openMedium(ctx, ex, inside, log)
	if err != nil {
		return nil, nil, err
	}
	far, err := openMedium(ctx, ex, across, log)
	if err != nil {
		return nil, nil, errors.Join(err, near.Close())
	}
	f, err := span.Join(ex.Rank(), nodes, near, far)
	if err != nil {
		return nil, nil, errors.Join(err, near.Close(), far.Close())
	}
	return f, nodes, nil
}

// openMedium opens one medium among all ranks. What travels a network is
// reachable at the address that the bootstrap has chosen.
func openMedium(ctx context.Context, ex bootstrap.Exchanger, name string, log *slog.Logger) (link.Fabric, error) {
	if name == "shm" {
		return shm.Open(ctx, ex, log)
	}
	cfg := tcp.Config{Log: log}
	if a, ok := ex.(bootstrap.Addresser); ok {
		cfg.Listen = a.Address().String()
	}
	return tcp.Open(ctx, ex, cfg)
}
