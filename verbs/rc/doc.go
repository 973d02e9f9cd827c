// Package rc is the medium between ranks of machines with RDMA: put, signal and
// wait over reliable connected queue pairs, on InfiniBand, RoCE and soft-RoCE.
//
// A put is an RDMA WRITE into the peer's region. A notification is an RDMA WRITE
// with a number behind the puts, which takes a receive at the peer; whoever polls
// the completion queue there raises the counter. A small put is held back until
// the notification comes, and both go as one message.
//
// # Links
//
// A link has one or more lanes, each a queue pair; lanes are spread over the
// devices, called rails. Everything goes by lane 0, but large puts are cut into
// pieces for all lanes, and the next notification says how far each of them must
// have come. Beside the lanes a link has a control connection, by which ranks
// agree on the lanes, tell each other where regions lie, say goodbye, and notice
// that the other is dead.
//
// # Progress
//
// Bytes reach memory without a processor, notifications do not. Fabric implements
// link.Progresser, so a rank that waits polls the completion queues itself. When
// nobody has done that for a millisecond, a goroutine for each device waits for
// its completion events.
//
// # Flow control
//
// No queue overruns. A slot of a send queue is free again when a completion was
// polled that vouches for it, so every so many requests one is signalled. A
// notification takes a receive of the peer's, of which this side knows how many
// there are: the peer returns them by the dozen. A completion queue is given to
// no more lanes than it has room for when all their requests fail at once.
//
// # Memory
//
// What Alloc made, what was exposed and what was registered is known to the
// devices, until it is freed, withdrawn or released. Large puts from there are
// not copied. All other memory is copied to registered memory of the link, as
// are small puts; nothing is registered unasked.
package rc
