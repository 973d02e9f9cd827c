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
// Fabric implements link.Fabric and link.Board; its links implement
// link.Mapper. Each fabric runs one goroutine that accepts connections and one
// for each connection; Close stops them all.
//
// It needs Linux with memfd_create, futex and Unix sockets.
package shm
