package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/ci/softroce/remote"
)

const (
	hostPort = "tutti" // name of the virtio port that leads to the host
	rshPort  = "1022"
)

func main() {
	var err error
	switch {
	case len(os.Args) == 1 && os.Getpid() == 1:
		first()
	case len(os.Args) == 2 && os.Args[1] == "serve":
		err = serve()
	case len(os.Args) > 3 && os.Args[1] == "rsh":
		err = rsh(os.Args[2], os.Args[3:])
	case len(os.Args) == 4 && os.Args[1] == "put":
		err = put(os.Args[2], os.Args[3])
	default:
		err = fmt.Errorf("usage: %s rsh HOST COMMAND... | put PATH MODE", os.Args[0])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

// first is process 1: it starts the serving one, buries orphans, and turns the
// machine off when the serving one has ended.
func first() {
	err := mounts()
	if err == nil {
		err = environment()
	}
	var serving *os.Process
	if err == nil {
		serving, err = os.StartProcess("/init", []string{"/init", "serve"}, &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	}
	if err != nil {
		fmt.Println("agent: the machine does not start:", err)
	}
	for err == nil {
		var pid int
		pid, err = syscall.Wait4(-1, nil, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			err = nil
		} else if pid == serving.Pid {
			break
		}
	}
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF) // what else could be done
	select {}
}

func mounts() error {
	for _, m := range []struct{ kind, dir, options string }{
		{"proc", "/proc", ""}, {"sysfs", "/sys", ""}, {"devtmpfs", "/dev", ""},
		{"devpts", "/dev/pts", ""}, {"tmpfs", "/dev/shm", ""}, {"tmpfs", "/tmp", "mode=1777"}, {"tmpfs", "/run", ""},
	} {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.dir, m.kind, 0, m.options); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount %s on %s: %w", m.kind, m.dir, err)
		}
	}
	for name, to := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		if err := os.Symlink(to, filepath.Join("/dev", name)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

func environment() error {
	for key, value := range map[string]string{
		"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "USER": "root", "LANG": "C", "TMPDIR": "/tmp",
	} {
		if err := os.Setenv(key, value); err != nil {
			return err
		}
	}
	unlimited := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	return unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unlimited)
}

// serve prepares the machine and then does what the host says. If preparing
// failed, the host can still look around.
func serve() error {
	m, err := readMachine("/proc/cmdline")
	if err == nil {
		err = modules("/modules/list")
	}
	port, portErr := openPort()
	if portErr != nil {
		return errors.Join(err, portErr)
	}
	defer port.Close()
	if err == nil {
		err = m.network()
	}
	hello := remote.Hello{Name: m.name()}
	if err != nil {
		hello.Err = err.Error()
	} else if err := m.listen(hello); err != nil {
		hello.Err = err.Error()
	}
	return remote.Serve(port, hello)
}

// A machine is what the kernel's command line says of this one.
type machine struct{ node, nodes, mtu int }

func readMachine(file string) (machine, error) {
	line, err := os.ReadFile(file)
	if err != nil {
		return machine{}, err
	}
	return parseMachine(string(line))
}

func parseMachine(line string) (machine, error) {
	m := machine{-1, -1, -1}
	for _, word := range strings.Fields(line) {
		key, value, _ := strings.Cut(word, "=")
		to := map[string]*int{"softroce.node": &m.node, "softroce.nodes": &m.nodes, "softroce.mtu": &m.mtu}[key]
		if to == nil {
			continue
		}
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 {
			return m, fmt.Errorf("kernel command line: %s", word)
		}
		*to = n
	}
	if m.node < 0 || m.nodes <= m.node || m.mtu < 0 {
		return m, fmt.Errorf("kernel command line %q does not say which machine this is", line)
	}
	return m, nil
}

func (m machine) name() string    { return fmt.Sprintf("node%d", m.node) }
func (m machine) address() string { return fmt.Sprintf("10.0.0.%d", m.node+1) }

// modules loads what the list names, in its order.
func modules(list string) error {
	names, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(string(names)) {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("loading %s: %w", name, err)
		}
		if err := os.Remove(name); err != nil { // its memory is better used
			return err
		}
	}
	return nil
}

func (m machine) network() error {
	if err := unix.Sethostname([]byte(m.name())); err != nil {
		return err
	}
	for _, line := range []string{
		"ip link set lo up",
		fmt.Sprintf("ip link set eth0 mtu %d up", m.mtu),
		fmt.Sprintf("ip addr add %s/24 dev eth0", m.address()),
		"rdma link add rxe0 type rxe netdev eth0",
	} {
		args := strings.Fields(line)
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

// openPort finds the virtio port of the host's name; the kernel makes its
// device node a moment after the module is there.
func openPort() (*os.File, error) {
	for deadline := time.Now().Add(30 * time.Second); ; {
		names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			b, err := os.ReadFile(name)
			if err == nil && strings.TrimSpace(string(b)) == hostPort {
				return os.OpenFile(filepath.Join("/dev", filepath.Base(filepath.Dir(name))), os.O_RDWR, 0)
			}
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("no virtio port named %s: no way to the host", hostPort)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// listen serves the other machines, on the network that only they are on.
func (m machine) listen(hello remote.Hello) error {
	l, err := net.Listen("tcp", net.JoinHostPort(m.address(), rshPort))
	if err != nil {
		return err
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if err := remote.Serve(conn, hello); err != nil {
					fmt.Println("agent: a client of rsh:", err)
				}
			}()
		}
	}()
	return nil
}

// rsh runs a shell command on another machine and ends as it ends.
func rsh(host string, args []string) error {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(host, rshPort), 30*time.Second)
	if err != nil {
		return err
	}
	client := remote.NewClient(conn)
	defer client.Close()
	p, err := client.Start(remote.Command{
		Args:   []string{"/bin/sh", "-c", strings.Join(args, " ")},
		Stdout: os.Stdout, Stderr: os.Stderr,
	})
	if err != nil {
		return err
	}
	status, err := p.Wait()
	if err != nil {
		return err
	}
	if status.Code > 0 {
		os.Exit(status.Code)
	}
	if !status.OK() {
		return errors.New(status.String())
	}
	return nil
}

// put writes standard input to a file: all of it or nothing.
func put(name, mode string) error {
	bits, err := strconv.ParseUint(mode, 8, 12)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".put-")
	if err != nil {
		return err
	}
	_, err = io.Copy(f, os.Stdin)
	err = errors.Join(err, f.Chmod(os.FileMode(bits)), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
