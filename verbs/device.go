package verbs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
)

// LibraryVariable names the environment variable that says which library is
// loaded instead of libibverbs.so.1: a path, or a name the loader finds. It is
// read at the first use of this package and not again.
const LibraryVariable = "TUTTI_LIBIBVERBS"

// Library is what was loaded.
type Library struct {
	Path            string // as given to the loader
	RelaxedOrdering bool   // AccessRelaxedOrdering is not ignored (rdma-core 28)
	GIDTable        bool   // GID tables with types come in one call (32)
	DMABuf          bool   // RegisterDMABuf exists (34); a device may still refuse
	DataInOrder     bool   // QueuePair.DataInOrder asks the device (36)
	PortSpeed       bool   // ports report their effective speed (62)
}

var loaded struct {
	sync.Once
	Library
	err error
}

// Load loads the library, which every other call does by itself, and says what
// it offers. The first result stands for the life of the process. Errors:
// *UnavailableError.
func Load() (Library, error) {
	loaded.Do(func() {
		path := os.Getenv(LibraryVariable)
		if path == "" {
			path = defaultLibrary
		}
		if err := sysLoad(path); err != nil {
			loaded.err = err
			return
		}
		loaded.Library = sysFeatures()
		loaded.Path = path
	})
	return loaded.Library, loaded.err
}

// DeviceInfo is a device that may be opened.
type DeviceInfo struct {
	Name       string // "mlx5_0"
	GUID       GUID   // of the node
	Node       NodeType
	Transport  Transport
	CharDevice string // "uverbs0", a file in /dev/infiniband
	SysfsPath  string // of the device in sysfs
}

// GUID is the number that a vendor gave to a node or a port.
type GUID uint64

func (g GUID) String() string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", uint16(g>>48), uint16(g>>32), uint16(g>>16), uint16(g))
}

// Devices lists the devices that the library finds, in its order. With no
// driver loaded there are none, which is not an error. Errors:
// *UnavailableError, *Error.
func Devices() ([]DeviceInfo, error) {
	if _, err := Load(); err != nil {
		return nil, err
	}
	list, errno := sysDevices()
	if errno == syscall.ENOSYS { // no RDMA in the kernel, or its module not loaded
		return nil, nil
	}
	if errno != 0 {
		return nil, &Error{Op: "listing devices", Err: errno}
	}
	return list, nil
}

// Device is an open device. It is what the library calls a context.
type Device struct {
	node    node
	info    DeviceInfo
	ctx     handle
	vectors int

	events  *waiter
	objects sync.Map // handle of the library -> *QueuePair, *CompletionQueue, *SRQ
}

// Open opens the device of that name. Errors: *UnavailableError,
// *NoDeviceError, and an *Error that is fs.ErrPermission when the device's
// node in /dev/infiniband may not be opened.
func Open(name string) (*Device, error) {
	list, err := Devices()
	if err != nil {
		return nil, err
	}
	var present []string
	for _, info := range list {
		if info.Name == name {
			return open(info)
		}
		present = append(present, info.Name)
	}
	return nil, &NoDeviceError{Name: name, Present: present}
}

func open(info DeviceInfo) (*Device, error) {
	d := &Device{info: info}
	if err := d.node.begin(kindDevice, "device "+info.Name); err != nil {
		return nil, err
	}
	ctx, asyncFD, vectors, errno := sysOpen(info.Name)
	if errno != 0 {
		d.node.abandon()
		return nil, &Error{Op: "opening the device", Device: info.Name, Err: errno, Advice: openAdvice(errno, info)}
	}
	d.ctx, d.vectors = ctx, vectors
	events, err := newWaiter(asyncFD, info.Name+" events")
	if err != nil {
		_ = sysClose(ctx)
		d.node.abandon()
		return nil, &Error{Op: "watching for events", Device: info.Name, Err: err}
	}
	d.events = events
	return d, nil
}

func openAdvice(errno syscall.Errno, info DeviceInfo) string {
	file := "/dev/infiniband/" + info.CharDevice
	switch errno {
	case syscall.EACCES, syscall.EPERM:
		return fmt.Sprintf("this user may not read and write %s: put it into the group that owns the file, or give a container the device (--device=%s)", file, file)
	case syscall.ENOENT, syscall.ENXIO, syscall.ENODEV:
		return fmt.Sprintf("%s is missing: is udev running, the module ib_uverbs loaded, /dev/infiniband passed to the container?", file)
	case syscall.EMFILE, syscall.ENFILE:
		return "too many open files: raise RLIMIT_NOFILE (ulimit -n)"
	}
	return ""
}

// Name returns the device's name.
func (d *Device) Name() string { return d.info.Name }

// Info returns what Devices said of the device.
func (d *Device) Info() DeviceInfo { return d.info }

// CompletionVectors returns how many interrupts there are to spread
// completion queues over.
func (d *Device) CompletionVectors() int { return d.vectors }

// Close closes the device and wakes those who wait in Event. Errors:
// *BusyError while anything made from it is open, *Error.
func (d *Device) Close() error {
	return d.node.end(func() error {
		d.events.close()
		if errno := sysClose(d.ctx); errno != 0 {
			return &Error{Op: "closing the device", Device: d.info.Name, Err: errno}
		}
		d.ctx = nil
		return nil
	})
}

// Attr is what a device can do. Sizes of queues are upper bounds; what a queue
// got is told when it is made.
type Attr struct {
	Firmware            string
	NodeGUID            GUID
	SystemGUID          GUID
	VendorID            uint32
	VendorPartID        uint32
	HardwareVersion     uint32
	Ports               int
	MaxMRBytes          uint64
	MaxMRs              int
	MaxPDs              int
	MaxQueuePairs       int
	MaxQPRequests       int // in one queue
	MaxSegments         int // in one request
	MaxReadSegments     int // in one READ
	MaxCQs              int
	MaxCQEntries        int
	MaxSRQs             int
	MaxSRQRequests      int
	MaxSRQSegments      int
	MaxAddressHandles   int
	MaxRDAtomic         int // reads and atomics that one queue pair serves at a time
	MaxInitiateRDAtomic int // and that it has under way at a time
	Atomic              AtomicCap
	Capabilities        uint32 // IBV_DEVICE_ bits
	PKeys               int
	PageSizes           uint64 // a bit for each size of page
}

// AtomicCap says against what a device's atomics are atomic.
type AtomicCap uint32

// The capabilities: none; against those of the same device; against the
// processors too.
const (
	AtomicNone AtomicCap = iota
	AtomicDevice
	AtomicGlobal
)

func (a AtomicCap) String() string { return name(uint32(a), "atomicity", "none", "device", "global") }

// Attr asks what the device can do.
func (d *Device) Attr() (Attr, error) {
	var a Attr
	if d.ctx == nil {
		return a, fmt.Errorf("%w: device %s", ErrClosed, d.info.Name)
	}
	if errno := sysQueryDevice(d.ctx, &a); errno != 0 {
		return Attr{}, &Error{Op: "querying the device", Device: d.info.Name, Err: errno}
	}
	return a, nil
}

// Port is the state of a port.
type Port struct {
	Number      int // from 1
	State       PortState
	MaxMTU      MTU
	ActiveMTU   MTU
	MaxMessage  uint32 // bytes in one request
	LinkLayer   LinkLayer
	LID         uint16 // 0 on RoCE
	LMC         uint8
	SMLID       uint16
	SMSL        uint8
	GIDs        int  // entries of the GID table, empty ones too
	PKeys       int  // entries of the partition table
	GRHRequired bool // every address needs a GID, also on InfiniBand
	Lanes       int  // 0 where not known
	Speed       int  // Mb/s of all lanes; 0 where not known
	Physical    uint8
	Flags       uint32 // IBV_PORT_ bits

	width, laneSpeed uint8 // as encoded
}

// laneSpeeds are Mb/s for each bit of the encoding.
var laneSpeeds = map[uint8]int{1: 2500, 2: 5000, 4: 10000, 8: 10000, 16: 14000, 32: 25000, 64: 50000, 128: 100000}

var laneCounts = map[uint8]int{1: 1, 2: 4, 4: 8, 8: 12, 16: 2}

// Port asks for the state of a port; the first is 1. Errors: *Error, which is
// syscall.EINVAL for a port that the device does not have.
func (d *Device) Port(n int) (Port, error) {
	p := Port{Number: n}
	if d.ctx == nil {
		return p, fmt.Errorf("%w: device %s", ErrClosed, d.info.Name)
	}
	fail := func(errno syscall.Errno, advice string) (Port, error) {
		return Port{}, &Error{Op: "querying the port", Device: d.info.Name, Object: fmt.Sprintf("port %d", n), Err: errno, Advice: advice}
	}
	if n < 1 || n > 255 {
		return fail(syscall.EINVAL, "ports are numbered from 1")
	}
	if errno := sysQueryPort(d.ctx, uint8(n), &p); errno != 0 {
		advice := ""
		if a, err := d.Attr(); err == nil && n > a.Ports {
			advice = fmt.Sprintf("the device has %d", a.Ports)
		}
		return fail(errno, advice)
	}
	p.Lanes = laneCounts[p.width]
	p.Speed = laneSpeeds[p.laneSpeed] * p.Lanes
	if speed, ok := sysQueryPortSpeed(d.ctx, n); ok {
		p.Speed = int(speed) * 100
	}
	return p, nil
}

// PKey returns an entry of a port's partition table. The highest bit is set
// for full members. Errors: *Error.
func (d *Device) PKey(port, index int) (uint16, error) {
	if d.ctx == nil {
		return 0, fmt.Errorf("%w: device %s", ErrClosed, d.info.Name)
	}
	key, errno := sysQueryPKey(d.ctx, uint8(port), index)
	if errno != 0 {
		return 0, &Error{Op: fmt.Sprintf("querying partition key %d", index), Device: d.info.Name, Object: fmt.Sprintf("port %d", port), Err: errno}
	}
	return key, nil
}

// Event is something that happened by itself.
type Event struct {
	Type EventType
	Port int // for what happens to ports, else 0

	// What it happened to; all nil for ports, for the device, and for objects
	// that have been closed meanwhile.
	QP  *QueuePair
	CQ  *CompletionQueue
	SRQ *SRQ

	device string
}

func (e Event) String() string {
	what := e.device
	switch {
	case e.QP != nil:
		what = e.QP.String()
	case e.CQ != nil:
		what = e.CQ.String()
	case e.SRQ != nil:
		what = e.SRQ.String()
	case e.Port != 0:
		what = fmt.Sprintf("%s port %d", e.device, e.Port)
	}
	return fmt.Sprintf("%s: %v", what, e.Type)
}

// Event waits for the next event of the device and everything made from it. It
// keeps no thread while it waits. Several goroutines may wait; each event goes
// to one. Errors: the cause that ctx ended; ErrClosed once the device is closed; *Error.
func (d *Device) Event(ctx context.Context) (Event, error) {
	event := Event{device: d.info.Name}
	var errno syscall.Errno
	err := d.events.await(ctx, func() bool {
		errno = d.takeEvent(&event)
		return errno != syscall.EAGAIN
	})
	switch {
	case errors.Is(err, ErrClosed):
		return Event{}, fmt.Errorf("%w: device %s", ErrClosed, d.info.Name)
	case err != nil:
		return Event{}, err
	case errno != 0:
		return Event{}, &Error{Op: "reading events", Device: d.info.Name, Err: errno}
	}
	return event, nil
}

// takeEvent reads one event, finds what it happened to, and acknowledges it:
// an object whose events are not acknowledged could never be closed.
func (d *Device) takeEvent(event *Event) syscall.Errno {
	return sysAsyncEvent(d.ctx, func(t EventType, element handle, port int) {
		event.Type = t
		switch t {
		case EventCQError:
			event.CQ = lookUp[CompletionQueue](d, element)
		case EventSRQError, EventSRQLimit:
			event.SRQ = lookUp[SRQ](d, element)
		case EventQPFatal, EventQPRequestError, EventQPAccessError, EventCommEstablished, EventSQDrained,
			EventPathMigrated, EventPathMigrationError, EventLastWQE:
			event.QP = lookUp[QueuePair](d, element)
		case EventPortActive, EventPortError, EventLIDChange, EventPKeyChange, EventSMChange,
			EventClientReregister, EventGIDChange:
			event.Port = port
		}
	})
}

func lookUp[T any](d *Device, h handle) *T {
	v, _ := d.objects.Load(h)
	t, _ := v.(*T)
	return t
}
