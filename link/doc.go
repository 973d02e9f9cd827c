// Package link is the contract between two ranks: put, signal, wait.
//
// Every path between ranks is one-sided. A rank allocates a region that its
// peer can reach, the peer puts bytes into it and raises a counter, and the
// owner of the region waits for that counter. Shared memory, RDMA WRITE and
// NVLink stores are all of that shape, and none needs a receive call to make
// progress.
//
//   - [Fabric] is one rank's end of a medium: it allocates reachable memory
//     and connects to peers.
//   - [Link] is what a rank can do to one peer.
//   - [Counter] is the signal: a count in a cache line of its own, grows only.
//   - [Waiter] is how a rank waits for it: spin, yield, sleep, always with an
//     eye on the deadline and on [Fault]. A [Crowd] tells ranks that outnumber
//     the cores when to yield.
//   - [Mapper] and [Copier] are powers that only some media's links have,
//     [Adopter], [Progresser], [Exposer] and [Mourner] those that only some
//     fabrics have.
//     Ask for them with a type assertion.
//
// Counters lie in regions, wherever their users put them: a fabric has none of
// its own, so several communicators can live on one.
//
// link/linktest is the definition of the contract: every medium passes it.
package link
