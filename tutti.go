package tutti

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/tutti-go/tutti/algo"
	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/engine"
	"github.com/tutti-go/tutti/plan"
	"github.com/tutti-go/tutti/tune"
)

// Comm is one rank's membership in a job; see [engine.Comm].
type Comm = engine.Comm

// Config says how a rank joins. The zero value joins the job that the
// environment describes and lets Tutti choose everything.
type Config struct {
	// Exchanger connects the ranks while they find each other. Init does not
	// close it. nil means bootstrap.FromEnv, which a process can use once; the
	// Comm then closes what it made.
	Exchanger bootstrap.Exchanger

	// Algo forces an algorithm, by its name with the collective
	// ("allreduce/ring"), or without ("direct") for all collectives that have
	// it; empty or "auto" chooses by size. It must
	// be the same on all ranks.
	Algo string
	// FixedOrder keeps to algorithms that combine contributions in rank order,
	// ((0+1)+2)+3, so that floating-point results depend on the number of ranks
	// alone and can be had again by a loop. It must be the same on all ranks.
	FixedOrder bool
	// Path forces the media: "shm", shared memory; "tcp", sockets between all
	// ranks, also those of one machine; "verbs", the same with RDMA; "shm+tcp"
	// and "shm+verbs", shared memory inside nodes and the other between them.
	// Empty or "auto" is shared memory inside nodes, and between them verbs if
	// every rank has a device for it, else sockets. It must be the same on all
	// ranks.
	Path string
	// Threads of this rank that share a large reduction; 0 means usable cores
	// divided by ranks.
	Threads int
	// Logger takes changes of state; nil discards them.
	Logger *slog.Logger
}

// ConfigError says that a field of Config, or the environment variable that
// stands for it, has a value that means nothing.
type ConfigError struct {
	Field string
	Value string
	Known []string
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("%s is %q; known: %v", e.Field, e.Value, e.Known)
}

// Init makes this process a rank of a job. All ranks call it, and it blocks
// until all have or ctx ends. The Comm is the caller's to Close.
//
// Which ranks are on one node they find out: those that can share memory.
//
// Errors: *ConfigError; *PathError; bootstrap.ErrNoEnvironment where no Exchanger is given
// and no launcher has set one up; shm.ErrUnavailable where the machine refuses
// shared memory; what the Exchanger reports of other ranks.
func Init(ctx context.Context, cfg Config) (comm *Comm, err error) {
	choose, err := chooser(cfg.Algo)
	if err != nil {
		return nil, err
	}
	if err := checkPath(cfg.Path); err != nil {
		return nil, err
	}
	ex := cfg.Exchanger
	var afterClose func() error
	if ex == nil {
		if ex, err = bootstrap.FromEnv(ctx); err != nil {
			return nil, err
		}
		afterClose = ex.Close
		defer func() {
			if err != nil {
				err = errors.Join(err, ex.Close())
			}
		}()
	}
	rules := cmp.Or(cfg.Algo, "auto")
	if cfg.FixedOrder {
		rules += " in rank order"
	}
	machines, err := meetMachines(ctx, ex, cmp.Or(cfg.Path, "auto"))
	if err != nil {
		return nil, err
	}
	fabric, nodes, err := openFabric(ctx, ex, cmp.Or(cfg.Path, "auto"), machines.nodes, cfg.Logger)
	if err != nil {
		return nil, err
	}
	comm, err = engine.New(ctx, engine.Config{
		Rank: ex.Rank(), Size: ex.Size(), Nodes: nodes, Exchanger: ex, Fabric: fabric,
		Plan: algo.NewOver, Choose: choose, Rules: rules, FixedOrder: cfg.FixedOrder,
		FetchByAddress: cfg.Algo == "attach",
		Cores:          machines.cores, Sharers: machines.sharers, Threads: cfg.Threads, Logger: cfg.Logger,
		AfterClose: afterClose,
	})
	if err != nil {
		// Where a rank died, the exchanger knows more than the failed step.
		return nil, errors.Join(err, ex.Err())
	}
	return comm, nil
}

// chooser is tune.Choose, or a chooser that insists on an algorithm: of one
// collective, if the name says which, else of all that have one of that name.
func chooser(name string) (func(tune.Request) tune.Choice, error) {
	if name == "" || name == "auto" {
		return tune.Choose, nil
	}
	var known []string
	forced := map[plan.Collective]string{}
	for _, collective := range plan.Collectives() {
		for _, candidate := range algo.Names(collective) {
			known = append(known, candidate)
			if candidate == name || candidate == collective.String()+"/"+name {
				forced[collective] = candidate
			}
		}
	}
	if len(forced) == 0 {
		return nil, &ConfigError{"Algo", name, append([]string{"auto"}, known...)}
	}
	return func(r tune.Request) tune.Choice {
		if algorithm, ok := forced[r.Collective]; ok {
			return tune.For(algorithm, r)
		}
		return tune.Choose(r)
	}, nil
}
