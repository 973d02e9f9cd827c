// Package remote runs commands at the other end of a byte stream: several at
// once, standard output and error apart, with signals and exit statuses. The
// stream is a virtual machine's serial port or a socket between two of them.
//
// Nothing is authenticated: the stream must be private to its two ends.
package remote
