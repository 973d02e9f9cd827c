package verbs

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Hardware is what sysfs says of an RDMA device. It needs neither the library
// nor permission to open the device.
type Hardware struct {
	Name       string
	GUID       GUID
	Node       NodeType
	Firmware   string
	Board      string
	PCI        string // its address, "0000:3b:00.0"; empty for one that is software
	NUMANode   int    // -1 where there is none
	CharDevice string // "uverbs0", a file in /dev/infiniband; empty where programs cannot reach it
	Ports      []HardwarePort
}

// HardwarePort is what sysfs says of a port.
type HardwarePort struct {
	Number    int
	State     PortState
	LinkLayer LinkLayer
	Rate      string // "100 Gb/sec (4X EDR)"
	LID       uint16
	Netdevs   []string // whose addresses its first GIDs are
}

// gidsLookedAt bounds how much of a GID table Inventory reads: soft-RoCE's has
// 1024 entries, of which the first few are used.
const gidsLookedAt = 16

// Inventory lists the RDMA devices in a sysfs, by name. root is what is mounted
// at /sys, or something like it; nil takes /sys. Without RDMA in the kernel
// there are none, which is not an error. What cannot be read of a device is
// left out.
func Inventory(root fs.FS) ([]Hardware, error) {
	if root == nil {
		root = sysfs()
	}
	const class = "class/infiniband"
	entries, err := fs.ReadDir(root, class)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("verbs: listing RDMA devices: %w", err)
	}
	var list []Hardware
	for _, e := range entries {
		dir := path.Join(class, e.Name())
		if _, err := fs.Stat(root, dir+"/node_type"); err != nil {
			continue // not a device
		}
		h := Hardware{Name: e.Name(), Firmware: line(root, dir+"/fw_ver"), Board: line(root, dir+"/board_id"), NUMANode: -1, Node: NodeUnknown}
		h.GUID, _ = ParseGUID(line(root, dir+"/node_guid"))
		if n, ok := leadingInt(line(root, dir+"/node_type")); ok {
			h.Node = NodeType(n)
		}
		if n, err := strconv.Atoi(line(root, dir+"/device/numa_node")); err == nil {
			h.NUMANode = n
		}
		if target, err := fs.ReadLink(root, dir+"/device"); err == nil {
			if base := path.Base(target); strings.Count(base, ":") == 2 {
				h.PCI = base
			}
		}
		h.CharDevice = charDevice(root, h.Name)
		h.Ports = hardwarePorts(root, dir)
		list = append(list, h)
	}
	slices.SortFunc(list, func(a, b Hardware) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// charDevice finds the character device whose ibdev is the device.
func charDevice(root fs.FS, device string) string {
	const class = "class/infiniband_verbs"
	entries, err := fs.ReadDir(root, class)
	if err != nil {
		return ""
	}
	for _, e := range entries {
		if line(root, path.Join(class, e.Name(), "ibdev")) == device {
			return e.Name()
		}
	}
	return ""
}

func hardwarePorts(root fs.FS, dir string) []HardwarePort {
	entries, err := fs.ReadDir(root, dir+"/ports")
	if err != nil {
		return nil
	}
	var ports []HardwarePort
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil || n < 1 || n > 255 {
			continue
		}
		sub := path.Join(dir, "ports", e.Name())
		p := HardwarePort{Number: n, Rate: line(root, sub+"/rate")}
		if s, ok := leadingInt(line(root, sub+"/state")); ok && s >= 0 {
			p.State = PortState(s)
		}
		switch line(root, sub+"/link_layer") {
		case "InfiniBand":
			p.LinkLayer = LinkInfiniBand
		case "Ethernet":
			p.LinkLayer = LinkEthernet
		}
		if lid, err := strconv.ParseUint(line(root, sub+"/lid"), 0, 16); err == nil {
			p.LID = uint16(lid)
		}
		for i := range gidsLookedAt {
			if dev := line(root, fmt.Sprintf("%s/gid_attrs/ndevs/%d", sub, i)); dev != "" && !slices.Contains(p.Netdevs, dev) {
				p.Netdevs = append(p.Netdevs, dev)
			}
		}
		ports = append(ports, p)
	}
	slices.SortFunc(ports, func(a, b HardwarePort) int { return a.Number - b.Number })
	return ports
}

// Counters reads the counters that a device keeps of a port, by name, those
// common to all devices and those of its own kind. root is as with Inventory.
// Errors: ErrNoDevice where there are none.
func Counters(root fs.FS, device string, port int) (map[string]uint64, error) {
	if root == nil {
		root = sysfs()
	}
	counters := make(map[string]uint64)
	for _, sub := range []string{"counters", "hw_counters"} {
		dir := fmt.Sprintf("class/infiniband/%s/ports/%d/%s", device, port, sub)
		if !fs.ValidPath(dir) {
			return nil, fmt.Errorf("%w: %q", ErrNoDevice, device)
		}
		entries, err := fs.ReadDir(root, dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("verbs: reading counters of %s port %d: %w", device, port, err)
		}
		for _, e := range entries {
			if v, err := strconv.ParseUint(line(root, path.Join(dir, e.Name())), 10, 64); err == nil {
				counters[e.Name()] = v
			}
		}
	}
	if len(counters) == 0 {
		return nil, fmt.Errorf("%w: sysfs has no counters of %q port %d", ErrNoDevice, device, port)
	}
	return counters, nil
}

// ParseGUID reads a GUID as sysfs and GUID.String write it: four groups of four
// hexadecimal digits.
func ParseGUID(s string) (GUID, error) {
	groups := strings.Split(s, ":")
	if len(groups) != 4 {
		return 0, fmt.Errorf("verbs: %q is no GUID", s)
	}
	var g GUID
	for _, group := range groups {
		v, err := strconv.ParseUint(group, 16, 16)
		if err != nil || len(group) != 4 {
			return 0, fmt.Errorf("verbs: %q is no GUID", s)
		}
		g = g<<16 | GUID(v)
	}
	return g, nil
}

// leadingInt reads the number in "4: ACTIVE".
func leadingInt(s string) (int, bool) {
	number, _, _ := strings.Cut(s, ":")
	n, err := strconv.Atoi(strings.TrimSpace(number))
	return n, err == nil
}
