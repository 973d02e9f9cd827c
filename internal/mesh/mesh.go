package mesh

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	// handshakeTimeout is how long a stranger may hold a connection without
	// proving that it is a rank of the job.
	handshakeTimeout = 5 * time.Second
	// strangers is how many connections may be without a proof at a time,
	// besides two for each rank. Who comes when there are more takes the place
	// of the one that has kept us waiting longest.
	strangers = 64
	// redials is how often a dialler tries again when it was hung up on.
	redials = 5
	// defaultSilence is the default of Config.Silence.
	defaultSilence = 30 * time.Second
)

// Exchanger is what Open needs of a bootstrap.
type Exchanger interface {
	Rank() int
	Size() int
	// AllGather gives every rank's blob to every rank, indexed by rank. Whoever
	// sees the blobs can join the job.
	AllGather(ctx context.Context, blob []byte) ([][]byte, error)
}

// Config says where a rank listens. The zero value is the loopback interface.
type Config struct {
	// Listen is the IP address, or IP address and port, to listen at. Empty
	// means 127.0.0.1 and any port; nothing is reachable from other machines
	// unless an address says so.
	Listen string

	// Advertise is what the other ranks dial, where that is not what Listen
	// says: behind a translation of addresses, or when Listen is every address
	// of the machine. An IP address, or one with a port.
	Advertise string

	// Silence is how long a peer's machine may leave packets unanswered before
	// a connection to it is given up; 30 s if zero. It also holds for a peer
	// that is stopped, if its socket has been full for so long.
	Silence time.Duration

	// Log takes what happens seldom, such as strangers; nil discards it.
	Log *slog.Logger
}

// Mesh is one rank's place among the others. Its methods may be called from
// several goroutines.
type Mesh struct {
	rank    int
	cards   []card // by rank
	key     [sha256.Size]byte
	silence time.Duration
	log     *slog.Logger

	listener *net.TCPListener
	life     context.Context // until Close, which ends it under mu
	end      context.CancelCauseFunc
	running  sync.WaitGroup

	mu       sync.Mutex
	greeting []*net.TCPConn // without a proof yet, oldest first
	handlers map[string]func(peer int, c *net.TCPConn)
	parked   map[string][]caller // those whose purpose nobody handles yet

	sayStranger sync.Once
}

// caller is an accepted connection.
type caller struct {
	peer int
	conn *net.TCPConn
}

// Open listens and tells the other ranks where. All ranks call it; it blocks
// until all have. Errors: *ConfigError, *CardError, those of the socket and of
// the exchange.
func Open(ctx context.Context, ex Exchanger, cfg Config) (*Mesh, error) {
	m := &Mesh{
		rank:     ex.Rank(),
		silence:  cfg.Silence,
		log:      cfg.Log,
		handlers: map[string]func(int, *net.TCPConn){},
		parked:   map[string][]caller{},
	}
	m.life, m.end = context.WithCancelCause(context.Background())
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	if m.silence <= 0 {
		m.silence = defaultSilence
	}
	mine, err := m.listen(cfg)
	if err != nil {
		return nil, err
	}
	blobs, err := ex.AllGather(ctx, mine.encode())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("mesh: telling the other ranks: %w", err), m.listener.Close())
	}
	for rank, blob := range blobs {
		c, err := decodeCard(blob)
		if err != nil {
			return nil, errors.Join(&CardError{rank, err}, m.listener.Close())
		}
		m.cards = append(m.cards, c)
	}
	m.key = jobKey(blobs)
	// Who dials before we accept waits in the backlog.
	m.running.Go(m.accept)
	return m, nil
}

func (m *Mesh) listen(cfg Config) (card, error) {
	at, err := netip.ParseAddrPort(listenAddress(cfg.Listen))
	if err != nil {
		return card{}, &ConfigError{"Listen", cfg.Listen, errors.New("not an IP address, nor one with a port")}
	}
	if m.listener, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at)); err != nil {
		return card{}, &ConfigError{"Listen", cfg.Listen, err}
	}
	socket := m.listener.Addr().(*net.TCPAddr).AddrPort()
	told := advertised(cfg.Advertise, netip.AddrPortFrom(socket.Addr().Unmap(), socket.Port()))
	if _, err := usable(told); err != nil || len(told) > maxAddress {
		m.listener.Close()
		if err == nil {
			err = errors.New("too long")
		}
		return card{}, &ConfigError{"Advertise", told, err}
	}
	return newCard(told), nil
}

// Rank is this rank.
func (m *Mesh) Rank() int { return m.rank }

// Size is the number of ranks.
func (m *Mesh) Size() int { return len(m.cards) }

// Address is where a rank says that it can be dialled: host and port.
func (m *Mesh) Address(rank int) string { return m.cards[rank].address }

// Handle gives the connections that peers dial for a purpose to f, each from a
// goroutine of its own, which Close waits for; f owns the connection, and
// returns soon after Close. A purpose has 1 to 24 bytes. Who called before
// there was a handler has waited for it.
func (m *Mesh) Handle(purpose string, f func(peer int, c *net.TCPConn)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.handlers[purpose] = f
	waiting := m.parked[purpose]
	delete(m.parked, purpose)
	for _, c := range waiting {
		m.running.Go(func() { f(c.peer, c.conn) })
	}
}

// Dial makes a connection to a peer for a purpose. It blocks until the peer has
// let us in, which a process that is stopped does not. The connection is the
// caller's. Errors: *DialError, also where ctx ends, which wraps
// context.Cause(ctx), ErrClosed or ErrStranger.
func (m *Mesh) Dial(ctx context.Context, peer int, purpose string) (*net.TCPConn, error) {
	if peer < 0 || peer >= len(m.cards) || peer == m.rank {
		return nil, &DialError{m.rank, peer, "no address", purpose, fmt.Errorf("this is rank %d of %d", m.rank, len(m.cards))}
	}
	fail := func(err error) error { return &DialError{m.rank, peer, m.cards[peer].address, purpose, err} }
	if err := checkPurpose(purpose); err != nil {
		return nil, fail(err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(m.life, func() { cancel(ErrClosed) })
	defer stop()
	for try := 0; ; try++ {
		c, err := m.dial(ctx, peer, purpose)
		if err == nil {
			return c, nil
		}
		if ctx.Err() != nil {
			return nil, fail(context.Cause(ctx))
		}
		if try == redials || !errors.Is(err, errHungUp) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			return nil, fail(err)
		}
		select {
		case <-time.After(time.Millisecond << try):
		case <-ctx.Done():
		}
	}
}

func (m *Mesh) dial(ctx context.Context, peer int, purpose string) (*net.TCPConn, error) {
	d := net.Dialer{KeepAlive: -1}
	conn, err := d.DialContext(ctx, "tcp", m.cards[peer].address)
	if err != nil {
		return nil, err
	}
	c := conn.(*net.TCPConn)
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	err = m.watch(c)
	if err == nil {
		err = m.greet(c, peer, purpose)
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// watch lets the kernel notice when the peer's machine falls silent, whether
// packets are under way to it or not.
func (m *Mesh) watch(c *net.TCPConn) error {
	err := c.SetKeepAliveConfig(net.KeepAliveConfig{
		Enable: true, Idle: max(m.silence/2, time.Second), Interval: max(m.silence/8, time.Second), Count: 4,
	})
	return errors.Join(err, limitSilence(c, m.silence))
}

func (m *Mesh) accept() {
	for {
		c, err := m.listener.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Out of descriptors, most likely. Peers wait in the backlog.
			time.Sleep(time.Millisecond)
			continue
		}
		if !m.begin(c) {
			c.Close()
			continue
		}
		m.running.Go(func() { m.receive(c) })
	}
}

// begin makes room for a connection without a proof.
func (m *Mesh) begin(c *net.TCPConn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.isDown() {
		return false
	}
	if len(m.greeting) >= strangers+2*len(m.cards) {
		m.greeting[0].Close() // its goroutine notices, and cleans up
		m.greeting = slices.Delete(m.greeting, 0, 1)
	}
	m.greeting = append(m.greeting, c)
	return true
}

// receive lets one caller in, or hangs up on it.
func (m *Mesh) receive(c *net.TCPConn) {
	_ = c.SetDeadline(time.Now().Add(handshakeTimeout))
	peer, purpose, err := m.admit(c)
	if err == nil {
		err = errors.Join(c.SetDeadline(time.Time{}), m.watch(c))
	}
	m.mu.Lock()
	if i := slices.Index(m.greeting, c); i >= 0 {
		m.greeting = slices.Delete(m.greeting, i, i+1)
	}
	if err == nil && m.isDown() {
		err = ErrClosed
	}
	var handle func(int, *net.TCPConn)
	if err == nil {
		if handle = m.handlers[purpose]; handle == nil {
			m.parked[purpose] = append(m.parked[purpose], caller{peer, c})
		}
	}
	m.mu.Unlock()
	switch {
	case err != nil:
		from := c.RemoteAddr()
		c.Close()
		m.refused(from, err)
	case handle != nil:
		handle(peer, c)
	}
}

// refused says so once; a flood of strangers shall not be one of words too.
func (m *Mesh) refused(from net.Addr, err error) {
	if m.isDown() {
		return
	}
	level := slog.LevelDebug
	m.sayStranger.Do(func() { level = slog.LevelWarn })
	m.log.Log(context.Background(), level, "refused a connection", "rank", m.rank, "from", from, "cause", err)
}

func (m *Mesh) isDown() bool { return m.life.Err() != nil }

// Close stops listening, hangs up on those that nobody has handled, ends every
// Dial, and waits for the handlers. Connections that were handed out are not
// its business.
func (m *Mesh) Close() error {
	m.mu.Lock()
	if m.isDown() {
		m.mu.Unlock()
		return nil
	}
	m.end(ErrClosed)
	for _, c := range m.greeting {
		c.Close()
	}
	for _, waiting := range m.parked {
		for _, c := range waiting {
			c.conn.Close()
		}
	}
	m.parked = nil
	m.mu.Unlock()
	err := m.listener.Close()
	m.running.Wait()
	return err
}
