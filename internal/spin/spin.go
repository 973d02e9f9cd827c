// Package spin holds what polling needs of the machine: the two ways of
// waiting that neither sleep nor go through Go's scheduler, a pause in the
// loop and giving the core to another process; and a fence against looking
// too early.
package spin
