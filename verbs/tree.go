package verbs

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

type kind int

const (
	kindDevice kind = iota
	kindPD
	kindMR
	kindChannel
	kindCQ
	kindQP
	kindSRQ
	kindAH
	kindBatch
	kinds
)

// Census counts the objects that are open in this process.
type Census struct {
	Devices, PDs, MRs, Channels, CompletionQueues, QueuePairs, SRQs, AddressHandles, Batches int
}

// Live counts the objects that are open in this process. After all is closed
// it is the zero Census.
func Live() Census {
	tree.Lock()
	defer tree.Unlock()
	l := &tree.live
	return Census{l[kindDevice], l[kindPD], l[kindMR], l[kindChannel], l[kindCQ], l[kindQP], l[kindSRQ], l[kindAH], l[kindBatch]}
}

func (c Census) String() string {
	var s []string
	for _, k := range []struct {
		n    int
		what string
	}{
		{c.Devices, "devices"}, {c.PDs, "protection domains"}, {c.MRs, "memory regions"}, {c.Channels, "completion channels"},
		{c.CompletionQueues, "completion queues"}, {c.QueuePairs, "queue pairs"}, {c.SRQs, "shared receive queues"},
		{c.AddressHandles, "address handles"}, {c.Batches, "batches"},
	} {
		if k.n != 0 {
			s = append(s, fmt.Sprintf("%d %s", k.n, k.what))
		}
	}
	if s == nil {
		return "nothing"
	}
	return strings.Join(s, ", ")
}

// tree guards all nodes. It is taken when objects come and go, never between.
var tree struct {
	sync.Mutex
	live [kinds]int
}

// node is an object's place among those it stands on and those that stand on
// it.
type node struct {
	kind     kind
	label    string
	parents  []*node
	children map[*node]struct{}
	open     bool
}

// begin takes the place of an object that is about to be made, so that what it
// stands on cannot be closed meanwhile.
func (n *node) begin(k kind, label string, parents ...*node) error {
	tree.Lock()
	defer tree.Unlock()
	for _, p := range parents {
		if !p.open {
			return fmt.Errorf("%w: %s", ErrClosed, p.label)
		}
	}
	n.kind, n.label, n.parents, n.open = k, label, parents, true
	for _, p := range parents {
		if p.children == nil {
			p.children = make(map[*node]struct{})
		}
		p.children[n] = struct{}{}
	}
	tree.live[k]++
	return nil
}

// named sets the label once it is known.
func (n *node) named(format string, args ...any) {
	tree.Lock()
	defer tree.Unlock()
	n.label = fmt.Sprintf(format, args...)
}

// end closes the object with destroy, unless others stand on it. It stays open
// if destroy fails.
func (n *node) end(destroy func() error) error {
	tree.Lock()
	if !n.open {
		tree.Unlock()
		return nil
	}
	if len(n.children) > 0 {
		defer tree.Unlock()
		e := &BusyError{Object: n.label}
		for c := range n.children {
			e.Children = append(e.Children, c.label)
		}
		slices.Sort(e.Children)
		return e
	}
	n.open = false
	tree.Unlock()
	if err := destroy(); err != nil {
		tree.Lock()
		n.open = true
		tree.Unlock()
		return err
	}
	n.leave()
	return nil
}

// abandon gives back the place of an object that could not be made.
func (n *node) abandon() {
	tree.Lock()
	n.open = false
	tree.Unlock()
	n.leave()
}

func (n *node) leave() {
	tree.Lock()
	defer tree.Unlock()
	for _, p := range n.parents {
		delete(p.children, n)
	}
	tree.live[n.kind]--
}
