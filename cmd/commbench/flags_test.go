package main

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-go/tutti/engine"
	"github.com/tutti-go/tutti/mem"
)

// parse runs the command line without doing anything.
func parse(t *testing.T, line string) (*options, error) {
	t.Helper()
	var got *options
	var out bytes.Buffer
	err := execute(t.Context(), strings.Fields(line), func(_ context.Context, o *options) error {
		got = o
		return nil
	}, &out, &out)
	return got, err
}

// buffers is how many each rank has.
func buffers(o *options) int {
	n := 0
	send, recv := o.room(0, o.largestLoads(2))
	for _, bytes := range []int{send, recv} {
		if bytes >= 0 {
			n++
		}
	}
	return n
}

func TestFlags(t *testing.T) {
	sizes := func(o *options) []int {
		var s []int
		for _, w := range o.tasks {
			s = append(s, w.bytes)
		}
		return s
	}
	for line, ok := range map[string]func(*options) bool{
		"": func(o *options) bool {
			return o.check && o.ranks == 0 && o.warmup == -1 && !o.inPlace && buffers(o) == 2 &&
				o.tasks[0] == work(8, mem.F32, mem.Sum) && o.largest() == 64<<20
		},
		"--op allreduce --size 1G": func(o *options) bool { return slices.Equal(sizes(o), []int{1 << 30}) },
		"-b 8 -e 32 -f 2":          func(o *options) bool { return slices.Equal(sizes(o), []int{8, 16, 32}) },
		"-b 8 -e 1G -f 1e300":      func(o *options) bool { return slices.Equal(sizes(o), []int{8}) },
		"-b 8 -e 32 -i 8":          func(o *options) bool { return slices.Equal(sizes(o), []int{8, 16, 24, 32}) },
		"-b 1G":                    func(o *options) bool { return slices.Equal(sizes(o), []int{1 << 30}) },
		"-e 4 -d f16":              func(o *options) bool { return slices.Equal(sizes(o), []int{4}) },
		"--size 8 -d float,half":   func(o *options) bool { return len(o.tasks) == 2 && o.tasks[1].dtype == mem.F16 },
		"--size 8 -d all -o all":   func(o *options) bool { return len(o.tasks) == 4*5+8*8 },
		"--size 8 -d f32 -o all":   func(o *options) bool { return len(o.tasks) == 5 },
		"-c 0":                     func(o *options) bool { return !o.check },
		"--check=false":            func(o *options) bool { return !o.check },
		"--in-place --size 8":      func(o *options) bool { return o.inPlace && buffers(o) == 1 },
		"--op barrier":             func(o *options) bool { return o.ops[0].name == "barrier" && len(o.tasks) == 1 && buffers(o) == 0 },
		"--op all --size 8": func(o *options) bool {
			return len(o.ops) == 15 && len(o.tasks) == 15 && o.ops[0].name == "allreduce" && buffers(o) == 2
		},
		"--op all -d all -o all -b 8 -e 16": func(o *options) bool { return len(o.tasks) == 2*(4*(4*5+8*8)+10*12)+1 },
		"--op all --in-place":               func(o *options) bool { return o.inPlace && buffers(o) == 2 },
		"--op reduce,gather,reduce":         func(o *options) bool { return len(o.ops) == 2 && o.ops[1].name == "gather" },
		"--op gather --size 10":             func(o *options) bool { return o.tasks[0].count(2) == 1 && o.tasks[0].count(8) == 1 },
		"--op scatter --root 2 --ranks 3":   func(o *options) bool { return o.root == 2 },
		"--op alltoallv --uneven":           func(o *options) bool { return o.uneven },
		"--op all --wire q8 --size 8":       func(o *options) bool { return o.wire == engine.WireQ8 && o.wireOf(operations[1]) == engine.WireFull },
		"--wire bf16 -o avg,sum":            func(o *options) bool { return o.wireOf(o.ops[0]) == engine.WireBF16 },
		"--fixed-order --overlap": func(o *options) bool {
			return o.fixedOrder && o.overlap && o.outOfPlace(o.ops[0]) && !o.within(o.ops[0])
		},
		"--overlap --in-place":              func(o *options) bool { return !o.outOfPlace(o.ops[0]) && o.within(o.ops[0]) },
		"--algo ring":                       func(o *options) bool { return o.algorithm() == "allreduce/ring" },
		"--op gather,gatherv --algo staged": func(o *options) bool { return o.algorithm() == "gather/staged" },
		"--op all --algo staged":            func(o *options) bool { return o.algorithm() == "staged" },
		"--op all --algo reduce/staged":     func(o *options) bool { return o.algorithm() == "reduce/staged" },
		"--memory user --threads 3":         func(o *options) bool { return o.memory == memoryUser && o.threads == 3 },
		"-n 7 -w 0 -m 3 --timeout 5s":       func(o *options) bool { return o.iters == 7 && o.warmup == 0 && o.batch == 3 },
		"roofline":                          func(o *options) bool { return o.roofline && o.tasks[0].bytes == 1<<20 },
		"roofline -b 8 -e 8 -d i8":          func(o *options) bool { return o.roofline && len(o.tasks) == 1 },
	} {
		o, err := parse(t, line)
		if err != nil || !ok(o) {
			t.Errorf("%q: %v, %+v", line, err, o)
		}
	}
}

func TestBadUsage(t *testing.T) {
	for line, says := range map[string]string{
		"--op gathered":                           "gather, allgather, scatter, reduce_scatter",
		"--op all,reduce":                         "valid are allreduce",
		"--op alltoall --in-place":                "--in-place: there is no such form of alltoall",
		"--op reduce,sendrecv,barrier --in-place": "form of sendrecv, barrier",
		"--root 1":                                "--root is for --op broadcast, reduce, gather, scatter, gatherv, scatterv",
		"--op reduce --root -1":                   "--root -1",
		"--op reduce --root 3 --ranks 3":          "--root 3: valid are 0 to 2 with 3 ranks",
		"--op alltoall --uneven":                  "--uneven is for --op gatherv",
		"--wire q4":                               "full, f16, bf16, q8",
		"--wire q8 --op reduce":                   "--wire q8 is for --op allreduce",
		"--wire q8 -d f16":                        "--dtype f32",
		"--wire q8 -o max":                        "sum or avg",
		"--vs-roofline --op all":                  "--vs-roofline is for --op allreduce",
		"--vs-roofline --overlap":                 "excludes --overlap",
		"--op broadcast --size 6":                 "multiple of 4",
		"--size 10":                               "multiple of 4",
		"-b 6 -e 60 -d f64":                       "multiple of 8",
		"-d f128":                                 "bf16",
		"-o xor":                                  "bxor",
		"-o band -d f32":                          "not defined",
		"--format xml":                            "table, json, csv",
		"--memory device":                         "alloc, user, mmap, register",
		"-c maybe":                                "1, 0",
		"--size 8 -b 8":                           "excludes",
		"--size 0":                                "--size must be at least 1",
		"-b 0":                                    "--begin must be at least 1",
		"--size=-4":                               "not a size",
		"--op barrier -d nope":                    "bf16",
		"--step 0":                                "at least 1",
		"-b 64 -e 8":                              "less than",
		"-f 1":                                    "more than 1",
		"-f NaN":                                  "more than 1",
		"--ranks 0":                               "1 to 4096",
		"--ranks -3":                              "--ranks",
		"--ranks 99999999":                        "--ranks",
		"-n 0":                                    "--iters",
		"-w -2":                                   "--warmup",
		"-m 0":                                    "--batch",
		"--timeout -1s":                           "--timeout",
		"--threads 0":                             "--threads",
		"--seed x":                                "--seed",
		"--nope":                                  "unknown flag",
		"extra":                                   "extra",
		"--op barrier --vs-roofline":              "allreduce",
		"roofline --memory user":                  "unknown flag",
		"roofline extra":                          "extra",
		"-b 1 -e 1T -i 1 -d u8":                   "10000",
		"--size 8KiBiB":                           "not a size",
		"--size 99999999999999999999999":          "too large",
	} {
		_, err := parse(t, line)
		var usage *usageError
		if !errors.As(err, &usage) || exitStatus(err) != exitUsage {
			t.Errorf("%q: %v; want a usage error", line, err)
			continue
		}
		if text := oneLine(err); !strings.Contains(text, says) || strings.Contains(text, "\n") {
			t.Errorf("%q: %q does not say %q in one line", line, text, says)
		}
	}
}

func TestHelpOpensWithExamples(t *testing.T) {
	for _, line := range []string{"--help", "-h", "roofline --help"} {
		var out bytes.Buffer
		err := execute(t.Context(), strings.Fields(line), nil, &out, &out)
		if err != nil || !strings.HasPrefix(out.String(), "Examples:\n  commbench") {
			t.Errorf("%s: %v, %.80q", line, err, out.String())
		}
	}
}

func TestMemoryIsCheckedFirst(t *testing.T) {
	o, err := parse(t, "--size 1G --ranks 4")
	if err != nil {
		t.Fatal(err)
	}
	if need := memoryNeeded(o); need < 8<<30 || need > 9<<30 {
		t.Errorf("4 ranks, 2 buffers, 1 GiB need %d", need)
	}
	has := func(n uint64) func() (uint64, error) { return func() (uint64, error) { return n, nil } }
	if err := checkMemory(o, has(16<<30)); err != nil {
		t.Error(err)
	}
	err = checkMemory(o, has(8<<30))
	var short *memoryError
	if !errors.As(err, &short) || exitStatus(err) != exitRun || !strings.Contains(err.Error(), "there is 8 GiB") {
		t.Errorf("got %v", err)
	}
	if err := checkMemory(o, func() (uint64, error) { return 0, errors.New("no idea") }); exitStatus(err) != exitRun {
		t.Errorf("got %v", err)
	}
	o.inPlace = true
	single := memoryNeeded(o)
	o.vsRoofline = true
	if both := memoryNeeded(o); both < single+4<<30 {
		t.Errorf("with the floor %d, without %d", both, single)
	}
}

func TestExitStatus(t *testing.T) {
	for want, err := range map[int]error{
		0: nil, 1: &wrongError{3}, 2: usagef("x"), 3: errors.New("x"), 130: &signalError{"interrupt", 2}, 143: &signalError{"terminated", 15},
	} {
		if got := exitStatus(err); got != want {
			t.Errorf("%v: %d, want %d", err, got, want)
		}
		if err != nil && exitStatus(errors.Join(errors.New("a"), err)) != want {
			t.Errorf("%v, joined: not %d", err, want)
		}
	}
}
