// Package tcp is the medium between ranks of machines that have nothing better
// than sockets: put, signal and wait over TCP.
//
// A put is a frame that says where its bytes go; the receiver checks that and
// reads them from the socket straight into the region. A notification is a frame
// behind it, whose arrival raises the counter. What a small put says is held
// back until the notification comes, and both go out in one system call.
//
// Bytes are brought in by whoever waits: Fabric implements link.Progresser, so a
// rank that polls a counter reads the sockets itself, without waking anybody. A
// goroutine takes over when nobody has polled for a millisecond.
//
// Fabric implements link.Fabric, link.Progresser and link.Exposer. Its
// connections are those of package mesh: a stranger's bytes never get as far as
// a frame. They are not encrypted.
//
// It needs Linux with epoll and eventfd.
package tcp
