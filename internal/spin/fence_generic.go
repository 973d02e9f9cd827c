//go:build !amd64 || noasm

package spin

func Fence() {}
