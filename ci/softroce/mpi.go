package softroce

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/tutti-go/tutti/ci/softroce/image"
)

// addMPI puts in Open MPI with UCX: programs, what they load by name, and
// their texts.
func addMPI(ctx context.Context, b *image.Builder) error {
	var errs []error
	for _, name := range []string{"mpirun", "orted", "ompi_info"} {
		p := (tool{program: name}).find()
		if p == "" {
			errs = append(errs, fmt.Errorf("softroce: no program %s", name))
			continue
		}
		errs = append(errs, b.Program(ctx, "/usr/bin/"+name, p))
	}
	for _, pattern := range []string{
		"/usr/lib/*/openmpi/lib/openmpi3", "/usr/lib/*/pmix2/lib/pmix", "/usr/lib/*/pmix2/share/pmix", "/usr/lib/*/ucx",
		"/usr/share/openmpi", "/usr/share/pmix*", "/etc/openmpi",
	} {
		dirs, err := filepath.Glob(pattern)
		errs = append(errs, err)
		for _, dir := range dirs {
			errs = append(errs, b.Tree(ctx, dir))
		}
	}
	return errors.Join(errs...)
}

// A Transport is what Open MPI talks over between machines.
type Transport string

// The transports. Inside a machine it is shared memory with each.
const (
	MPIOverRC  Transport = "ucx rc"  // UCX, RC queue pairs of rxe0
	MPIOverUD  Transport = "ucx ud"  // UCX, UD queue pairs of rxe0
	MPIOverTCP Transport = "btl tcp" // Open MPI's own sockets
)

// arguments are mpirun's for a transport.
func (t Transport) arguments() ([]string, error) {
	// UCX up to 1.18 reads the kind of a packet's address where only
	// ConnectX puts it, and so takes every UD packet of another device for one
	// that is not its own; UD carries RC's wire-up too.
	ucx := []string{"--mca", "pml", "ucx", "-x", "UCX_NET_DEVICES=rxe0:1", "-x", "UCX_UD_VERBS_ETH_DGID_CHECK=n"}
	switch t {
	case MPIOverRC:
		return append(ucx, "-x", "UCX_TLS=rc_v,ud_v:aux,sm,self"), nil
	case MPIOverUD:
		return append(ucx, "-x", "UCX_TLS=ud_v,sm,self"), nil
	case MPIOverTCP:
		return []string{"--mca", "pml", "ob1", "--mca", "btl", "tcp,vader,self", "--mca", "btl_tcp_if_include", "eth0"}, nil
	}
	return nil, fmt.Errorf("softroce: no transport %q for MPI", t)
}

// MPIRun runs an MPI program that is in the machines, with perNode ranks on each,
// and returns what it printed. The cluster must have been booted with
// Config.MPI. mpirun runs in node 0 and starts its daemon on the others
// through their agents.
func (c *Cluster) MPIRun(ctx context.Context, t Transport, perNode int, args ...string) (string, error) {
	over, err := t.arguments()
	if err != nil {
		return "", err
	}
	hosts := ""
	for _, n := range c.nodes {
		hosts += fmt.Sprintf("%s slots=%d\n", n.Name, perNode)
	}
	if err := c.Node(0).Write(ctx, "/tmp/hosts", strings.NewReader(hosts), 0o644); err != nil {
		return "", err
	}
	line := append([]string{
		"mpirun", "--allow-run-as-root", "--hostfile", "/tmp/hosts", "-np", fmt.Sprint(perNode * len(c.nodes)),
		"--map-by", "node", "--bind-to", "none",
		"--mca", "plm_rsh_agent", "/init rsh", "--mca", "plm_rsh_no_tree_spawn", "1", "--mca", "oob_tcp_if_include", "eth0",
	}, over...)
	return c.Node(0).Run(ctx, append(line, args...)...)
}
