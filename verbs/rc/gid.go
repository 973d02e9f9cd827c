package rc

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/tutti-go/tutti/verbs"
)

// chooseGID returns the entry of a port's GID table to use. near are the
// networks of the address that ranks reach this one at; they may be empty.
func chooseGID(table []verbs.GIDEntry, layer verbs.LinkLayer, index *int, near []netip.Prefix) (verbs.GIDEntry, error) {
	if index != nil {
		have := []int{}
		for _, e := range table {
			if e.Index == *index {
				return e, nil
			}
			have = append(have, e.Index)
		}
		return verbs.GIDEntry{}, fmt.Errorf("there is no GID with index %d: there are %v", *index, have)
	}
	if len(table) == 0 {
		return verbs.GIDEntry{}, fmt.Errorf("the port has no GID: has its network interface an address, and is it up?")
	}
	if layer != verbs.LinkEthernet {
		return table[0], nil
	}
	return slices.MinFunc(table, func(a, b verbs.GIDEntry) int { // the first of equals
		return slices.Compare(gidRank(a, near), gidRank(b, near))
	}), nil
}

// gidRank orders GIDs of RoCE, the best first.
func gidRank(e verbs.GIDEntry, near []netip.Prefix) []int {
	address := e.GID.Addr()
	return []int{
		boolean(e.Type != verbs.GIDRoCEv2),
		boolean(address.IsLinkLocalUnicast()),
		boolean(!slices.ContainsFunc(near, func(p netip.Prefix) bool { return p.Contains(address) })),
		boolean(!address.Is4()),
	}
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}
