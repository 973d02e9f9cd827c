//go:build !linux || !cgo || !(amd64 || arm64 || loong64 || ppc64le || riscv64 || s390x)

package verbs

import (
	"runtime"
	"syscall"
	"unsafe"
)

// handle is an object of the library's. Here there are none: nothing beyond
// sysLoad is ever called.
type handle = unsafe.Pointer

const defaultLibrary = ""

func sysLoad(string) error {
	if runtime.GOOS == "linux" {
		return &UnavailableError{Reason: "this program was built without cgo (CGO_ENABLED=1 and a C compiler are needed), or for a machine that is not of 64 bits"}
	}
	return &UnavailableError{Reason: "it needs Linux, and this is " + runtime.GOOS}
}

func sysFeatures() Library                      { return Library{} }
func sysDevices() ([]DeviceInfo, syscall.Errno) { return nil, syscall.ENOSYS }
func sysOpen(string) (ctx handle, asyncFD, vectors int, errno syscall.Errno) {
	return nil, -1, 0, syscall.ENOSYS
}
func sysClose(handle) syscall.Errno                   { return syscall.ENOSYS }
func sysQueryDevice(handle, *Attr) syscall.Errno      { return syscall.ENOSYS }
func sysQueryPort(handle, uint8, *Port) syscall.Errno { return syscall.ENOSYS }
func sysQueryPortSpeed(handle, int) (uint64, bool)    { return 0, false }
func sysQueryPKey(handle, uint8, int) (uint16, syscall.Errno) {
	return 0, syscall.ENOSYS
}
func sysQueryGID(handle, int, int) (GID, syscall.Errno) { return GID{}, syscall.ENOSYS }
func sysQueryGIDs(handle, int, int) ([]GIDEntry, syscall.Errno) {
	return nil, syscall.ENOSYS
}
func sysAsyncEvent(handle, func(EventType, handle, int)) syscall.Errno { return syscall.ENOSYS }
func sysAllocPD(handle) (handle, syscall.Errno)                        { return nil, syscall.ENOSYS }
func sysDeallocPD(handle) syscall.Errno                                { return syscall.ENOSYS }
func sysRegister(handle, uint64, int, uint64, Access) (mr handle, lkey, rkey uint32, errno syscall.Errno) {
	return nil, 0, 0, syscall.ENOSYS
}
func sysRegisterDMABuf(handle, int, uint64, int, uint64, Access) (mr handle, lkey, rkey uint32, errno syscall.Errno) {
	return nil, 0, 0, syscall.ENOSYS
}
func sysDeregister(handle) syscall.Errno { return syscall.ENOSYS }
func sysCreateChannel(handle) (ch handle, fd int, errno syscall.Errno) {
	return nil, -1, syscall.ENOSYS
}
func sysDestroyChannel(handle) syscall.Errno { return syscall.ENOSYS }
func sysCreateCQ(handle, int, handle, int) (cq handle, got int, errno syscall.Errno) {
	return nil, 0, syscall.ENOSYS
}
func sysDestroyCQ(handle) syscall.Errno         { return syscall.ENOSYS }
func sysCQEvent(handle) (handle, syscall.Errno) { return nil, syscall.ENOSYS }
func sysAckCQ(handle, uint32)                   {}
func sysArm(handle, bool) syscall.Errno         { return syscall.ENOSYS }
func sysCreateQP(handle, *QPOptions, handle, handle, handle) (qp handle, qpn uint32, errno syscall.Errno) {
	return nil, 0, syscall.ENOSYS
}
func sysModifyQP(handle, *QPAttr, int) syscall.Errno { return syscall.ENOSYS }
func sysQueryQP(handle, *QPAttr, int) syscall.Errno  { return syscall.ENOSYS }
func sysDataInOrder(handle, Opcode) bool             { return false }
func sysDestroyQP(handle) syscall.Errno              { return syscall.ENOSYS }
func sysCreateSRQ(handle, *SRQOptions) (handle, syscall.Errno) {
	return nil, syscall.ENOSYS
}
func sysArmSRQ(handle, uint32) syscall.Errno                     { return syscall.ENOSYS }
func sysQuerySRQ(handle) (limit uint32, errno syscall.Errno)     { return 0, syscall.ENOSYS }
func sysDestroySRQ(handle) syscall.Errno                         { return syscall.ENOSYS }
func sysCreateAH(handle, *AddressVector) (handle, syscall.Errno) { return nil, syscall.ENOSYS }
func sysDestroyAH(handle) syscall.Errno                          { return syscall.ENOSYS }
func sysAlloc(int) unsafe.Pointer                                { return nil }
func sysFree(unsafe.Pointer)                                     {}
func sysPostPoll(*chain, handle, []Completion) int               { return -int(syscall.ENOSYS) }
