package softroce

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/ci/softroce/image"
	"github.com/tutti-go/tutti/ci/softroce/remote"
)

// Boot starts the machines and returns when each has its network, rxe0 and an
// agent that runs commands. What is missing on the host is installed where
// this user may; a *MissingError or *KernelError says what could not be had.
//
// The machines live until Close or until ctx ends, and die with this process
// whatever kills it. They leave nothing behind: no file, no socket.
func Boot(ctx context.Context, config Config) (*Cluster, error) {
	c, err := config.filled()
	if err != nil {
		return nil, err
	}
	needs := base
	if c.MPI {
		needs = append(append([]tool{}, base...), mpi...)
	}
	tools, err := require(ctx, c.Log, needs)
	if err != nil {
		return nil, err
	}
	kernel, err := FindKernel(ctx, c.Log)
	if err != nil {
		return nil, err
	}
	initrd, known, err := makeImage(ctx, c, kernel, tools)
	if err != nil {
		return nil, err
	}
	defer initrd.Close()

	start := func(accel string) (*Cluster, error) {
		b := &boot{config: c, accel: accel, kernel: kernel, initrd: initrd, qemu: tools["qemu-system-x86_64"]}
		cluster, err := b.start(ctx)
		if err != nil {
			return nil, err
		}
		cluster.known = known
		return cluster, nil
	}
	if c.Accel != "" {
		return start(c.Accel)
	}
	if virtualises() {
		cluster, err := start("kvm")
		if err == nil || ctx.Err() != nil {
			return cluster, err
		}
		c.Log("KVM does not do: %v", err)
	}
	return start("tcg")
}

// boot is one attempt to start the machines.
type boot struct {
	config Config
	accel  string
	kernel Kernel
	initrd *os.File
	qemu   string

	running sync.WaitGroup // QEMU processes and what reads from them
}

func (b *boot) start(parent context.Context) (*Cluster, error) {
	began := time.Now()
	ctx, cancel := context.WithCancel(parent)
	cluster := &Cluster{Accel: b.accel, Kernel: b.kernel.Version}
	cluster.stop = func() {
		cancel()
		b.running.Wait()
	}
	cables, err := b.wire()
	if err == nil {
		for i := range b.config.Machines {
			var n *Node
			if n, err = b.machine(ctx, i, cables[i]); err != nil {
				break
			}
			n.cluster = cluster
			cluster.nodes = append(cluster.nodes, n)
		}
	}
	for _, cable := range cables {
		_ = cable.Close() // QEMU has its own by now
	}
	if err == nil {
		limit, done := context.WithTimeout(ctx, b.config.Limit)
		err = cluster.each(limit, func(ctx context.Context, n *Node) error { return n.ready(ctx) })
		done()
	}
	if err != nil {
		cluster.Close()
		return nil, err
	}
	b.config.Log("%d machines (%s, kernel %s) after %.1f s", len(cluster.nodes), b.accel, b.kernel.Version, time.Since(began).Seconds())
	return cluster, nil
}

// pair returns two ends of a private stream.
func pair(name string) (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	// Ours is polled by the runtime; theirs QEMU sets as it likes.
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fds[0]), name), os.NewFile(uintptr(fds[1]), name), nil
}

// wire joins the machines: two by a cable, others by a switch. It returns the
// end of each machine.
func (b *boot) wire() ([]*os.File, error) {
	if b.config.Machines == 2 {
		one, other, err := pair("cable")
		return []*os.File{one, other}, err
	}
	var theirs, ours []*os.File
	for range b.config.Machines {
		our, their, err := pair("cable")
		if err != nil {
			return theirs, err
		}
		ours, theirs = append(ours, our), append(theirs, their)
	}
	s := newSwitch(ours)
	b.running.Go(s.run)
	return theirs, nil
}

// machine starts QEMU for machine i.
func (b *boot) machine(ctx context.Context, i int, cable *os.File) (*Node, error) {
	ours, theirs, err := pair("agent")
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	n := &Node{
		client: remote.NewClient(ours),
		Index:  i, Name: fmt.Sprintf("node%d", i), Address: fmt.Sprintf("10.0.0.%d", i+1),
		console: &console{}, gone: make(chan struct{}),
	}
	cmd := exec.CommandContext(ctx, b.qemu, b.arguments(i)...)
	cmd.ExtraFiles = []*os.File{theirs, cable, b.initrd} // 3, 4, 5
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	cmd.WaitDelay = 5 * time.Second
	said, err := cmd.StdoutPipe()
	if err != nil {
		_ = n.client.Close()
		return nil, err
	}
	cmd.Stderr = cmd.Stdout

	started := make(chan error)
	b.running.Go(func() {
		// The death signal follows the thread that started the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		n.watch(said)
		err = cmd.Wait()
		if ctx.Err() != nil {
			n.fail(ErrClosed)
		}
		n.fail(&MachineError{i, fmt.Sprintf("QEMU ended (%v)", err), n.Console()})
		_ = n.client.Close()
	})
	if err := <-started; err != nil {
		_ = n.client.Close()
		return nil, fmt.Errorf("softroce: starting QEMU: %w", err)
	}
	return n, nil
}

// watch reads the console until it ends.
func (n *Node) watch(said io.Reader) {
	r := bufio.NewReader(said)
	for {
		line, err := r.ReadString('\n')
		if line != "" && n.console.add(line) {
			// The lines after it say what it was; they come at once.
			time.AfterFunc(time.Second, func() {
				n.fail(&MachineError{n.Index, "its kernel died: " + strings.TrimSpace(line), n.Console()})
			})
		}
		if err != nil {
			return
		}
	}
}

// ready waits for the agent.
func (n *Node) ready(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-n.gone:
			cancel(n.Err())
		case <-ctx.Done():
		}
	}()
	hello, err := n.client.Hello(ctx)
	switch {
	case n.Err() != nil:
		return n.Err()
	case err != nil:
		return &MachineError{n.Index, fmt.Sprintf("no word from its agent (%v)", err), n.Console()}
	case hello.Err != "":
		return &MachineError{n.Index, "it did not come up: " + hello.Err, n.Console()}
	}
	n.idle, err = n.Resources(ctx)
	return err
}

func (b *boot) arguments(i int) []string {
	model := b.config.CPU
	if model == "" {
		model = map[string]string{"kvm": "host", "tcg": emulated}[b.accel]
	}
	accel := b.accel
	if accel == "tcg" {
		accel = "tcg,thread=multi"
	}
	line := fmt.Sprintf("console=ttyS0 quiet panic=-1 oops=panic mitigations=off random.trust_cpu=on "+
		"softroce.node=%d softroce.nodes=%d softroce.mtu=%d", i, b.config.Machines, b.config.MTU)
	return []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-M", "q35", "-accel", accel, "-cpu", model,
		"-smp", fmt.Sprint(b.config.CPUs), "-m", fmt.Sprint(b.config.MemoryMiB),
		"-kernel", b.kernel.Image, "-initrd", "/proc/self/fd/5", "-append", line,
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
		"-device", "virtio-serial-pci",
		"-chardev", "socket,id=agent,fd=3", "-device", "virtserialport,chardev=agent,name=tutti",
		"-netdev", "socket,id=cable,fd=4",
		"-device", fmt.Sprintf("virtio-net-pci,netdev=cable,mac=52:54:00:00:00:%02x,host_mtu=%d,romfile=", i+1, b.config.MTU),
	}
}

// emulated is the processor model under emulation: all that QEMU has but fast
// string moves, which it makes byte by byte. With them the kernel and libc copy
// that way, and perftest's writes of 64 KiB take twice the processor time.
// Without AVX, or as an older model, they take more too.
const emulated = "max,-erms,-fsrm"

// modules are what every machine loads. Nothing depends on a crc32 algorithm by
// name, but without one rxe cannot make a device.
var modules = []string{"virtio_pci", "virtio_console", "virtio_net", "crc32_generic", "ib_uverbs", "rdma_rxe", "sch_netem"}

// programs are in every machine.
var programs = []string{
	"ip", "tc", "rdma",
	"ibv_devinfo", "ibv_devices", "ibv_rc_pingpong", "ibv_ud_pingpong",
	"ib_write_bw", "ib_write_lat", "ib_read_bw", "ib_read_lat", "ib_send_bw", "ib_send_lat", "ib_atomic_lat",
}

// makeImage puts the root file system into memory that QEMU can read, and
// says which paths it has.
func makeImage(ctx context.Context, c Config, kernel Kernel, tools map[string]string) (*os.File, func(string) bool, error) {
	agent, err := buildAgent(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = os.Remove(agent) }()
	b := image.New()
	errs := []error{
		b.Program(ctx, "/init", agent),
		b.Link("/usr/bin/agent", "/init"),
		b.Modules(ctx, kernel.Modules, append(append([]string{}, modules...), c.Modules...)...),
		addBusybox(ctx, b, tools["busybox"]),
		addNames(b, c.Machines),
		addVerbs(ctx, b),
	}
	for _, name := range programs {
		if p := (tool{program: name}).find(); p == "" {
			errs = append(errs, fmt.Errorf("softroce: no program %s", name))
		} else {
			errs = append(errs, b.Program(ctx, "/usr/bin/"+name, p))
		}
	}
	if c.MPI {
		errs = append(errs, addMPI(ctx, b))
	}
	for there, here := range c.Files {
		errs = append(errs, b.Program(ctx, there, here))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, nil, err
	}
	fd, err := unix.MemfdCreate("initramfs", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "initramfs")
	if err := b.Write(f); err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	if info, err := f.Stat(); err == nil {
		c.Log("image of %.1f MB", float64(info.Size())/1e6)
	}
	return f, b.Has, nil
}

// buildAgent compiles the machines' first process into a temporary file.
func buildAgent(ctx context.Context) (string, error) {
	f, err := os.CreateTemp("", "softroce-agent-")
	if err != nil {
		return "", err
	}
	_ = f.Close()
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", f.Name(), "github.com/tutti-go/tutti/ci/softroce/agent")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		_ = os.Remove(f.Name())
		return "", fmt.Errorf("softroce: building the agent: %w: %s", err, out)
	}
	return f.Name(), nil
}

func addBusybox(ctx context.Context, b *image.Builder, busybox string) error {
	out, err := exec.CommandContext(ctx, busybox, "--list").Output()
	if err != nil {
		return fmt.Errorf("%s --list: %w", busybox, err)
	}
	for _, applet := range strings.Fields(string(out)) {
		if err := b.Link("/usr/bin/"+applet, "busybox"); err != nil {
			return err
		}
	}
	return b.Program(ctx, "/usr/bin/busybox", busybox)
}

// addNames puts in what names users, groups and machines.
func addNames(b *image.Builder, machines int) error {
	hosts := "127.0.0.1 localhost\n"
	for i := range machines {
		hosts += fmt.Sprintf("10.0.0.%d node%d\n", i+1, i)
	}
	var errs []error
	for name, text := range map[string]string{
		"/etc/hosts": hosts, "/etc/passwd": "root:x:0:0:root:/root:/bin/sh\n", "/etc/group": "root:x:0:\n",
		"/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
	} {
		errs = append(errs, b.Bytes(name, []byte(text), 0o644))
	}
	return errors.Join(errs...)
}

// addVerbs puts in libibverbs, which programs load by name, with rxe's provider.
func addVerbs(ctx context.Context, b *image.Builder) error {
	errs := []error{b.Bytes("/etc/libibverbs.d/rxe.driver", []byte("driver rxe\n"), 0o644)}
	for _, pattern := range []string{"/usr/lib/*/libibverbs/librxe-rdmav*.so", "/usr/lib/*/libibverbs.so.1", "/usr/lib/*/librdmacm.so.1"} {
		found, err := filepath.Glob(pattern)
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("softroce: no %s", pattern)
		}
		errs = append(errs, err)
		for _, f := range found {
			errs = append(errs, b.Program(ctx, f, f))
		}
	}
	return errors.Join(errs...)
}
