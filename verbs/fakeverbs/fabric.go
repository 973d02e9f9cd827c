package fakeverbs

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Fabric is the directory through which the processes of a job are connected,
// and through which a test commands their devices. It has no state of its own:
// several may stand for one directory. What was commanded stays in force, and
// processes that start later obey it too, until the directory's file "control"
// is removed, between jobs.
type Fabric struct{ dir string }

// Open makes the directory, if it is missing, and returns its Fabric.
func Open(dir string) (*Fabric, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = os.Chmod(dir, 0o700) // nobody else may put packets on the wire
	}
	if err != nil {
		return nil, fmt.Errorf("fakeverbs: %w", err)
	}
	return &Fabric{dir}, nil
}

// Env returns the variables that put a process on the fabric, with the library
// at path found before the system's.
func (f *Fabric) Env(path string) []string {
	search := filepath.Dir(path)
	if more := os.Getenv("LD_LIBRARY_PATH"); more != "" {
		search += ":" + more
	}
	return []string{"TUTTI_FAKE_VERBS_DIR=" + f.dir, "LD_LIBRARY_PATH=" + search}
}

// Process is what a process of the job says of itself: how many objects of
// each kind are alive in it, and with how many in them devices were closed.
type Process struct {
	PID, Host                                        int
	Seed                                             uint64
	Contexts, PDs, MRs, CompletionQueues, QueuePairs int
	SRQs, AddressHandles, Channels                   int
	Leaked                                           int

	applied   int64 // bytes of the control file
	complaint string
}

// Objects is how many objects live in the process, contexts included.
func (p Process) Objects() int {
	return p.Contexts + p.PDs + p.MRs + p.CompletionQueues + p.QueuePairs + p.SRQs + p.AddressHandles + p.Channels
}

// parse takes what tell in control.c wrote; false if it is not whole.
func (p *Process) parse(text []byte) bool {
	numbers := map[string]*int{
		"host": &p.Host, "contexts": &p.Contexts, "pds": &p.PDs, "mrs": &p.MRs, "cqs": &p.CompletionQueues,
		"qps": &p.QueuePairs, "srqs": &p.SRQs, "ahs": &p.AddressHandles, "channels": &p.Channels, "leaked": &p.Leaked,
	}
	begin, end := "", ""
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		switch name {
		case "begin":
			begin = value
		case "end":
			end = value
		case "error":
			p.complaint = value
		case "seed":
			p.Seed, _ = strconv.ParseUint(value, 10, 64)
		case "applied":
			p.applied, _ = strconv.ParseInt(value, 10, 64)
		default:
			n, err := strconv.Atoi(value)
			if to := numbers[name]; to != nil && err == nil {
				*to = n
			}
		}
	}
	return begin != "" && begin == end
}

// Of restricts a command; without any it concerns every device of every
// process.
type Of struct{ field }

type field struct {
	name  string
	value any
}

// OfProcess restricts a command to one process.
func OfProcess(pid int) Of { return Of{field{"pid", pid}} }

// OfHost restricts a command to the processes that pretend to be in a machine.
func OfHost(host int) Of { return Of{field{"host", host}} }

// OfDevice restricts a command to the device of that index, 1 for fake1.
func OfDevice(device int) Of { return Of{field{"device", device}} }

// OfPort restricts a command to a port, from 1.
func OfPort(port int) Of { return Of{field{"port", port}} }

// OfQP restricts a command to a queue pair by its number, which no other in
// the job has.
func OfQP(number uint32) Of { return Of{field{"qp", number}} }

func fieldsOf(of []Of, more ...field) []field {
	for _, o := range of {
		more = append(more, o.field)
	}
	return more
}

// States of a port.
const (
	PortDown   = 1
	PortInit   = 2
	PortArmed  = 3
	PortActive = 4
)

// SetPort sets the state of ports, also for processes that start later.
// Leaving or entering PortActive raises the event that belongs to it. What is
// on its way through a port that is not active is lost, and sent again by the
// rules of the queue pair's timeout and retry count.
//
// It returns when every process has obeyed, as do all commands.
func (f *Fabric) SetPort(state int, of ...Of) error {
	return f.command("port", fieldsOf(of, field{"state", state}))
}

// What Hold can stall.
const (
	HoldData    = 1 // what requesters send, from the next packet on
	HoldEnds    = 2 // the packet that ends a message: its other bytes arrive
	HoldAnswers = 4 // what responders send: acknowledgements, data that was read
)

// Hold stalls devices: nothing is lost, and nothing times out. 0 lets go.
func (f *Fabric) Hold(what int, of ...Of) error {
	return f.command("hold", fieldsOf(of, field{"what", what}))
}

// Delay makes every message begin later, by half of d up to one and a half.
func (f *Fabric) Delay(d time.Duration, of ...Of) error {
	return f.command("delay", fieldsOf(of, field{"us", d.Microseconds()}))
}

// Failure is to befall a work request.
type Failure struct {
	Status  int  // of the completion, as in ibv_wc_status
	Nth     int  // which request from now on; 0 is 1, the next
	Receive bool // of a receive queue
	After   bool // a send takes effect at the peer all the same
}

// Fail makes one work request fail in each process concerned, also one that
// starts later. The queue pair goes into the error state with it.
func (f *Fabric) Fail(x Failure, of ...Of) error {
	queue, after := "send", 0
	if x.Receive {
		queue = "recv"
	}
	if x.After {
		after = 1
	}
	return f.command("fail", fieldsOf(of, field{"queue", queue}, field{"nth", max(x.Nth, 1)}, field{"status", x.Status}, field{"after", after}))
}

// Asynchronous events, as in ibv_event_type.
const (
	EventCQErr            = 0
	EventQPFatal          = 1
	EventQPReqErr         = 2
	EventQPAccessErr      = 3
	EventCommEst          = 4
	EventSQDrained        = 5
	EventDeviceFatal      = 8
	EventPortActive       = 9
	EventPortErr          = 10
	EventSRQErr           = 14
	EventSRQLimitReached  = 15
	EventQPLastWQEReached = 16
	EventGIDChange        = 18
)

// Raise raises an asynchronous event in the processes that have the device
// open. Events of queue pairs, and of their completion queues, concern those
// of OfQP or all. Errors of a queue pair also put it into the error state, an
// error of a completion queue breaks it, and after EventDeviceFatal the device
// does nothing any more. Events of ports do not change the port's state.
func (f *Fabric) Raise(event int, of ...Of) error {
	return f.command("event", fieldsOf(of, field{"type", event}))
}

// KillQP puts a queue pair into the error state, as a device would that has
// found something wrong with it.
func (f *Fabric) KillQP(number uint32) error { return f.command("kill", fieldsOf([]Of{OfQP(number)})) }

// Refresh makes Processes tell how things are now.
func (f *Fabric) Refresh() error { return f.command("report", nil) }
