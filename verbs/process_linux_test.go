//go:build linux && cgo && (amd64 || arm64 || loong64 || ppc64le || riscv64 || s390x)

package verbs_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/verbs"
)

// endpoint is what two processes tell each other before they connect.
type endpoint struct {
	QPN, PSN, RKey uint32
	GID            verbs.GID
	LID            uint16
	MTU            verbs.MTU
	Addr           uint64
}

func childOnDevice(job string) int {
	switch job {
	case "mirror":
		if err := mirror(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "mirror:", err)
			return 1
		}
		return 0
	case "open":
		list, err := verbs.Devices()
		if err != nil || len(list) == 0 {
			fmt.Println(len(list), err)
			return 1
		}
		_, err = verbs.Open(list[0].Name)
		fmt.Println(errors.Is(err, os.ErrPermission), errors.Is(err, syscall.ENOENT), list[0].Name, err)
		fmt.Println(verbs.Live())
		return 0
	case "register":
		fmt.Println(register())
		fmt.Println(verbs.Live())
		return 0
	}
	return 2
}

// mirror is the other process of TestTwoProcesses: it connects, waits for each
// counter to be written, and writes back what came before it. It ends when its
// input does.
func mirror(in io.Reader, out io.Writer) error {
	list, err := verbs.Devices()
	if err != nil {
		return err
	}
	d, err := verbs.Open(list[0].Name)
	if err != nil {
		return err
	}
	pd, err := d.AllocPD()
	if err != nil {
		return err
	}
	m, err := unix.Mmap(-1, 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	mr, err := pd.RegisterMemory(m, everything)
	if err != nil {
		return err
	}
	cq, err := d.CreateCQ(verbs.CQOptions{Entries: 64})
	if err != nil {
		return err
	}
	qp, err := pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, Caps: verbs.QPCaps{SendRequests: 32, RecvRequests: 1, SendSegments: 1, RecvSegments: 1, InlineBytes: 8}})
	if err != nil {
		return err
	}
	batch, err := qp.NewBatch(verbs.BatchOptions{Requests: 2})
	if err != nil {
		return err
	}
	var peer endpoint
	var o struct {
		Peer endpoint
		Port int
		GID  int
	}
	lines := json.NewDecoder(in)
	if err := lines.Decode(&o); err != nil {
		return err
	}
	peer = o.Peer
	gids, err := d.GIDs(o.Port)
	if err != nil {
		return err
	}
	port, err := d.Port(o.Port)
	if err != nil {
		return err
	}
	mine := endpoint{QPN: qp.QPN(), PSN: 99, RKey: mr.RKey(), LID: port.LID, MTU: port.ActiveMTU, Addr: mr.Addr()}
	for _, g := range gids {
		if g.Index == o.GID {
			mine.GID = g.GID
		}
	}
	rtr, rts := verbs.DefaultRTR(), verbs.DefaultRTS()
	rtr.DestQPN, rtr.PSN, rtr.MTU = peer.QPN, peer.PSN, min(port.ActiveMTU, peer.MTU)
	rtr.Address = verbs.AddressVector{Port: o.Port, Global: port.LinkLayer == verbs.LinkEthernet, DGID: peer.GID, SGIDIndex: o.GID, HopLimit: 255, DLID: peer.LID}
	rts.PSN = mine.PSN
	if err := errors.Join(qp.ToInit(verbs.InitOptions{Port: o.Port, Access: everything}), qp.ToRTR(rtr), qp.ToRTS(rts)); err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(mine); err != nil {
		return err
	}

	counter := wordAt(m, 1<<15)
	done := make([]verbs.Completion, 4)
	for round := uint64(1); round <= processRounds; round++ {
		for deadline := time.Now().Add(patience); load(counter) < round; runtime.Gosched() {
			if time.Now().After(deadline) {
				return fmt.Errorf("no counter %d", round)
			}
		}
		s, err := mr.Segment(0, int(round)*8)
		if err != nil {
			return err
		}
		word := [8]byte{}
		copy(word[:], m[1<<15:])
		if err := errors.Join(
			batch.Add(&verbs.Request{Opcode: verbs.Write, Segments: []verbs.Segment{s}, RemoteAddr: peer.Addr, RKey: peer.RKey}),
			batch.Add(&verbs.Request{Opcode: verbs.Write, Inline: word[:], Flags: verbs.Signaled, RemoteAddr: peer.Addr + 1<<15, RKey: peer.RKey}),
		); err != nil {
			return err
		}
		n, err := cq.PostAndPoll(done, nil, batch)
		for n == 0 && err == nil {
			runtime.Gosched()
			n, err = cq.Poll(done)
		}
		if err == nil {
			err = done[0].Err()
		}
		if err != nil {
			return err
		}
	}
	if _, err := lines.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("expected the end: %w", err)
	}
	for _, c := range []io.Closer{batch, qp, cq, mr, pd, d} {
		if err := c.Close(); err != nil {
			return err
		}
	}
	if live := verbs.Live(); live != (verbs.Census{}) {
		return fmt.Errorf("left open: %v", live)
	}
	return nil
}

const processRounds = 100

// Two processes connect and write to each other, data and a counter behind it.
func TestTwoProcesses(t *testing.T) {
	dev, port := device(t)
	a := newSide(t, dev, port, options{bytes: 1 << 16})
	cmd := start("mirror")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}()
	me := endpoint{QPN: a.qp.QPN(), PSN: 7, RKey: a.mr.RKey(), GID: a.gid.GID, LID: port.LID, MTU: port.ActiveMTU, Addr: a.mr.Addr()}
	if err := json.NewEncoder(in).Encode(map[string]any{"Peer": me, "Port": port.Number, "GID": a.gid.Index}); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var peer endpoint
	if err := json.Unmarshal(line, &peer); err != nil {
		t.Fatal(err)
	}
	a.init()
	if err := a.qp.ToRTR(a.rtr(peer.QPN, peer.PSN, peer.GID, peer.LID)); err != nil {
		t.Fatal(err)
	}
	if err := a.qp.ToRTS(a.rts(me.PSN)); err != nil {
		t.Fatal(err)
	}
	counter := wordAt(a.mem, 1<<15)
	for round := uint64(1); round <= processRounds; round++ {
		n := int(round) * 8
		pattern(a.mem[1<<14:1<<14+n], byte(round))
		var word [8]byte
		*wordAt(word[:], 0) = round
		a.post(
			verbs.Request{Opcode: verbs.Write, Segments: []verbs.Segment{a.seg(1<<14, n)}, RemoteAddr: peer.Addr, RKey: peer.RKey},
			verbs.Request{ID: round, Opcode: verbs.Write, Inline: word[:], Flags: verbs.Signaled, RemoteAddr: peer.Addr + 1<<15, RKey: peer.RKey},
		)
		for deadline := time.Now().Add(patience); load(counter) < round; runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatalf("no answer to counter %d", round)
			}
		}
		a.same(0, a.mem[1<<14:1<<14+n])
		a.succeeds(round, verbs.CompletedWrite)
	}
}

// A device that may not be opened says so, and which file it is.
func TestNoPermission(t *testing.T) {
	onFake(t)
	l := lines(t, start("open", fmt.Sprintf("TUTTI_FAKE_VERBS_OPEN_ERRNO=%d", unix.EACCES)))
	if !strings.HasPrefix(l[0], "true false ") || !strings.Contains(l[0], "/dev/infiniband/uverbs") || !strings.Contains(l[0], "group") || l[1] != "nothing" {
		t.Errorf("%q", l)
	}
	l = lines(t, start("open", fmt.Sprintf("TUTTI_FAKE_VERBS_OPEN_ERRNO=%d", unix.ENOENT)))
	if !strings.HasPrefix(l[0], "false true ") || !strings.Contains(l[0], "is missing") {
		t.Errorf("%q", l)
	}
}

// Devices that the kernel does not offer, and a kernel without RDMA.
func TestFakeWithout(t *testing.T) {
	onFake(t)
	for _, n := range []string{"0", "-1"} {
		if l := lines(t, start("devices", "TUTTI_FAKE_VERBS_DEVICES="+n)); l[0] != "0 false <nil>" {
			t.Errorf("DEVICES=%s: %q", n, l)
		}
	}
}

// register tries to register 8 MiB, and says in one line how that went.
func register() string {
	list, err := verbs.Devices()
	if err != nil {
		return err.Error()
	}
	d, err := verbs.Open(list[0].Name)
	if err != nil {
		return err.Error()
	}
	defer d.Close()
	pd, err := d.AllocPD()
	if err != nil {
		return err.Error()
	}
	defer pd.Close()
	m, err := unix.Mmap(-1, 0, 8<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return err.Error()
	}
	// The message shall say what the limit is, whatever the device goes by.
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}); err != nil {
		return err.Error()
	}
	mr, err := pd.RegisterMemory(m, everything)
	var e *verbs.RegisterError
	if errors.As(err, &e) {
		return fmt.Sprint(e.Bytes, e.Limit, errors.Is(err, syscall.ENOMEM), " ", e)
	}
	if err == nil {
		mr.Close()
	}
	return fmt.Sprint("registered: ", err)
}

// Too little memory may be locked: how much, what the limit is, how to raise it.
func TestMemlock(t *testing.T) {
	cmd := start("register", "TUTTI_FAKE_VERBS_MEMLOCK=1048576")
	if fabric == nil { // the kernel limits those who have no privilege
		if os.Getuid() != 0 {
			t.Skip("only root can become somebody whom the kernel limits")
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	l := lines(t, cmd)
	if strings.Contains(l[0], "permission denied") {
		t.Skipf("an ordinary user may not open the device here: %s", l[0])
	}
	if !strings.HasPrefix(l[0], "8388608 1048576 true ") {
		t.Errorf("%q", l)
	}
	for _, says := range []string{"8388608", "1048576", "RLIMIT_MEMLOCK", "ulimit -l", "--ulimit memlock=-1"} {
		if !strings.Contains(l[0], says) {
			t.Errorf("%q does not say %s", l[0], says)
		}
	}
	if l[1] != "nothing" {
		t.Errorf("left %s", l[1])
	}
	if fabric != nil {
		if l := lines(t, start("register")); !strings.HasPrefix(l[0], "registered: <nil>") {
			t.Errorf("without a limit: %q", l)
		}
	}
}
