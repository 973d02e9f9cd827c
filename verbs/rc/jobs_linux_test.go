package rc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/verbs"
)

// The jobs that this binary does when a test starts it again, here or in a
// machine. Ranks meet by the variables that torchrun sets; TUTTI_RC_LISTEN is
// the rank's address, and the other settings are those of FromEnv.

// pair is a rank of two, with a link to the other, a region that the other
// writes to, which begins with a counter, and the other's.
type pair struct {
	ex      bootstrap.Exchanger
	fabric  *Fabric
	rank    int
	link    link.Link
	mine    *mem.Buffer
	counter *link.Counter
	theirs  mem.RegionID
	waiter  link.Waiter
	posts   []time.Duration
}

// counterRoom is where in a region what is not the counter begins.
const counterRoom = 4096

func number(name string, zero int) int {
	if v := os.Getenv(name); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			panic(err)
		}
		return n
	}
	return zero
}

func join(ctx context.Context, room int) (*pair, error) {
	cfg, err := FromEnv(Config{Listen: os.Getenv("TUTTI_RC_LISTEN")})
	if err != nil {
		return nil, err
	}
	p := &pair{rank: number("RANK", 0)}
	p.ex, err = bootstrap.Join(ctx, bootstrap.Options{
		Rank: p.rank, Size: number("WORLD_SIZE", 2), LocalRank: -1, Timeout: 20 * time.Second,
		Root: os.Getenv("MASTER_ADDR") + ":" + os.Getenv("MASTER_PORT"), AllowOpen: true,
	})
	if err != nil {
		return nil, err
	}
	if p.fabric, err = Open(ctx, p.ex, cfg); err != nil {
		return nil, err
	}
	if p.mine, err = p.fabric.Alloc(counterRoom + room); err != nil {
		return nil, err
	}
	p.counter = link.CounterAt(p.mine.Bytes())
	p.theirs = p.mine.Region() // it is the first of each
	p.waiter = link.Waiter{Patience: link.PatienceFor(1, runtime.GOMAXPROCS(0)), Fault: new(link.Fault), Progress: p.fabric}
	p.waiter.Polls = 1 << 30 // as the tools that we compare with
	p.fabric.Lost(func(_ int, err error) { p.waiter.Fault.Fail(err) })
	if p.link, err = p.fabric.Connect(ctx, 1-p.rank); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *pair) leave(ctx context.Context) error {
	_, err := p.ex.AllGather(ctx, nil)
	err = errors.Join(err, p.fabric.Close(), p.ex.Close())
	if live := verbs.Live(); live != (verbs.Census{}) {
		err = errors.Join(err, fmt.Errorf("left open: %v", live))
	}
	return err
}

func (p *pair) notify(v uint64) error { return p.link.Notify(mem.Remote{Region: p.theirs}, v) }

// latency plays ping-pong: a put of so many bytes and a notification each way.
func (p *pair) latency(ctx context.Context, size, rounds int, from uint64) ([]time.Duration, error) {
	src := bytes.Repeat([]byte{7}, size)
	to := mem.Remote{Region: p.theirs, Offset: counterRoom}
	took := make([]time.Duration, 0, rounds)
	for i := from + 1; i <= from+uint64(rounds); i++ {
		start := time.Now()
		if p.rank == 1 {
			if err := p.waiter.Wait(ctx, p.counter, i); err != nil {
				return nil, err
			}
		}
		posting := time.Now()
		if err := errors.Join(p.link.Put(to, src), p.notify(i)); err != nil {
			return nil, err
		}
		p.posts = append(p.posts, time.Since(posting))
		if p.rank == 0 {
			if err := p.waiter.Wait(ctx, p.counter, i); err != nil {
				return nil, err
			}
		}
		took = append(took, time.Since(start)/2)
	}
	return took, nil
}

// stream puts so often; rank 0 is told at the end. It returns MB/s of 2^20
// bytes, as perftest's.
func (p *pair) stream(ctx context.Context, size, rounds int, mark uint64) (float64, error) {
	to := mem.Remote{Region: p.theirs, Offset: counterRoom}
	start := time.Now()
	if p.rank == 1 {
		src := p.mine.Bytes()[counterRoom:][:size]
		for range rounds {
			if err := p.link.Put(to, src); err != nil {
				return 0, err
			}
		}
	}
	if p.rank == 0 {
		if err := p.waiter.Wait(ctx, p.counter, mark); err != nil {
			return 0, err
		}
		return 0, p.notify(mark)
	}
	if err := errors.Join(p.notify(mark), p.waiter.Wait(ctx, p.counter, mark)); err != nil {
		return 0, err
	}
	return float64(size) * float64(rounds) / (1 << 20) / time.Since(start).Seconds(), nil
}

// bench measures, and prints a line for each figure.
func bench(ctx context.Context) error {
	const most = 1 << 20
	p, err := join(ctx, most)
	if err != nil {
		return err
	}
	mark := uint64(0)
	rounds := number("TUTTI_RC_ROUNDS", 500)
	for _, size := range []int{8, 8} { // the first warms up
		took, err := p.latency(ctx, size, rounds, mark)
		if err != nil {
			return err
		}
		mark += uint64(rounds)
		slices.Sort(took)
		if p.rank == 0 {
			slices.Sort(p.posts)
			fmt.Printf("posts: typical %.2f us 90%% %.2f; procs %d\n", us(p.posts[len(p.posts)/2]), us(p.posts[len(p.posts)*9/10]), runtime.GOMAXPROCS(0))
			fmt.Printf("latency %d B: least %.2f us, typical %.2f us, 99%% %.2f us\n", size, us(took[0]), us(took[len(took)/2]), us(took[len(took)*99/100]))
		}
	}
	for _, size := range []int{64 << 10, 1 << 20} {
		n := max(4, number("TUTTI_RC_MEGABYTES", 16)<<20/size)
		mark++
		v, err := p.stream(ctx, size, n, mark)
		if err != nil {
			return err
		}
		if p.rank == 1 {
			fmt.Printf("bandwidth %d B: %.2f MB/s\n", size, v)
		}
	}
	return p.leave(ctx)
}

func us(d time.Duration) float64 { return float64(d) / 1e3 }

func child(job string) int {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	jobs := map[string]func(context.Context) error{"bench": bench, "play": playJob, "survive": surviveJob}
	do := jobs[job]
	if do == nil {
		fmt.Fprintf(os.Stderr, "no such job: %q\n", job)
		return 2
	}
	if err := do(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", job, err)
		return 1
	}
	return 0
}
