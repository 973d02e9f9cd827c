// The program is a rank that sums the ranks of its job at rank 0 over TCP and
// counts the machine's RDMA devices through libibverbs, loaded by name.
package main

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stddef.h>

static int devices(void)
{
	void *lib = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	void **(*list)(int *);
	int n = -1;
	if (lib == NULL)
		return -2;
	*(void **)&list = dlsym(lib, "ibv_get_device_list");
	if (list != NULL)
		list(&n);
	return n;
}
*/
import "C"

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(7)
	}
}

func number(name string) int {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		fmt.Fprintln(os.Stderr, name, err)
		os.Exit(8)
	}
	return n
}

func run() error {
	if len(os.Args) > 1 && os.Args[1] == "fail" && number("TUTTI_RANK") == 1 {
		return fmt.Errorf("rank 1 was told to fail")
	}
	if len(os.Args) > 1 {
		time.Sleep(time.Hour)
	}
	rank, size := number("TUTTI_RANK"), number("TUTTI_SIZE")
	root := strings.TrimPrefix(os.Getenv("TUTTI_BOOTSTRAP"), "tcp://")
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	fmt.Printf("rank %d of %d, local rank %d, on %s with %d devices\n", rank, size, number("TUTTI_LOCAL_RANK"), host, int(C.devices()))
	if rank > 0 {
		return send(root, rank)
	}
	l, err := net.Listen("tcp", root)
	if err != nil {
		return err
	}
	sum := 0
	for range size - 1 {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		var n int
		if _, err := fmt.Fscan(c, &n); err != nil {
			return err
		}
		sum += n
	}
	fmt.Println("sum", sum)
	return nil
}

func send(root string, rank int) error {
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		c, err := net.Dial("tcp", root)
		if err != nil {
			if time.Now().After(deadline) {
				return err
			}
			continue
		}
		_, err = fmt.Fprintln(c, rank)
		c.Close()
		return err
	}
}
