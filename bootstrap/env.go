package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-go/tutti/internal/hostnet"
)

// The environment of a rank.
const (
	EnvRank      = "TUTTI_RANK"       // from 0
	EnvSize      = "TUTTI_SIZE"       // ranks of the job
	EnvLocalRank = "TUTTI_LOCAL_RANK" // among the ranks of this machine
	// EnvBootstrap is how to reach the others: "tcp://host:port" or
	// "tcp://host", where rank 0 serves the rendezvous; "unix:@name", an abstract
	// socket, for ranks of one machine; "fd:N", a socket inherited from [Launch].
	EnvBootstrap  = "TUTTI_BOOTSTRAP"
	EnvPort       = "TUTTI_PORT"         // of the rendezvous, where the address is a launcher's or has none
	EnvListen     = "TUTTI_LISTEN"       // where rank 0 listens; see Options.Listen
	EnvInterface  = hostnet.Variable     // which interfaces may be used; see Options.Interface
	EnvSecret     = "TUTTI_SECRET"       // of the job
	EnvSecretFile = "TUTTI_SECRET_FILE"  // a file with the secret that only its owner may read
	EnvOpen       = "TUTTI_OPEN"         // 1: serve beyond this machine without a secret
	EnvTimeout    = "TUTTI_JOIN_TIMEOUT" // how long ranks wait for each other, such as 90s
	EnvService    = "TUTTI_SERVICE"      // the headless service of a Kubernetes job
)

// DefaultPort is the rendezvous' where nothing says another.
const DefaultPort = 17171

// maxSize bounds the number of ranks, so that a wrong variable is an error
// and not a large allocation.
const maxSize = 1 << 16

// FromEnv joins the job that the environment describes, as [Join] does, or
// over the inherited socket of [Launch], which a process can do once. The
// first of these that has set its variables is believed:
//
//   - Tutti: TUTTI_RANK, TUTTI_SIZE, TUTTI_LOCAL_RANK, TUTTI_BOOTSTRAP.
//   - torchrun: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR,
//     MASTER_PORT. On MASTER_PORT listens the store of torchrun itself, so the
//     rendezvous is one above it, or TUTTI_PORT.
//   - Open MPI: OMPI_COMM_WORLD_RANK and the like. The machine of mpirun is
//     taken for rank 0's where the variables name it, as those of Open MPI 4 do.
//   - MPICH and its relatives with Hydra: PMI_RANK, PMI_SIZE, MPI_LOCALRANKID,
//     MPI_LOCALNRANKS.
//   - Slurm, in the tasks of srun: SLURM_PROCID and the like. Rank 0 is on the
//     first node of the step.
//   - Others that speak PMI: PMI_RANK, PMI_SIZE.
//   - A Kubernetes Indexed Job: JOB_COMPLETION_INDEX, with TUTTI_SIZE set to
//     its completions and TUTTI_SERVICE to its headless service.
//
// TUTTI_BOOTSTRAP, if set, is where rank 0 serves with any of them. If it is
// not, and the launcher says that all ranks are on this machine, they meet at
// an abstract socket named after the job, which nobody else can reach. Ports
// that nobody has chosen follow from the job's number. TUTTI_SECRET or
// TUTTI_SECRET_FILE, TUTTI_OPEN, TUTTI_SOCKET_IFNAME, TUTTI_LISTEN and
// TUTTI_JOIN_TIMEOUT stand for the fields of [Options].
//
// Errors: ErrNoEnvironment where there is no job, *EnvError where a variable
// makes no sense or is missing, and those of Join.
func FromEnv(ctx context.Context) (Exchanger, error) {
	s, err := readEnv(os.Getenv)
	if err != nil {
		return nil, err
	}
	if s.inherited != "" {
		return inherit(s.Rank, s.Size, s.LocalRank, s.inherited)
	}
	return Join(ctx, s.Options)
}

// Launcher names what has set up the environment of a rank, or is empty where
// nothing has: then FromEnv returns ErrNoEnvironment.
func Launcher() string {
	if l := launcherIn(os.Getenv); l != nil {
		return l.name
	}
	return ""
}

// environ looks a variable up; empty is as good as unset.
type environ func(name string) string

// setting is what the environment says.
type setting struct {
	Options
	inherited string // the value of TUTTI_BOOTSTRAP, if that is a descriptor
}

// readEnv reads the environment of a rank.
func readEnv(env environ) (*setting, error) {
	l := launcherIn(env)
	if l == nil {
		return nil, ErrNoEnvironment
	}
	p := position{localRank: -1}
	if err := l.read(env, &p); err != nil {
		return nil, err
	}
	s := &setting{Options: Options{Rank: p.rank, Size: p.size, LocalRank: p.localRank}}
	if p.job != "" {
		s.Job = l.name + " " + p.job
	}
	if err := s.readCommon(env); err != nil {
		return nil, err
	}
	where := env(EnvBootstrap)
	switch {
	case strings.HasPrefix(where, "fd:"):
		s.inherited = where
	case p.size == 1 && where == "":
	case where != "":
		return s, s.readRoot(env, where)
	case p.localSize == p.size:
		s.Root = localRoot(l.name, cmpOr(p.local, p.job), os.Geteuid())
	case p.host != "":
		port, err := p.rendezvousPort(env)
		if err != nil {
			return nil, err
		}
		s.Root = net.JoinHostPort(p.host, port)
	default:
		return nil, &EnvError{EnvBootstrap, "", "tcp://host:port, where rank 0 serves the rendezvous, or unix:@name if all ranks are on one machine: " +
			"the variables of " + l.name + " do not say where rank 0 is"}
	}
	return s, nil
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// readRoot reads TUTTI_BOOTSTRAP. A port may be missing.
func (s *setting) readRoot(env environ, where string) error {
	s.Root = where
	if host, ok := strings.CutPrefix(where, "tcp://"); ok {
		s.Root = host
		if _, _, err := net.SplitHostPort(host); err != nil {
			port, err := portOr(env, DefaultPort)
			if err != nil {
				return err
			}
			s.Root = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
	} else if !strings.HasPrefix(where, "unix:@") {
		return &EnvError{EnvBootstrap, where, "tcp://host:port, unix:@name or fd:N"}
	}
	if _, err := parseTarget(s.Root); err != nil {
		return &EnvError{EnvBootstrap, where, err.Error()}
	}
	return nil
}

// readCommon reads what is the same for all launchers.
func (s *setting) readCommon(env environ) error {
	s.Listen, s.Interface = env(EnvListen), env(EnvInterface)
	if _, err := hostnet.ParseFilter(s.Interface); err != nil {
		return fmt.Errorf("%w: %w", &EnvError{EnvInterface, s.Interface, "a list of interfaces"}, err)
	}
	if v := env(EnvOpen); v != "" {
		open, err := strconv.ParseBool(v)
		if err != nil {
			return &EnvError{EnvOpen, v, "1 or 0"}
		}
		s.AllowOpen = open
	}
	if v := env(EnvTimeout); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil || d <= 0 {
			return &EnvError{EnvTimeout, v, "a time such as 90s or 5m"}
		}
		s.Timeout = d
	}
	secret, name := env(EnvSecret), EnvSecret
	if file := env(EnvSecretFile); file != "" {
		if secret != "" {
			return &EnvError{EnvSecretFile, file, "nothing where " + EnvSecret + " is set"}
		}
		b, err := readSecret(file)
		if err != nil {
			return fmt.Errorf("%w: %w", &EnvError{EnvSecretFile, file, "a file of at most 4096 bytes that only its owner may read (chmod 600)"}, err)
		}
		if secret, name = string(b), EnvSecretFile; secret == "" {
			return &EnvError{EnvSecretFile, file, "a file with a secret in it"}
		}
	}
	if n := len(secret); n > 0 && n < minSecret {
		return &EnvError{name, fmt.Sprintf("(%d bytes, not shown)", n), fmt.Sprintf("at least %d bytes, such as openssl rand -hex 16 makes", minSecret)}
	}
	if secret != "" {
		s.Secret = Secret(secret)
	}
	return nil
}

// readSecret reads a file that must be its owner's alone.
func readSecret(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("not a regular file")
	case info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows":
		return nil, fmt.Errorf("its mode is %04o", info.Mode().Perm())
	}
	const most = 4096
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && len(b) > most {
		err = errors.New("it is longer")
	}
	return []byte(strings.TrimRight(string(b), "\r\n")), err
}

func (env environ) number(name string, low, high int) (int, error) {
	x, err := strconv.Atoi(env(name))
	if err != nil || x < low || x > high {
		return 0, &EnvError{name, env(name), fmt.Sprintf("a number from %d to %d", low, high)}
	}
	return x, nil
}

// first is the first of some variables that is set, and its name, or the name
// of the first.
func (env environ) first(names ...string) (name, value string) {
	for _, name := range names {
		if v := env(name); v != "" {
			return name, v
		}
	}
	return names[0], ""
}

// portOr is TUTTI_PORT, or else another.
func portOr(env environ, other int) (string, error) {
	if env(EnvPort) == "" {
		return strconv.Itoa(other), nil
	}
	p, err := env.number(EnvPort, 1, 65535)
	return strconv.Itoa(p), err
}
