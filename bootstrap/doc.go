// Package bootstrap is how the ranks of a job find each other and learn of
// each other's end, before and beside the fast paths. It carries opaque blobs
// and knows nothing of what is in them.
//
// Exchanger is the contract of every rendezvous. Launch starts local ranks as
// child processes and serves them; FromEnv is the other end of it; Memory is
// for ranks that are goroutines of one process.
package bootstrap
