//go:build linux && cgo && (amd64 || arm64 || loong64 || ppc64le || riscv64 || s390x)

package verbs

// #cgo LDFLAGS: -ldl
// #cgo noescape tv_post_poll
// #cgo nocallback tv_post_poll
// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"encoding/binary"
	"syscall"
	"unsafe"
)

// handle is an object of the library's.
type handle = unsafe.Pointer

const defaultLibrary = "libibverbs.so.1"

func sysLoad(path string) error {
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	var why [512]C.char
	if C.tv_load(p, &why[0], C.size_t(len(why))) != 0 {
		return &UnavailableError{Library: path, Reason: C.GoString(&why[0])}
	}
	return nil
}

func sysFeatures() Library {
	f := C.tv_features()
	return Library{
		RelaxedOrdering: f&C.TV_HAS_REG_IOVA2 != 0, GIDTable: f&C.TV_HAS_GID_TABLE != 0, DMABuf: f&C.TV_HAS_DMABUF != 0,
		DataInOrder: f&C.TV_HAS_DATA_IN_ORDER != 0, PortSpeed: f&C.TV_HAS_PORT_SPEED != 0,
	}
}

// eachDevice calls f for the devices that there are until it says stop. They
// stay for as long as f runs.
func eachDevice(f func(*C.struct_tv_device) (stop bool)) syscall.Errno {
	var n, errno C.int
	list := C.tv_get_device_list(&n, &errno)
	if list == nil {
		return syscall.Errno(errno)
	}
	defer C.tv_free_device_list(list)
	for _, d := range unsafe.Slice(list, int(n)) {
		if f(d) {
			break
		}
	}
	return 0
}

func sysDevices() ([]DeviceInfo, syscall.Errno) {
	var infos []DeviceInfo
	errno := eachDevice(func(d *C.struct_tv_device) bool {
		infos = append(infos, DeviceInfo{
			Name: C.GoString(&d.name[0]), GUID: guid(uint64(C.tv_device_guid(d))), Node: NodeType(d.node_type), Transport: Transport(d.transport_type),
			CharDevice: C.GoString(&d.dev_name[0]), SysfsPath: C.GoString(&d.ibdev_path[0]),
		})
		return false
	})
	return infos, errno
}

// guid reads a number as the library keeps it, the highest byte first.
func guid(v uint64) GUID {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], v)
	return GUID(binary.BigEndian.Uint64(b[:]))
}

func sysOpen(name string) (ctx handle, asyncFD, vectors int, errno syscall.Errno) {
	result := syscall.ENODEV
	errno = eachDevice(func(d *C.struct_tv_device) bool {
		if C.GoString(&d.name[0]) != name {
			return false
		}
		var e C.int
		c := C.tv_open_device(d, &e)
		result = syscall.Errno(e)
		if c != nil {
			ctx, asyncFD, vectors = handle(c), int(c.async_fd), int(c.num_comp_vectors)
		}
		return true
	})
	if errno == 0 {
		errno = result
	}
	return ctx, asyncFD, vectors, errno
}

func sysClose(ctx handle) syscall.Errno {
	return syscall.Errno(C.tv_close_device((*C.struct_tv_context)(ctx)))
}

func sysQueryDevice(ctx handle, a *Attr) syscall.Errno {
	var c C.struct_tv_device_attr
	if errno := C.tv_query_device((*C.struct_tv_context)(ctx), &c); errno != 0 {
		return syscall.Errno(errno)
	}
	*a = Attr{
		Firmware: C.GoStringN(&c.fw_ver[0], C.int(len(c.fw_ver))), NodeGUID: guid(uint64(c.node_guid)), SystemGUID: guid(uint64(c.sys_image_guid)),
		VendorID: uint32(c.vendor_id), VendorPartID: uint32(c.vendor_part_id), HardwareVersion: uint32(c.hw_ver),
		Ports: int(c.phys_port_cnt), MaxMRBytes: uint64(c.max_mr_size), MaxMRs: int(c.max_mr), MaxPDs: int(c.max_pd),
		MaxQueuePairs: int(c.max_qp), MaxQPRequests: int(c.max_qp_wr), MaxSegments: int(c.max_sge), MaxReadSegments: int(c.max_sge_rd),
		MaxCQs: int(c.max_cq), MaxCQEntries: int(c.max_cqe),
		MaxSRQs: int(c.max_srq), MaxSRQRequests: int(c.max_srq_wr), MaxSRQSegments: int(c.max_srq_sge),
		MaxAddressHandles: int(c.max_ah), MaxRDAtomic: int(c.max_qp_rd_atom), MaxInitiateRDAtomic: int(c.max_qp_init_rd_atom),
		Atomic: AtomicCap(c.atomic_cap), Capabilities: uint32(c.device_cap_flags), PKeys: int(c.max_pkeys), PageSizes: uint64(c.page_size_cap),
	}
	a.Firmware = untilNUL(a.Firmware)
	return 0
}

func sysQueryPort(ctx handle, n uint8, p *Port) syscall.Errno {
	var c C.struct_tv_port_attr
	if errno := C.tv_query_port((*C.struct_tv_context)(ctx), C.uint8_t(n), &c); errno != 0 {
		return syscall.Errno(errno)
	}
	const grhRequired = 1
	*p = Port{
		Number: int(n), State: PortState(c.state), MaxMTU: MTU(c.max_mtu), ActiveMTU: MTU(c.active_mtu), MaxMessage: uint32(c.max_msg_sz),
		LinkLayer: LinkLayer(c.link_layer), LID: uint16(c.lid), LMC: uint8(c.lmc), SMLID: uint16(c.sm_lid), SMSL: uint8(c.sm_sl),
		GIDs: int(c.gid_tbl_len), PKeys: int(c.pkey_tbl_len), GRHRequired: c.flags&grhRequired != 0, Physical: uint8(c.phys_state),
		Flags: uint32(c.port_cap_flags), width: uint8(c.active_width), laneSpeed: uint8(c.active_speed),
	}
	return 0
}

func sysQueryPortSpeed(ctx handle, port int) (uint64, bool) {
	var speed C.uint64_t
	errno := C.tv_query_port_speed((*C.struct_tv_context)(ctx), C.uint32_t(port), &speed)
	return uint64(speed), errno == 0
}

func sysQueryPKey(ctx handle, port uint8, index int) (uint16, syscall.Errno) {
	var key [2]byte
	errno := C.tv_query_pkey((*C.struct_tv_context)(ctx), C.uint8_t(port), C.int(index), (*C.uint16_t)(unsafe.Pointer(&key)))
	return binary.BigEndian.Uint16(key[:]), syscall.Errno(errno)
}

func sysQueryGID(ctx handle, port, index int) (GID, syscall.Errno) {
	var c C.struct_tv_gid
	errno := C.tv_query_gid((*C.struct_tv_context)(ctx), C.uint8_t(port), C.int(index), &c)
	return goGID(&c), syscall.Errno(errno)
}

// sysQueryGIDs returns the entries of one port. The library returns those of
// all ports, of which each may have a table as long as this one's.
func sysQueryGIDs(ctx handle, port, length int) ([]GIDEntry, syscall.Errno) {
	var a Attr
	if errno := sysQueryDevice(ctx, &a); errno != 0 {
		return nil, errno
	}
	c := make([]C.struct_tv_gid_entry, max(1, length)*max(1, a.Ports))
	var errno C.int
	n := C.tv_query_gid_table((*C.struct_tv_context)(ctx), &c[0], C.size_t(len(c)), &errno)
	if n < 0 {
		return nil, syscall.Errno(errno)
	}
	var entries []GIDEntry
	for i := range c[:min(int(n), len(c))] {
		if e := &c[i]; int(e.port_num) == port {
			entries = append(entries, GIDEntry{Index: int(e.gid_index), GID: goGID(&e.gid), Type: GIDType(e.gid_type), Ifindex: int(e.ndev_ifindex)})
		}
	}
	return entries, 0
}

func goGID(c *C.struct_tv_gid) GID { return *(*GID)(unsafe.Pointer(c)) }

// sysAsyncEvent reads one event, shows it to f, and acknowledges it.
func sysAsyncEvent(ctx handle, f func(t EventType, element handle, port int)) syscall.Errno {
	var e C.struct_tv_async_event
	if errno := C.tv_get_async_event((*C.struct_tv_context)(ctx), &e); errno != 0 {
		return syscall.Errno(errno)
	}
	f(EventType(e.event_type), *(*handle)(unsafe.Pointer(&e.element)), int(*(*C.int)(unsafe.Pointer(&e.element))))
	C.tv_ack_async_event(&e)
	return 0
}

func sysAllocPD(ctx handle) (handle, syscall.Errno) {
	var errno C.int
	pd := C.tv_alloc_pd((*C.struct_tv_context)(ctx), &errno)
	return pd, syscall.Errno(errno)
}

func sysDeallocPD(pd handle) syscall.Errno { return syscall.Errno(C.tv_dealloc_pd(pd)) }

func sysRegister(pd handle, addr uint64, bytes int, iova uint64, access Access) (mr handle, lkey, rkey uint32, errno syscall.Errno) {
	var e C.int
	return goMR(C.tv_reg_mr(pd, C.uint64_t(addr), C.size_t(bytes), C.uint64_t(iova), C.uint32_t(access), &e), &e)
}

func sysRegisterDMABuf(pd handle, fd int, offset uint64, bytes int, iova uint64, access Access) (mr handle, lkey, rkey uint32, errno syscall.Errno) {
	var e C.int
	return goMR(C.tv_reg_dmabuf_mr(pd, C.uint64_t(offset), C.size_t(bytes), C.uint64_t(iova), C.int(fd), C.int(access), &e), &e)
}

func goMR(c *C.struct_tv_mr, e *C.int) (mr handle, lkey, rkey uint32, errno syscall.Errno) {
	if c == nil {
		return nil, 0, 0, syscall.Errno(*e)
	}
	return handle(c), uint32(c.lkey), uint32(c.rkey), 0
}

func sysDeregister(mr handle) syscall.Errno {
	return syscall.Errno(C.tv_dereg_mr((*C.struct_tv_mr)(mr)))
}

func sysCreateChannel(ctx handle) (ch handle, fd int, errno syscall.Errno) {
	var e C.int
	c := C.tv_create_channel((*C.struct_tv_context)(ctx), &e)
	if c == nil {
		return nil, 0, syscall.Errno(e)
	}
	return handle(c), int(c.fd), 0
}

func sysDestroyChannel(ch handle) syscall.Errno {
	return syscall.Errno(C.tv_destroy_channel((*C.struct_tv_comp_channel)(ch)))
}

func sysCreateCQ(ctx handle, entries int, channel handle, vector int) (cq handle, got int, errno syscall.Errno) {
	var e C.int
	c := C.tv_create_cq((*C.struct_tv_context)(ctx), C.int(entries), (*C.struct_tv_comp_channel)(channel), C.int(vector), &e)
	if c == nil {
		return nil, 0, syscall.Errno(e)
	}
	return handle(c), int(c.cqe), 0
}

func sysDestroyCQ(cq handle) syscall.Errno {
	return syscall.Errno(C.tv_destroy_cq((*C.struct_tv_cq)(cq)))
}

func sysCQEvent(ch handle) (handle, syscall.Errno) {
	var cq *C.struct_tv_cq
	errno := C.tv_get_cq_event((*C.struct_tv_comp_channel)(ch), &cq)
	return handle(cq), syscall.Errno(errno)
}

func sysAckCQ(cq handle, n uint32) { C.tv_ack_cq_events((*C.struct_tv_cq)(cq), C.uint(n)) }

func sysArm(cq handle, solicited bool) syscall.Errno {
	var only C.int
	if solicited {
		only = 1
	}
	return syscall.Errno(C.tv_req_notify_cq((*C.struct_tv_cq)(cq), only))
}

// sysCreateQP writes to o what the device gave.
func sysCreateQP(pd handle, o *QPOptions, sendCQ, recvCQ, srq handle) (qp handle, qpn uint32, errno syscall.Errno) {
	a := C.struct_tv_qp_init_attr{
		send_cq: (*C.struct_tv_cq)(sendCQ), recv_cq: (*C.struct_tv_cq)(recvCQ), srq: (*C.struct_tv_srq)(srq),
		cap: C.struct_tv_qp_cap{
			max_send_wr: C.uint32_t(o.Caps.SendRequests), max_recv_wr: C.uint32_t(o.Caps.RecvRequests),
			max_send_sge: C.uint32_t(o.Caps.SendSegments), max_recv_sge: C.uint32_t(o.Caps.RecvSegments),
			max_inline_data: C.uint32_t(o.Caps.InlineBytes),
		},
		qp_type: C.uint32_t(o.Type),
	}
	if o.SignalAll {
		a.sq_sig_all = 1
	}
	var e C.int
	c := C.tv_create_qp(pd, &a, &e)
	if c == nil {
		return nil, 0, syscall.Errno(e)
	}
	o.Caps = goCaps(&a.cap)
	return handle(c), uint32(c.qp_num), 0
}

func goCaps(c *C.struct_tv_qp_cap) QPCaps {
	return QPCaps{int(c.max_send_wr), int(c.max_recv_wr), int(c.max_send_sge), int(c.max_recv_sge), int(c.max_inline_data)}
}

func cAddress(av *AddressVector) C.struct_tv_ah_attr {
	a := C.struct_tv_ah_attr{
		dlid: C.uint16_t(av.DLID), sl: C.uint8_t(av.SL), src_path_bits: C.uint8_t(av.PathBits), static_rate: C.uint8_t(av.StaticRate),
		port_num: C.uint8_t(av.Port),
	}
	if av.Global {
		a.is_global = 1
		a.grh.flow_label, a.grh.sgid_index = C.uint32_t(av.FlowLabel), C.uint8_t(av.SGIDIndex)
		a.grh.hop_limit, a.grh.traffic_class = C.uint8_t(av.HopLimit), C.uint8_t(av.TrafficClass)
		*(*GID)(unsafe.Pointer(&a.grh.dgid)) = av.DGID
	}
	return a
}

func goAddress(a *C.struct_tv_ah_attr) AddressVector {
	return AddressVector{
		Port: int(a.port_num), Global: a.is_global != 0, DGID: goGID(&a.grh.dgid), SGIDIndex: int(a.grh.sgid_index),
		HopLimit: uint8(a.grh.hop_limit), TrafficClass: uint8(a.grh.traffic_class), FlowLabel: uint32(a.grh.flow_label),
		DLID: uint16(a.dlid), SL: uint8(a.sl), PathBits: uint8(a.src_path_bits), StaticRate: uint8(a.static_rate),
	}
}

func sysModifyQP(qp handle, a *QPAttr, mask int) syscall.Errno {
	c := C.struct_tv_qp_attr{
		qp_state: C.uint32_t(a.State), path_mtu: C.uint32_t(a.PathMTU), qkey: C.uint32_t(a.QKey),
		rq_psn: C.uint32_t(a.RQPSN), sq_psn: C.uint32_t(a.SQPSN), dest_qp_num: C.uint32_t(a.DestQPN), qp_access_flags: C.uint32_t(a.Access),
		ah_attr: cAddress(&a.Address), pkey_index: C.uint16_t(a.PKeyIndex), port_num: C.uint8_t(a.Port),
		max_rd_atomic: C.uint8_t(a.MaxRDAtomic), max_dest_rd_atomic: C.uint8_t(a.MaxDestRDAtomic), min_rnr_timer: C.uint8_t(a.MinRNRTimer),
		timeout: C.uint8_t(a.Timeout), retry_cnt: C.uint8_t(a.RetryCount), rnr_retry: C.uint8_t(a.RNRRetry),
	}
	return syscall.Errno(C.tv_modify_qp((*C.struct_tv_qp)(qp), &c, C.int(mask)))
}

func sysQueryQP(qp handle, a *QPAttr, mask int) syscall.Errno {
	var c C.struct_tv_qp_attr
	var init C.struct_tv_qp_init_attr
	if errno := C.tv_query_qp((*C.struct_tv_qp)(qp), &c, C.int(mask), &init); errno != 0 {
		return syscall.Errno(errno)
	}
	*a = QPAttr{
		State: QPState(c.qp_state), PathMTU: MTU(c.path_mtu), QKey: uint32(c.qkey), RQPSN: uint32(c.rq_psn), SQPSN: uint32(c.sq_psn),
		DestQPN: uint32(c.dest_qp_num), Access: Access(c.qp_access_flags), Caps: goCaps(&init.cap), Address: goAddress(&c.ah_attr),
		PKeyIndex: int(c.pkey_index), Port: int(c.port_num), MaxRDAtomic: int(c.max_rd_atomic), MaxDestRDAtomic: int(c.max_dest_rd_atomic),
		MinRNRTimer: uint8(c.min_rnr_timer), Timeout: uint8(c.timeout), RetryCount: uint8(c.retry_cnt), RNRRetry: uint8(c.rnr_retry),
	}
	return 0
}

func sysDataInOrder(qp handle, op Opcode) bool {
	return C.tv_query_qp_data_in_order((*C.struct_tv_qp)(qp), C.uint32_t(op), 0) > 0
}

func sysDestroyQP(qp handle) syscall.Errno {
	return syscall.Errno(C.tv_destroy_qp((*C.struct_tv_qp)(qp)))
}

// sysCreateSRQ writes to o what the device gave.
func sysCreateSRQ(pd handle, o *SRQOptions) (handle, syscall.Errno) {
	a := C.struct_tv_srq_init_attr{attr: C.struct_tv_srq_attr{max_wr: C.uint32_t(o.Requests), max_sge: C.uint32_t(o.Segments)}}
	var e C.int
	srq := C.tv_create_srq(pd, &a, &e)
	if srq == nil {
		return nil, syscall.Errno(e)
	}
	o.Requests, o.Segments = int(a.attr.max_wr), int(a.attr.max_sge)
	return handle(srq), 0
}

func sysArmSRQ(srq handle, limit uint32) syscall.Errno {
	const setLimit = 2
	a := C.struct_tv_srq_attr{srq_limit: C.uint32_t(limit)}
	return syscall.Errno(C.tv_modify_srq((*C.struct_tv_srq)(srq), &a, setLimit))
}

func sysQuerySRQ(srq handle) (limit uint32, errno syscall.Errno) {
	var a C.struct_tv_srq_attr
	errno = syscall.Errno(C.tv_query_srq((*C.struct_tv_srq)(srq), &a))
	return uint32(a.srq_limit), errno
}

func sysDestroySRQ(srq handle) syscall.Errno {
	return syscall.Errno(C.tv_destroy_srq((*C.struct_tv_srq)(srq)))
}

func sysCreateAH(pd handle, av *AddressVector) (handle, syscall.Errno) {
	a := cAddress(av)
	var e C.int
	ah := C.tv_create_ah(pd, &a, &e)
	return ah, syscall.Errno(e)
}

func sysDestroyAH(ah handle) syscall.Errno { return syscall.Errno(C.tv_destroy_ah(ah)) }

// sysAlloc returns zeroed memory of C, on a multiple of 64.
func sysAlloc(bytes int) unsafe.Pointer {
	p := C.aligned_alloc(64, C.size_t((bytes+63)&^63))
	if p != nil {
		clear(unsafe.Slice((*byte)(p), bytes))
	}
	return p
}

func sysFree(p unsafe.Pointer) { C.free(p) }

// sysPostPoll posts the chains that begin with first, if any, and fills done
// from the queue, if there is one. done is Go's memory, which C has for as long
// as the call takes and in which there are no pointers.
func sysPostPoll(first *chain, cq handle, done []Completion) int {
	var chains C.uintptr_t
	if first != nil {
		chains = C.uintptr_t(uintptr(unsafe.Pointer(first.c)))
	}
	if len(done) == 0 {
		cq = nil
	}
	return int(C.tv_post_poll(chains, C.uintptr_t(uintptr(cq)), C.int(min(len(done), 1<<20)), (*C.struct_tv_wc)(unsafe.Pointer(unsafe.SliceData(done)))))
}
