//go:build softroce

package softroce

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A suite is something of this module that runs in the machines: a package's
// tests, or a program. To have a package tested on soft-RoCE, add a line to
// suites.
type suite struct {
	pkg     string // relative to the module's root
	program bool   // run the program pkg instead of the tests of pkg
	cgo     bool
	// perNode is the number of ranks on each of both machines, which learn of
	// the job from env; 0 runs a single process on node 0.
	perNode int
	env     func(Rank) []string // TuttiEnv where nil
	vars    []string            // KEY=value besides
	args    []string
	limit   time.Duration
	// rxe says that packets must have gone over rxe0 of both machines.
	rxe bool
}

// In the machines CI is "true", so that what a package's tests need there must
// be there, and TUTTI_SOFTROCE is the name of the RDMA device.
var suiteEnv = []string{"CI=true", "TUTTI_SOFTROCE=rxe0"}

var suites = []suite{
	{pkg: "internal/fence", args: []string{"-test.short"}, limit: 2 * time.Minute},
	{pkg: "ci/softroce/testdata/ranks", program: true, cgo: true, perNode: 2, limit: 2 * time.Minute},
	// The headers are compared with a compiler, which the machines lack, where
	// the tests run on the simulated device.
	{pkg: "verbs", cgo: true, args: []string{"-test.short", "-test.skip=^TestHeaders$"}, vars: []string{"TUTTI_LIBIBVERBS=libibverbs.so.1"}, limit: 4 * time.Minute},
	{
		pkg: "cmd/commbench", program: true, cgo: true, perNode: 2, limit: 8 * time.Minute, rxe: true,
		args: []string{"--op", "allreduce,broadcast,reduce,gather,allgather,scatter,reduce_scatter,alltoall,sendrecv,barrier,gatherv,allgatherv,scatterv,reduce_scatterv,alltoallv", "-b", "8", "-e", "64K", "-f", "8192", "-n", "2", "-w", "1", "--batch", "1"},
	},
}

func TestSuites(t *testing.T) {
	for _, s := range suites {
		t.Run(s.pkg, func(t *testing.T) { s.run(t, machines(t)) })
	}
}

func (s suite) run(t *testing.T, c *Cluster) {
	ctx := within(t, s.limit)
	there := path.Join("/suites", s.pkg)
	prog := path.Join(there, "run")
	c.putAll(ctx, t, prog, s.build(t))
	s.putData(ctx, t, c, there)
	before := counters(ctx, t, c)
	line := append([]string{prog}, s.args...)
	if !s.program {
		line = append(line, "-test.timeout="+s.limit.String())
	}
	vars := append(append([]string{}, suiteEnv...), s.vars...)
	var out bytes.Buffer
	var err error
	if s.perNode == 0 {
		err = c.Node(0).Do(ctx, Command{Args: line, Env: vars, Dir: there, Stdout: &out, Stderr: &out})
	} else {
		env := s.env
		if env == nil {
			env = TuttiEnv
		}
		err = c.Launch(ctx, Job{
			PerNode: s.perNode, Args: line, Dir: there, Stdout: &out, Stderr: &out,
			Env: func(r Rank) []string { return append(env(r), vars...) },
		})
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, lastBytes(out.String(), 20000))
	}
	t.Logf("%s", lastBytes(out.String(), 4000))
	if s.rxe {
		for i, after := range counters(ctx, t, c) {
			if moved := after.Since(before[i]); moved["sent_pkts"] == 0 || moved["rcvd_pkts"] == 0 {
				t.Errorf("nothing went over rxe0 of node%d: %v", i, moved)
			}
		}
	}
}

// build compiles the suite here; the machines have no compiler.
func (s suite) build(t *testing.T) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "run")
	args := []string{"test", "-c", "-o", to}
	if s.program {
		args = []string{"build", "-o", to}
	}
	cmd := exec.Command("go", append(args, "./"+s.pkg)...)
	cmd.Dir = filepath.Join("..", "..")
	cgo := "0"
	if s.cgo {
		cgo = "1"
	}
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(cmd.Args, " "), err, out)
	}
	return to
}

// putData brings the package's testdata.
func (s suite) putData(ctx context.Context, t *testing.T, c *Cluster, there string) {
	t.Helper()
	dir := filepath.Join("..", "..", s.pkg)
	data := filepath.Join(dir, "testdata")
	if _, err := os.Stat(data); err != nil {
		return
	}
	err := filepath.WalkDir(data, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		return c.each(ctx, func(ctx context.Context, n *Node) error { return n.Put(ctx, path.Join(there, rel), p) })
	})
	if err != nil {
		t.Fatal(err)
	}
}
