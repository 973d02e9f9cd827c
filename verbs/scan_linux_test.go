//go:build linux && cgo && (amd64 || arm64 || loong64 || ppc64le || riscv64 || s390x)

package verbs

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
)

// A library that knows no GID table is asked entry by entry, and sysfs for the
// rest.
func TestScanGIDs(t *testing.T) {
	list, err := Devices()
	if err != nil || len(list) == 0 {
		t.Fatal(list, err)
	}
	d, err := Open(list[0].Name)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	p, err := d.Port(1)
	if err != nil {
		t.Fatal(err)
	}
	want, err := d.GIDs(1)
	if err != nil {
		t.Fatal(err)
	}
	got, err := d.scanGIDs(p)
	if err != nil || len(got) != len(want) {
		t.Fatalf("%d entries, %v; want %d", len(got), err, len(want))
	}
	for i := range got {
		if got[i].Index != want[i].Index || got[i].GID != want[i].GID {
			t.Errorf("entry %d: %+v, want %+v", i, got[i], want[i])
		}
		if line(sysfs(), "class/infiniband/"+d.Name()+"/node_type") != "" && got[i] != want[i] {
			t.Errorf("entry %d with what sysfs says: %+v, want %+v", i, got[i], want[i])
		}
	}
}

func TestGIDAttributes(t *testing.T) {
	root := fstest.MapFS{}
	dir := "class/infiniband/mlx5_0/ports/1/gid_attrs"
	root[dir+"/types/2"] = &fstest.MapFile{Data: []byte("IB/RoCE v1\n")}
	root[dir+"/types/3"] = &fstest.MapFile{Data: []byte("RoCE v2\n")}
	root[dir+"/ndevs/3"] = &fstest.MapFile{Data: []byte("eth2\n")}
	for index, want := range map[int]struct {
		kind   GIDType
		netdev string
	}{1: {GIDRoCEv1, ""}, 2: {GIDRoCEv1, ""}, 3: {GIDRoCEv2, "eth2"}} {
		if kind, netdev := gidAttributes(root, "mlx5_0", 1, index, LinkEthernet); kind != want.kind || netdev != want.netdev {
			t.Errorf("entry %d: %v of %q, want %+v", index, kind, netdev, want)
		}
	}
	if kind, _ := gidAttributes(root, "mlx5_0", 1, 2, LinkInfiniBand); kind != GIDInfiniBand {
		t.Errorf("on InfiniBand: %v", kind)
	}
	if i := netdevIndex("lo"); i == 0 || netdevName(i) != "lo" || netdevName(0) != "" || netdevIndex("") != 0 || netdevIndex("no such") != 0 {
		t.Errorf("lo is %d, %q", i, netdevName(i))
	}
}

// What a device returns when a queue is broken is no count.
func TestPollError(t *testing.T) {
	cq := &CompletionQueue{device: &Device{info: DeviceInfo{Name: "mlx5_0"}}}
	for n, want := range map[int]syscall.Errno{-1: syscall.EIO, -int(syscall.EFAULT): syscall.EFAULT} {
		var e *Error
		if err := cq.pollError(n); !errors.Is(err, want) || !errors.As(err, &e) || e.Device != "mlx5_0" {
			t.Errorf("%d: %v", n, err)
		}
	}
}

// Without a limit there is nothing to raise.
func TestMemlockAdvice(t *testing.T) {
	if s := memlockAdvice(^uint64(0), 0, ""); s == memlockAdvice(1<<20, 0, "") || s == "" {
		t.Errorf("without a limit: %q", s)
	}
}

// What cannot be brought about on any device that a test has.
func TestAdvice(t *testing.T) {
	d := &Device{info: DeviceInfo{Name: "mlx5_0", CharDevice: "uverbs3"}}
	qp := &QueuePair{pd: &PD{device: d}, qpn: 0x11, options: QPOptions{Type: RC}}
	rtr := &QPAttr{State: StateRTR, Address: AddressVector{Port: 1, SGIDIndex: 3, DGID: GID{10: 0xff, 11: 0xff, 12: 10, 15: 7}}}
	toRTR := &StateError{From: StateInit, To: StateRTR}
	register := func(access Access, errno syscall.Errno, dmabuf bool) string {
		return registerAdvice(&RegisterError{Access: access, Limit: 1 << 20, Bytes: 4096}, errno, dmabuf)
	}
	for _, c := range []struct{ got, says string }{
		{qp.stateAdvice(toRTR, syscall.ETIMEDOUT, rtr), "ARP"},
		{qp.stateAdvice(toRTR, syscall.ETIMEDOUT, rtr), "10.0.0.7"},
		{qp.stateAdvice(toRTR, syscall.ETIMEDOUT, rtr), "GID 3 of port 1"},
		{qp.stateAdvice(toRTR, syscall.ENETUNREACH, rtr), "no route to 10.0.0.7"},
		{openAdvice(syscall.EACCES, d.info), "/dev/infiniband/uverbs3"},
		{openAdvice(syscall.EMFILE, d.info), "ulimit -n"},
		{register(everyAccess, syscall.ENOMEM, false), "1048576"},
		{register(AccessOnDemand, syscall.EINVAL, false), "on demand"},
		{register(0, syscall.EINVAL, true), "dma-buf"},
		{register(0, syscall.EFAULT, false), "mapped"},
		{register(0, syscall.EBADF, true), "not that of a dma-buf"},
		{register(0, syscall.EOPNOTSUPP, true), "rdma-core 34"},
		{register(0, syscall.EOPNOTSUPP, false), "pin"},
	} {
		if !strings.Contains(c.got, c.says) {
			t.Errorf("%q does not say %q", c.got, c.says)
		}
	}
}

const everyAccess = AccessLocalWrite | AccessRemoteWrite
