package softroce

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
)

func TestConfig(t *testing.T) {
	t.Setenv(EnvAccel, "")
	c, err := Config{}.filled()
	if err != nil || c.Machines != 2 || c.CPUs != 1 || c.MTU != 4200 || c.Log == nil {
		t.Errorf("%+v, %v", c, err)
	}
	for _, c := range []Config{{Machines: 65}, {Machines: -1}, {MTU: 100}, {MemoryMiB: 1}, {Accel: "xen"}} {
		if _, err := c.filled(); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
	t.Setenv(EnvAccel, "vax")
	if _, err := (Config{}).filled(); err == nil || !strings.Contains(err.Error(), EnvAccel) {
		t.Errorf("%s=vax: %v", EnvAccel, err)
	}
}

func TestVirtualisation(t *testing.T) {
	for info, want := range map[string]bool{
		"processor\t: 0\nflags\t\t: fpu vme svm sse\n": true, "flags\t\t: fpu vmx\n": true,
		"flags\t\t: fpu hypervisor\nvmx flags\t: vnmi\n": false, "": false,
	} {
		if hasVirtualisation(info) != want {
			t.Errorf("%q: %v", info, !want)
		}
	}
}

func TestDistribution(t *testing.T) {
	for release, want := range map[string]string{
		"ID=debian\nVERSION_ID=\"12\"\n": "debian", "NAME=\"Ubuntu\"\nID=ubuntu\nID_LIKE=debian\n": "ubuntu",
		"ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n": "ubuntu", "ID=fedora\n": "", "": "",
	} {
		if got := distribution(release); got != want {
			t.Errorf("%q is %q, want %q", release, got, want)
		}
	}
}

func TestKernelPackages(t *testing.T) {
	debian := "linux-image-amd64\n  Depends: linux-image-6.1.0-56-amd64\n"
	if got := parseDepends("debian", debian); !slices.Equal(got, []string{"linux-image-6.1.0-56-amd64"}) {
		t.Errorf("debian: %v", got)
	}
	ubuntu := "linux-image-generic\n  Depends: linux-image-6.8.0-40-generic\n  Depends: linux-firmware\n  Depends: intel-microcode\n"
	want := []string{"linux-image-6.8.0-40-generic", "linux-modules-6.8.0-40-generic", "linux-modules-extra-6.8.0-40-generic"}
	if got := parseDepends("ubuntu", ubuntu); !slices.Equal(got, want) {
		t.Errorf("ubuntu: %v", got)
	}
	if got := parseDepends("debian", "linux-image-amd64\n"); got != nil {
		t.Errorf("nothing: %v", got)
	}
}

func TestFatalLines(t *testing.T) {
	for line, want := range map[string]bool{
		"[    1.2] Kernel panic - not syncing: sysrq triggered crash": true,
		"[    1.2] BUG: kernel NULL pointer dereference, address: 0":  true,
		"[    1.2] Oops: 0002 [#1] PREEMPT SMP":                       true,
		"[   60.0] watchdog: BUG: soft lockup - CPU#0 stuck for 22s!": false,
		"[   60.0] rcu: INFO: rcu_preempt detected stalls":            false,
		"": false,
	} {
		if isFatal(line) != want {
			t.Errorf("%q: %v", line, !want)
		}
	}
}

func TestConsoleKeepsTheEnd(t *testing.T) {
	c := &console{}
	for i := range 2 * consoleLines {
		c.add(fmt.Sprintf("line %d\r\n", i))
	}
	lines := strings.Split(c.tail(), "\n")
	if len(lines) != consoleLines || lines[len(lines)-1] != fmt.Sprintf("line %d", 2*consoleLines-1) {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
}

func TestCounterLines(t *testing.T) {
	c, err := parseCounters("sent_pkts:12\nlifespan:12\nrcvd_pkts:0\n")
	if err != nil || !maps.Equal(c, Counters{"sent_pkts": 12, "rcvd_pkts": 0}) {
		t.Errorf("%v, %v", c, err)
	}
	if d := (Counters{"a": 5, "b": 1}).Since(Counters{"a": 3}); !maps.Equal(d, Counters{"a": 2, "b": 1}) {
		t.Errorf("Since: %v", d)
	}
	for _, bad := range []string{"", "sent_pkts:\n", "x\n"} {
		if _, err := parseCounters(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestResourceCounts(t *testing.T) {
	got, err := parseResources(`[{"ifindex":0,"ifname":"rxe0","pd":1,"cq":2,"mr":0}]`)
	if err != nil || !maps.Equal(got, map[string]int{"pd": 1, "cq": 2, "mr": 0}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "[]", `[{"ifname":"mlx5_0"}]`} {
		if _, err := parseResources(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestPerftestLines(t *testing.T) {
	out := "---\n #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n Conflicting CPU frequency values detected\n" +
		" 65536      500              39.54              33.67  		   0.000539\n---\n"
	if got, err := parsePerftest(out, 65536); err != nil || !slices.Equal(got, []float64{39.54, 33.67, 0.000539}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bytes := range []int{8, 0} {
		if _, err := parsePerftest("nothing\n", bytes); err == nil {
			t.Error("nothing was taken for figures")
		}
	}
	if _, err := parsePerftest(" 8 3000 inf inf inf nan nan inf inf\n", 8); !errors.Is(err, errClock) {
		t.Errorf("infinite figures: %v", err)
	}
}

func TestTransports(t *testing.T) {
	for _, over := range []Transport{MPIOverRC, MPIOverUD, MPIOverTCP} {
		if args, err := over.arguments(); err != nil || len(args) == 0 {
			t.Errorf("%s: %v, %v", over, args, err)
		}
	}
	if _, err := Transport("pigeon").arguments(); err == nil {
		t.Error("a pigeon was taken")
	}
}

func TestRankLinesStayWhole(t *testing.T) {
	var out bytes.Buffer
	m := &lineMixer{to: &out}
	a, b := m.rank(0), m.rank(1)
	for _, w := range []struct {
		to   io.Writer
		text string
	}{{a, "one "}, {b, "two\nthr"}, {a, "line\n"}, {b, "ee\n"}} {
		if n, err := io.WriteString(w.to, w.text); n != len(w.text) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	if want := "1: two\n0: one line\n1: three\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
	tail := &tailBuffer{}
	for i := range 5000 {
		fmt.Fprintf(tail, "%d\n", i)
	}
	if s := tail.String(); !strings.HasSuffix(s, "4999") || len(s) > tailBytes {
		t.Errorf("%d bytes that end in %q", len(s), lastBytes(s, 10))
	}
}

func frameTo(last byte, text string) []byte {
	f := append([]byte{0x52, 0x54, 0, 0, 0, last, 0x52, 0x54, 0, 0, 0, 9, 8, 0}, text...)
	if last == 0xff {
		for i := range 6 {
			f[i] = 0xff
		}
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(f))), f...)
}

func TestSwitch(t *testing.T) {
	var machines [3]net.Conn
	var ports [3]net.Conn
	for i := range machines {
		machines[i], ports[i] = net.Pipe()
	}
	s := newSwitch(ports[:])
	done := make(chan struct{})
	go func() {
		s.run()
		close(done)
	}()
	expect := func(i int, want []byte) {
		t.Helper()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(machines[i], got); err != nil || !bytes.Equal(got, want) {
			t.Errorf("machine %d got %x (%v), want %x", i, got, err, want)
		}
	}
	for _, f := range [][]byte{frameTo(3, "to the third"), frameTo(0xff, "to all")} {
		go func() { _, _ = machines[0].Write(f) }()
		if f[4] == 0xff {
			expect(1, f)
		}
		expect(2, f)
	}
	// Nonsense takes a machine off the network, and nobody else.
	go func() { _, _ = machines[1].Write([]byte{0xff, 0xff, 0xff, 0xff, 0}) }()
	if _, err := machines[1].Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a frame of 4 GiB: %v", err)
	}
	f := frameTo(1, "still there")
	go func() { _, _ = machines[2].Write(f) }()
	expect(0, f)
	for _, m := range machines {
		m.Close()
	}
	<-done
}
