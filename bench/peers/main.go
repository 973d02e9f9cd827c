// Peers measures Tutti against the libraries that do the same work: Open MPI,
// MPICH, Intel MPI, Gloo and oneCCL. It installs and builds them, runs them and
// commbench in turn, and prints one table with ratios.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const usage = `Examples:
  go run ./bench/peers                            # all there is: install, build, measure, print
  go run ./bench/peers --quick                    # two ranks, four sizes, one round
  go run ./bench/peers --ops broadcast,gather     # two collectives; all: the v forms too
  go run ./bench/peers --ranks 2 --sizes 8,1M     # two points of each collective
  go run ./bench/peers --peers openmpi5,impi      # against two peers
  go run ./bench/peers --no-tutti --rounds 1      # the peers alone
  go run ./bench/peers --across 2 --ops allreduce # sockets: each rank a node of its own (root)
  go run ./bench/peers install                    # bring the peers in, measure nothing
  go run ./bench/peers list                       # the peers, their variants and settings

Usage: go run ./bench/peers [install | list] [flags]

Peers are installed with apt-get (as root, or with sudo) and into virtual
environments under the cache folder; one that cannot be had is named in the
report with the reason. The report goes to standard output and, as report.md
and report.json (across.md and across.json with --across), to the cache folder;
progress goes to standard error.

Flags:
`

type options struct {
	ranks, sizes, peers       string
	ops, memory               string
	dtype, dir, tutti, more   string
	rounds, contenders        int
	across                    int
	cap, limit                time.Duration
	quick, noTutti, noInstall bool
	outOfPlace, noVariants    bool
	set                       map[string]bool
}

func parseOptions(args []string, w io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("peers", flag.ContinueOnError)
	fs.SetOutput(w)
	fs.Usage = func() {
		fmt.Fprint(w, usage)
		fs.PrintDefaults()
	}
	fs.StringVar(&o.ranks, "ranks", "", "numbers of ranks (default 2,4)")
	fs.StringVar(&o.sizes, "sizes", "", "sizes in bytes, or with K, M, G (default 8,1K,64K,1M,16M,256M)")
	fs.StringVar(&o.peers, "peers", "", "peers to measure (default all; see list)")
	fs.StringVar(&o.ops, "ops", "", "collectives, or all (default all but the v forms): "+strings.Join(opNames(), ", "))
	fs.StringVar(&o.memory, "memory", memoryAlloc+","+memoryUser, "Tutti's buffers: alloc, user")
	fs.StringVar(&o.dtype, "dtype", "f32", "element type: f32 or i32")
	fs.BoolVar(&o.outOfPlace, "out-of-place", false, "separate send and receive buffers")
	fs.IntVar(&o.across, "across", 0, "measure sockets between so many nodes, which are network namespaces (root; default ranks: one a node)")
	fs.IntVar(&o.rounds, "rounds", 2, "rounds of the peers in turn with Tutti")
	fs.IntVar(&o.contenders, "contenders", 2, "most peers measured at a point: the fastest of the calibrating run")
	fs.DurationVar(&o.cap, "cap", 200*time.Millisecond, "time for the iterations of one run")
	fs.DurationVar(&o.limit, "limit", 30*time.Second, "a run is given up after this and what its bytes may need")
	fs.BoolVar(&o.quick, "quick", false, "ranks 2, sizes 8,64K,1M,16M, 1 round, cap 100ms")
	fs.BoolVar(&o.noVariants, "no-variants", false, "each peer's first setting only, not its best")
	fs.BoolVar(&o.noTutti, "no-tutti", false, "the peers alone")
	fs.BoolVar(&o.noInstall, "no-install", false, "install nothing; take the peers that are there")
	fs.StringVar(&o.tutti, "tutti", "", "a commbench to run instead of building this module's")
	fs.StringVar(&o.more, "tutti-args", "", "more arguments for commbench")
	fs.StringVar(&o.dir, "dir", "", "cache folder (default build/peers in the module)")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q (--help shows examples)", fs.Arg(0))
	}
	o.set = map[string]bool{}
	fs.Visit(func(f *flag.Flag) { o.set[f.Name] = true })
	if o.quick && !o.set["rounds"] {
		o.rounds = 1
	}
	if o.quick && !o.set["cap"] {
		o.cap = 100 * time.Millisecond
	}
	switch {
	case o.across != 0 && (o.across < 2 || o.across > mostNodes):
		return o, fmt.Errorf("--across %d: from 2 to %d nodes", o.across, mostNodes)
	case o.dtype != "f32" && o.dtype != "i32":
		return o, fmt.Errorf("--dtype %s: f32 or i32", o.dtype)
	case o.rounds < 1:
		return o, fmt.Errorf("--rounds %d: at least one", o.rounds)
	case o.contenders < 1:
		return o, fmt.Errorf("--contenders %d: at least one", o.contenders)
	}
	return o, nil
}

// matrix is what to measure.
func (o *options) matrix() ([]group, error) {
	ranks, sizes := defaultRanks, defaultSizes
	if o.quick {
		ranks, sizes = quickRanks, quickSizes
	}
	if o.across > 0 {
		ranks = []int{o.across}
	}
	chosen, err := parseOps(o.ops)
	if err != nil {
		return nil, err
	}
	if o.ranks != "" {
		if ranks, err = parseInts(o.ranks); err != nil {
			return nil, err
		}
	}
	for _, n := range ranks {
		if o.across > 0 && n%o.across != 0 {
			return nil, fmt.Errorf("--ranks %d: not a multiple of the %d nodes of --across", n, o.across)
		}
	}
	if o.sizes != "" {
		if sizes, err = parseSizes(o.sizes); err != nil {
			return nil, err
		}
	}
	return groupsOf(chosen, ranks, sizes), nil
}

// memories are the kinds of memory Tutti is measured with.
func (o *options) memories() ([]string, error) {
	var kinds []string
	for name := range strings.SplitSeq(o.memory, ",") {
		name = strings.TrimSpace(name)
		if name != memoryAlloc && name != memoryUser {
			return nil, fmt.Errorf("--memory %s: alloc, user", name)
		}
		if !slices.Contains(kinds, name) {
			kinds = append(kinds, name)
		}
	}
	return kinds, nil
}

// choose takes the peers named, or all.
func (o *options) choose(all []Peer) ([]Peer, error) {
	if o.peers == "" {
		return all, nil
	}
	var ps []Peer
	for _, name := range strings.Split(o.peers, ",") {
		i := slices.IndexFunc(all, func(p Peer) bool { return p.Name == strings.TrimSpace(name) })
		if i < 0 {
			return nil, fmt.Errorf("no peer %q; there are %s", name, strings.Join(names(all), ", "))
		}
		ps = append(ps, all[i])
	}
	return ps, nil
}

func names(ps []Peer) []string {
	var v []string
	for _, p := range ps {
		v = append(v, p.Name)
	}
	return v
}

func main() {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "peers: interrupted; everything started was stopped")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	verb := ""
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		verb, args = args[0], args[1:]
	}
	o, err := parseOptions(args, stderr)
	if err != nil {
		return err
	}
	all := catalogue()
	if o.across > 0 {
		all = across()
	}
	peers, err := o.choose(all)
	if err != nil {
		return err
	}
	groups, err := o.matrix()
	if err != nil {
		return err
	}
	memory, err := o.memories()
	if err != nil {
		return err
	}
	began := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(stderr, "%6.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	if verb == "list" {
		list(stdout, peers)
		return nil
	}
	if verb != "" && verb != "install" {
		return fmt.Errorf("unknown command %q: install or list (--help shows examples)", verb)
	}
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	if o.dir == "" {
		o.dir = filepath.Join(root, "build", "peers")
	}
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return err
	}
	adoptOrphans()
	tmp, err := os.MkdirTemp("", "peers-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	var net *network
	if o.across > 0 && verb == "" {
		if net, err = newNetwork(ctx, o.across, tmp); err != nil {
			return err
		}
		defer net.close()
	}

	runners, states, err := prepare(ctx, &o, peers, groups, say)
	if err != nil {
		return err
	}
	if verb == "install" {
		for _, s := range states {
			fmt.Fprintln(stdout, s.line())
		}
		return nil
	}
	r := &Report{
		Date:    time.Now().Format("2006-01-02 15:04 MST"),
		Command: strings.TrimSpace("go run ./bench/peers " + strings.Join(args, " ")),
		Machine: thisMachine(),
		Work: Work{
			Ops: opsOf(groups), Dtype: o.dtype, Redop: "sum", InPlace: !o.outOfPlace, Memory: memory,
			Rounds: o.rounds, CapMS: o.cap.Milliseconds(), Contenders: o.contenders, Nodes: o.across,
		},
		Peers: states,
	}
	tutti := prepareTutti(ctx, &o, root, r)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	c := &campaign{
		work: r.Work, limit: o.limit, rounds: o.rounds, cap: o.cap, variants: !o.noVariants, cores: r.Machine.Cores,
		runners: runners, launcher: &launcher{tmp: tmp}, net: net, tutti: tutti, extra: strings.Fields(o.more), say: say,
	}
	if len(runners) == 0 && tutti == "" {
		return errors.Join(errors.New("nothing to measure: no peer and no commbench"), r.save(o.dir))
	}
	err = c.all(ctx, r, groups, func() error { return r.save(o.dir) })
	if err != nil {
		r.Incomplete = err.Error()
		if ctx.Err() != nil {
			r.Incomplete = "interrupted"
		}
	}
	r.writeMarkdown(stdout)
	say("%s.md and %[1]s.json are in %s", r.name(), o.dir)
	return errors.Join(err, r.save(o.dir))
}

// prepare installs and builds the peers; what fails becomes a peer's state.
func prepare(ctx context.Context, o *options, peers []Peer, groups []group, say func(string, ...any)) ([]runner, []PeerState, error) {
	src := filepath.Join(o.dir, "src")
	if err := writeSources(src); err != nil {
		return nil, nil, err
	}
	in := &installer{dir: o.dir, fetch: !o.noInstall, say: say}
	var runners []runner
	var states []PeerState
	for _, p := range peers {
		s := PeerState{Name: p.Name, Title: p.Title, Settings: p.Settings}
		r := runner{Peer: p, venv: in.venv(p)}
		var err error
		if !slices.ContainsFunc(groups, func(g group) bool { return slices.Contains(p.Ops, g.op.Name) }) {
			err = fmt.Errorf("it has no %s", strings.Join(opsOf(groups), ", "))
		} else if s.Version, err = in.install(ctx, p); err == nil {
			r.prog, err = build(ctx, p, place{venv: r.venv}, src, o.dir)
		}
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		if err != nil {
			s.Unavailable = err.Error()
		} else {
			runners = append(runners, r)
		}
		say("%s", s.line())
		states = append(states, s)
	}
	return runners, states, nil
}

func (s PeerState) line() string {
	if s.Unavailable != "" {
		return fmt.Sprintf("peer %s: unavailable: %s", s.Name, s.Unavailable)
	}
	return fmt.Sprintf("peer %s: %s, version %s", s.Name, s.Title, s.Version)
}

// prepareTutti returns the commbench to run, or nothing; the report says which.
func prepareTutti(ctx context.Context, o *options, root string, r *Report) string {
	if o.noTutti {
		r.Tutti.Unavailable = "left out by --no-tutti"
		return ""
	}
	r.Tutti.Version = "this module"
	if out, err := exec.CommandContext(ctx, "git", "-C", root, "describe", "--always", "--dirty", "--tags").Output(); err == nil {
		r.Tutti.Version = strings.TrimSpace(string(out))
	}
	if o.tutti != "" {
		r.Tutti.Version = o.tutti
		return o.tutti
	}
	prog := filepath.Join(root, "build", "bin", "commbench")
	if err := buildTutti(ctx, root, prog); err != nil {
		r.Tutti = TuttiState{Unavailable: err.Error()}
		return ""
	}
	return prog
}

// all measures the matrix, one collective and number of ranks after the other,
// and saves what there is after each.
func (c *campaign) all(ctx context.Context, r *Report, groups []group, save func() error) error {
	total, done := time.Duration(0), time.Duration(0)
	for _, g := range groups {
		total += c.guess(g)
	}
	began := time.Now()
	for i, g := range groups {
		left := total - done
		if passed := time.Since(began); i > 0 && done > 0 { // as slow as it has been so far
			left = time.Duration(float64(left) * float64(passed) / float64(done))
		}
		c.say("%d of %d: %s, %d ranks; about %d minutes left", i+1, len(groups), g.op.Name, g.ranks, int(left.Minutes()+0.999))
		fits := g
		fits.sizes = nil
		for _, b := range g.sizes {
			if why := skipReason(g.op, g.ranks, b, c.work.InPlace, availableMemory()); why != "" {
				c.say("%s, %d ranks, %s: skipped: %s", g.op.Name, g.ranks, sizeName(b), why)
				r.Points = append(r.Points, PointState{Op: g.op.Name, Ranks: g.ranks, Bytes: b, Skipped: why})
			} else {
				fits.sizes = append(fits.sizes, b)
			}
		}
		if err := c.measure(ctx, fits, func(s PointState) { r.Points = append(r.Points, s) }); err != nil {
			return err
		}
		done += c.guess(g)
		if err := save(); err != nil {
			return err
		}
	}
	return nil
}

func opsOf(groups []group) []string {
	var names []string
	for _, g := range groups {
		if !slices.Contains(names, g.op.Name) {
			names = append(names, g.op.Name)
		}
	}
	return names
}

// name is that of the report's files.
func (r *Report) name() string {
	if r.Work.Nodes > 0 {
		return "across"
	}
	return "report"
}

func (r *Report) save(dir string) error {
	var md, js strings.Builder
	r.writeMarkdown(&md)
	if err := r.writeJSON(&js); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, r.name()+".md"), []byte(md.String()), 0o644),
		os.WriteFile(filepath.Join(dir, r.name()+".json"), []byte(js.String()), 0o644),
	)
}

func list(w io.Writer, peers []Peer) {
	for _, p := range peers {
		from := "Debian: " + strings.Join(p.Apt, " ")
		if len(p.Pip) > 0 {
			from = "PyPI: " + strings.Join(p.Pip, " ")
		}
		fmt.Fprintf(w, "%s: %s (%s)\n  settings: %s\n  collectives: %s\n", p.Name, p.Title, from, p.Settings, strings.Join(p.Ops, ", "))
		for _, v := range p.Variants {
			what := strings.Join(append(append([]string{}, v.Env...), v.Args...), " ")
			if v.Algo != "" {
				what = "algorithm " + v.Algo
			}
			if v.Ops != nil {
				what += " (" + strings.Join(v.Ops, ", ") + ")"
			}
			fmt.Fprintf(w, "  variant %-20s %s\n", v.Name, what)
		}
	}
}
