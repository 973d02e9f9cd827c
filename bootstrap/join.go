package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// DefaultTimeout is how long ranks wait for each other.
const DefaultTimeout = 2 * time.Minute

// minSecret is the shortest secret: whoever listens on the network can try
// out short ones.
const minSecret = 16

// Options say how a rank joins a job. They must be the same on all ranks, but
// for Rank, LocalRank and Interface.
type Options struct {
	Rank int // from 0; rank 0 serves the rendezvous
	Size int // ranks of the job
	// LocalRank is the rank among those of this machine, or -1 where that is
	// not known. Nothing here depends on it; LocalRank of the Exchanger says it
	// again.
	LocalRank int
	// Root is where rank 0 serves: "host:port", also "[::1]:port". Ranks of one
	// machine can meet at "unix:@name", an abstract socket that lets in the
	// processes of one user only (Linux).
	Root string
	// Listen is where rank 0 listens, "address:port" or ":port" for all
	// addresses, if the host of Root is not an address of its machine. Empty:
	// the addresses of that host which its machine has.
	Listen string
	// Interface names the interfaces on which ranks are reached, as
	// TUTTI_SOCKET_IFNAME does. Empty: the one that leads to rank 0.
	Interface string
	// Secret, of at least 16 bytes, lets in only ranks that know it.
	Secret Secret
	// AllowOpen serves beyond this machine without a secret: whoever reaches
	// the port can join the job, and read and write what its ranks share.
	AllowOpen bool
	// Job is a name that tells this job from others, if there is one.
	Job string
	// Timeout is how long ranks wait for each other; 0 means DefaultTimeout.
	Timeout time.Duration

	version  uint16         // in tests
	listener []net.Listener // in tests: rank 0's
	joined   func(*node)    // in tests: before anything is sent
	machine  machine        // in tests: another than this
}

// Secret is what only the ranks of a job know. It does not print.
type Secret []byte

// String says whether there is one.
func (s Secret) String() string {
	if len(s) == 0 {
		return "no secret"
	}
	return "a secret"
}

// Format prints String, whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, s.String()) }

// MarshalText has encoders say no more than String.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue has loggers say no more than String.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// LocalRanker is what every Exchanger of this package is besides: it says the
// rank among those of this machine, as the launcher told it; -1 where that
// told nothing.
type LocalRanker interface{ LocalRank() int }

// Join makes this process a rank of a job. It blocks until all ranks have
// come, the time is over or ctx ends. Ranks may come in any order. A rank must
// Close before it ends, else it counts as lost.
//
// Errors: *OptionError; *OpenError where there is no secret and the rendezvous
// is beyond loopback; *JoinError where this rank, or another, is not let in;
// *MissingError at rank 0 and a *JobError with one at the others when ranks
// have not come; *UnreachableError where rank 0 cannot be reached, or the
// parent in the tree; *LostError or *JobError where a rank dies meanwhile;
// *WaitError when ctx ends.
func Join(ctx context.Context, o Options) (Exchanger, error) {
	at, err := o.check()
	if err != nil {
		return nil, err
	}
	if o.Size == 1 {
		return Single(), nil
	}
	n := newNode(o.Rank, o.Size, o.LocalRank)
	if o.joined != nil {
		o.joined(n)
	}
	if o.Rank == 0 {
		err = n.serveJob(ctx, &o, at)
	} else {
		err = n.joinJob(ctx, &o, at)
	}
	if err != nil {
		n.fail(err, nil)
		<-n.done
		err = n.Err()
		n.Close()
		return nil, err
	}
	return n, nil
}

// check looks at the options and says where rank 0 is.
func (o *Options) check() (target, error) {
	if o.Size < 1 || o.Size > maxSize {
		return target{}, &OptionError{"Size", strconv.Itoa(o.Size), fmt.Sprintf("a number from 1 to %d", maxSize)}
	}
	if o.Rank < 0 || o.Rank >= o.Size {
		return target{}, &OptionError{"Rank", strconv.Itoa(o.Rank), fmt.Sprintf("a number from 0 to %d", o.Size-1)}
	}
	if n := len(o.Secret); n > 0 && n < minSecret {
		return target{}, &OptionError{"Secret", fmt.Sprintf("(%d bytes)", n), fmt.Sprintf("at least %d bytes", minSecret)}
	}
	if o.Timeout < 0 {
		return target{}, &OptionError{"Timeout", o.Timeout.String(), "a time that is not negative"}
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.version == 0 {
		o.version = wireVersion
	}
	if o.Size == 1 {
		return target{}, nil
	}
	at, err := parseTarget(o.Root)
	if err != nil {
		return target{}, &OptionError{"Root", o.Root, err.Error()}
	}
	return at, nil
}

// parseTarget reads where a gate is.
func parseTarget(s string) (target, error) {
	if name, ok := strings.CutPrefix(s, "unix:@"); ok {
		switch {
		case !abstractSockets:
			return target{}, errors.New("host:port, since this system has no abstract sockets")
		case !validAddress(s):
			return target{}, errors.New("unix:@name with a name of less than 100 bytes")
		}
		return target{socket: name}, nil
	}
	host, port, err := net.SplitHostPort(strings.TrimPrefix(s, "tcp://"))
	if err != nil || host == "" {
		return target{}, errors.New("host:port, where rank 0 serves")
	}
	if p, err := strconv.ParseUint(port, 10, 16); err != nil || p == 0 {
		return target{}, errors.New("a port from 1 to 65535 behind the host")
	}
	return target{host: host, port: port}, nil
}

// keepGate has Close close a gate.
func (n *node) keepGate(g *gate) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gates = append(n.gates, g)
}

// serveJob is Join of rank 0. Its gate stays open as long as the job lives, to
// tell those who come too late.
func (n *node) serveJob(ctx context.Context, o *Options, at target) error {
	listeners := o.listener
	var err error
	if listeners == nil {
		listeners, err = o.listen(ctx, at)
		if err != nil {
			return err
		}
	}
	if n.address, err = o.rootAddress(listeners); err != nil {
		for _, l := range listeners {
			l.Close()
		}
		return err
	}
	n.keepGate(newGate(gateSpec{
		role: roleJoin, rank: 0, size: n.size, version: o.version, secret: o.Secret, isSecret: len(o.Secret) > 0, job: jobHash(o.Job),
		claim: n.forming.claim, enter: n.forming.enter, refused: n.forming.refused,
	}, listeners))
	return n.forming.serve(ctx, o.Timeout)
}

// joinJob is Join of every other rank.
func (n *node) joinJob(ctx context.Context, o *Options, at target) error {
	ear := &ear{o: o, root: at, inner: len(n.children) > 0}
	defer ear.close()
	c := caller{
		role: roleJoin, rank: n.rank, peer: 0, size: n.size, version: o.version, secret: o.Secret, isSecret: len(o.Secret) > 0,
		job: jobHash(o.Job), target: at, mayOpen: o.AllowOpen, advertise: ear.advertise,
	}
	reach, cancel := context.WithTimeout(ctx, o.Timeout)
	w, err := c.call(reach)
	cancel()
	if err != nil {
		return err
	}
	n.address = ear.address
	star := n.add(w, 0, true)
	p, err := n.awaitPlace(ctx, o.Timeout)
	if err != nil {
		return err
	}

	// Both what follows and the children's links are made with the tree's key.
	key := treeKey(o.Secret, p.seed)
	linked := make(chan struct{})
	if ear.listener != nil {
		g := newGate(n.childGate(o, key, linked), []net.Listener{ear.listener})
		ear.listener = nil // the gate's
		n.keepGate(g)
		defer g.close()
	} else {
		close(linked)
	}
	up := star
	if parent := parentOf(n.rank); parent != 0 {
		at, err := parseTarget(ear.zoned(p.parent))
		if err != nil {
			return n.lost(star, &FrameError{fmt.Sprintf("a parent at %q", p.parent)})
		}
		c.role, c.peer, c.target, c.secret, c.isSecret = roleLink, parent, at, key, true
		c.advertise = func(net.Conn) (string, error) { return "", nil }
		reach, cancel := n.whileWell(ctx, 2*handshakeTime)
		w, err := c.call(reach)
		cancel()
		if err != nil {
			return err
		}
		up = n.add(w, parent, false)
	}
	n.mu.Lock()
	n.parent = up
	n.mu.Unlock()
	select {
	case <-linked:
	case <-n.done:
		return n.Err()
	case <-ctx.Done():
		return n.waited(ctx, "its children in the tree")
	}
	if err := star.write(frameLinked, nil); err != nil {
		return n.lost(star, err)
	}
	select {
	case <-n.forming.formed:
	case <-n.done:
		return n.Err()
	case <-ctx.Done():
		return n.waited(ctx, "others to link up in the tree")
	}
	if up != star {
		n.retire(star)
	}
	return nil
}

// whileWell ends with ctx, after a time, and when the job fails.
func (n *node) whileWell(ctx context.Context, limit time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	go func() {
		select {
		case <-n.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// awaitPlace waits until all have come. Rank 0, which has let this one in,
// says who is missing, and when it is too late; it is given up when nothing
// has come from it for longer than ranks wait for each other.
func (n *node) awaitPlace(ctx context.Context, timeout time.Duration) (place, error) {
	timeout += handshakeTime
	silent := time.NewTimer(timeout)
	defer silent.Stop()
	what := "the others"
	for {
		select {
		case p := <-n.forming.placed:
			return p, nil
		case missing := <-n.forming.progress:
			what = ranks(missing)
			silent.Reset(timeout)
		case <-n.done:
			return place{}, n.Err()
		case <-silent.C:
			return place{}, &WaitError{n.rank, "a word from rank 0", context.DeadlineExceeded}
		case <-ctx.Done():
			return place{}, n.waited(ctx, what)
		}
	}
}

// waited is the end of waiting because ctx has ended. Where that is a
// deadline, it is likely everybody's, and rank 0 is about to say who is
// missing: that is worth a moment.
func (n *node) waited(ctx context.Context, what string) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		select {
		case <-n.done:
			return n.Err()
		case <-time.After(patience):
		}
	}
	return &WaitError{n.rank, what, context.Cause(ctx)}
}

// childGate lets this rank's children in, and closes linked when all are.
func (n *node) childGate(o *Options, key []byte, linked chan struct{}) gateSpec {
	claimed, entered := make([]bool, len(n.children)), 0 // under the mutex of the node
	return gateSpec{
		role: roleLink, rank: n.rank, size: n.size, version: o.version, secret: key, isSecret: true, job: jobHash(o.Job),
		claim: func(h hello, _ string, conn net.Conn) *JoinError {
			n.mu.Lock()
			defer n.mu.Unlock()
			e := &JoinError{Rank: int(h.rank), Address: addressOf(conn.RemoteAddr())}
			child := slices.Index(n.children, int(h.rank))
			switch {
			case child < 0 || int(h.size) != n.size:
				e.Cause, e.Detail = ErrRank, fmt.Sprintf("no child of rank %d", n.rank)
			case claimed[child]:
				e.Cause = ErrDuplicate
			default:
				claimed[child] = true
				return nil
			}
			return e
		},
		enter: func(h hello, _ string, w *wire) {
			n.add(w, int(h.rank), false)
			n.mu.Lock()
			defer n.mu.Unlock()
			if entered++; entered == len(n.children) {
				close(linked)
			}
		},
		refused: func(e *JoinError, proven bool) {
			if proven { // one of ours
				n.fail(e, nil)
			}
		},
	}
}
