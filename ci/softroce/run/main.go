// The command boots soft-RoCE machines and runs a command in each of them.
//
//	go run ./ci/softroce/run ibv_devinfo -v
//	go run ./ci/softroce/run -put ./build/prog:/prog -node 0 /prog -x
//	go run ./ci/softroce/run -sh 'ib_write_bw -d rxe0 -x 1 $( [ $NODE = 0 ] || { sleep 1; echo node0; } )'
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tutti-go/tutti/ci/softroce"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	config := softroce.Config{Files: map[string]string{}, Log: func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "softroce: "+format+"\n", args...)
	}}
	flag.IntVar(&config.Machines, "n", 2, "machines")
	flag.IntVar(&config.CPUs, "cpus", 1, "processors of each")
	flag.IntVar(&config.MemoryMiB, "memory", 0, "MiB of each")
	flag.IntVar(&config.MTU, "mtu", 0, "MTU of eth0")
	flag.StringVar(&config.CPU, "cpu", "", "processor model, as QEMU has it")
	flag.StringVar(&config.Accel, "accel", "", "kvm or tcg")
	flag.BoolVar(&config.MPI, "mpi", false, "bring Open MPI and UCX")
	flag.Func("module", "kernel module to load besides", func(s string) error {
		config.Modules = append(config.Modules, s)
		return nil
	})
	node := flag.Int("node", -1, "run the command in this machine only")
	shell := flag.Bool("sh", false, "the command is a line of shell; $NODE says where it runs")
	limit := flag.Duration("limit", 5*time.Minute, "for the command")
	flag.Func("put", "file of this machine to put into all, HERE:THERE", func(s string) error {
		here, there, ok := strings.Cut(s, ":")
		if !ok {
			return errors.New("not HERE:THERE")
		}
		config.Files[there] = here
		return nil
	})
	flag.Parse()
	args := flag.Args()
	if len(args) == 0 {
		flag.Usage()
		return errors.New("softroce: no command")
	}
	if *shell {
		args = []string{"/bin/sh", "-c", strings.Join(args, " ")}
	}

	cluster, err := softroce.Boot(ctx, config)
	if err != nil {
		return err
	}
	defer cluster.Close()
	ctx, cancel := context.WithTimeout(ctx, *limit)
	defer cancel()
	var wg sync.WaitGroup
	errs := make([]error, len(cluster.Nodes()))
	for i, n := range cluster.Nodes() {
		if *node >= 0 && *node != i {
			continue
		}
		wg.Go(func() {
			out, errOut := lines(os.Stdout, n.Name), lines(os.Stderr, n.Name)
			errs[i] = n.Do(ctx, softroce.Command{
				Args: args, Env: []string{fmt.Sprintf("NODE=%d", i)}, Stdout: out, Stderr: errOut,
			})
			out.Close()
			errOut.Close()
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// lines passes whole lines on, with a name before each.
func lines(to io.Writer, name string) io.WriteCloser {
	r, w := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s := bufio.NewReader(r)
		for {
			line, err := s.ReadString('\n')
			if line != "" {
				fmt.Fprintf(to, "%s: %s\n", name, strings.TrimRight(line, "\n"))
			}
			if err != nil {
				return
			}
		}
	}()
	return lineWriter{w, done}
}

type lineWriter struct {
	*io.PipeWriter
	done chan struct{}
}

func (l lineWriter) Close() error {
	err := l.PipeWriter.Close()
	<-l.done
	return err
}
