// Package mesh makes authenticated stream connections between the ranks of a
// job, for media whose bytes or whose agreements travel over sockets.
//
// Every rank listens on one TCP socket, at the address that its Config names
// and otherwise on the loopback interface only, and tells the others where. A
// connection is made when somebody wants it, for a purpose, and reaches whoever
// handles that purpose at the other end.
//
// Nobody but a rank of the job gets that far. The blobs that ranks exchange
// when they open the mesh carry fresh random bytes of each, and the job's key is
// a hash of all of them; so it is as secret as that exchange. A connection
// begins with a proof by both ends that they know the key (handshake.go). What
// follows is the stream itself, neither encrypted nor authenticated any more:
// who can change packets on their way can change what ranks say.
package mesh
