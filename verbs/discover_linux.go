package verbs

import (
	"fmt"

	"github.com/Mellanox/rdmamap"
	"github.com/vishvananda/netlink"
)

// CharDevices lists the files in /dev that belong to a device, with full
// paths: what a container must be given to use it.
func CharDevices(device string) []string { return rdmamap.GetRdmaCharDevices(device) }

// DeviceOf returns the RDMA device that stands on a network device. Errors:
// ErrNoDevice where there is none.
func DeviceOf(netdev string) (string, error) {
	device, err := rdmamap.GetRdmaDeviceForNetdevice(netdev)
	if err != nil {
		return "", fmt.Errorf("%w: none stands on network device %q: %w", ErrNoDevice, netdev, err)
	}
	if device == "" {
		return "", fmt.Errorf("%w: none stands on network device %q", ErrNoDevice, netdev)
	}
	return device, nil
}

// Resources counts what all processes together have made of each device, as
// the kernel's resource tracker knows it: "pd", "cq", "qp", "mr", "ctx", and
// more with newer kernels, by device.
func Resources() (map[string]map[string]uint64, error) {
	list, err := netlink.RdmaResourceList()
	if err != nil {
		return nil, fmt.Errorf("verbs: asking the kernel for RDMA resources: %w", err)
	}
	counts := make(map[string]map[string]uint64, len(list))
	for _, r := range list {
		counts[r.Name] = r.RdmaResourceSummaryEntries
	}
	return counts, nil
}

// netdevName and netdevIndex are empty where there is no such network device
// in this network namespace.
func netdevName(index int) string {
	if index == 0 {
		return ""
	}
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		return ""
	}
	return link.Attrs().Name
}

func netdevIndex(name string) int {
	if name == "" {
		return 0
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		return 0
	}
	return link.Attrs().Index
}
