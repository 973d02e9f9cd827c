package rc

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/tutti-go/tutti/verbs"
)

func someOffer(lanes int) offer {
	o := offer{rails: 2, mtuForced: true, credits: 7, maxMessage: 1 << 20, slotsAddr: 1 << 40, slotsKey: 9}
	for i := range lanes {
		o.lanes = append(o.lanes, laneOffer{qpn: uint32(i), psn: 5, gid: verbs.GID{1, 2, 15: 3}, lid: 77, mtu: verbs.MTU1024, layer: verbs.LinkEthernet, rail: uint8(i % 2)})
	}
	return o
}

func TestOffer(t *testing.T) {
	for lanes := 1; lanes <= MaxLanes; lanes++ {
		o := someOffer(lanes)
		b := o.encode()
		if len(b) > maxMessageLen {
			t.Errorf("%d lanes take %d bytes", lanes, len(b))
		}
		got, err := decodeOffer(b)
		if err != nil || !bytes.Equal(got.encode(), b) {
			t.Errorf("%d lanes: %+v, %v", lanes, got, err)
		}
	}
	for name, change := range map[string]func(b []byte){
		"magic":       func(b []byte) { b[0]++ },
		"version":     func(b []byte) { b[8]++ },
		"no lanes":    func(b []byte) { b[12] = 0 },
		"lanes":       func(b []byte) { b[12]++ },
		"no rails":    func(b []byte) { b[13] = 0 },
		"rails":       func(b []byte) { b[13] = MaxRails + 1 },
		"forced":      func(b []byte) { b[14] = 2 },
		"no credits":  func(b []byte) { clear(b[16:20]) },
		"no messages": func(b []byte) { clear(b[20:24]) },
		"MTU":         func(b []byte) { b[offerHead+26] = 6 },
		"rail":        func(b []byte) { b[offerHead+28] = 2 },
		"queue pair":  func(b []byte) { b[offerHead+3] = 1 },
	} {
		o := someOffer(3)
		b := o.encode()
		change(b)
		if _, err := decodeOffer(b); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzOffer(f *testing.F) {
	o := someOffer(2)
	f.Add(o.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if o, err := decodeOffer(b); err == nil && !bytes.Equal(o.encode(), b) {
			t.Errorf("%x decodes to %+v, which encodes otherwise", b, o)
		}
	})
}

func FuzzPlace(f *testing.F) {
	p := place{region: 3, size: 100, addr: 1 << 40, rails: 2}
	f.Add(p.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := decodePlace(b); err == nil && !bytes.Equal(p.encode(), b) {
			t.Errorf("%x decodes to %+v, which encodes otherwise", b, p)
		}
	})
}

func FuzzRecord(f *testing.F) {
	r := record{region: 3, counter: 5, marks: 2, offset: 64, count: 1 << 50}
	var b [recordSlot]byte
	r.encode(&b)
	f.Add(b[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		slot := make([]byte, recordSlot)
		copy(slot, b)
		var r record
		if !r.decode(slot) {
			return
		}
		var again [recordSlot]byte
		if n := r.encode(&again); !bytes.Equal(again[:n], slot[:n]) {
			t.Errorf("%x decodes to %+v, which encodes otherwise", slot, r)
		}
	})
}

func FuzzMessage(f *testing.F) {
	f.Add(appendMessage(nil, kindFailed, []byte("no \x1b[31m")))
	f.Fuzz(func(t *testing.T, b []byte) {
		var room [maxMessageLen]byte
		m, err := readMessage(bytes.NewReader(b), &room)
		if err == nil && !bytes.HasPrefix(b, appendMessage(nil, m.kind, m.body)) {
			t.Errorf("%x reads as %+v", b, m)
		}
		for _, r := range m.text() {
			if r < ' ' || r == 0x7f {
				t.Errorf("%q is said as %q", m.body, m.text())
			}
		}
	})
}

func TestFromEnv(t *testing.T) {
	env := func(m map[string]string) func(string) (string, bool) {
		return func(name string) (string, bool) { v, ok := m[name]; return v, ok }
	}
	c, err := fromEnv(Config{ServiceLevel: 3}, env(map[string]string{
		VarDevices: "mlx5_0, mlx5_1:2", VarGIDIndex: "3", VarMTU: "1024", VarServiceLevel: "5", VarTrafficClass: "0x68", VarPKeyIndex: "1",
		VarTimeout: "18", VarRetryCount: "5", VarRNRRetry: "6", VarQueuePairs: "2", VarInlineBytes: "64", VarSignal: "direct", VarPortGrace: "1.5s",
	}))
	if err != nil || len(c.Devices) != 2 || c.Devices[1] != "mlx5_1:2" || *c.GIDIndex != 3 || c.MTU != 1024 || c.ServiceLevel != 3 || c.TrafficClass != 0x68 ||
		c.PKeyIndex != 1 || c.Timeout != 18 || c.RetryCount != 5 || c.RNRRetry != 6 || c.QueuePairs != 2 || c.InlineBytes != 64 || c.Signal != Direct || c.PortGrace != 1500*time.Millisecond {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := fromEnv(Config{}, env(map[string]string{VarGIDIndex: "-1", VarDevices: " "})); err != nil || c.GIDIndex != nil || c.Devices != nil {
		t.Errorf("%+v, %v", c, err)
	}
	for name, value := range map[string]string{
		VarDevices: "a,,b", VarGIDIndex: "one", VarMTU: "1k", VarTimeout: "99999999999999", VarSignal: "smoke", VarPortGrace: "3",
	} {
		_, err := fromEnv(Config{}, env(map[string]string{name: value}))
		var e *ConfigError
		if !errors.As(err, &e) || e.Field != name+"="+value {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
	if _, err := FromEnv(Config{}); err != nil {
		t.Error(err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	index := 256
	for field, c := range map[string]Config{
		"ServiceLevel": {ServiceLevel: 16}, "TrafficClass": {TrafficClass: 256}, "PKeyIndex": {PKeyIndex: -1}, "Timeout": {Timeout: 32},
		"RetryCount": {RetryCount: 8}, "RNRRetry": {RNRRetry: -1}, "QueuePairs": {QueuePairs: MaxLanes + 1}, "SendDepth": {SendDepth: 7},
		"Credits": {Credits: 3}, "InlineBytes": {InlineBytes: 1025}, "BounceBytes": {BounceBytes: 100}, "GIDIndex": {GIDIndex: &index},
		"MTU": {MTU: 1000}, "Signal": {Signal: 2},
	} {
		var e *ConfigError
		if err := c.fill(); !errors.As(err, &e) || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	var c Config
	if err := c.fill(); err != nil || c.RetryCount != 6 || c.Timeout != 14 || c.RNRRetry != 7 {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestChooseGID(t *testing.T) {
	entry := func(index int, address string, typ verbs.GIDType) verbs.GIDEntry {
		return verbs.GIDEntry{Index: index, GID: verbs.GID(netip.MustParseAddr(address).As16()), Type: typ}
	}
	table := []verbs.GIDEntry{
		entry(0, "fe80::1", verbs.GIDRoCEv1), entry(1, "fe80::1", verbs.GIDRoCEv2),
		entry(2, "10.0.0.1", verbs.GIDRoCEv1), entry(3, "10.0.0.1", verbs.GIDRoCEv2),
		entry(4, "2001:db8::1", verbs.GIDRoCEv2), entry(5, "10.0.1.1", verbs.GIDRoCEv2),
	}
	near := func(s ...string) (p []netip.Prefix) {
		for _, s := range s {
			p = append(p, netip.MustParsePrefix(s))
		}
		return p
	}
	seven, two := 7, 2
	for name, tt := range map[string]struct {
		table []verbs.GIDEntry
		layer verbs.LinkLayer
		index *int
		near  []netip.Prefix
		want  int // -1: an error
	}{
		"IPv4":             {table, verbs.LinkEthernet, nil, nil, 3},
		"near":             {table, verbs.LinkEthernet, nil, near("10.0.1.0/24"), 5},
		"near, IPv6":       {table, verbs.LinkEthernet, nil, near("2001:db8::/64"), 4},
		"link-local last":  {table[:2], verbs.LinkEthernet, nil, nil, 1},
		"version 1 at all": {table[:1], verbs.LinkEthernet, nil, nil, 0},
		"version 2 first":  {table[:3], verbs.LinkEthernet, nil, near("10.0.0.0/24"), 1},
		"asked for":        {table, verbs.LinkEthernet, &two, nil, 2},
		"not there":        {table, verbs.LinkEthernet, &seven, nil, -1},
		"none":             {nil, verbs.LinkEthernet, nil, nil, -1},
		"InfiniBand":       {[]verbs.GIDEntry{entry(0, "fe80::1", verbs.GIDInfiniBand), entry(1, "fec0::1", verbs.GIDInfiniBand)}, verbs.LinkInfiniBand, nil, nil, 0},
	} {
		got, err := chooseGID(tt.table, tt.layer, tt.index, tt.near)
		if (err != nil) != (tt.want < 0) || err == nil && got.Index != tt.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
