package main

import (
	"fmt"
	"slices"
	"strings"
)

// An Op is a collective, by the name commbench and the peer programs know.
type Op struct {
	Name string
	// Rule is what the bytes of a point count, for the report.
	Rule string
	// Rooted ops have a big buffer at the root only.
	Rooted bool
	// Parted ops are between a whole buffer and a part of it a rank.
	Parted bool
	// TwoWhole ops send and receive the whole, and have no form in place.
	TwoWhole bool
	Reduces  bool
	V        bool // a v form, measured with equal counts
}

const (
	ruleBuffer = "each rank's buffer"
	ruleWhole  = "the whole, of which each rank has a part"
	barrierOp  = "barrier"
)

// ops are all there are, in the report's order.
var ops = []Op{
	{Name: "allreduce", Rule: ruleBuffer, Reduces: true},
	{Name: "broadcast", Rule: ruleBuffer},
	{Name: "reduce", Rule: ruleBuffer, Reduces: true},
	{Name: "gather", Rule: ruleWhole, Rooted: true, Parted: true},
	{Name: "allgather", Rule: ruleWhole, Parted: true},
	{Name: "scatter", Rule: ruleWhole, Rooted: true, Parted: true},
	{Name: "reduce_scatter", Rule: ruleWhole, Parted: true, Reduces: true},
	{Name: "alltoall", Rule: ruleWhole, TwoWhole: true},
	{Name: "sendrecv", Rule: ruleBuffer, TwoWhole: true},
	{Name: barrierOp, Rule: "nothing"},
	{Name: "gatherv", Rule: ruleWhole, Rooted: true, Parted: true, V: true},
	{Name: "allgatherv", Rule: ruleWhole, Parted: true, V: true},
	{Name: "scatterv", Rule: ruleWhole, Rooted: true, Parted: true, V: true},
	{Name: "reduce_scatterv", Rule: ruleWhole, Parted: true, Reduces: true, V: true},
	{Name: "alltoallv", Rule: ruleWhole, TwoWhole: true, V: true},
}

func opNames() []string {
	var names []string
	for _, o := range ops {
		names = append(names, o.Name)
	}
	return names
}

// without are all ops but the named ones.
func without(names ...string) []string {
	return slices.DeleteFunc(opNames(), func(n string) bool { return slices.Contains(names, n) })
}

func opByName(name string) (Op, bool) {
	i := slices.IndexFunc(ops, func(o Op) bool { return o.Name == name })
	if i < 0 {
		return Op{}, false
	}
	return ops[i], true
}

// parseOps reads names with commas, "all", or nothing: all but the v forms.
func parseOps(s string) ([]Op, error) {
	var chosen []Op
	if s == "" || s == "all" {
		for _, o := range ops {
			if s == "all" || !o.V {
				chosen = append(chosen, o)
			}
		}
		return chosen, nil
	}
	for name := range strings.SplitSeq(s, ",") {
		o, ok := opByName(strings.TrimSpace(name))
		if !ok {
			return nil, fmt.Errorf("no op %q; there are all, %s", name, strings.Join(opNames(), ", "))
		}
		if !slices.Contains(chosen, o) {
			chosen = append(chosen, o)
		}
	}
	return chosen, nil
}

// inPlace says whether the op is measured in place when that is asked for.
func (o Op) inPlace(asked bool) bool { return asked && !o.TwoWhole && o.Name != barrierOp }

// buffers is the bytes of all ranks' buffers together.
func (o Op) buffers(ranks int, bytes int64, inPlace bool) int64 {
	n := int64(ranks)
	inPlace = o.inPlace(inPlace)
	switch {
	case o.Name == barrierOp:
		return 0
	case o.TwoWhole:
		return 2 * n * bytes
	case o.Parted && o.Rooted && inPlace:
		return 2 * bytes
	case o.Parted && o.Rooted:
		return 3 * bytes
	case o.Parted && inPlace:
		return n * bytes
	case o.Parted:
		return (n + 1) * bytes
	case inPlace:
		return n * bytes
	default:
		return 2 * n * bytes
	}
}
