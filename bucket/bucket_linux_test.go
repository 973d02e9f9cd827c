package bucket_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tutti-go/tutti/algo"
	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/bucket"
	"github.com/tutti-go/tutti/engine"
	"github.com/tutti-go/tutti/link/linktest"
	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/shm"
	"github.com/tutti-go/tutti/tune"
)

// ranks starts a job of n goroutines. put takes a medium that maps nothing.
func ranks(t testing.TB, n int, put bool) []*engine.Comm {
	t.Helper()
	ex := bootstrap.Memory(n)
	fabrics := linktest.Memory(n, linktest.Options{})
	comms := make([]*engine.Comm, n)
	onEveryRank(t, n, func(r int) (err error) {
		fabric := fabrics[r]
		if !put {
			if fabric, err = shm.Open(t.Context(), ex[r], nil); err != nil {
				return err
			}
		}
		comms[r], err = engine.New(t.Context(), engine.Config{
			Rank: r, Size: n, Exchanger: ex[r], Fabric: fabric,
			Plan: algo.NewOver, Choose: tune.Choose, Cores: runtime.GOMAXPROCS(0), Threads: 1,
		})
		return err
	})
	t.Cleanup(func() {
		for _, c := range comms {
			if err := c.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
	})
	return comms
}

func onEveryRank(t testing.TB, n int, f func(r int) error) {
	t.Helper()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() { errs[r] = f(r) })
	}
	wg.Wait()
	for r, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
}

// shapes of three types, of which some fit a bucket of 1000 bytes together,
// some alone, and some not at all.
var shapes = []bucket.Shape{
	{Type: mem.F32, Elements: 3}, {Type: mem.F32, Elements: 200}, {Type: mem.F64, Elements: 10},
	{Type: mem.F32, Elements: 5000}, {Type: mem.I32, Elements: 1}, {Type: mem.F32, Elements: 0},
	{Type: mem.F64, Elements: 125}, {Type: mem.F32, Elements: 17}, {Type: mem.I32, Elements: 249},
}

// value is what rank r has for an element in a step: small integers, so that
// sums are exact in every type.
func value(r, step, tensor, i int) int { return 12 * ((r+1)*(tensor+2) + step - i%50) }

func fill(b *bucket.Bucketer, tensor, r, step int) {
	each(b, tensor, func(i int) int { return value(r, step, tensor, i) }, nil)
}

// each sets the elements of a tensor, or compares them.
func each(b *bucket.Bucketer, tensor int, want func(i int) int, wrong func(i int, got, want any)) {
	switch x := b.Bytes(tensor); shapes[tensor].Type {
	case mem.F32:
		eachOf(mem.Slice[float32](x), want, wrong)
	case mem.F64:
		eachOf(mem.Slice[float64](x), want, wrong)
	case mem.I32:
		eachOf(mem.Slice[int32](x), want, wrong)
	}
}

func eachOf[T mem.Element](x []T, want func(i int) int, wrong func(i int, got, want any)) {
	for i := range x {
		if w := T(want(i)); wrong == nil {
			x[i] = w
		} else if x[i] != w {
			wrong(i, x[i], w)
		}
	}
}

func check(b *bucket.Bucketer, step int, want func(tensor, i int) int) (err error) {
	for tensor := range shapes {
		each(b, tensor, func(i int) int { return want(tensor, i) }, func(i int, got, want any) {
			err = fmt.Errorf("step %d: tensor %d element %d is %v, want %v", step, tensor, i, got, want)
		})
	}
	return err
}

// newBucketer makes a Bucketer over shapes, with memory of its own or not.
func newBucketer(ctx context.Context, c bucket.Comm, flat bool, cfg bucket.Config) (*bucket.Bucketer, error) {
	if flat {
		return bucket.NewFlat(ctx, c, cfg, shapes...)
	}
	var tensors []bucket.Tensor
	for _, s := range shapes {
		memory := mem.Bytes(make([]uint64, s.Elements))[:s.Elements*s.Type.Size()]
		tensors = append(tensors, bucket.Tensor{Type: s.Type, Data: memory})
	}
	return bucket.New(ctx, c, cfg, tensors...)
}

// TestSteps runs steps in which every rank has its tensors ready in an order of
// its own.
func TestSteps(t *testing.T) {
	const steps = 12
	for _, n := range []int{1, 2, 3, 4} {
		for _, put := range []bool{false, true} {
			for _, kind := range []string{"flat", "copied", "mixed"} {
				for _, sum := range []bool{false, true} {
					t.Run(fmt.Sprintf("%d/put=%v/%s/sum=%v", n, put, kind, sum), func(t *testing.T) {
						comms := ranks(t, n, put)
						onEveryRank(t, n, func(r int) error {
							flat := kind == "flat" || kind == "mixed" && r%2 == 0
							b, err := newBucketer(t.Context(), comms[r], flat, bucket.Config{Bytes: 1000, Sum: sum})
							if err != nil {
								return err
							}
							defer b.Close()
							rng := rand.New(rand.NewPCG(uint64(n), uint64(r)))
							for step := range steps {
								for _, tensor := range rng.Perm(len(shapes)) {
									fill(b, tensor, r, step)
									if err := b.Ready(t.Context(), tensor); err != nil {
										return err
									}
								}
								if err := b.Wait(t.Context()); err != nil {
									return err
								}
								if err := check(b, step, func(tensor, i int) int {
									all := 0
									for q := range n {
										all += value(q, step, tensor, i)
									}
									if sum {
										return all
									}
									return all / n
								}); err != nil {
									return err
								}
							}
							return nil
						})
					})
				}
			}
		}
	}
}

// TestFlush: what is not ready counts as zero, and may differ between ranks.
func TestFlush(t *testing.T) {
	const n = 3
	for _, flat := range []bool{true, false} {
		comms := ranks(t, n, false)
		onEveryRank(t, n, func(r int) error {
			b, err := newBucketer(t.Context(), comms[r], flat, bucket.Config{Bytes: 1000})
			if err != nil {
				return err
			}
			defer b.Close()
			has := func(r, step, tensor int) bool { return (tensor+step)%(r+2) != 0 }
			for step := range 6 {
				for tensor := range shapes {
					fill(b, tensor, r, step)
					if has(r, step, tensor) {
						if err := b.Ready(t.Context(), tensor); err != nil {
							return err
						}
					}
				}
				var missing *bucket.MissingError
				if err := b.Wait(t.Context()); !errors.As(err, &missing) || has(r, step, missing.Tensor) {
					return fmt.Errorf("got %w, want a MissingError", err)
				}
				if err := errors.Join(b.Flush(t.Context()), b.Wait(t.Context())); err != nil {
					return err
				}
				if err := check(b, step, func(tensor, i int) int {
					all := 0
					for q := range n {
						if has(q, step, tensor) {
							all += value(q, step, tensor, i)
						}
					}
					return all / n
				}); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// TestBuckets counts them: an engine that is asked once for each.
func TestBuckets(t *testing.T) {
	c := ranks(t, 1, false)[0]
	for _, k := range []struct{ limit, want int }{{0, 3}, {1000, 6}, {1, 9}} {
		b, err := bucket.NewFlat(t.Context(), c, bucket.Config{Bytes: k.limit}, shapes...)
		if err != nil {
			t.Fatal(err)
		}
		if got := b.Buckets(); got != k.want {
			t.Errorf("buckets of %d bytes: %d, want %d", k.limit, got, k.want)
		}
		b.Close()
	}
}

// counting is a Comm that notes how many calls were issued.
type counting struct {
	*engine.Comm
	calls int
}

func (c *counting) AllReduceAsync(ctx context.Context, send, recv []byte, t mem.DType, op mem.Op) (engine.Work, error) {
	c.calls++
	return c.Comm.AllReduceAsync(ctx, send, recv, t, op)
}

// TestIssuedWhenFull: a bucket leaves with its last tensor and not before, and
// not before those ahead of it.
func TestIssuedWhenFull(t *testing.T) {
	c := &counting{Comm: ranks(t, 1, false)[0]}
	ten := bucket.Shape{Type: mem.F32, Elements: 10}
	b, err := bucket.NewFlat(t.Context(), c, bucket.Config{Bytes: 128}, ten, ten, ten, ten, ten)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	c.calls = 0
	for _, k := range []struct{ tensor, calls int }{{4, 0}, {3, 1}, {0, 1}, {1, 1}, {2, 3}} {
		if err := b.Ready(t.Context(), k.tensor); err != nil {
			t.Fatal(err)
		}
		if c.calls != k.calls {
			t.Errorf("tensor %d: %d buckets issued, want %d", k.tensor, c.calls, k.calls)
		}
	}
	if err := b.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestWrongTensors(t *testing.T) {
	c := ranks(t, 1, false)[0]
	var wrong *bucket.TensorError
	for _, s := range []bucket.Shape{{Type: 99, Elements: 1}, {Type: mem.F32, Elements: -1}} {
		if _, err := bucket.NewFlat(t.Context(), c, bucket.Config{}, s); !errors.As(err, &wrong) || wrong.Tensor != 0 {
			t.Errorf("%v: %v", s, err)
		}
	}
	if _, err := bucket.New(t.Context(), c, bucket.Config{}, bucket.Of([]int8{1}), bucket.Tensor{Type: mem.F32, Data: make([]byte, 6)}); !errors.As(err, &wrong) || wrong.Tensor != 1 {
		t.Error(err)
	}
	b, err := bucket.New(t.Context(), c, bucket.Config{}, bucket.Of([]int8{1}), bucket.Of([]int8{2}))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, err := range []error{b.Ready(t.Context(), -1), b.Ready(t.Context(), 2), errors.Join(b.Ready(t.Context(), 0), b.Ready(t.Context(), 0))} {
		if !errors.As(err, &wrong) {
			t.Errorf("got %v, want a TensorError", err)
		}
	}
}

// TestNothingRegistered: an empty step is over at once.
func TestNothingRegistered(t *testing.T) {
	c := ranks(t, 1, false)[0]
	for _, shapes := range [][]bucket.Shape{nil, {{Type: mem.F32}}} {
		b, err := bucket.NewFlat(t.Context(), c, bucket.Config{}, shapes...)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(b.Flush(t.Context()), b.Wait(t.Context()), b.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestLayoutsDiffer: every rank learns of it, also of a rank that could not
// register its tensors, and the Comm is none the worse.
func TestLayoutsDiffer(t *testing.T) {
	const n = 3
	base := []bucket.Shape{{Type: mem.F32, Elements: 8}, {Type: mem.F32, Elements: 4}}
	comms := ranks(t, n, false)
	for name, odd := range map[string]struct {
		shapes []bucket.Shape
		cfg    bucket.Config
	}{
		"order":    {[]bucket.Shape{base[1], base[0]}, bucket.Config{}},
		"type":     {[]bucket.Shape{{Type: mem.I32, Elements: 8}, base[1]}, bucket.Config{}},
		"more":     {append([]bucket.Shape{{Type: mem.F64}}, base...), bucket.Config{}},
		"size":     {base, bucket.Config{Bytes: 7}},
		"operator": {base, bucket.Config{Sum: true}},
		"wrong":    {[]bucket.Shape{{Type: mem.F32, Elements: -1}}, bucket.Config{}},
	} {
		t.Run(name, func(t *testing.T) {
			onEveryRank(t, n, func(r int) error {
				var err error
				if r == 1 {
					_, err = bucket.NewFlat(t.Context(), comms[r], odd.cfg, odd.shapes...)
				} else {
					_, err = bucket.NewFlat(t.Context(), comms[r], bucket.Config{}, base...)
				}
				var layout *bucket.LayoutError
				var wrong *bucket.TensorError
				if !errors.As(err, &layout) && (r != 1 || !errors.As(err, &wrong)) {
					return fmt.Errorf("got %w, want a LayoutError", err)
				}
				return comms[r].Barrier(t.Context())
			})
		})
	}
}

// TestWaitEndsWithItsContext: the step goes on, and can be waited for again.
func TestWaitEndsWithItsContext(t *testing.T) {
	comms := ranks(t, 2, false)
	late := make(chan struct{})
	onEveryRank(t, 2, func(r int) error {
		b, err := newBucketer(t.Context(), comms[r], true, bucket.Config{})
		if err != nil {
			return err
		}
		defer b.Close()
		if r == 1 {
			<-late
		}
		for tensor := range shapes {
			fill(b, tensor, r, 0)
			if err := b.Ready(t.Context(), tensor); err != nil {
				return err
			}
		}
		if r == 0 {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			if err := b.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("got %w, want the deadline", err)
			}
			close(late)
		}
		if err := b.Wait(t.Context()); err != nil {
			return err
		}
		return check(b, 0, func(tensor, i int) int { return (value(0, 0, tensor, i) + value(1, 0, tensor, i)) / 2 })
	})
}

// TestFailureIsFinal: a communicator that fails fails the step, and those after.
func TestFailureIsFinal(t *testing.T) {
	comms := ranks(t, 2, false)
	bs := make([]*bucket.Bucketer, 2)
	onEveryRank(t, 2, func(r int) (err error) {
		bs[r], err = newBucketer(t.Context(), comms[r], true, bucket.Config{Bytes: 1000})
		return err
	})
	why := errors.New("the test says so")
	for tensor := range shapes {
		if err := bs[0].Ready(t.Context(), tensor); err != nil {
			t.Fatal(err)
		}
	}
	comms[0].Abort(why) // rank 1 never comes
	for range 2 {
		var failed *bucket.ReduceError
		if err := bs[0].Wait(t.Context()); !errors.As(err, &failed) || !errors.Is(err, why) || failed.Bucket != 0 {
			t.Errorf("got %v, want a ReduceError of bucket 0", err)
		}
	}
}

func TestStepsAllocateNothing(t *testing.T) {
	for _, flat := range []bool{true, false} {
		t.Run(fmt.Sprintf("flat=%v", flat), func(t *testing.T) {
			const runs = 100
			comms := ranks(t, 2, false)
			bs := make([]*bucket.Bucketer, 2)
			step := func(r int) error {
				for tensor := range shapes {
					if err := bs[r].Ready(context.Background(), len(shapes)-1-tensor); err != nil {
						return err
					}
				}
				return bs[r].Wait(context.Background())
			}
			onEveryRank(t, 2, func(r int) (err error) {
				if bs[r], err = newBucketer(t.Context(), comms[r], flat, bucket.Config{Bytes: 1000}); err != nil {
					return err
				}
				return step(r) // the first calls bind
			})
			peer := make(chan error)
			go func() {
				for range runs + 1 { // AllocsPerRun warms up once
					if err := step(1); err != nil {
						peer <- err
						return
					}
				}
				peer <- nil
			}()
			if n := testing.AllocsPerRun(runs, func() {
				if err := step(0); err != nil {
					t.Error(err)
				}
			}); n != 0 {
				t.Errorf("%v allocations a step", n)
			}
			if err := <-peer; err != nil {
				t.Error(err)
			}
		})
	}
}

// BenchmarkStep is a step of 64 MiB in 64 tensors between two ranks, without a
// backward pass beside it: what the copies cost.
func BenchmarkStep(b *testing.B) {
	const count, elements = 64, 1 << 18
	for _, flat := range []bool{true, false} {
		b.Run(fmt.Sprintf("flat=%v", flat), func(b *testing.B) {
			comms := ranks(b, 2, false)
			b.SetBytes(4 * count * elements)
			onEveryRank(b, 2, func(r int) (err error) {
				var x *bucket.Bucketer
				if flat {
					x, err = bucket.NewFlat(b.Context(), comms[r], bucket.Config{}, slices.Repeat([]bucket.Shape{{Type: mem.F32, Elements: elements}}, count)...)
				} else {
					var tensors []bucket.Tensor
					for range count {
						tensors = append(tensors, bucket.Of(make([]float32, elements)))
					}
					x, err = bucket.New(b.Context(), comms[r], bucket.Config{}, tensors...)
				}
				if err != nil {
					return err
				}
				defer x.Close()
				for range b.N {
					for tensor := count - 1; tensor >= 0; tensor-- {
						if err := x.Ready(b.Context(), tensor); err != nil {
							return err
						}
					}
					if err := x.Wait(b.Context()); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}
