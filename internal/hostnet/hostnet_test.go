package hostnet

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func in(name string, flags string, addrs ...string) Interface {
	i := Interface{Name: name, Up: !strings.Contains(flags, "down"),
		Loopback: strings.Contains(flags, "loopback"), Virtual: strings.Contains(flags, "virtual")}
	for _, a := range addrs {
		i.Addrs = append(i.Addrs, netip.MustParsePrefix(a))
	}
	return i
}

var (
	lo     = in("lo", "loopback", "127.0.0.1/8", "::1/128")
	eth0   = in("eth0", "", "fe80::1/64", "10.0.0.5/24", "fd00::5/64")
	eth1   = in("eth1", "", "192.168.7.5/16")
	dead   = in("eth2", "down", "10.9.9.9/24")
	docker = in("docker0", "virtual", "172.17.0.1/16")
	bare   = in("ib0", "")
	local6 = in("ib1", "", "fe80::7/64")
	apipa  = in("usb0", "", "169.254.3.4/16")
	bridge = in("br0", "", "10.1.0.5/24")
)

func TestChoose(t *testing.T) {
	for _, tt := range []struct {
		name           string
		all            []Interface
		filter         string
		target, source string
		want           string // interface and address, or "" for none
	}{
		{"a loopback rendezvous", []Interface{eth0, lo}, "", "127.0.0.1", "127.0.0.1", "lo 127.0.0.1"},
		{"another of its addresses", []Interface{eth0, lo}, "", "127.0.1.1", "127.0.0.1", "lo 127.0.0.1"},
		{"IPv6 loopback", []Interface{eth0, lo}, "", "::1", "::1", "lo ::1"},
		{"loopback with one excluded", []Interface{eth0, lo}, "^eth", "127.0.0.1", "127.0.0.1", "lo 127.0.0.1"},
		{"loopback with one named", []Interface{lo, eth0}, "eth0", "127.0.0.1", "127.0.0.1", "eth0 10.0.0.5"},
		{"the one that routes", []Interface{lo, eth0, eth1}, "", "192.168.9.1", "192.168.7.5", "eth1 192.168.7.5"},
		{"through a gateway", []Interface{lo, eth0, eth1}, "", "8.8.8.8", "192.168.7.5", "eth1 192.168.7.5"},
		{"an IPv4 address in IPv6 clothes", []Interface{lo, eth0, eth1}, "", "::ffff:192.168.9.1", "::ffff:192.168.7.5", "eth1 192.168.7.5"},
		{"routes, but excluded", []Interface{lo, eth0, eth1}, "^eth1", "192.168.9.1", "192.168.7.5", "eth0 10.0.0.5"},
		{"routes, but another is named", []Interface{lo, eth0, eth1}, "=eth0", "192.168.9.1", "192.168.7.5", "eth0 10.0.0.5"},
		{"IPv6 routed", []Interface{lo, eth0}, "", "fd00::9", "fd00::5", "eth0 fd00::5"},
		{"IPv6 without the routed", []Interface{lo, eth0}, "", "fd00::9", "", "eth0 fd00::5"},
		{"link-local target", []Interface{lo, eth0, local6}, "", "fe80::99%ib1", "fe80::7%ib1", "ib1 fe80::7%ib1"},
		{"no target", []Interface{lo, docker, eth0, eth1}, "", "", "", "eth0 10.0.0.5"},
		{"down is not used", []Interface{dead, lo, eth1}, "", "", "", "eth1 192.168.7.5"},
		{"without address is not used", []Interface{bare, lo, eth1}, "", "", "", "eth1 192.168.7.5"},
		{"a bridge that leads somewhere", []Interface{lo, docker, bridge}, "", "", "", "br0 10.1.0.5"},
		{"virtual before loopback", []Interface{lo, docker}, "", "", "", "docker0 172.17.0.1"},
		{"link-local before virtual", []Interface{docker, apipa}, "", "", "", "usb0 169.254.3.4"},
		{"global before link-local", []Interface{apipa, eth1}, "", "", "", "eth1 192.168.7.5"},
		{"a virtual one routes elsewhere", []Interface{lo, docker, eth0}, "", "8.8.8.8", "172.17.0.1", "eth0 10.0.0.5"},
		{"a virtual one has the target on its link", []Interface{lo, docker, eth0}, "", "172.17.0.9", "172.17.0.1", "docker0 172.17.0.1"},
		{"a virtual one, named", []Interface{lo, docker, eth0}, "docker", "10.0.0.9", "10.0.0.5", "docker0 172.17.0.1"},
		{"only a virtual one routes", []Interface{lo, docker}, "", "8.8.8.8", "172.17.0.1", "docker0 172.17.0.1"},
		{"the rendezvous is here", []Interface{lo, eth0, eth1}, "", "192.168.7.5", "192.168.7.5", "eth1 192.168.7.5"},
		{"only loopback", []Interface{lo}, "", "", "", "lo 127.0.0.1"},
		{"IPv4 before IPv6 within one", []Interface{in("eth0", "", "fd00::5/64", "10.0.0.5/24")}, "", "", "", "eth0 10.0.0.5"},
		{"none of the family", []Interface{eth1}, "", "fd00::9", "", ""},
		{"named, but missing", []Interface{lo, eth0}, "ib", "10.0.0.9", "10.0.0.5", ""},
		{"named, but down", []Interface{lo, eth0, dead}, "=eth2", "10.0.0.9", "10.0.0.5", ""},
		{"all excluded", []Interface{lo, eth0}, "^lo,eth", "10.0.0.9", "10.0.0.5", ""},
		{"none at all", nil, "", "", "", ""},
	} {
		filter, err := ParseFilter(tt.filter)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		q := Question{Filter: filter}
		if tt.target != "" {
			q.Target = netip.MustParseAddr(tt.target)
		}
		if tt.source != "" {
			q.Source = netip.MustParseAddr(tt.source)
		}
		got, err := Choose(tt.all, q)
		if tt.want == "" {
			var none *NoInterfaceError
			if !errors.As(err, &none) || len(none.Seen) != len(tt.all) || tt.filter != "" && !strings.Contains(err.Error(), Variable+"="+tt.filter) {
				t.Errorf("%s: %+v, %v", tt.name, got, err)
			}
			continue
		}
		if err != nil || got.Name+" "+got.Addr.String() != tt.want {
			t.Errorf("%s: got %s %s, %v; want %s", tt.name, got.Name, got.Addr, err, tt.want)
		}
	}
}

func TestFilter(t *testing.T) {
	for _, tt := range []struct{ filter, allowed, refused string }{
		{"", "eth0 lo docker0", ""},
		{"eth", "eth0 eth1.3 eth", "lo docker0 xeth"},
		{"eth,ib", "eth0 ib1", "lo"},
		{" eth , ib,", "eth0 ib1", "lo"},
		{"=eth0", "eth0", "eth01 eth eth0.3"},
		{"=eth0,ib1", "eth0 ib1", "ib10"},
		{"^docker", "eth0 lo", "docker0 docker"},
		{"^docker,br", "eth0", "docker0 br0 br-1"},
		{"^=eth3", "eth30 eth0", "eth3"},
	} {
		f, err := ParseFilter(tt.filter)
		if err != nil {
			t.Errorf("%q: %v", tt.filter, err)
			continue
		}
		for _, name := range strings.Fields(tt.allowed) {
			if !f.Allows(name) {
				t.Errorf("%q refuses %s", tt.filter, name)
			}
		}
		for _, name := range strings.Fields(tt.refused) {
			if f.Allows(name) {
				t.Errorf("%q allows %s", tt.filter, name)
			}
		}
	}
	for _, bad := range []string{"^", "=", "^=", "=^eth", "eth,^docker", "eth,=ib0", "a/b", "a b", "=,", strings.Repeat("x", 65)} {
		var e *FilterError
		if _, err := ParseFilter(bad); !errors.As(err, &e) || e.Value != bad {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func FuzzFilter(f *testing.F) {
	f.Add("^=eth0,ib1", "eth0")
	f.Fuzz(func(t *testing.T, s, name string) {
		a, err := ParseFilter(s)
		if err != nil {
			return
		}
		b, err := ParseFilter(a.String())
		if err != nil || b.String() != a.String() || a.Allows(name) != b.Allows(name) {
			t.Errorf("%q reads as %q, which reads as %q, %v", s, a, b, err)
		}
	})
}

// TestThisMachine: what the system lists can be chosen from, and the kernel
// talks to loopback from loopback.
func TestThisMachine(t *testing.T) {
	all, err := Interfaces()
	if err != nil || len(all) == 0 {
		t.Fatalf("%d interfaces, %v", len(all), err)
	}
	c, err := Local(Filter{}, netip.MustParseAddr("127.0.0.1"))
	if err != nil || !c.Addr.IsLoopback() {
		t.Errorf("for loopback: %+v, %v", c, err)
	}
	if c, err := Local(Filter{}, netip.Addr{}); err != nil || !c.Addr.IsValid() {
		t.Errorf("for nobody: %+v, %v", c, err)
	}
	if s := Source(netip.MustParseAddr("127.0.0.1")); !s.IsLoopback() {
		t.Errorf("source of loopback: %v", s)
	}
}
