//go:build !linux

package fence

func heavy() {}
