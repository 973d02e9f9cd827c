package bootstrap

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// position is what a launcher's variables say of a rank. Empty is unknown.
type position struct {
	rank, size, localRank int
	localSize             int    // ranks of this machine
	host                  string // of rank 0
	port                  int    // of the rendezvous, if the launcher says one
	job                   string // the same for all ranks, another for other jobs
	local                 string // the same for the ranks of this machine only
}

// launcher is something that starts ranks and sets variables.
type launcher struct {
	name string
	// marks are the variables that all must be set; and also says more.
	marks []string
	also  func(env environ) bool
	read  func(env environ, p *position) error
}

// launchers in the order in which they are believed. One that runs inside
// another comes before it: its variables are the process's own, the others
// are inherited.
var launchers = []launcher{
	{"Tutti", []string{EnvRank}, nil, readTutti},
	{"torchrun", []string{"RANK", "WORLD_SIZE"}, nil, readTorchrun},
	{"Open MPI", []string{"OMPI_COMM_WORLD_RANK"}, nil, readOpenMPI},
	{"Hydra", []string{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"}, nil, readPMI},
	{"Slurm", []string{"SLURM_PROCID", "SLURM_STEP_ID"}, isTask, readSlurm},
	{"PMI", []string{"PMI_RANK", "PMI_SIZE"}, nil, readPMI},
	{"Kubernetes", []string{"JOB_COMPLETION_INDEX", EnvSize}, nil, readKubernetes},
}

func launcherIn(env environ) *launcher {
next:
	for i := range launchers {
		l := &launchers[i]
		for _, name := range l.marks {
			if env(name) == "" {
				continue next
			}
		}
		if l.also == nil || l.also(env) {
			return l
		}
	}
	return nil
}

// ranks reads the rank, the size and, where they are set, the local ones.
func (p *position) ranks(env environ, rank, size, localRank, localSize string) (err error) {
	if p.size, err = env.number(size, 1, maxSize); err != nil {
		return err
	}
	if p.rank, err = env.number(rank, 0, p.size-1); err != nil {
		return err
	}
	if localRank != "" && env(localRank) != "" {
		if p.localRank, err = env.number(localRank, 0, p.size-1); err != nil {
			return err
		}
	}
	if localSize != "" && env(localSize) != "" {
		p.localSize, err = env.number(localSize, 1, p.size)
	}
	return err
}

func readTutti(env environ, p *position) error {
	return p.ranks(env, EnvRank, EnvSize, EnvLocalRank, "")
}

func readTorchrun(env environ, p *position) error {
	if err := p.ranks(env, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"); err != nil {
		return err
	}
	if env("MASTER_PORT") != "" {
		// One above: on the port itself listens the store of torchrun, or of
		// the process group of rank 0.
		port, err := env.number("MASTER_PORT", 1, 65534)
		if err != nil {
			return err
		}
		p.port = port + 1
	}
	if p.host = env("MASTER_ADDR"); p.host != "" && p.port == 0 && env(EnvPort) == "" && p.localSize != p.size && env(EnvBootstrap) == "" {
		return &EnvError{"MASTER_PORT", "", "the port of torchrun's store, or " + EnvPort + ", that of the rendezvous"}
	}
	if id := env("TORCHELASTIC_RUN_ID"); id != "" && id != "none" {
		p.job = id
	}
	// What torchrun starts again is not what it started before. Agents count
	// for themselves, so this tells apart on one machine only.
	p.local = strings.Join([]string{p.host, env("MASTER_PORT"), p.job, env("TORCHELASTIC_RESTART_COUNT")}, "/")
	if p.host == "" && p.job == "" {
		p.local = fmt.Sprintf("parent %d", os.Getppid())
	}
	return nil
}

func readOpenMPI(env environ, p *position) error {
	const w = "OMPI_COMM_WORLD_"
	if err := p.ranks(env, w+"RANK", w+"SIZE", w+"LOCAL_RANK", w+"LOCAL_SIZE"); err != nil {
		return err
	}
	_, p.job = env.first("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid")
	if p.job == "" {
		p.local = fmt.Sprintf("parent %d", os.Getppid())
	}
	if uri := env("OMPI_MCA_orte_hnp_uri"); uri != "" {
		p.host = hostOfURI(uri)
	}
	if p.host == "" {
		return p.readSlurmHost(env)
	}
	return nil
}

// hostOfURI is the first address beyond loopback in what Open MPI 4 says of
// mpirun, such as 123.0;tcp://10.0.0.1,172.17.0.1:55037;tcp6://[fd00::2]:33509.
func hostOfURI(uri string) string {
	for part := range strings.SplitSeq(uri, ";") {
		scheme, rest, ok := strings.Cut(part, "://")
		colon := strings.LastIndexByte(rest, ':')
		if !ok || colon < 0 || scheme != "tcp" && scheme != "tcp6" {
			continue
		}
		for host := range strings.SplitSeq(strings.Trim(rest[:colon], "[]"), ",") {
			if a, err := netip.ParseAddr(host); err == nil && !a.IsLoopback() && !a.IsUnspecified() && a.Zone() == "" {
				return a.String()
			}
		}
	}
	return ""
}

func readPMI(env environ, p *position) error {
	localRank, _ := env.first("MPI_LOCALRANKID", "PMI_LOCAL_RANK")
	localSize, _ := env.first("MPI_LOCALNRANKS", "PMI_LOCAL_SIZE")
	if err := p.ranks(env, "PMI_RANK", "PMI_SIZE", localRank, localSize); err != nil {
		return err
	}
	// Hydra gives a job no name. All its ranks of a machine descend from one
	// process.
	p.local = fmt.Sprintf("proxy %d", ancestor("hydra_"))
	return p.readSlurmHost(env)
}

// Steps with numbers from here on are no job's of ranks: the batch script, an
// interactive shell.
const firstSpecialStep = 0xfffffff0

// isTask is whether srun has started this process. A batch script has some of
// the variables, too, and must not take itself for rank 0.
func isTask(env environ) bool {
	step, err := strconv.ParseUint(env("SLURM_STEP_ID"), 10, 64)
	return err == nil && step < firstSpecialStep
}

func readSlurm(env environ, p *position) error {
	size, _ := env.first("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS")
	if err := p.ranks(env, "SLURM_PROCID", size, "SLURM_LOCALID", ""); err != nil {
		return err
	}
	_, job := env.first("SLURM_JOB_ID", "SLURM_JOBID")
	p.job = job + "." + env("SLURM_STEP_ID")
	if nodes, v := env.first("SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"); v != "" {
		n, err := env.number(nodes, 1, maxHosts)
		if err != nil {
			return err
		}
		if n == 1 {
			p.localSize = p.size
		}
	}
	return p.readSlurmHost(env)
}

// readSlurmHost takes the first node of the step, or of the job, for rank 0's.
func (p *position) readSlurmHost(env environ) error {
	name, list := env.first("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
	if list == "" || env(EnvBootstrap) != "" {
		return nil
	}
	hosts, err := expandHosts(list)
	if err != nil {
		return fmt.Errorf("%w: %w", &EnvError{name, list, "a list of hosts such as n[01-03,7],m5"}, err)
	}
	p.host = hosts[0]
	if p.job == "" {
		_, p.job = env.first("SLURM_JOB_ID", "SLURM_JOBID")
	}
	return nil
}

func readKubernetes(env environ, p *position) error {
	if err := p.ranks(env, "JOB_COMPLETION_INDEX", EnvSize, "", ""); err != nil {
		return err
	}
	p.localRank, p.port = 0, DefaultPort
	service := env(EnvService)
	if service == "" || env(EnvBootstrap) != "" {
		return nil // TUTTI_BOOTSTRAP will do, or be asked for
	}
	host := env("HOSTNAME")
	if host == "" {
		host, _ = os.Hostname()
	}
	short, _, _ := strings.Cut(host, ".")
	job, ok := strings.CutSuffix(short, "-"+strconv.Itoa(p.rank))
	if !ok || job == "" {
		return &EnvError{"HOSTNAME", host, fmt.Sprintf("the name of the job and -%d, as JOB_COMPLETION_INDEX says; else set %s", p.rank, EnvBootstrap)}
	}
	p.host, p.job = job+"-0."+service, job
	return nil
}

// rendezvousPort is TUTTI_PORT, or what the launcher says, or one that follows
// from the job.
func (p *position) rendezvousPort(env environ) (string, error) {
	switch {
	case p.port != 0:
		return portOr(env, p.port)
	case p.job != "":
		return portOr(env, jobPort(p.job))
	}
	return portOr(env, DefaultPort)
}

// jobPort is a port for a job: below those that systems hand out by
// themselves, and above those that services have.
func jobPort(job string) int {
	sum := sha256.Sum256([]byte("tutti port " + job))
	return 16384 + int(binary.LittleEndian.Uint16(sum[:]))%16384
}

// localRoot is where the ranks of one machine meet: an abstract socket or,
// where there are none, a port of loopback.
func localRoot(launcher, job string, user int) string {
	id := fmt.Sprintf("%s %s %d", launcher, job, user)
	if !abstractSockets {
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(jobPort(id)))
	}
	sum := sha256.Sum256([]byte("tutti socket " + id))
	return "unix:@tutti-" + hex.EncodeToString(sum[:12])
}
