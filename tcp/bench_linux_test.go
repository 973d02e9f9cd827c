package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
)

// What the ranks of a benchmark are told to do: task, bytes, rounds.
const (
	taskEnd = iota
	taskPingPong
	taskStream
	taskRawPingPong
	taskRawStream
)

// streamSlots is how many messages of a stream may be under way.
const streamSlots = 4

func init() { roles["bench"] = benchRank }

// BenchmarkPingPong is the way there and back of a put with a notification,
// between two processes, against the plainest loop that moves the same bytes:
// write(2) and read(2), blocking.
func BenchmarkPingPong(b *testing.B) {
	onBoth(b, func(b *testing.B, ranks []*rank) {
		for _, bytes := range []int{8, 1 << 10, 8 << 10} {
			compare(b, ranks, bytes, taskPingPong, taskRawPingPong)
		}
	})
}

// BenchmarkStream is a stream of puts, each with a notification, of which four
// may be under way.
func BenchmarkStream(b *testing.B) {
	onBoth(b, func(b *testing.B, ranks []*rank) {
		for _, bytes := range []int{64 << 10, 1 << 20, 16 << 20} {
			compare(b, ranks, bytes, taskStream, taskRawStream)
		}
	})
}

// onBoth runs a benchmark over the loopback interface, and between two network
// namespaces.
func onBoth(b *testing.B, bench func(*testing.B, []*rank)) {
	for name, places := range map[string]func() []place{
		"loopback":   func() []place { return loopback(2) },
		"namespaces": func() []place { return namespaces(b, 2) },
	} {
		b.Run(name, func(b *testing.B) {
			ranks := spawn(b, "bench", 0, places())
			allGather(b, ranks) // for Open
			allGather(b, ranks)
			bench(b, ranks)
			for _, r := range ranks {
				r.told(taskEnd, 0, 0)
			}
			for _, r := range ranks {
				r.end()
			}
		})
	}
}

// compare runs both tasks in turn, so that what else happens on the machine
// happens to both.
func compare(b *testing.B, ranks []*rank, bytes int, ours, floor uint64) {
	b.Run(fmt.Sprintf("%dB", bytes), func(b *testing.B) {
		run := func(task uint64, rounds int) uint64 {
			for _, r := range ranks {
				r.told(task, uint64(bytes), uint64(rounds))
			}
			nanoseconds := ranks[0].said()[0]
			ranks[1].said()
			return nanoseconds
		}
		run(ours, 1)
		run(floor, 1)
		var took, least uint64
		step := max(1, min(b.N/5, 2000))
		for left := b.N; left > 0; left -= step {
			n := min(left, step)
			took += run(ours, n)
			least += run(floor, n)
		}
		b.ReportMetric(float64(took)/float64(b.N), "ns/op")
		b.ReportMetric(float64(least)/float64(b.N), "floor-ns/op")
		b.ReportMetric(float64(took)/float64(least), "x-floor")
		b.ReportMetric(float64(bytes)*float64(b.N)/float64(took)*1e3, "MB/s")
	})
}

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
		rank: ex.rank, link: l, raw: raw, memory: memory.Bytes()[4096:],
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
		var task func(ctx context.Context, bytes, rounds int) error
		switch said[0] {
		case taskEnd:
			return nil
		case taskPingPong:
			task = bench.pingPong
		case taskStream:
			task = bench.stream
		case taskRawPingPong:
			task = bench.rawPingPong
		case taskRawStream:
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
	rank    int
	link    link.Link
	raw     int
	memory  []byte
	counter *link.Counter
	region  mem.RegionID // the same number on both sides
	waiter  *link.Waiter
	sent    uint64
	seen    uint64
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
	if n := awaitAfter; n > 0 {
		for b.counter.Load() < b.seen {
			if err := b.waiter.Fault.Err(); err != nil {
				return err
			}
			for i := 0; i < n && b.counter.Load() < b.seen; i++ {
				b.waiter.Progress.Progress()
			}
			if b.counter.Load() < b.seen {
				b.waiter.Progress.(*Fabric).Await(5 * time.Millisecond)
			}
		}
		return nil
	}
	return b.waiter.Wait(ctx, b.counter, b.seen)
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
	for into := b.memory[slot*bytes:][:bytes]; len(into) > 0; {
		n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(b.raw), uintptr(unsafe.Pointer(&into[0])), uintptr(len(into)))
		if errno == unix.EINTR {
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

var awaitAfter, _ = strconv.Atoi(os.Getenv("AWAIT"))
