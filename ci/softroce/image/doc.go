// Package image makes the root file system of a small virtual machine out of
// programs of this one: an initramfs, not compressed, with the libraries that
// the programs need and the kernel modules in the order in which they load.
package image
