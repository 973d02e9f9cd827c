//go:build !linux || !cgo || !(amd64 || arm64 || loong64 || ppc64le || riscv64 || s390x)

package verbs_test

// compiled says that this build can load the library.
const compiled = false

func childOnDevice(string) int { return 2 }

// prepare has nothing to do: there is no library to load.
func prepare() (done func(), err error) { return func() {}, nil }
