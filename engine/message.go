package engine

import (
	"context"

	"github.com/tutti-go/tutti/mem"
)

// ready refuses a message beside a call: the exchange of single messages may
// be that call's.
func (c *Comm) ready(ctx context.Context) error {
	if err := c.settle(ctx, "exchange"); err != nil {
		return err
	}
	if c.calling {
		return ErrBusy
	}
	return nil
}

// Send sends len(buf) bytes of elements of type t to rank to. A message that
// is short, or has to be copied anyway, may be on its way when Send returns;
// otherwise Send returns when the receiver has it. Two ranks that both send
// before they receive may deadlock; SendRecv and Exchange cannot.
func (c *Comm) Send(ctx context.Context, buf []byte, t mem.DType, to int) error {
	if err := c.ready(ctx); err != nil {
		return err
	}
	c.post.own.Send(buf, t, to)
	return c.post.own.run(ctx)
}

// Recv fills buf with the next message from rank from.
func (c *Comm) Recv(ctx context.Context, buf []byte, t mem.DType, from int) error {
	if err := c.ready(ctx); err != nil {
		return err
	}
	if err := c.checkMessage("recv", buf, t, from); err != nil {
		return err
	}
	if err := c.begin("exchange"); err != nil {
		return err
	}
	return c.exit("exchange", c.post.receive(ctx, &message{buf: buf, dtype: t, peer: from, recv: true, call: noCollective}))
}

// SendRecv sends to one rank and receives from another, or the same, at once.
func (c *Comm) SendRecv(ctx context.Context, send []byte, to int, recv []byte, from int, t mem.DType) error {
	if err := c.ready(ctx); err != nil {
		return err
	}
	if err := c.checkMessage("send", send, t, to); err != nil {
		return err
	}
	if err := c.checkMessage("recv", recv, t, from); err != nil {
		return err
	}
	x := c.post.own
	if len(send) > c.post.short || !legalAlias(send, recv, noPlace) {
		x.Send(send, t, to)
		x.Recv(recv, t, from)
		return x.run(ctx)
	}
	if err := c.begin("exchange"); err != nil {
		return err
	}
	if !c.post.free(to) {
		x.Send(send, t, to)
		x.Recv(recv, t, from)
		defer x.reset()
		return c.exit("exchange", x.progress(ctx))
	}
	_, err := c.post.stepSend(&message{buf: send, dtype: t, peer: to, call: noCollective})
	if err == nil {
		err = c.post.receive(ctx, &message{buf: recv, dtype: t, peer: from, recv: true, call: noCollective})
	}
	return c.exit("exchange", err)
}

// receive takes a message, in as many parcels as it comes in. There is but one
// counter to wait for at a time, which an exchange cannot say of itself.
func (p *post) receive(ctx context.Context, m *message) error {
	in, c := &p.in[m.peer], p.comm
	for {
		next := in.number + 1
		c.crowd.Await(m.peer)
		if err := c.waiters[m.peer].Wait(ctx, in.lines[next%postLines], next); err != nil {
			return err
		}
		if _, err := p.stepRecv(ctx, m); err != nil || m.state == messageDone {
			return err
		}
	}
}

// SendAsync is Send, asynchronously. It holds up the calls issued after it
// until it is done; use an Exchange for sends that wait for each other.
func (c *Comm) SendAsync(ctx context.Context, buf []byte, t mem.DType, to int) (Work, error) {
	x := c.NewExchange()
	x.Send(buf, t, to)
	return x.RunAsync(ctx)
}

// RecvAsync is Recv, asynchronously, and holds up later calls as SendAsync does.
func (c *Comm) RecvAsync(ctx context.Context, buf []byte, t mem.DType, from int) (Work, error) {
	x := c.NewExchange()
	x.Recv(buf, t, from)
	return x.RunAsync(ctx)
}
