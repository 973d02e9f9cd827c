package hostnet

import (
	"fmt"
	"slices"
	"strings"
)

// Variable names the interfaces that may be used, in NCCL's syntax:
//
//	eth,ib     those whose name begins with eth or ib
//	=eth0,ib1  exactly these
//	^docker,br all but those whose name begins with docker or br
//	^=eth3     all but exactly this one
//
// The marks stand before the whole list. The order of the list says nothing;
// of several that match, the rule of [Choose] takes the best.
const Variable = "TUTTI_SOCKET_IFNAME"

// Filter says which interfaces may be used. The zero value allows all.
type Filter struct {
	names   []string
	exclude bool
	exact   bool
}

// FilterError says that a list of interfaces cannot be read.
type FilterError struct{ Value, Reason string }

func (e *FilterError) Error() string {
	return fmt.Sprintf("%s is %q: %s; want a list such as \"eth,ib\", \"=eth0\" or \"^docker\"", Variable, e.Value, e.Reason)
}

// longestName is far above what any system allows a name of an interface.
const longestName = 64

// ParseFilter reads the syntax of [Variable]. Empty allows all.
func ParseFilter(s string) (Filter, error) {
	var f Filter
	rest := s
	rest, f.exclude = strings.CutPrefix(rest, "^")
	rest, f.exact = strings.CutPrefix(rest, "=")
	for name := range strings.SplitSeq(rest, ",") {
		name = strings.TrimSpace(name)
		switch {
		case name == "":
			continue
		case len(name) > longestName:
			return Filter{}, &FilterError{s, "a name is too long"}
		case strings.ContainsAny(name, "^= \t\n/\x00"):
			return Filter{}, &FilterError{s, fmt.Sprintf("%q is not the name of an interface", name)}
		}
		f.names = append(f.names, name)
	}
	if len(f.names) == 0 && rest != s {
		return Filter{}, &FilterError{s, "it names no interface"}
	}
	return f, nil
}

// Set reports whether the filter names anything.
func (f Filter) Set() bool { return len(f.names) > 0 }

// Includes reports whether the filter names interfaces to use, rather than
// some to leave out. What is named is used even where the rule would not.
func (f Filter) Includes() bool { return f.Set() && !f.exclude }

// Allows reports whether an interface of that name may be used.
func (f Filter) Allows(name string) bool {
	if !f.Set() {
		return true
	}
	hit := slices.ContainsFunc(f.names, func(s string) bool {
		return name == s || !f.exact && strings.HasPrefix(name, s)
	})
	return hit != f.exclude
}

func (f Filter) String() string {
	s := strings.Join(f.names, ",")
	if f.exact {
		s = "=" + s
	}
	if f.exclude {
		s = "^" + s
	}
	return s
}
