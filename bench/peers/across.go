package main

import (
	"os"
	"slices"
	"strconv"
)

// An Across is how a peer runs between nodes: over TCP, which is what Tutti
// has there too. Where a node has several ranks, those of one node may use
// shared memory, as Tutti's do.
type Across struct {
	// Launch is as Peer's; the nodes are those of p.net.
	Launch   func(p place, v Variant, ranks int, prog []string) []Command
	Settings string
	Variants []Variant
}

// across are the peers as they run between nodes.
func across() []Peer {
	peers := catalogue()
	for i := range peers {
		p := &peers[i]
		how := acrossHow(p.Name)
		p.Launch, p.Settings, p.Variants = how.Launch, how.Settings, how.Variants
	}
	return peers
}

// How the peers take only the nodes' interface.
var (
	ucxTCP = []string{"UCX_TLS=tcp,self", "UCX_NET_DEVICES=" + nodeIface}
	ofiTCP = []string{"FI_PROVIDER=tcp", "FI_TCP_IFACE=" + nodeIface}
)

func acrossHow(peer string) Across {
	switch peer {
	case "openmpi4":
		return Across{
			Launch: openMPIAcross(func(place) string { return "mpirun.openmpi" },
				"plm_rsh_agent", mca("btl", "tcp,vader,self"), mca("oob_tcp_if_include", nodeIface)),
			Settings: "ob1 over btl tcp (vader inside a node) on the nodes' interface; --bind-to none (the program pins itself)",
			Variants: openMPIAcrossVariants(),
		}
	case "openmpi5":
		return Across{
			Launch: openMPIAcross(func(p place) string { return bin(p, "mpirun") },
				"plm_ssh_agent", mca("btl", "tcp,sm,self"), []string{"--prtemca", "prte_if_include", nodeIface}),
			Settings: "ob1 over btl tcp (sm inside a node) on the nodes' interface; --bind-to none (the program pins itself)",
			Variants: openMPIAcrossVariants(),
		}
	case "mpich4":
		return Across{
			Launch:   hydraAcross(func(place) string { return "mpirun.mpich" }, "-bind-to", "none"),
			Settings: "UCX over tcp on the nodes' interface; -bind-to none",
			Variants: withEnv(ucxTCP, mpichAcrossVariants()),
		}
	case "mpich5":
		ofi := Variant{Name: "ofi", Env: append([]string{"MPIR_CVAR_CH4_NETMOD=ofi"}, ofiTCP...), Spins: true}
		ring := Variant{Name: "ring", Env: []string{"MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM=ring"}, Ops: allreduceOnly, Spins: true}
		return Across{
			Launch:   hydraAcross(func(p place) string { return bin(p, "mpirun") }, "-bind-to", "none"),
			Settings: "UCX over tcp, or libfabric's tcp, on the nodes' interface; -bind-to none",
			Variants: append(withEnv(append([]string{"MPIR_CVAR_CH4_NETMOD=ucx"}, ucxTCP...), append(mpichAcrossVariants(), ring)), ofi),
		}
	case "impi":
		return Across{
			Launch:   intelAcross(),
			Settings: "I_MPI_FABRICS=shm:ofi, libfabric's tcp on the nodes' interface, I_MPI_PIN=0",
			Variants: withEnv(ofiTCP, []Variant{
				{Name: "default"},
				{Name: "ofi inside too", Env: []string{"I_MPI_FABRICS=ofi"}},
				{Name: "allreduce 1", Env: []string{"I_MPI_ADJUST_ALLREDUCE=1"}, Ops: allreduceOnly},
				{Name: "allreduce 2", Env: []string{"I_MPI_ADJUST_ALLREDUCE=2"}, Ops: allreduceOnly},
				{Name: "allreduce 8", Env: []string{"I_MPI_ADJUST_ALLREDUCE=8"}, Ops: allreduceOnly},
			}),
		}
	case "gloo":
		return Across{
			Launch:   glooAcross,
			Settings: "TCP on the nodes' addresses, file store; its I/O thread is not pinned",
			Variants: append(glooVariants(),
				// The rank's own thread works its sockets. It writes a message to
				// its end before it reads, so that large ones wait for each other.
				Variant{Name: "ring_chunked, polling", Algo: "ring_chunked+poll", InPlaceOnly: true, Ops: allreduceOnly, Spins: true, Most: 1 << 20},
				Variant{Name: "halving_doubling, polling", Algo: "halving_doubling+poll", InPlaceOnly: true, Ops: allreduceOnly, Spins: true, Most: 1 << 20},
				Variant{Name: "halving_doubling, blocking", Algo: "halving_doubling+block", InPlaceOnly: true, Ops: allreduceOnly, Most: 1 << 20}),
		}
	case "oneccl":
		return Across{
			Launch:   intelAcross("CCL_ATL_TRANSPORT=mpi", "CCL_LOG_LEVEL=error"),
			Settings: "CCL_ATL_TRANSPORT=mpi I_MPI_FABRICS=shm:ofi, libfabric's tcp on the nodes' interface, I_MPI_PIN=0",
			Variants: withEnv(ofiTCP, []Variant{
				{Name: "default", Spins: true},
				{Name: "no worker", Env: []string{"CCL_WORKER_OFFLOAD=0", "CCL_YIELD=sched_yield"}},
			}),
		}
	}
	return Across{}
}

func openMPIAcrossVariants() []Variant {
	return []Variant{
		{Name: "default", Spins: true},
		{Name: "yield", Args: mca("mpi_yield_when_idle", "1")},
		{Name: "eager 256K", Args: mca("btl_tcp_eager_limit", "262144"), Ops: without(barrierOp), Spins: true},
		{Name: "ring", Args: openMPITuned("allreduce", "4"), Ops: allreduceOnly, Spins: true},
		{Name: "segmented ring", Args: openMPITuned("allreduce", "5"), Ops: allreduceOnly, Spins: true},
		{Name: "rabenseifner", Args: openMPITuned("allreduce", "6"), Ops: allreduceOnly, Spins: true},
	}
}

func mpichAcrossVariants() []Variant {
	return []Variant{
		{Name: "default", Spins: true},
		{Name: "yield", Env: []string{"MPIR_CVAR_POLLS_BEFORE_YIELD=0"}},
		{Name: "reduce_scatter, allgather", Env: []string{"MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM=reduce_scatter_allgather"}, Ops: allreduceOnly, Spins: true},
	}
}

// withEnv puts variables before those of each variant.
func withEnv(env []string, vs []Variant) []Variant {
	for i := range vs {
		vs[i].Env = slices.Concat(env, vs[i].Env)
	}
	return vs
}

// openMPIAcross starts mpirun on the first node.
func openMPIAcross(mpirun func(place) string, agent string, options ...[]string) func(place, Variant, int, []string) []Command {
	return func(p place, v Variant, ranks int, prog []string) []Command {
		args := []string{mpirun(p), "--bind-to", "none", "--host", p.net.hosts(ranks), "-n", strconv.Itoa(ranks)}
		if agent == "plm_ssh_agent" {
			args = append(args, "--prtemca", agent, p.net.agent)
		} else {
			args = append(args, mca(agent, p.net.agent)...)
		}
		args = slices.Concat(args, mca("pml", "ob1"), mca("btl_tcp_if_include", nodeIface))
		for _, o := range options {
			args = append(args, o...)
		}
		if os.Getuid() == 0 {
			args = append(args, "--allow-run-as-root")
		}
		args = slices.Concat(args, v.Args, prog)
		return []Command{p.net.nodes[0].start(v.Env, args...)}
	}
}

// hydraAcross starts MPICH's launcher on the first node.
func hydraAcross(mpirun func(place) string, options ...string) func(place, Variant, int, []string) []Command {
	return func(p place, v Variant, ranks int, prog []string) []Command {
		first := p.net.nodes[0]
		args := append([]string{mpirun(p)}, options...)
		args = append(args, "-launcher", "ssh", "-launcher-exec", p.net.agent, "-hosts", p.net.hosts(ranks),
			"-localhost", first.addr, "-iface", nodeIface)
		args = append(args, v.Args...)
		args = append(args, "-n", strconv.Itoa(ranks))
		return []Command{first.start(v.Env, append(args, prog...)...)}
	}
}

// intelAcross is the same in Intel's packaging.
func intelAcross(env ...string) func(place, Variant, int, []string) []Command {
	return func(p place, v Variant, ranks int, prog []string) []Command {
		v.Env = slices.Concat([]string{"I_MPI_ROOT=" + p.venv, "I_MPI_FABRICS=shm:ofi", "I_MPI_PIN=0"}, env, v.Env)
		// A host file's colon is not taken from its -hosts.
		launch := hydraAcross(func(p place) string { return bin(p, "mpirun") }, "-ppn", strconv.Itoa(p.net.each(ranks)))
		return launch(p, v, ranks, prog)
	}
}

func glooAcross(p place, v Variant, ranks int, prog []string) []Command {
	cmds := glooRanks(p, v, ranks, prog)
	for r := range cmds {
		n := p.net.of(r, ranks)
		cmds[r] = n.start(append(cmds[r].Env, "PEERS_ADDR="+n.addr), cmds[r].Args...)
	}
	return cmds
}
