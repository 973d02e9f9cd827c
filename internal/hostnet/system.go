package hostnet

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// virtualNames begin the names of interfaces that lead nowhere but into this
// machine: bridges and cables of containers and virtual machines.
var virtualNames = []string{
	"docker", "br-", "virbr", "veth", "cni", "flannel", "cali", "cilium", "lxc", "lxd", "podman", "vnet",
	"vmnet", "vboxnet", "kube-", "nerdctl", "weave", "tunl", "dummy", "ifb", "vEthernet",
}

// Interfaces lists the interfaces of this machine.
func Interfaces() ([]Interface, error) {
	system, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("listing network interfaces: %w", err)
	}
	var all []Interface
	for _, s := range system {
		in := Interface{
			Name:     s.Name,
			Up:       s.Flags&net.FlagUp != 0 && (s.Flags&net.FlagRunning != 0 || s.Flags&net.FlagLoopback != 0),
			Loopback: s.Flags&net.FlagLoopback != 0,
			Virtual:  virtual(s.Name),
		}
		addrs, err := s.Addrs()
		if err != nil {
			continue // it has just gone
		}
		for _, a := range addrs {
			ipnet, ok := a.(*net.IPNet)
			if !ok {
				continue
			}
			addr, ok := netip.AddrFromSlice(ipnet.IP)
			if !ok {
				continue
			}
			addr = addr.Unmap()
			bits, _ := ipnet.Mask.Size()
			in.Addrs = append(in.Addrs, netip.PrefixFrom(addr, bits))
		}
		all = append(all, in)
	}
	return all, nil
}

func virtual(name string) bool {
	for _, s := range virtualNames {
		if strings.HasPrefix(name, s) {
			return true
		}
	}
	return false
}

// Source is the local address from which the kernel would talk to target, or
// the zero value where there is no route. Nothing is sent.
func Source(target netip.Addr) netip.Addr {
	if !target.IsValid() {
		return netip.Addr{}
	}
	conn, err := net.Dial("udp", netip.AddrPortFrom(target, 9).String())
	if err != nil {
		return netip.Addr{}
	}
	defer conn.Close()
	local, ok := conn.LocalAddr().(*net.UDPAddr)
	if !ok {
		return netip.Addr{}
	}
	return local.AddrPort().Addr().Unmap()
}

// Local picks for this machine: see [Choose]. An invalid target means that
// nobody is known yet.
func Local(filter Filter, target netip.Addr) (Choice, error) {
	all, err := Interfaces()
	if err != nil {
		return Choice{}, err
	}
	return Choose(all, Question{Filter: filter, Target: target, Source: Source(target)})
}
