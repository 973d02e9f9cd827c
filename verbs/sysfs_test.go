package verbs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tutti-go/tutti/verbs"
)

// tree is a sysfs with a NIC of two ports in a slot, and soft-RoCE.
func tree() fstest.MapFS {
	root := fstest.MapFS{}
	put := func(name, text string) { root[name] = &fstest.MapFile{Data: []byte(text + "\n")} }
	link := func(name, target string) {
		root[name] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink}
	}
	nic := "devices/pci0000:3a/0000:3b:00.1"
	put(nic+"/numa_node", "1")
	dir := nic + "/infiniband/mlx5_1"
	link("class/infiniband/mlx5_1", "../../"+dir)
	link(dir+"/device", "../../../0000:3b:00.1")
	put(dir+"/node_type", "1: CA")
	put(dir+"/node_guid", "b859:9f03:00fa:3c1e")
	put(dir+"/fw_ver", "16.28.4000")
	put(dir+"/board_id", "MT_0000000080")
	put(dir+"/ports/1/state", "4: ACTIVE")
	put(dir+"/ports/1/link_layer", "Ethernet")
	put(dir+"/ports/1/rate", "100 Gb/sec (4X EDR)")
	put(dir+"/ports/1/lid", "0x0")
	put(dir+"/ports/1/gid_attrs/ndevs/0", "eth2")
	put(dir+"/ports/1/gid_attrs/ndevs/1", "eth2")
	put(dir+"/ports/1/gid_attrs/ndevs/3", "eth2.7")
	put(dir+"/ports/1/counters/port_xmit_data", "4096")
	put(dir+"/ports/1/hw_counters/out_of_sequence", "3")
	put(dir+"/ports/2/state", "1: DOWN")
	put(dir+"/ports/2/link_layer", "InfiniBand")
	put(dir+"/ports/2/lid", "0x1f")
	put("class/infiniband_verbs/uverbs0/ibdev", "rxe0")
	put("class/infiniband_verbs/uverbs7/ibdev", "mlx5_1")
	put("class/infiniband_verbs/abi_version", "6")
	dir = "devices/virtual/infiniband/rxe0"
	link("class/infiniband/rxe0", "../../"+dir)
	put(dir+"/node_type", "1: CA")
	put(dir+"/node_guid", "5054:00ff:fe00:0001")
	put(dir+"/ports/1/state", "4: ACTIVE")
	put(dir+"/ports/1/link_layer", "Ethernet")
	put(dir+"/ports/1/gid_attrs/ndevs/0", "eth0")
	put("class/infiniband/leftover/dust", "")
	return root
}

func TestInventory(t *testing.T) {
	got, err := verbs.Inventory(tree())
	if err != nil {
		t.Fatal(err)
	}
	want := []verbs.Hardware{
		{Name: "mlx5_1", GUID: 0xb8599f0300fa3c1e, Node: verbs.NodeCA, Firmware: "16.28.4000", Board: "MT_0000000080", PCI: "0000:3b:00.1",
			NUMANode: 1, CharDevice: "uverbs7", Ports: []verbs.HardwarePort{
				{Number: 1, State: verbs.PortActive, LinkLayer: verbs.LinkEthernet, Rate: "100 Gb/sec (4X EDR)", Netdevs: []string{"eth2", "eth2.7"}},
				{Number: 2, State: verbs.PortDown, LinkLayer: verbs.LinkInfiniBand, LID: 31},
			}},
		{Name: "rxe0", GUID: 0x505400fffe000001, Node: verbs.NodeCA, NUMANode: -1, CharDevice: "uverbs0", Ports: []verbs.HardwarePort{
			{Number: 1, State: verbs.PortActive, LinkLayer: verbs.LinkEthernet, Netdevs: []string{"eth0"}},
		}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got[0].GUID.String() != "b859:9f03:00fa:3c1e" {
		t.Errorf("GUID prints as %v", got[0].GUID)
	}

	if got, err := verbs.Inventory(fstest.MapFS{}); got != nil || err != nil {
		t.Errorf("a kernel without RDMA: %v, %v", got, err)
	}
	if _, err := verbs.Inventory(nil); err != nil {
		t.Errorf("this machine: %v", err)
	}
}

func TestCounters(t *testing.T) {
	got, err := verbs.Counters(tree(), "mlx5_1", 1)
	if want := map[string]uint64{"port_xmit_data": 4096, "out_of_sequence": 3}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	for _, device := range []string{"rxe0", "none", "../x", ""} {
		if _, err := verbs.Counters(tree(), device, 1); !errors.Is(err, verbs.ErrNoDevice) {
			t.Errorf("%q: %v", device, err)
		}
	}
}

// What the libraries say of this machine agrees with its sysfs.
func TestThisMachine(t *testing.T) {
	list, err := verbs.Inventory(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range list {
		if h.CharDevice != "" && !strings.Contains(strings.Join(verbs.CharDevices(h.Name), " "), "/dev/infiniband/"+h.CharDevice) {
			t.Errorf("%s: %s is not among %q", h.Name, h.CharDevice, verbs.CharDevices(h.Name))
		}
		for _, p := range h.Ports {
			for _, netdev := range p.Netdevs {
				if device, err := verbs.DeviceOf(netdev); err != nil || device == "" {
					t.Errorf("%s: nothing stands on its network device %s: %v", h.Name, netdev, err)
				}
			}
		}
		if counts, err := verbs.Resources(); err != nil || counts[h.Name] == nil {
			t.Errorf("%s: no resources: %v, %v", h.Name, counts, err)
		}
	}
	for _, netdev := range []string{"lo", "no such", ""} {
		if _, err := verbs.DeviceOf(netdev); !errors.Is(err, verbs.ErrNoDevice) {
			t.Errorf("%q: %v", netdev, err)
		}
	}
	if devices := verbs.CharDevices("no such"); len(devices) > 1 { // rdma_cm is everybody's
		t.Errorf("a device that is not there has %q", devices)
	}
	t.Logf("%d RDMA devices", len(list))
}

// FuzzInventory puts anything into the files that Inventory reads.
func FuzzInventory(f *testing.F) {
	f.Add("4: ACTIVE", "1: CA", "0x1f", "505:zz", "eth0")
	f.Add("-7", "-99999999999999999999", "65536", "1:2:3:4", "\x00")
	f.Add("", "", "", "", "")
	f.Fuzz(func(t *testing.T, state, node, lid, guid, netdev string) {
		root := tree()
		dir := "devices/pci0000:3a/0000:3b:00.1/infiniband/mlx5_1"
		for name, text := range map[string]string{"/ports/1/state": state, "/node_type": node, "/ports/1/lid": lid, "/node_guid": guid, "/ports/1/gid_attrs/ndevs/0": netdev} {
			root[dir+name] = &fstest.MapFile{Data: []byte(text)}
		}
		list, err := verbs.Inventory(root)
		if err != nil || len(list) != 2 {
			t.Fatalf("%d devices, %v", len(list), err)
		}
		h := list[0]
		if _ = fmt.Sprint(h, h.Node, h.Ports[0].State); len(h.Ports) != 2 {
			t.Fatalf("%+v", h)
		}
		if parsed, err := verbs.ParseGUID(strings.TrimSpace(guid)); err == nil && parsed != h.GUID {
			t.Fatalf("GUID %q is %v", guid, h.GUID)
		}
	})
}

// FuzzParseGUID holds that what is read prints as it was.
func FuzzParseGUID(f *testing.F) {
	f.Add("b859:9f03:00fa:3c1e")
	f.Add("0:0:0:0")
	f.Add("+001:0000:0000:0000")
	f.Fuzz(func(t *testing.T, s string) {
		if g, err := verbs.ParseGUID(s); err == nil && g.String() != strings.ToLower(s) {
			t.Errorf("%q prints as %v", s, g)
		}
	})
}
