package softroce

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A tool is something of the host that machines are made of, and the package
// of Debian and Ubuntu that has it.
type tool struct {
	program string // looked up in PATH and the folders of system programs
	glob    string // or a file
	pkg     string
}

// base is what every boot needs.
var base = []tool{
	{program: "qemu-system-x86_64", pkg: "qemu-system-x86"},
	{glob: "/usr/share/seabios/bios-256k.bin", pkg: "seabios"},
	{program: "busybox", pkg: "busybox-static"},
	{program: "depmod", pkg: "kmod"},
	{program: "ip", pkg: "iproute2"},
	{program: "tc", pkg: "iproute2"},
	{program: "rdma", pkg: "iproute2"},
	{program: "ibv_devinfo", pkg: "ibverbs-utils"},
	{program: "ib_write_bw", pkg: "perftest"},
	{glob: "/usr/lib/*/libibverbs/librxe-rdmav*.so", pkg: "ibverbs-providers"},
}

// mpi is what Open MPI over UCX needs besides, with a compiler for its programs.
var mpi = []tool{
	{program: "mpirun", pkg: "openmpi-bin"},
	{program: "mpicc", pkg: "libopenmpi-dev"},
	{program: "gcc", pkg: "gcc"},
	{glob: "/usr/lib/*/ucx/libuct_ib.so*", pkg: "libucx0"},
}

// A MissingError says what a boot lacks, and why it was not installed.
type MissingError struct {
	Packages []string
	Err      error
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("softroce: the packages %s are not installed: %v", strings.Join(e.Packages, " "), e.Err)
}

func (e *MissingError) Unwrap() error { return e.Err }

// find returns the path of a tool here, or "".
func (t tool) find() string {
	if t.glob != "" {
		found, err := filepath.Glob(t.glob)
		if err != nil || len(found) == 0 {
			return ""
		}
		return found[0]
	}
	if p, err := exec.LookPath(t.program); err == nil {
		if p, err = filepath.Abs(p); err == nil {
			return p
		}
	}
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/bin", "/bin"} { // the first two are not in a user's PATH
		if p := filepath.Join(dir, t.program); executable(p) {
			return p
		}
	}
	return ""
}

func executable(p string) bool {
	info, err := os.Stat(p)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// require finds all tools, after installing what is missing where this user
// may, and returns their paths by program.
func require(ctx context.Context, say func(string, ...any), tools []tool) (map[string]string, error) {
	found, missing := findAll(tools)
	if len(missing) == 0 {
		return found, nil
	}
	if err := install(ctx, say, missing); err != nil {
		return nil, &MissingError{missing, err}
	}
	if found, missing = findAll(tools); len(missing) > 0 {
		return nil, &MissingError{missing, fmt.Errorf("installing them did not bring what is needed")}
	}
	return found, nil
}

func findAll(tools []tool) (found map[string]string, missing []string) {
	found = map[string]string{}
	for _, t := range tools {
		p := t.find()
		if p == "" {
			missing = append(missing, t.pkg)
		} else if t.program != "" {
			found[t.program] = p
		}
	}
	slices.Sort(missing)
	return found, slices.Compact(missing)
}

func install(ctx context.Context, say func(string, ...any), packages []string) error {
	line := "apt-get install " + strings.Join(packages, " ")
	root, err := asRoot(ctx)
	if err != nil {
		return fmt.Errorf("%w; run: sudo %s", err, line)
	}
	say("apt-get update")
	if err := command(ctx, "", append(root, "apt-get", "update", "-qq")...); err != nil {
		say("%v (going on with the lists there are)", err)
	}
	say("%s", line)
	return command(ctx, "", append(append(root, "apt-get", "install", "-y", "-qq", "--no-install-recommends"), packages...)...)
}

// asRoot is what to put before a command so that it runs as root.
func asRoot(ctx context.Context) ([]string, error) {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return nil, fmt.Errorf("there is no apt-get here")
	}
	if os.Getuid() == 0 {
		return nil, nil
	}
	if err := exec.CommandContext(ctx, "sudo", "-n", "true").Run(); err != nil {
		return nil, fmt.Errorf("this user is not root and may not become it")
	}
	return []string{"sudo", "-n"}, nil
}

// command runs a program in a folder and keeps what it says for the error.
func command(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
