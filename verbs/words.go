package verbs

import (
	"fmt"
	"math/bits"
	"strings"
)

// Access says who may do what to a memory region, and what a queue pair lets
// its peer do. Remote write and atomics need local write too.
type Access uint32

// The accesses. Relaxed ordering lets writes of the device reach memory in any
// order, also after the next one; a library or kernel without it ignores the
// wish. Words that a reader polls must lie in a region without it.
const (
	AccessLocalWrite      Access = 1 << 0
	AccessRemoteWrite     Access = 1 << 1
	AccessRemoteRead      Access = 1 << 2
	AccessRemoteAtomic    Access = 1 << 3
	AccessZeroBased       Access = 1 << 5
	AccessOnDemand        Access = 1 << 6
	AccessHugePages       Access = 1 << 7
	AccessRelaxedOrdering Access = 1 << 20
)

func (a Access) String() string {
	if a == 0 {
		return "local read"
	}
	return flags(uint32(a), map[uint32]string{
		uint32(AccessLocalWrite): "local write", uint32(AccessRemoteWrite): "remote write",
		uint32(AccessRemoteRead): "remote read", uint32(AccessRemoteAtomic): "remote atomic",
		uint32(AccessZeroBased): "zero based", uint32(AccessOnDemand): "on demand",
		uint32(AccessHugePages): "huge pages", uint32(AccessRelaxedOrdering): "relaxed ordering"})
}

// Opcode is what a work request does.
type Opcode uint32

// The operations. Write and Read move bytes to and from the peer's memory
// without its doing; WriteImm takes a receive there and completes it with a
// number. CompareSwap and FetchAdd work on 8 aligned bytes of the peer and
// return what was there before.
const (
	Write Opcode = iota
	WriteImm
	Send
	SendImm
	Read
	CompareSwap
	FetchAdd
)

func (o Opcode) String() string {
	return name(uint32(o), "opcode", "WRITE", "WRITE_WITH_IMM", "SEND", "SEND_WITH_IMM", "READ", "CMP_SWP", "FETCH_ADD")
}

// SendFlags modify a work request.
type SendFlags uint32

// Fence waits for the reads and atomics before it. Signaled asks for a
// completion on success. Solicited wakes a peer that armed its completion
// queue for solicited completions only. InlineSegments takes the bytes of the
// segments when the request is posted, so that they may be changed at once and
// need no key; Request.Inline sets it.
const (
	Fence          SendFlags = 1 << 0
	Signaled       SendFlags = 1 << 1
	Solicited      SendFlags = 1 << 2
	InlineSegments SendFlags = 1 << 3
)

// MTU is the largest packet payload, as the field encodes it: 1 is 256 bytes,
// 5 is 4096. The smaller of two MTUs is the smaller number.
type MTU uint32

// The MTUs.
const (
	MTU256 MTU = 1 + iota
	MTU512
	MTU1024
	MTU2048
	MTU4096
)

// Bytes returns the payload in bytes, 0 for what is no MTU.
func (m MTU) Bytes() int {
	if m < MTU256 || m > MTU4096 {
		return 0
	}
	return 128 << m
}

func (m MTU) String() string { return fmt.Sprint(m.Bytes()) }

// MTUOf returns the MTU of so many bytes.
func MTUOf(bytes int) (MTU, error) {
	for m := MTU256; m <= MTU4096; m++ {
		if m.Bytes() == bytes {
			return m, nil
		}
	}
	return 0, fmt.Errorf("verbs: %d is no MTU: it is 256, 512, 1024, 2048 or 4096", bytes)
}

// PortState is what a port is ready for.
type PortState uint32

// The states of a port. Data moves in PortActive.
const (
	PortNop PortState = iota
	PortDown
	PortInit
	PortArmed
	PortActive
	PortActiveDefer
)

func (s PortState) String() string {
	return name(uint32(s), "port state", "NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER")
}

// LinkLayer is what a port's cable speaks.
type LinkLayer uint8

// The link layers. Ports of different ones cannot be connected.
const (
	LinkUnspecified LinkLayer = iota
	LinkInfiniBand
	LinkEthernet
)

func (l LinkLayer) String() string {
	return name(uint32(l), "link layer", "unspecified", "InfiniBand", "Ethernet")
}

// NodeType is what a device is.
type NodeType int32

// The node types.
const (
	NodeUnknown     NodeType = -1
	NodeCA          NodeType = 1 // a channel adapter: InfiniBand and RoCE
	NodeSwitch      NodeType = 2
	NodeRouter      NodeType = 3
	NodeRNIC        NodeType = 4 // iWARP
	NodeUSNIC       NodeType = 5
	NodeUSNICUDP    NodeType = 6
	NodeUnspecified NodeType = 7
)

func (t NodeType) String() string {
	if t <= 0 {
		return "unknown"
	}
	return name(uint32(t), "node type", "", "channel adapter", "switch", "router", "RNIC", "usNIC", "usNIC UDP", "unspecified")
}

// Transport is the protocol family of a device.
type Transport int32

// The transports. RoCE counts as InfiniBand.
const (
	TransportUnknown     Transport = -1
	TransportInfiniBand  Transport = 0
	TransportIWARP       Transport = 1
	TransportUSNIC       Transport = 2
	TransportUSNICUDP    Transport = 3
	TransportUnspecified Transport = 4
)

func (t Transport) String() string {
	if t < 0 {
		return "unknown"
	}
	return name(uint32(t), "transport", "InfiniBand", "iWARP", "usNIC", "usNIC UDP", "unspecified")
}

// QPType is the service of a queue pair.
type QPType uint32

// The services: RC is connected, reliable and in order; UC is connected and
// loses; UD sends datagrams of up to an MTU to anybody and loses.
const (
	RC QPType = 2
	UC QPType = 3
	UD QPType = 4
)

func (t QPType) String() string {
	return name(uint32(t), "queue pair type", "", "", "RC", "UC", "UD")
}

// QPState is the state of a queue pair.
type QPState uint32

// The states: receives may be posted from StateInit on, and are filled from
// StateRTR on; sends from StateRTS on. In StateErr everything is flushed.
const (
	StateReset QPState = iota
	StateInit
	StateRTR
	StateRTS
	StateSQDrained
	StateSQError
	StateErr
	StateUnknown
)

func (s QPState) String() string {
	return name(uint32(s), "queue pair state", "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR", "unknown")
}

// GIDType says which packets a GID stands for.
type GIDType uint32

// The types. RoCE v2 runs over UDP and can be routed, v1 cannot.
const (
	GIDInfiniBand GIDType = iota
	GIDRoCEv1
	GIDRoCEv2
)

func (t GIDType) String() string {
	return name(uint32(t), "GID type", "IB", "RoCE v1", "RoCE v2")
}

// EventType is what happened to a device, a port, a queue pair, or a queue.
type EventType uint32

// The events.
const (
	EventCQError EventType = iota
	EventQPFatal
	EventQPRequestError
	EventQPAccessError
	EventCommEstablished
	EventSQDrained
	EventPathMigrated
	EventPathMigrationError
	EventDeviceFatal
	EventPortActive
	EventPortError
	EventLIDChange
	EventPKeyChange
	EventSMChange
	EventSRQError
	EventSRQLimit
	EventLastWQE
	EventClientReregister
	EventGIDChange
	EventWQFatal
)

func (t EventType) String() string {
	return name(uint32(t), "event", "completion queue error (it overflowed)", "queue pair fatal", "queue pair request error",
		"queue pair access error", "communication established", "send queue drained", "path migrated",
		"path migration error", "device fatal", "port active", "port error (the link is down)", "LID changed",
		"partition keys changed", "subnet manager changed", "shared receive queue error", "shared receive queue limit reached",
		"last receive of the queue pair taken", "clients must register again", "GID table changed", "work queue fatal")
}

// Fatal reports whether what it happened to cannot be used any more.
func (t EventType) Fatal() bool {
	switch t {
	case EventCQError, EventQPFatal, EventQPRequestError, EventQPAccessError, EventDeviceFatal, EventSRQError, EventWQFatal:
		return true
	}
	return false
}

// name returns the name of a number, or what and the number.
func name(v uint32, what string, names ...string) string {
	if int64(v) < int64(len(names)) && names[v] != "" {
		return names[v]
	}
	return fmt.Sprintf("%s %d", what, v)
}

// flags returns the names of the bits that are set, lowest first.
func flags(v uint32, names map[uint32]string) string {
	var s []string
	for ; v != 0; v &= v - 1 {
		bit := uint32(1) << bits.TrailingZeros32(v)
		if n, ok := names[bit]; ok {
			s = append(s, n)
		} else {
			s = append(s, fmt.Sprintf("%#x", bit))
		}
	}
	return strings.Join(s, ", ")
}

// untilNUL returns the text before the first zero byte.
func untilNUL(s string) string {
	s, _, _ = strings.Cut(s, "\x00")
	return s
}
