package hostnet

import (
	"fmt"
	"net/netip"
	"strings"
)

// Interface is what Choose needs to know of a network interface.
type Interface struct {
	Name     string
	Up       bool
	Loopback bool
	// Virtual: it connects what is inside this machine, such as a bridge for
	// containers, and leads nowhere else.
	Virtual bool
	// Addrs are its addresses with the subnets that are on its link.
	Addrs []netip.Prefix
}

// Choice is an interface and the address on it to listen on and to tell. An
// IPv6 address that is local to the link has the interface as zone, which
// means something on this machine only.
type Choice struct {
	Name string
	Addr netip.Addr
}

// NoInterfaceError says that no interface can be used.
type NoInterfaceError struct {
	Filter Filter
	Family string   // "IPv4" or "IPv6" where only that would do, else empty
	Seen   []string // the interfaces that there are
}

func (e *NoInterfaceError) Error() string {
	s := "no network interface that is up has an address"
	if e.Family != "" {
		s += " of " + e.Family
	}
	if e.Filter.Set() {
		s += fmt.Sprintf(" and is allowed by %s=%s", Variable, e.Filter)
	}
	return fmt.Sprintf("%s; there are: %s", s, strings.Join(e.Seen, ", "))
}

// Question is what Choose is asked.
type Question struct {
	Filter Filter
	// Target is who will be talked to first, the rendezvous. The zero value:
	// nobody is known yet.
	Target netip.Addr
	// Source is the local address from which the kernel talks to Target; see
	// Source.
	Source netip.Addr
}

// Choose picks an interface and an address by rule:
//
//  1. Only interfaces that are up, have an address of Target's family and are
//     allowed by the filter.
//  2. If the filter names none to use and Target is loopback: loopback.
//  3. The interface that has Source, the one that routes to Target, unless it
//     is virtual or Source is local to the link while a better one is up and
//     Target is elsewhere.
//  4. Else the best: not virtual, an address that is not local to its link,
//     IPv4, first in the list. Loopback comes last.
func Choose(all []Interface, q Question) (Choice, error) {
	q.Target, q.Source = q.Target.Unmap(), q.Source.Unmap()
	loopback := q.Target.IsLoopback() && !q.Filter.Includes()
	var best, routed *candidate
	for i := range all {
		in := &all[i]
		if !in.Up || loopback && !in.Loopback || !loopback && !q.Filter.Allows(in.Name) {
			continue
		}
		for _, prefix := range in.Addrs {
			addr := prefix.Addr().Unmap()
			if !usable(addr, q.Target) {
				continue
			}
			c := &candidate{in: in, addr: addr}
			if addr.Is6() && addr.IsLinkLocalUnicast() {
				c.addr = addr.WithZone(in.Name)
			}
			c.onLink = q.Target.IsValid() && prefix.Contains(q.Target.WithZone(""))
			if addr == q.Source.WithZone("") && (q.Source.Zone() == "" || q.Source.Zone() == in.Name) {
				routed = c
			}
			if best == nil || c.demerits() < best.demerits() {
				best = c
			}
		}
	}
	if routed != nil && (routed.onLink || routed.demerits()/rung <= best.demerits()/rung) {
		best = routed
	}
	if best == nil {
		err := &NoInterfaceError{Filter: q.Filter}
		if q.Target.IsValid() {
			err.Family = map[bool]string{true: "IPv4", false: "IPv6"}[q.Target.Is4()]
		}
		for _, in := range all {
			err.Seen = append(err.Seen, in.Name)
		}
		return Choice{}, err
	}
	return Choice{Name: best.in.Name, Addr: best.addr}, nil
}

func usable(addr, target netip.Addr) bool {
	return addr.IsValid() && !addr.IsMulticast() && !addr.IsUnspecified() &&
		(!target.IsValid() || addr.Is4() == target.Is4())
}

type candidate struct {
	in     *Interface
	addr   netip.Addr
	onLink bool // the target is in its subnet
}

// rung parts what makes an interface worse from what is a mere preference.
const rung = 2

// demerits orders candidates; fewer are better, and equal ones stay in order.
func (c *candidate) demerits() int {
	d := 0
	if !c.addr.Is4() {
		d++
	}
	if c.addr.IsLinkLocalUnicast() {
		d += rung
	}
	if c.in.Virtual {
		d += 2 * rung
	}
	if c.in.Loopback {
		d += 4 * rung
	}
	return d
}
