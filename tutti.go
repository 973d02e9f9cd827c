package tutti

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"

	"github.com/tutti-go/tutti/algo"
	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/engine"
	"github.com/tutti-go/tutti/internal/cpu"
	"github.com/tutti-go/tutti/plan"
	"github.com/tutti-go/tutti/shm"
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
	// Path forces a medium: "shm"; empty or "auto" chooses.
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
// Errors: *ConfigError; bootstrap.ErrNoEnvironment where no Exchanger is given
// and no launcher has set one up; shm.ErrUnavailable where the machine refuses
// shared memory; what the Exchanger reports of other ranks.
func Init(ctx context.Context, cfg Config) (comm *Comm, err error) {
	choose, err := chooser(cfg.Algo)
	if err != nil {
		return nil, err
	}
	if cfg.Path != "" && cfg.Path != "auto" && cfg.Path != "shm" {
		return nil, &ConfigError{"Path", cfg.Path, []string{"auto", "shm"}}
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
	cores, err := jobCores(ctx, ex)
	if err != nil {
		return nil, err
	}
	fabric, err := shm.Open(ctx, ex, cfg.Logger)
	if err != nil {
		return nil, err
	}
	comm, err = engine.New(ctx, engine.Config{
		Rank: ex.Rank(), Size: ex.Size(), Exchanger: ex, Fabric: fabric,
		Plan: algo.NewOver, Choose: choose, Rules: rules, FixedOrder: cfg.FixedOrder,
		FetchByAddress: cfg.Algo == "attach",
		Cores:          cores, Threads: cfg.Threads, Logger: cfg.Logger,
		AfterClose: afterClose,
	})
	if err != nil {
		// Where a rank died, the exchanger knows more than the failed step.
		return nil, errors.Join(err, ex.Err())
	}
	return comm, nil
}

// jobCores counts the cores that the ranks may use in all. A rank that is
// pinned sees its own only, so they put together what each one sees, and heed
// the tightest limit that a cgroup sets to one of them.
func jobCores(ctx context.Context, ex bootstrap.Exchanger) (int, error) {
	usable, err := cpu.Usable()
	if err != nil {
		return 0, err
	}
	mine := binary.LittleEndian.AppendUint32(nil, uint32(cpu.Limited(math.MaxInt32)))
	for _, core := range usable {
		mine = binary.LittleEndian.AppendUint32(mine, uint32(core))
	}
	blobs, err := ex.AllGather(ctx, mine)
	if err != nil {
		return 0, err
	}
	all, limit := map[uint32]bool{}, uint32(math.MaxUint32)
	for rank, blob := range blobs {
		if len(blob) < 4 {
			return 0, fmt.Errorf("rank %d tells nothing of its cores: are all ranks the same build?", rank)
		}
		limit = min(limit, binary.LittleEndian.Uint32(blob))
		for blob = blob[4:]; len(blob) >= 4; blob = blob[4:] {
			all[binary.LittleEndian.Uint32(blob)] = true
		}
	}
	return min(len(all), int(limit)), nil
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
