package softroce

import (
	"bufio"
	"encoding/binary"
	"io"
	"sync"
)

// largestFrame is what an Ethernet frame of the largest MTU takes.
const largestFrame = 65535 + 18

// A switcher joins more than two machines. QEMU's socket networks send each
// Ethernet frame with its length before it. Machine i has a hardware address
// that ends in i+1, so nothing is to be learnt; a frame for one goes to one,
// any other to all.
type switcher struct {
	ports []port
}

type port struct {
	mu   sync.Mutex // of writers
	conn io.ReadWriteCloser
}

func newSwitch[C io.ReadWriteCloser](conns []C) *switcher {
	s := &switcher{ports: make([]port, len(conns))}
	for i, c := range conns {
		s.ports[i].conn = c
	}
	return s
}

// run carries frames until all machines have gone, and closes the ports.
func (s *switcher) run() {
	var wg sync.WaitGroup
	for i := range s.ports {
		wg.Go(func() { s.carry(i) })
	}
	wg.Wait()
}

func (s *switcher) carry(from int) {
	defer func() { _ = s.ports[from].conn.Close() }()
	r := bufio.NewReaderSize(s.ports[from].conn, 128<<10)
	buf := make([]byte, 4+largestFrame)
	for {
		if _, err := io.ReadFull(r, buf[:4]); err != nil {
			return
		}
		n := binary.BigEndian.Uint32(buf)
		if n < 14 || n > largestFrame {
			return // not Ethernet: this machine is off the network
		}
		whole := buf[:4+n]
		if _, err := io.ReadFull(r, whole[4:]); err != nil {
			return
		}
		to := whole[4:10]
		last := int(to[5]) - 1
		for i := range s.ports {
			if i != from && (to[0]&1 != 0 || i == last) {
				s.ports[i].send(whole)
			}
		}
	}
}

func (p *port) send(whole []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = p.conn.Write(whole) // to a machine that has gone
}
