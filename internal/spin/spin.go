// Package spin holds the two ways of waiting that neither sleep nor go
// through Go's scheduler: a pause in a polling loop, and giving the core to
// another process.
package spin
