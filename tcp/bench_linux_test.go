package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
)

// What the ranks of a benchmark are told to do: task, bytes, rounds.
const (
	taskEnd     = iota
	taskPolls   // a put and a notification, waiting as link.Waiter does
	taskAwaits  // the same, waiting by Await after a few looks
	taskSpins   // write(2) and read(2) in the plainest loop, read without blocking
	taskBlocks  // the same, blocking
	taskStreams = 16
)

// looks is how often a rank looks before it awaits.
const looks = 50

// streamSlots is how many messages of a stream may be under way.
const streamSlots = 4

func init() { roles["bench"] = benchRank }

// BenchmarkPingPong is the way there and back of a put with a notification,
// between two processes, against the plainest loops that move the same bytes.
func BenchmarkPingPong(b *testing.B) { onBoth(b, 0, 8, 1<<10, 16<<10, 64<<10) }

// BenchmarkStream is a stream of puts, each with a notification, of which four
// may be under way.
func BenchmarkStream(b *testing.B) { onBoth(b, taskStreams, 64<<10, 1<<20, 16<<20) }

// onBoth runs a benchmark over the loopback interface, and between two network
// namespaces.
func onBoth(b *testing.B, what uint64, sizes ...int) {
	for name, places := range map[string]func() []place{
		"loopback":   func() []place { return loopback(2) },
		"namespaces": func() []place { return namespaces(b, 2) },
	} {
		b.Run(name, func(b *testing.B) {
			ranks := spawn(b, "bench", 0, places())
			allGather(b, ranks) // for Open
			allGather(b, ranks)
			for _, bytes := range sizes {
				b.Run(fmt.Sprintf("%dB", bytes), func(b *testing.B) { compare(b, ranks, what, bytes) })
			}
			for _, r := range ranks {
				r.told(taskEnd, 0, 0)
			}
			for _, r := range ranks {
				r.end()
			}
		})
	}
}

// compare runs all tasks in turn, so that what else happens on the machine
// happens to all. ns/op is that of polling; the others are named. Of each there
// is the mean, and the best of a hundred short turns: what it takes where
// nobody else wants the cores.
func compare(b *testing.B, ranks []*rank, what uint64, bytes int) {
	tasks := []string{taskPolls: "polls", taskAwaits: "awaits", taskSpins: "raw-spins", taskBlocks: "raw-blocks"}
	run := func(task, rounds int) float64 {
		for _, r := range ranks {
			r.told(what+uint64(task), uint64(bytes), uint64(rounds))
		}
		nanoseconds := ranks[0].said()[0]
		ranks[1].said()
		return float64(nanoseconds)
	}
	var total, best [len(tasksUsed) + 1]float64
	step := max(1, b.N/100)
	for left := b.N; left > 0; left -= step {
		n := min(left, step)
		for _, task := range tasksUsed {
			took := run(task, n)
			total[task] += took
			if each := took / float64(n); best[task] == 0 || each < best[task] {
				best[task] = each
			}
		}
	}
	for _, task := range tasksUsed {
		unit := tasks[task] + "-ns"
		b.ReportMetric(total[task]/float64(b.N), unit)
		b.ReportMetric(best[task], "best-"+unit)
	}
	b.ReportMetric(total[taskPolls]/float64(b.N), "ns/op")
	b.ReportMetric(float64(bytes)/best[taskPolls]*1e3, "best-MB/s")
}

var tasksUsed = [...]int{taskPolls, taskAwaits, taskSpins, taskBlocks}

// benchRank is a rank of a benchmark.
func benchRank(ctx context.Context, ex *pipes) error {
	f, err := Open(ctx, ex, configured())
	if err != nil {
		return err
	}
	defer f.Close()
	memory, err := f.Alloc(streamSlots*(16<<20) + 4096)
	if err != nil {
		return err
	}
	l, err := f.Connect(ctx, 1-ex.rank)
	if err != nil {
		return err
	}
	raw, err := rawSocket(ctx, f, ex.rank)
	if err != nil {
		return err
	}
	if _, err := ex.AllGather(ctx, nil); err != nil { // nobody puts before all have allocated
		return err
	}
	defer unix.Close(raw)
	bench := &bench{
		rank: ex.rank, fabric: f, link: l, raw: raw, memory: memory.Bytes()[4096:],
		counter: link.CounterAt(memory.Bytes()), region: memory.Region(),
		waiter: &link.Waiter{Patience: link.PatienceFor(2, runtime.GOMAXPROCS(0)), Fault: new(link.Fault), Progress: f},
	}
	defer f.Lost(func(_ int, err error) { bench.waiter.Fault.Fail(err) })()
	for {
		said, err := ex.hearNumbers()
		if err != nil {
			return err
		}
		bytes, rounds := int(said[1]), int(said[2])
		if said[0] == taskEnd {
			return nil
		}
		way := said[0] % taskStreams
		bench.awaits, bench.spins = way == taskAwaits, way == taskSpins
		task := bench.pingPong
		switch {
		case said[0] < taskStreams && way >= taskSpins:
			task = bench.rawPingPong
		case said[0] >= taskStreams && way < taskSpins:
			task = bench.stream
		case said[0] >= taskStreams:
			task = bench.rawStream
		}
		start := time.Now()
		if err := task(ctx, bytes, rounds); err != nil {
			return err
		}
		if err := ex.sayNumbers(uint64(time.Since(start))); err != nil {
			return err
		}
	}
}

type bench struct {
	fabric  *Fabric
	rank    int
	link    link.Link
	raw     int
	memory  []byte
	counter *link.Counter
	region  mem.RegionID // the same number on both sides
	waiter  *link.Waiter
	sent    uint64
	seen    uint64
	awaits  bool
	spins   bool
}

func (b *bench) put(slot, bytes int) error {
	b.sent++
	at := 4096 + slot*bytes
	err := b.link.Put(mem.Remote{Region: b.region, Offset: at}, b.memory[slot*bytes:][:bytes])
	if err != nil {
		return err
	}
	return b.link.Notify(mem.Remote{Region: b.region}, b.sent)
}

func (b *bench) wait(ctx context.Context) error {
	b.seen++
	if !b.awaits {
		return b.waiter.Wait(ctx, b.counter, b.seen)
	}
	for i := 0; b.counter.Load() < b.seen; i++ {
		if err := b.waiter.Fault.Err(); err != nil {
			return err
		}
		if i < looks {
			b.waiter.Progress.Progress()
		} else {
			b.fabric.Await(5 * time.Millisecond)
		}
	}
	return nil
}

func (b *bench) pingPong(ctx context.Context, bytes, rounds int) error {
	for range rounds {
		var err error
		if b.rank == 0 {
			if err = b.put(0, bytes); err == nil {
				err = b.wait(ctx)
			}
		} else if err = b.wait(ctx); err == nil {
			err = b.put(0, bytes)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// stream: rank 1 answers each message with a notification.
func (b *bench) stream(ctx context.Context, bytes, rounds int) error {
	for i := range rounds {
		if b.rank == 1 {
			b.sent++
			if err := errors.Join(b.wait(ctx), b.link.Notify(mem.Remote{Region: b.region}, b.sent)); err != nil {
				return err
			}
			continue
		}
		if err := b.put(i%streamSlots, bytes); err != nil {
			return err
		}
		if i < streamSlots-1 {
			continue
		}
		if err := b.wait(ctx); err != nil {
			return err
		}
	}
	if b.rank == 0 {
		for range min(rounds, streamSlots-1) {
			if err := b.wait(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bench) rawPingPong(_ context.Context, bytes, rounds int) error {
	for range rounds {
		var err error
		if b.rank == 0 {
			err = errors.Join(b.rawWrite(0, bytes), b.rawRead(0, bytes))
		} else {
			err = errors.Join(b.rawRead(0, bytes), b.rawWrite(0, bytes))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) rawStream(_ context.Context, bytes, rounds int) error {
	for i := range rounds {
		var err error
		if b.rank == 1 {
			err = errors.Join(b.rawRead(i%streamSlots, bytes), b.rawWrite(0, 8))
		} else if err = b.rawWrite(i%streamSlots, bytes); err == nil && i >= streamSlots-1 {
			err = b.rawRead(0, 8)
		}
		if err != nil {
			return err
		}
	}
	if b.rank == 0 {
		return b.rawRead(0, 8*min(rounds, streamSlots-1))
	}
	return nil
}

func (b *bench) rawWrite(slot, bytes int) error {
	for from := b.memory[slot*bytes:][:bytes]; len(from) > 0; {
		n, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(b.raw), uintptr(unsafe.Pointer(&from[0])), uintptr(len(from)))
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return errno
		}
		from = from[n:]
	}
	return nil
}

func (b *bench) rawRead(slot, bytes int) error {
	var flags uintptr
	if b.spins {
		flags = unix.MSG_DONTWAIT
	}
	for into := b.memory[slot*bytes:][:bytes]; len(into) > 0; {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(b.raw), uintptr(unsafe.Pointer(&into[0])), uintptr(len(into)), flags, 0, 0)
		if errno == unix.EINTR || errno == unix.EAGAIN {
			continue
		}
		if errno != 0 || n == 0 {
			return fmt.Errorf("raw read: %d bytes, %w", n, errno)
		}
		into = into[n:]
	}
	return nil
}

// rawSocket is a second connection between the two ranks, blocking.
func rawSocket(ctx context.Context, f *Fabric, rank int) (int, error) {
	var c *net.TCPConn
	if rank == 0 {
		var err error
		if c, err = f.mesh.Dial(ctx, 1, "raw"); err != nil {
			return -1, err
		}
	} else {
		accepted := make(chan *net.TCPConn, 1)
		f.mesh.Handle("raw", func(_ int, c *net.TCPConn) { accepted <- c })
		select {
		case c = <-accepted:
		case <-ctx.Done():
			return -1, context.Cause(ctx)
		}
	}
	fd, err := detach(c)
	if err != nil {
		return -1, err
	}
	return fd, unix.SetNonblock(fd, false)
}
