package bootstrap

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/tutti-go/tutti/internal/hostnet"
)

// listen opens what rank 0 serves on.
func (o *Options) listen(ctx context.Context, at target) ([]net.Listener, error) {
	if at.socket != "" {
		l, err := net.Listen("unix", "@"+at.socket)
		if err != nil {
			return nil, o.busy(at.String(), err)
		}
		return []net.Listener{l}, nil
	}
	var where []string
	if o.Listen != "" {
		host, port, err := net.SplitHostPort(o.Listen)
		if addr, bad := netip.ParseAddr(host); host != "" && bad != nil || err != nil {
			return nil, &OptionError{"Listen", o.Listen, "address:port or :port"}
		} else if !o.mayServe(addr) {
			return nil, &OpenError{o.Listen}
		}
		where = []string{net.JoinHostPort(host, port)}
	} else {
		addrs, err := o.rootAddresses(ctx, at)
		if err != nil {
			return nil, err
		}
		for _, a := range addrs {
			if !o.mayServe(a) {
				return nil, &OpenError{at.String()}
			}
			where = append(where, net.JoinHostPort(a.String(), at.port))
		}
	}
	var all []net.Listener
	for _, w := range where {
		l, err := net.Listen("tcp", w)
		if err != nil {
			for _, l := range all {
				l.Close()
			}
			return nil, o.busy(w, err)
		}
		all = append(all, l)
	}
	return all, nil
}

// mayServe is whether rank 0, or a rank with children, may listen there.
func (o *Options) mayServe(a netip.Addr) bool {
	return len(o.Secret) > 0 || o.AllowOpen || a.IsLoopback()
}

// busy makes sense of an address that cannot be listened on.
func (o *Options) busy(where string, err error) error {
	e := &JoinError{Cause: ErrAddress, Rank: o.Rank, Address: where, Detail: err.Error()}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		e.Detail = "in use by another process: two processes are rank 0, or set " + EnvPort + " to another port for all ranks"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		e.Detail = "this machine does not have that address: rank 0 must run where the rendezvous is, or set " + EnvListen
	}
	return e
}

// rootAddresses are the addresses of rank 0's host that this machine has.
func (o *Options) rootAddresses(ctx context.Context, at target) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(at.host); err == nil {
		return []netip.Addr{a}, nil
	}
	filter, all, err := o.interfaces()
	if err != nil {
		return nil, err
	}
	var local []netip.Addr
	// The name of a machine that has just come up may be unknown yet, also to
	// itself.
	found, _ := o.machine.addressesOf(ctx, at.host)
	for _, a := range found {
		if a = a.Unmap(); a.IsLoopback() || has(all, filter, a) {
			local = append(local, a)
		}
	}
	if isLocalhost(at.host) {
		local = slices.DeleteFunc(local, func(a netip.Addr) bool { return !a.IsLoopback() })
		return slices.Compact(local), nil
	}
	if len(found) > 0 && len(local) == 0 {
		return nil, &JoinError{ErrAddress, o.Rank, at.String(), fmt.Sprintf(
			"this machine has none of the addresses of that host, %v: rank 0 must run there, or set %s or %s", found, EnvBootstrap, EnvListen)}
	}
	beyond := slices.ContainsFunc(local, func(a netip.Addr) bool { return !a.IsLoopback() })
	if !beyond && (len(local) == 0 || o.mayServe(netip.IPv4Unspecified())) {
		// Many a machine knows its own name as a loopback address, and others
		// know it as another.
		c, err := hostnet.Choose(all, hostnet.Question{Filter: filter})
		if err != nil {
			return nil, err
		}
		local = append(local, c.Addr)
	}
	slices.SortFunc(local, func(a, b netip.Addr) int {
		return cmp.Or(cmp.Compare(b2i(a.IsLoopback()), b2i(b.IsLoopback())), a.Compare(b))
	})
	return slices.Compact(local), nil
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func isLocalhost(host string) bool {
	host = strings.TrimSuffix(host, ".")
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || host == "ip6-localhost"
}

func has(all []hostnet.Interface, filter hostnet.Filter, a netip.Addr) bool {
	return slices.ContainsFunc(all, func(in hostnet.Interface) bool {
		return filter.Allows(in.Name) && slices.ContainsFunc(in.Addrs, func(p netip.Prefix) bool { return p.Addr() == a })
	})
}

func (o *Options) interfaces() (hostnet.Filter, []hostnet.Interface, error) {
	filter, err := hostnet.ParseFilter(o.Interface)
	if err != nil {
		return filter, nil, err
	}
	all, err := o.machine.interfaces()
	return filter, all, err
}

// machine is what a machine knows of itself and of others; the zero value is
// this one.
type machine struct {
	lookup func(host string) []netip.Addr
	nets   []hostnet.Interface
}

func (m *machine) addressesOf(ctx context.Context, host string) ([]netip.Addr, error) {
	if m.lookup != nil {
		return m.lookup(host), nil
	}
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

func (m *machine) interfaces() ([]hostnet.Interface, error) {
	if m.nets != nil {
		return m.nets, nil
	}
	return hostnet.Interfaces()
}

// rootAddress is the address that rank 0 tells others for what is not the
// rendezvous.
func (o *Options) rootAddress(listeners []net.Listener) (netip.Addr, error) {
	tcp, ok := listeners[0].Addr().(*net.TCPAddr)
	if !ok {
		return loopback, nil
	}
	base := tcp.AddrPort().Addr().Unmap()
	filter, all, err := o.interfaces()
	if err != nil {
		return netip.Addr{}, err
	}
	q := hostnet.Question{Filter: filter}
	if !base.IsUnspecified() {
		q.Target, q.Source = base, base
	}
	return o.chosen(all, q)
}

// chosen asks for an address, and holds it to the rule of what may be served.
func (o *Options) chosen(all []hostnet.Interface, q hostnet.Question) (netip.Addr, error) {
	c, err := hostnet.Choose(all, q)
	if err != nil {
		return netip.Addr{}, err
	}
	if !o.mayServe(c.Addr) {
		return netip.Addr{}, &OpenError{fmt.Sprintf("%s, interface %s", c.Addr, c.Name)}
	}
	return c.Addr, nil
}

// ear is where a rank listens for its children in the tree.
type ear struct {
	o        *Options
	root     target
	inner    bool // it has children
	listener net.Listener
	address  netip.Addr
	name     string // that is told
}

// advertise opens it, given a connection to rank 0, and says where it is.
func (e *ear) advertise(conn net.Conn) (string, error) {
	if _, ok := conn.(*net.UnixConn); ok {
		return e.socket()
	}
	address, err := e.choose(conn)
	if err != nil || address == e.address {
		return e.name, err
	}
	e.close()
	port := uint16(0)
	if e.inner {
		l, err := net.Listen("tcp", netip.AddrPortFrom(address, 0).String())
		if err != nil {
			return "", &JoinError{ErrAddress, e.o.Rank, address.String(), err.Error()}
		}
		e.listener = l
		port = l.Addr().(*net.TCPAddr).AddrPort().Port()
	}
	e.address = address
	e.name = netip.AddrPortFrom(address.WithZone(""), port).String()
	return e.name, nil
}

// choose is the interface that leads to rank 0, or the one that was asked for.
func (e *ear) choose(conn net.Conn) (netip.Addr, error) {
	filter, all, err := e.o.interfaces()
	if err != nil {
		return netip.Addr{}, err
	}
	q := hostnet.Question{Filter: filter}
	remote, ok1 := conn.RemoteAddr().(*net.TCPAddr)
	local, ok2 := conn.LocalAddr().(*net.TCPAddr)
	if ok1 && ok2 {
		q.Target, q.Source = remote.AddrPort().Addr().Unmap(), local.AddrPort().Addr().Unmap()
	}
	if q.Target.IsLoopback() && !isLocalhost(e.root.host) && net.ParseIP(e.root.host) == nil && e.o.mayServe(netip.IPv4Unspecified()) {
		q.Target, q.Source = netip.Addr{}, netip.Addr{} // as rank 0, which is on this machine
	}
	return e.o.chosen(all, q)
}

// socket is the ear of a rank that came over an abstract socket.
func (e *ear) socket() (string, error) {
	if e.name != "" {
		return e.name, nil
	}
	var random [12]byte
	_, _ = rand.Read(random[:]) // never fails
	name := "tutti-" + strconv.Itoa(e.o.Rank) + "-" + hex.EncodeToString(random[:])
	if e.inner {
		l, err := net.Listen("unix", "@"+name)
		if err != nil {
			return "", &JoinError{ErrAddress, e.o.Rank, "unix:@" + name, err.Error()}
		}
		e.listener = l
	}
	e.address, e.name = loopback, "unix:@"+name
	return e.name, nil
}

// zoned is the address of a parent as this machine must write it: one that is
// local to the link is reached through the interface that this rank listens on.
func (e *ear) zoned(address string) string {
	a, err := netip.ParseAddrPort(address)
	if err != nil || !a.Addr().Is6() || !a.Addr().IsLinkLocalUnicast() {
		return address
	}
	return netip.AddrPortFrom(a.Addr().WithZone(e.address.Zone()), a.Port()).String()
}

func (e *ear) close() {
	if e.listener != nil {
		e.listener.Close()
		e.listener = nil
	}
}
