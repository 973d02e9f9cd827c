package shm

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/link/linktest"
	"github.com/tutti-go/tutti/mem"
)

func openAll(t *testing.T, n int) []link.Fabric {
	t.Helper()
	ex := bootstrap.Memory(n)
	fabrics := make([]link.Fabric, n)
	var wg sync.WaitGroup
	for r := range fabrics {
		wg.Go(func() {
			f, err := Open(t.Context(), ex[r], nil)
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
			fabrics[r] = f
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return fabrics
}

func TestConformance(t *testing.T) {
	before := openDescriptors(t)
	linktest.Run(t, openAll)
	if after := openDescriptors(t); after != before {
		t.Errorf("%d descriptors open before, %d after", before, after)
	}
	if n := runtime.NumGoroutine(); n > 3 {
		buf := make([]byte, 1<<16)
		t.Errorf("%d goroutines left:\n%s", n, buf[:runtime.Stack(buf, true)])
	}
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		// The runtime's own epoll and eventfd come with the first socket.
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && to != "anon_inode:[eventpoll]" && to != "anon_inode:[eventfd]" {
			n++
		}
	}
	return n
}

func TestRegionIsSealed(t *testing.T) {
	s, _, err := newSegment(10_000)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	for _, size := range []int64{0, 4096, 1 << 20} {
		if err := unix.Ftruncate(int(s.file.Fd()), size); !errors.Is(err, unix.EPERM) {
			t.Errorf("truncate to %d: %v, want EPERM", size, err)
		}
	}
}

func TestForeignRegionIsChecked(t *testing.T) {
	fd, err := unix.MemfdCreate("unsealed", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, 4096); err != nil {
		t.Fatal(err)
	}
	if _, err := mapForeign(fd, 4096); err == nil {
		t.Error("mapped a region that its owner can shrink")
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	for _, claim := range []uint64{0, 4097, 1 << 63} {
		if _, err := mapForeign(fd, claim); err == nil {
			t.Errorf("mapped a region of 4096 bytes that claims %d", claim)
		}
	}
	memory, err := mapForeign(fd, 4000)
	if err != nil || len(memory) != 4000 {
		t.Fatalf("honest region: %d bytes, %v", len(memory), err)
	}
	if err := unmapForeign(memory); err != nil {
		t.Error(err)
	}
}

func TestStrangerIsRefused(t *testing.T) {
	fabrics := openAll(t, 2)
	defer fabrics[0].Close()
	defer fabrics[1].Close()
	card := fabrics[1].(*Fabric).cards[0]
	to := card.socket()
	for name, send := range map[string][]byte{
		"no such rank":  (&message{kind: kindHello, region: 2, token: card.token}).encode(),
		"negative rank": (&message{kind: kindHello, region: 1<<32 - 1, token: card.token}).encode(),
		"its own rank":  (&message{kind: kindHello, region: 0, token: card.token}).encode(),
		"wrong token":   (&message{kind: kindHello, token: [tokenBytes]byte{1}}).encode(),
		"no hello":      (&message{kind: kindWant, region: 1}).encode(),
		"short":         {1},
		"long":          make([]byte, 4096),
		"noise":         noise(messageBytes),
	} {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("unixpacket", to)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Write(send); err != nil {
				t.Fatal(err)
			}
			_, _ = c.Write((&message{kind: kindWant, region: 1}).encode())
			_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
			if n, err := c.Read(make([]byte, 64)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("got %d bytes, %v; want to be hung up on", n, err)
			}
		})
	}
}

func noise(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

// TestFreeUnmapsAtPeer: a freed region cannot be had any more, and goes from
// the peer's memory with its next Map or Alloc; what is kept stays until it is
// released, whatever is mapped and freed meanwhile.
func TestFreeUnmapsAtPeer(t *testing.T) {
	fabrics := openAll(t, 2)
	defer fabrics[0].Close()
	defer fabrics[1].Close()
	l, err := fabrics[0].Connect(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	m := l.(link.Mapper)
	p := &fabrics[0].(*Fabric).peers[1]
	other, err := fabrics[1].Alloc(8)
	if err != nil {
		t.Fatal(err)
	}
	for name, tidy := range map[string]func() error{
		"map":   func() error { _, err := m.Map(t.Context(), other.Region()); return err },
		"alloc": func() error { _, err := fabrics[0].Alloc(8); return err },
	} {
		for _, kept := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s kept=%t", name, kept), func(t *testing.T) {
				b, err := fabrics[1].Alloc(1 << 20)
				if err != nil {
					t.Fatal(err)
				}
				view, err := m.Map(t.Context(), b.Region())
				if err != nil {
					t.Fatal(err)
				}
				release := func() error { return nil }
				if kept {
					if _, release, err = m.Keep(t.Context(), b.Region()); err != nil {
						t.Fatal(err)
					}
				}
				if err := b.Free(); err != nil {
					t.Fatal(err)
				}
				awaitNotice(t, p, b.Region())
				if !mappedNow(t, view) {
					t.Error("unmapped by the goroutine that reads the notice")
				}
				view[0]++ // kills the process if it is
				if err := tidy(); err != nil {
					t.Error(err)
				}
				if mappedNow(t, view) != kept {
					t.Errorf("still mapped: %t", !kept)
				}
				if kept {
					view[len(view)-1]++
				}
				if err := release(); err != nil {
					t.Error(err)
				}
				if mappedNow(t, view) {
					t.Error("mapped when nobody keeps it")
				}
				if _, err := m.Map(t.Context(), b.Region()); !errors.Is(err, link.ErrRange) {
					t.Errorf("mapping a freed region: %v, want ErrRange", err)
				}
			})
		}
	}
}

// awaitNotice waits until the peer's Free of a region is known here.
func awaitNotice(t *testing.T, p *peer, region mem.RegionID) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		p.mu.Lock()
		v := p.mapped[region]
		told := v == nil || v.freed
		p.mu.Unlock()
		if told {
			return
		}
		if time.Now().After(end) {
			t.Fatal("not told of the Free within 10 s")
		}
	}
}

// mappedNow reports whether anything is mapped where memory is. It asks the
// kernel; it does not touch the memory.
func mappedNow(t *testing.T, memory []byte) bool {
	t.Helper()
	switch err := unix.Msync(memory, unix.MS_ASYNC); {
	case err == nil:
		return true
	case errors.Is(err, unix.ENOMEM):
		return false
	default:
		t.Fatal(err)
		return false
	}
}

func FuzzMessages(f *testing.F) {
	f.Add((&message{kind: kindHave, region: 7, bytes: 4096}).encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := decodeMessage(b); err == nil && string(m.encode()) != string(b) {
			t.Errorf("%x decodes to %+v, which encodes otherwise", b, m)
		}
		if c, err := decodeCard(b); err == nil && string(c.encode()) != string(b) {
			t.Errorf("%x decodes to a card that encodes otherwise", b)
		}
	})
}
