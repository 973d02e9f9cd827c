// Package shm is the medium between ranks of one machine: memory that all of
// them map.
//
// A region is an anonymous file (memfd) sealed against growing and shrinking,
// so a peer that maps it can never be made to fault. Its descriptor goes to a
// peer over an abstract Unix socket that serves only processes of the same
// user that know the fabric's token, and of those only ranks of the job.
// Nothing has a name in the file system, so nothing outlives the processes,
// however they end.
//
// Memory that is not from Alloc is reached in two ways: copied by address, where
// the kernel lets one rank at another's memory; or adopted, which puts a
// region's pages in the place of its own.
//
// Fabric implements link.Fabric and link.Adopter; its links implement
// link.Mapper and link.Copier. Each fabric runs a goroutine that accepts
// connections, two for each connection that it accepted and one for each that
// it made; Close stops them all. No call but Connect and the first Map of a
// region waits for a peer, stopped or not; Close waits a second at most for
// peers that do not read.
//
// It needs Linux with memfd_create, futex and Unix sockets.
package shm
