// Package hostnet chooses the network interface, and the address on it, that
// a rank listens on and tells to others.
package hostnet
