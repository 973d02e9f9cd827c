package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// testSecret is a secret.
var testSecret = []byte("correct horse battery staple")

// options are those of a job at an address that nobody else uses, and rank 0's
// listener.
func options(t testing.TB, size int, network string) Options {
	t.Helper()
	o := Options{Size: size, LocalRank: -1, Timeout: time.Minute}
	if network == "unix" {
		o.Root = fmt.Sprintf("unix:@tutti-test-%x", rand.Uint64())
		return o
	}
	l, err := net.Listen("tcp", net.JoinHostPort(network, "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	o.Root, o.listener = l.Addr().String(), []net.Listener{l}
	return o
}

// as is what one rank is told.
func (o Options) as(rank int) Options {
	o.Rank = rank
	if rank != 0 {
		o.listener = nil
	}
	return o
}

// joinAll joins every rank that mutate allows, in an order of chance.
func joinAll(ctx context.Context, o Options, mutate func(o *Options) bool) ([]Exchanger, []error) {
	all, errs := make([]Exchanger, o.Size), make([]error, o.Size)
	var wg sync.WaitGroup
	for _, r := range rand.Perm(o.Size) {
		mine := o.as(r)
		if mutate != nil && !mutate(&mine) {
			continue
		}
		wg.Go(func() { all[r], errs[r] = Join(ctx, mine) })
	}
	wg.Wait()
	return all, errs
}

// form makes a job of goroutines of this process.
func form(t testing.TB, o Options) []Exchanger {
	t.Helper()
	all, errs := joinAll(t.Context(), o, nil)
	if err := errors.Join(errs...); err != nil {
		for _, x := range all {
			if x != nil {
				x.Close()
			}
		}
		t.Fatal(err)
	}
	return all
}
