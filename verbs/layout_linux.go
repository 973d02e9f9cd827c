//go:build linux && cgo && (amd64 || arm64 || loong64 || ppc64le || riscv64 || s390x)

package verbs

// #include "shim.h"
import "C"

import "unsafe"

// Some structures are written and read by Go where they lie, in Go's own words.
// Each line here fails to compile if such a structure is laid out otherwise
// than the C one that it stands for.
var same [1]struct{}

var (
	_ = same[unsafe.Sizeof(chainHeader{})-C.sizeof_struct_tv_chain]
	_ = same[unsafe.Offsetof(chainHeader{}.queue)-unsafe.Offsetof(C.struct_tv_chain{}.queue)]
	_ = same[unsafe.Offsetof(chainHeader{}.first)-unsafe.Offsetof(C.struct_tv_chain{}.first)]
	_ = same[unsafe.Offsetof(chainHeader{}.next)-unsafe.Offsetof(C.struct_tv_chain{}.next)]
	_ = same[unsafe.Offsetof(chainHeader{}.kind)-unsafe.Offsetof(C.struct_tv_chain{}.kind)]
	_ = same[unsafe.Offsetof(chainHeader{}.rc)-unsafe.Offsetof(C.struct_tv_chain{}.rc)]
	_ = same[unsafe.Offsetof(chainHeader{}.bad)-unsafe.Offsetof(C.struct_tv_chain{}.bad)]
	_ = same[chainSend-C.TV_SEND]
	_ = same[chainRecv-C.TV_RECV]
	_ = same[chainSRQRecv-C.TV_SRQ_RECV]

	_ = same[unsafe.Sizeof(Segment{})-C.sizeof_struct_tv_sge]
	_ = same[unsafe.Offsetof(Segment{}.Bytes)-unsafe.Offsetof(C.struct_tv_sge{}.length)]
	_ = same[unsafe.Offsetof(Segment{}.LKey)-unsafe.Offsetof(C.struct_tv_sge{}.lkey)]

	_ = same[unsafe.Sizeof(sendWR{})-C.sizeof_struct_tv_send_wr]
	_ = same[unsafe.Offsetof(sendWR{}.next)-unsafe.Offsetof(C.struct_tv_send_wr{}.next)]
	_ = same[unsafe.Offsetof(sendWR{}.segments)-unsafe.Offsetof(C.struct_tv_send_wr{}.sg_list)]
	_ = same[unsafe.Offsetof(sendWR{}.nsegments)-unsafe.Offsetof(C.struct_tv_send_wr{}.num_sge)]
	_ = same[unsafe.Offsetof(sendWR{}.opcode)-unsafe.Offsetof(C.struct_tv_send_wr{}.opcode)]
	_ = same[unsafe.Offsetof(sendWR{}.flags)-unsafe.Offsetof(C.struct_tv_send_wr{}.send_flags)]
	_ = same[unsafe.Offsetof(sendWR{}.imm)-unsafe.Offsetof(C.struct_tv_send_wr{}.imm_data)]
	_ = same[unsafe.Offsetof(sendWR{}.remoteAddr)-unsafe.Offsetof(C.struct_tv_send_wr{}.wr)]

	_ = same[unsafe.Sizeof(recvWR{})-C.sizeof_struct_tv_recv_wr]
	_ = same[unsafe.Offsetof(recvWR{}.next)-unsafe.Offsetof(C.struct_tv_recv_wr{}.next)]
	_ = same[unsafe.Offsetof(recvWR{}.segments)-unsafe.Offsetof(C.struct_tv_recv_wr{}.sg_list)]
	_ = same[unsafe.Offsetof(recvWR{}.nsegments)-unsafe.Offsetof(C.struct_tv_recv_wr{}.num_sge)]

	_ = same[unsafe.Sizeof(Completion{})-C.sizeof_struct_tv_wc]
	_ = same[unsafe.Offsetof(Completion{}.Status)-unsafe.Offsetof(C.struct_tv_wc{}.status)]
	_ = same[unsafe.Offsetof(Completion{}.Opcode)-unsafe.Offsetof(C.struct_tv_wc{}.opcode)]
	_ = same[unsafe.Offsetof(Completion{}.Vendor)-unsafe.Offsetof(C.struct_tv_wc{}.vendor_err)]
	_ = same[unsafe.Offsetof(Completion{}.Bytes)-unsafe.Offsetof(C.struct_tv_wc{}.byte_len)]
	_ = same[unsafe.Offsetof(Completion{}.imm)-unsafe.Offsetof(C.struct_tv_wc{}.imm_data)]
	_ = same[unsafe.Offsetof(Completion{}.QPN)-unsafe.Offsetof(C.struct_tv_wc{}.qp_num)]
	_ = same[unsafe.Offsetof(Completion{}.SrcQPN)-unsafe.Offsetof(C.struct_tv_wc{}.src_qp)]
	_ = same[unsafe.Offsetof(Completion{}.Flags)-unsafe.Offsetof(C.struct_tv_wc{}.wc_flags)]
	_ = same[unsafe.Offsetof(Completion{}.PKeyIndex)-unsafe.Offsetof(C.struct_tv_wc{}.pkey_index)]
	_ = same[unsafe.Offsetof(Completion{}.SLID)-unsafe.Offsetof(C.struct_tv_wc{}.slid)]
	_ = same[unsafe.Offsetof(Completion{}.SL)-unsafe.Offsetof(C.struct_tv_wc{}.sl)]
	_ = same[unsafe.Offsetof(Completion{}.PathBits)-unsafe.Offsetof(C.struct_tv_wc{}.dlid_path_bits)]
)
