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
	"github.com/tutti-go/tutti/verbs"
	"github.com/tutti-go/tutti/verbs/rc"
)

// paths are what Config.Path may be, besides auto: one medium for all ranks, or
// one inside nodes and one across.
var paths = []string{"shm", "tcp", "verbs", "shm+tcp", "shm+verbs"}

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
			network, err := chooseNetwork(ctx, ex, log)
			if err != nil {
				return nil, nil, err
			}
			path += "+" + network
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
	listen := ""
	if a, ok := ex.(bootstrap.Addresser); ok {
		listen = a.Address().String()
	}
	switch name {
	case "shm":
		return shm.Open(ctx, ex, log)
	case "tcp":
		return tcp.Open(ctx, ex, tcp.Config{Listen: listen, Log: log})
	}
	cfg, err := rc.FromEnv(rc.Config{Listen: listen, Log: log})
	if err != nil {
		return nil, err
	}
	return rc.Open(ctx, ex, cfg)
}

// chooseNetwork is verbs if every rank has an RDMA device that can be used, else
// sockets. All ranks choose the same.
func chooseNetwork(ctx context.Context, ex bootstrap.Exchanger, log *slog.Logger) (string, error) {
	why := ""
	if err := usableRDMA(); err != nil {
		why = err.Error()
	}
	blobs, err := ex.AllGather(ctx, []byte(why))
	if err != nil {
		return "", err
	}
	for rank, blob := range blobs {
		if len(blob) == 0 {
			continue
		}
		if ex.Rank() == 0 && log != nil {
			log.Info("sockets between nodes: not every rank has RDMA", "rank", rank, "cause", string(blob))
		}
		return "tcp", nil
	}
	return "verbs", nil
}

// usableRDMA returns why this rank cannot use RDMA, or nil. Where there is no
// device, nothing is loaded.
func usableRDMA() error {
	inventory, err := verbs.Inventory(nil)
	if err != nil {
		return err
	}
	err = errors.New("no RDMA device with an active port")
	for _, found := range inventory {
		if !slices.ContainsFunc(found.Ports, func(p verbs.HardwarePort) bool { return p.State == verbs.PortActive }) {
			continue
		}
		device, failed := verbs.Open(found.Name)
		if failed == nil {
			return device.Close()
		}
		err = failed
	}
	return err
}
