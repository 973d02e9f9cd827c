package rc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/verbs"
)

// rail is an open device and the port of it that is used. It does not change
// while the fabric is open.
type rail struct {
	fabric  *Fabric
	index   int
	device  *verbs.Device
	attr    verbs.Attr
	port    verbs.Port
	gid     verbs.GIDEntry
	pd      *verbs.PD
	channel *verbs.CompletionChannel

	fds   [2]unix.PollFd // of the rail's goroutine
	begun sync.Once
	begin chan struct{} // closed when there is a completion queue
}

// railName is a device of Config.Devices.
type railName struct {
	device string
	port   int // 0: the first active one
}

func parseRail(s string) (railName, error) {
	name, port, found := strings.Cut(s, ":")
	r := railName{device: name}
	if found {
		n, err := strconv.Atoi(port)
		if err != nil || n < 1 || n > 255 {
			return r, fmt.Errorf("%q: %q is no port, which are numbered from 1", s, port)
		}
		r.port = n
	}
	if name == "" {
		return r, fmt.Errorf("%q names no device", s)
	}
	return r, nil
}

// openRails opens the devices that the configuration names, or those that are
// best. What it has opened is in f.rails also when it fails.
func (f *Fabric) openRails(near []netip.Prefix) error {
	names := f.cfg.Devices
	if len(names) == 0 || strings.HasPrefix(names[0], "^") {
		return f.openBest(names, near)
	}
	if len(names) > MaxRails {
		return &ConfigError{"Devices", fmt.Errorf("%d devices, there may be %d", len(names), MaxRails)}
	}
	for _, s := range names {
		name, err := parseRail(s)
		if err != nil {
			return &ConfigError{"Devices", err}
		}
		r, err := f.openRail(name, near)
		if err != nil {
			return err
		}
		if r.port.LinkLayer != f.rails[0].port.LinkLayer {
			return &ConfigError{"Devices", fmt.Errorf("%s port %d is %v and %s port %d is %v: rails of one kind are needed", f.rails[0].device.Name(), f.rails[0].port.Number, f.rails[0].port.LinkLayer, r.device.Name(), r.port.Number, r.port.LinkLayer)}
		}
	}
	return nil
}

// openBest opens all devices with an active port, and keeps the fastest.
func (f *Fabric) openBest(exceptions []string, near []netip.Prefix) error {
	list, err := verbs.Devices()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	var errs []error
	except := map[string]bool{}
	for _, e := range exceptions {
		except[strings.TrimPrefix(e, "^")] = true
	}
	for _, info := range list {
		if except[info.Name] || len(f.rails) == MaxRails {
			continue
		}
		if _, err := f.openRail(railName{device: info.Name}, near); err != nil {
			errs = append(errs, err)
		}
	}
	if len(f.rails) == 0 {
		if len(errs) == 0 {
			errs = append(errs, &verbs.NoDeviceError{Name: "any"})
		}
		return fmt.Errorf("%w: %w", ErrUnavailable, errors.Join(errs...))
	}
	best := f.rails[0]
	for _, r := range f.rails[1:] {
		if r.port.Speed > best.port.Speed {
			best = r
		}
	}
	rails := f.rails
	f.rails = nil
	for _, r := range rails {
		if r.port.LinkLayer == best.port.LinkLayer && r.port.Speed == best.port.Speed {
			r.index = len(f.rails)
			f.rails = append(f.rails, r)
			continue
		}
		if err := r.close(); err != nil {
			return err
		}
	}
	for _, err := range errs {
		f.log.Info("an RDMA device is not used", "rank", f.rank, "cause", err)
	}
	return nil
}

// openRail opens one device and adds it to the rails.
func (f *Fabric) openRail(name railName, near []netip.Prefix) (_ *rail, err error) {
	device, err := verbs.Open(name.device)
	if err != nil {
		if errors.Is(err, verbs.ErrUnavailable) {
			err = fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		return nil, err
	}
	r := &rail{fabric: f, index: len(f.rails), device: device, begin: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if r.attr, err = device.Attr(); err != nil {
		return nil, err
	}
	if r.port, err = r.choosePort(name.port); err != nil {
		return nil, err
	}
	if f.cfg.MTU > r.port.ActiveMTU.Bytes() {
		return nil, &ConfigError{"MTU", fmt.Errorf("%d is more than %s port %d has, which is %v", f.cfg.MTU, device.Name(), r.port.Number, r.port.ActiveMTU)}
	}
	if f.cfg.PKeyIndex >= r.port.PKeys {
		return nil, &ConfigError{"PKeyIndex", fmt.Errorf("%d: %s port %d has %d partition keys", f.cfg.PKeyIndex, device.Name(), r.port.Number, r.port.PKeys)}
	}
	table, err := device.GIDs(r.port.Number)
	if err != nil {
		return nil, err
	}
	if r.gid, err = chooseGID(table, r.port.LinkLayer, f.cfg.GIDIndex, near); err != nil {
		return nil, &ConfigError{"GIDIndex", fmt.Errorf("%s port %d: %w", device.Name(), r.port.Number, err)}
	}
	if r.pd, err = device.AllocPD(); err != nil {
		return nil, err
	}
	if r.channel, err = device.CreateChannel(); err != nil {
		return nil, err
	}
	f.rails = append(f.rails, r)
	return r, nil
}

// choosePort returns the port of that number, or the first active one.
func (r *rail) choosePort(number int) (verbs.Port, error) {
	var states []string
	for n := 1; n <= r.attr.Ports; n++ {
		if number != 0 && n != number {
			continue
		}
		p, err := r.device.Port(n)
		if err != nil {
			return p, err
		}
		if p.State == verbs.PortActive {
			return p, nil
		}
		states = append(states, fmt.Sprintf("port %d is %v", n, p.State))
	}
	if states == nil {
		return verbs.Port{}, &ConfigError{"Devices", fmt.Errorf("%s has no port %d: it has %d", r.device.Name(), number, r.attr.Ports)}
	}
	return verbs.Port{}, &ConfigError{"Devices", fmt.Errorf("%s: %s: is the link up?", r.device.Name(), strings.Join(states, ", "))}
}

// software reports whether the device is none, as soft-RoCE's are.
func (r *rail) software() bool {
	list, err := verbs.Inventory(nil)
	if err != nil {
		return false
	}
	at := slices.IndexFunc(list, func(h verbs.Hardware) bool { return h.Name == r.device.Name() })
	return at >= 0 && list[at].PCI == ""
}

// mtu is what the rail offers.
func (r *rail) mtu() verbs.MTU {
	if r.fabric.cfg.MTU != 0 {
		m, _ := verbs.MTUOf(r.fabric.cfg.MTU)
		return m
	}
	return r.port.ActiveMTU
}

// close closes what stands on the device, except regions and queues, which are
// closed before.
func (r *rail) close() error {
	var errs []error
	if r.channel != nil {
		errs = append(errs, r.channel.Close())
	}
	if r.pd != nil {
		errs = append(errs, r.pd.Close())
	}
	return errors.Join(append(errs, r.device.Close())...)
}

// networksOf returns the networks of this machine that an address is of.
func networksOf(listen string) []netip.Prefix {
	if at, err := netip.ParseAddrPort(listen); err == nil {
		listen = at.Addr().String()
	}
	address, err := netip.ParseAddr(listen)
	if err != nil || address.IsLoopback() {
		return nil
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var near []netip.Prefix
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Contains(address) {
			near = append(near, p)
		}
	}
	return near
}

// watch hears what the device says by itself, until the fabric closes.
func (r *rail) watch(ctx context.Context) {
	f := r.fabric
	for {
		event, err := r.device.Event(ctx)
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, verbs.ErrClosed) {
				f.log.Error("events of a device cannot be read", "rank", f.rank, "device", r.device.Name(), "cause", err)
			}
			return
		}
		r.heard(event)
	}
}

func (r *rail) heard(event verbs.Event) {
	f := r.fabric
	f.log.Info("event", "rank", f.rank, "event", event.String())
	cause := &EventError{event.Type, event.String()}
	switch event.Type {
	case verbs.EventPortError:
		if event.Port == r.port.Number {
			f.start(func() { r.awaitPort(cause) })
		}
	case verbs.EventDeviceFatal:
		f.loseLanes(cause, func(l *lane) bool { return l.rail == r })
	case verbs.EventCQError:
		f.loseLanes(cause, func(l *lane) bool { return l.queue.cq == event.CQ })
	case verbs.EventQPFatal, verbs.EventQPRequestError, verbs.EventQPAccessError:
		f.loseLanes(cause, func(l *lane) bool { return l.qp == event.QP })
	}
}

// awaitPort gives a port that is down its time.
func (r *rail) awaitPort(cause *EventError) {
	f := r.fabric
	for end := time.Now().Add(f.cfg.PortGrace); time.Now().Before(end); {
		select {
		case <-f.life.Done():
			return
		case <-time.After(min(20*time.Millisecond, f.cfg.PortGrace)):
		}
		if p, err := r.device.Port(r.port.Number); err == nil && p.State == verbs.PortActive {
			f.log.Info("a port is up again", "rank", f.rank, "device", r.device.Name(), "port", r.port.Number)
			return
		}
	}
	f.loseLanes(cause, func(l *lane) bool { return l.rail == r })
}
