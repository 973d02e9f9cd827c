package bootstrap

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/tutti-go/tutti/internal/hostnet"
)

// TestWhereRankZeroListens: on the addresses of its host that its machine has,
// whatever the names say.
func TestWhereRankZeroListens(t *testing.T) {
	machine := machine{
		nets: []hostnet.Interface{
			{Name: "lo", Up: true, Loopback: true, Addrs: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8"), netip.MustParsePrefix("::1/128")}},
			{Name: "eth0", Up: true, Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.5/24"), netip.MustParsePrefix("fd00::5/64")}},
			{Name: "eth1", Up: true, Addrs: []netip.Prefix{netip.MustParsePrefix("192.168.0.5/24")}},
		},
		lookup: func(host string) (found []netip.Addr) {
			for _, s := range strings.Fields(map[string]string{
				"localhost": "127.0.0.1 ::1", "me": "10.0.0.5", "me-all": "10.0.0.5 fd00::5 192.168.0.5", "me-debian": "127.0.1.1",
				"me-and-others": "10.0.0.9 10.0.0.5", "mapped": "::ffff:10.0.0.5", "other": "10.0.0.9",
			}[host]) {
				found = append(found, netip.MustParseAddr(s))
			}
			return found
		},
	}
	for _, tt := range []struct {
		host, filter string
		open         bool
		want         string
		err          error
	}{
		{"127.0.0.1", "", false, "127.0.0.1", nil},
		{"10.0.0.5", "", true, "10.0.0.5", nil},
		{"10.0.0.9", "", true, "10.0.0.9", nil}, // what the system says when it is listened on
		{"localhost", "", false, "127.0.0.1 ::1", nil},
		{"localhost", "", true, "127.0.0.1 ::1", nil},
		{"me", "", true, "10.0.0.5", nil},
		{"mapped", "", true, "10.0.0.5", nil},
		{"me-all", "", true, "10.0.0.5 192.168.0.5 fd00::5", nil},
		{"me-all", "eth1", true, "192.168.0.5", nil},
		{"me-and-others", "", true, "10.0.0.5", nil},
		{"me-debian", "", false, "127.0.1.1", nil},
		{"me-debian", "", true, "10.0.0.5 127.0.1.1", nil},
		{"me-debian", "^eth0", true, "192.168.0.5 127.0.1.1", nil},
		{"unknown", "", true, "10.0.0.5", nil},
		{"unknown", "eth1", true, "192.168.0.5", nil},
		{"other", "", true, "", ErrAddress},
	} {
		o := Options{AllowOpen: tt.open, Interface: tt.filter, machine: machine}
		got, err := o.rootAddresses(t.Context(), target{host: tt.host, port: "5"})
		if said := strings.Trim(fmt.Sprint(got), "[]"); !errors.Is(err, tt.err) || said != tt.want {
			t.Errorf("%+v: %s, %v", tt, said, err)
		}
	}
	for _, o := range []Options{
		{Root: "10.0.0.5:5"}, {Root: "me:5"}, {Root: "unknown:5"}, {Root: "127.0.0.1:5", Listen: ":5"}, {Root: "127.0.0.1:5", Listen: "10.0.0.5:5"},
	} {
		o.machine, o.Size = machine, 2
		var open *OpenError
		if _, err := Join(t.Context(), o); !errors.As(err, &open) || !strings.Contains(err.Error(), EnvSecret) || !strings.Contains(err.Error(), EnvOpen) {
			t.Errorf("%s, %s: %v", o.Root, o.Listen, err)
		}
	}
}
