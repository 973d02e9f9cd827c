package bootstrap

import (
	"fmt"
	"strconv"
	"strings"
)

// maxHosts and longestHost bound what a list of hosts may say.
const (
	maxHosts    = 1 << 16
	longestHost = 255
)

// expandHosts reads a list of hosts as Slurm writes it: names with commas
// between, and in a name lists of numbers and ranges in brackets, each of
// which stands for all of its numbers with as many digits as are written.
//
//	n[01-03,7],m5     n01 n02 n03 n7 m5
//	r[1-2]n[0-1]      r1n0 r1n1 r2n0 r2n1
func expandHosts(s string) ([]string, error) {
	var hosts []string
	for len(s) > 0 {
		end, err := endOfName(s)
		if err != nil {
			return nil, err
		}
		names, err := expandName(s[:end], maxHosts-len(hosts))
		if err != nil {
			return nil, err
		}
		hosts = append(hosts, names...)
		if s = s[end:]; s == "," {
			return nil, fmt.Errorf("a comma at the end")
		}
		s = strings.TrimPrefix(s, ",")
	}
	if len(hosts) == 0 {
		return nil, fmt.Errorf("no host")
	}
	return hosts, nil
}

// endOfName is where the first name of a list ends.
func endOfName(s string) (int, error) {
	open := false
	for i := range len(s) {
		switch c := s[i]; {
		case c == '[' && !open:
			open = true
		case c == ']' && open:
			open = false
		case c == '[' || c == ']':
			return 0, fmt.Errorf("a %q where none can be", c)
		case c == ',' && !open:
			return i, nil
		}
	}
	if open {
		return 0, fmt.Errorf("a [ without ]")
	}
	return len(s), nil
}

// expandName expands the first brackets of a name, and so on. There are limit
// names at most.
func expandName(s string, limit int) ([]string, error) {
	before, rest, ok := strings.Cut(s, "[")
	if len(s) == 0 || len(before) > longestHost || strings.ContainsAny(before, " \t\n/\x00") {
		return nil, fmt.Errorf("%.40q is not the name of a host", s)
	}
	if limit <= 0 {
		return nil, fmt.Errorf("more than %d hosts", maxHosts)
	}
	if !ok {
		return []string{s}, nil
	}
	inner, after, _ := strings.Cut(rest, "]")
	tails := []string{""}
	if after != "" {
		var err error
		if tails, err = expandName(after, limit); err != nil {
			return nil, err
		}
	}
	var names []string
	for part := range strings.SplitSeq(inner, ",") {
		low, high, width, err := parseRange(part)
		if err != nil {
			return nil, err
		}
		if uint64(high-low)+1 > uint64(limit-len(names))/uint64(len(tails)) {
			return nil, fmt.Errorf("more than %d hosts", maxHosts)
		}
		for x := low; x <= high; x++ {
			for _, tail := range tails {
				name := fmt.Sprintf("%s%0*d%s", before, width, x, tail)
				if len(name) > longestHost {
					return nil, fmt.Errorf("a name of %d bytes", len(name))
				}
				names = append(names, name)
			}
		}
	}
	return names, nil
}

// parseRange reads a number or two with a dash between, and how many digits
// the first has.
func parseRange(s string) (low, high, width int, err error) {
	from, to, ok := strings.Cut(s, "-")
	if !ok {
		to = from
	}
	a, err1 := parseDigits(from)
	b, err2 := parseDigits(to)
	if err1 != nil || err2 != nil || a > b {
		return 0, 0, 0, fmt.Errorf("%.40q is not a range of numbers", s)
	}
	return a, b, len(from), nil
}

func parseDigits(s string) (int, error) {
	if len(s) == 0 || len(s) > 9 || strings.Trim(s, "0123456789") != "" {
		return 0, strconv.ErrSyntax
	}
	return strconv.Atoi(s)
}
