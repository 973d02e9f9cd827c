//go:build linux && cgo && (amd64 || arm64 || loong64 || ppc64le || riscv64 || s390x)

package verbs

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"
)

// What the shim declares, and what the system's headers call it. A structure of
// which only the beginning is declared has its size left alone.
var shimStructs = []struct {
	ours, theirs string
	prefix       bool
	fields       []string // ours=theirs where they differ
}{
	{"tv_device", "ibv_device", false, []string{"node_type", "transport_type", "name", "dev_name", "dev_path", "ibdev_path"}},
	{"tv_context_ops", "ibv_context_ops", false, []string{"poll_cq", "req_notify_cq", "post_srq_recv", "post_send", "post_recv"}},
	{"tv_context", "ibv_context", true, []string{"device", "ops", "cmd_fd", "async_fd", "num_comp_vectors"}},
	{"tv_mr", "ibv_mr", false, []string{"context", "pd", "addr", "length", "handle", "lkey", "rkey"}},
	{"tv_comp_channel", "ibv_comp_channel", true, []string{"context", "fd"}},
	{"tv_cq", "ibv_cq", true, []string{"context", "channel", "cq_context", "handle", "cqe"}},
	{"tv_srq", "ibv_srq", true, []string{"context"}},
	{"tv_qp", "ibv_qp", true, []string{"context", "qp_context", "pd", "send_cq", "recv_cq", "srq", "handle", "qp_num", "state", "qp_type"}},
	{"tv_device_attr", "ibv_device_attr", false, []string{"fw_ver", "node_guid", "sys_image_guid", "max_mr_size", "page_size_cap",
		"vendor_id", "vendor_part_id", "hw_ver", "max_qp", "max_qp_wr", "device_cap_flags", "max_sge", "max_sge_rd", "max_cq", "max_cqe",
		"max_mr", "max_pd", "max_qp_rd_atom", "max_qp_init_rd_atom", "atomic_cap", "max_ah", "max_srq", "max_srq_wr", "max_srq_sge",
		"max_pkeys", "local_ca_ack_delay", "phys_port_cnt"}},
	{"tv_port_attr", "ibv_port_attr", true, []string{"state", "max_mtu", "active_mtu", "gid_tbl_len", "port_cap_flags", "max_msg_sz",
		"pkey_tbl_len", "lid", "sm_lid", "lmc", "sm_sl", "active_width", "active_speed", "phys_state", "link_layer", "flags", "port_cap_flags2"}},
	{"tv_gid", "ibv_gid", false, []string{"raw"}},
	{"tv_gid_entry", "ibv_gid_entry", false, []string{"gid", "gid_index", "port_num", "gid_type", "ndev_ifindex"}},
	{"tv_global_route", "ibv_global_route", false, []string{"dgid", "flow_label", "sgid_index", "hop_limit", "traffic_class"}},
	{"tv_ah_attr", "ibv_ah_attr", false, []string{"grh", "dlid", "sl", "src_path_bits", "static_rate", "is_global", "port_num"}},
	{"tv_qp_cap", "ibv_qp_cap", false, []string{"max_send_wr", "max_recv_wr", "max_send_sge", "max_recv_sge", "max_inline_data"}},
	{"tv_qp_init_attr", "ibv_qp_init_attr", false, []string{"qp_context", "send_cq", "recv_cq", "srq", "cap", "qp_type", "sq_sig_all"}},
	{"tv_qp_attr", "ibv_qp_attr", false, []string{"qp_state", "cur_qp_state", "path_mtu", "qkey", "rq_psn", "sq_psn", "dest_qp_num",
		"qp_access_flags", "cap", "ah_attr", "alt_ah_attr", "pkey_index", "max_rd_atomic", "max_dest_rd_atomic", "min_rnr_timer",
		"port_num", "timeout", "retry_cnt", "rnr_retry", "rate_limit"}},
	{"tv_srq_attr", "ibv_srq_attr", false, []string{"max_wr", "max_sge", "srq_limit"}},
	{"tv_srq_init_attr", "ibv_srq_init_attr", false, []string{"srq_context", "attr"}},
	{"tv_async_event", "ibv_async_event", false, []string{"element", "event_type"}},
	{"tv_sge", "ibv_sge", false, []string{"addr", "length", "lkey"}},
	{"tv_send_wr", "ibv_send_wr", false, []string{"wr_id", "next", "sg_list", "num_sge", "opcode", "send_flags", "imm_data", "wr",
		"wr.rdma.remote_addr", "wr.rdma.rkey", "wr.atomic.remote_addr", "wr.atomic.compare_add", "wr.atomic.swap", "wr.atomic.rkey",
		"wr.ud.ah", "wr.ud.remote_qpn", "wr.ud.remote_qkey"}},
	{"tv_recv_wr", "ibv_recv_wr", false, []string{"wr_id", "next", "sg_list", "num_sge"}},
	{"tv_wc", "ibv_wc", false, []string{"wr_id", "status", "opcode", "vendor_err", "byte_len", "imm_data", "qp_num", "src_qp", "wc_flags",
		"pkey_index", "slid", "sl", "dlid_path_bits"}},
}

// The members of the union in a send request, which the compiler cannot compare.
var unionOffsets = map[string]uintptr{
	"wr.rdma.remote_addr": unsafe.Offsetof(sendWR{}.remoteAddr), "wr.rdma.rkey": unsafe.Offsetof(sendWR{}.mid),
	"wr.atomic.remote_addr": unsafe.Offsetof(sendWR{}.remoteAddr), "wr.atomic.compare_add": unsafe.Offsetof(sendWR{}.mid),
	"wr.atomic.swap": unsafe.Offsetof(sendWR{}.swap), "wr.atomic.rkey": unsafe.Offsetof(sendWR{}.atomicKey),
	"wr.ud.ah": unsafe.Offsetof(sendWR{}.remoteAddr), "wr.ud.remote_qpn": unsafe.Offsetof(sendWR{}.mid),
	"wr.ud.remote_qkey": unsafe.Offsetof(sendWR{}.mid) + 4,
}

var constants = map[string]int64{
	"IBV_ACCESS_LOCAL_WRITE": int64(AccessLocalWrite), "IBV_ACCESS_REMOTE_WRITE": int64(AccessRemoteWrite),
	"IBV_ACCESS_REMOTE_READ": int64(AccessRemoteRead), "IBV_ACCESS_REMOTE_ATOMIC": int64(AccessRemoteAtomic),
	"IBV_ACCESS_ZERO_BASED": int64(AccessZeroBased), "IBV_ACCESS_ON_DEMAND": int64(AccessOnDemand),
	"IBV_ACCESS_HUGETLB": int64(AccessHugePages), "IBV_ACCESS_RELAXED_ORDERING": int64(AccessRelaxedOrdering),

	"IBV_WR_RDMA_WRITE": int64(Write), "IBV_WR_RDMA_WRITE_WITH_IMM": int64(WriteImm), "IBV_WR_SEND": int64(Send),
	"IBV_WR_SEND_WITH_IMM": int64(SendImm), "IBV_WR_RDMA_READ": int64(Read), "IBV_WR_ATOMIC_CMP_AND_SWP": int64(CompareSwap),
	"IBV_WR_ATOMIC_FETCH_AND_ADD": int64(FetchAdd),
	"IBV_SEND_FENCE":              int64(Fence), "IBV_SEND_SIGNALED": int64(Signaled), "IBV_SEND_SOLICITED": int64(Solicited), "IBV_SEND_INLINE": int64(InlineSegments),

	"IBV_WC_SEND": int64(CompletedSend), "IBV_WC_RDMA_WRITE": int64(CompletedWrite), "IBV_WC_RDMA_READ": int64(CompletedRead),
	"IBV_WC_COMP_SWAP": int64(CompletedCompareSwap), "IBV_WC_FETCH_ADD": int64(CompletedFetchAdd), "IBV_WC_RECV": int64(CompletedRecv),
	"IBV_WC_RECV_RDMA_WITH_IMM": int64(CompletedRecvImm), "IBV_WC_GRH": int64(CompletedGRH), "IBV_WC_WITH_IMM": int64(CompletedImm),
	"(int)sizeof(struct ibv_grh)": GRHBytes,

	"IBV_WC_SUCCESS": int64(Success), "IBV_WC_LOC_LEN_ERR": int64(LocalLength), "IBV_WC_LOC_QP_OP_ERR": int64(LocalQPOperation),
	"IBV_WC_LOC_EEC_OP_ERR": int64(LocalEEOperation), "IBV_WC_LOC_PROT_ERR": int64(LocalProtection), "IBV_WC_WR_FLUSH_ERR": int64(Flushed),
	"IBV_WC_MW_BIND_ERR": int64(MemoryWindowBind), "IBV_WC_BAD_RESP_ERR": int64(BadResponse), "IBV_WC_LOC_ACCESS_ERR": int64(LocalAccess),
	"IBV_WC_REM_INV_REQ_ERR": int64(RemoteInvalidRequest), "IBV_WC_REM_ACCESS_ERR": int64(RemoteAccess), "IBV_WC_REM_OP_ERR": int64(RemoteOperation),
	"IBV_WC_RETRY_EXC_ERR": int64(RetryExceeded), "IBV_WC_RNR_RETRY_EXC_ERR": int64(RNRRetryExceeded), "IBV_WC_LOC_RDD_VIOL_ERR": int64(LocalRDDViolation),
	"IBV_WC_REM_INV_RD_REQ_ERR": int64(RemoteInvalidRead), "IBV_WC_REM_ABORT_ERR": int64(RemoteAborted), "IBV_WC_INV_EECN_ERR": int64(InvalidEEN),
	"IBV_WC_INV_EEC_STATE_ERR": int64(InvalidEEState), "IBV_WC_FATAL_ERR": int64(Fatal), "IBV_WC_RESP_TIMEOUT_ERR": int64(ResponseTimeout),
	"IBV_WC_GENERAL_ERR": int64(General), "IBV_WC_TM_ERR": int64(TagMatching), "IBV_WC_TM_RNDV_INCOMPLETE": int64(TagMatchingRendezvous),

	"IBV_MTU_256": int64(MTU256), "IBV_MTU_512": int64(MTU512), "IBV_MTU_1024": int64(MTU1024), "IBV_MTU_2048": int64(MTU2048), "IBV_MTU_4096": int64(MTU4096),
	"IBV_PORT_NOP": int64(PortNop), "IBV_PORT_DOWN": int64(PortDown), "IBV_PORT_INIT": int64(PortInit), "IBV_PORT_ARMED": int64(PortArmed),
	"IBV_PORT_ACTIVE": int64(PortActive), "IBV_PORT_ACTIVE_DEFER": int64(PortActiveDefer),
	"IBV_LINK_LAYER_UNSPECIFIED": int64(LinkUnspecified), "IBV_LINK_LAYER_INFINIBAND": int64(LinkInfiniBand), "IBV_LINK_LAYER_ETHERNET": int64(LinkEthernet),
	"IBV_NODE_UNKNOWN": int64(NodeUnknown), "IBV_NODE_CA": int64(NodeCA), "IBV_NODE_SWITCH": int64(NodeSwitch), "IBV_NODE_ROUTER": int64(NodeRouter),
	"IBV_NODE_RNIC": int64(NodeRNIC), "IBV_NODE_USNIC": int64(NodeUSNIC), "IBV_NODE_USNIC_UDP": int64(NodeUSNICUDP), "IBV_NODE_UNSPECIFIED": int64(NodeUnspecified),
	"IBV_TRANSPORT_UNKNOWN": int64(TransportUnknown), "IBV_TRANSPORT_IB": int64(TransportInfiniBand), "IBV_TRANSPORT_IWARP": int64(TransportIWARP),
	"IBV_TRANSPORT_USNIC": int64(TransportUSNIC), "IBV_TRANSPORT_USNIC_UDP": int64(TransportUSNICUDP), "IBV_TRANSPORT_UNSPECIFIED": int64(TransportUnspecified),
	"IBV_ATOMIC_NONE": int64(AtomicNone), "IBV_ATOMIC_HCA": int64(AtomicDevice), "IBV_ATOMIC_GLOB": int64(AtomicGlobal),

	"IBV_QPT_RC": int64(RC), "IBV_QPT_UC": int64(UC), "IBV_QPT_UD": int64(UD),
	"IBV_QPS_RESET": int64(StateReset), "IBV_QPS_INIT": int64(StateInit), "IBV_QPS_RTR": int64(StateRTR), "IBV_QPS_RTS": int64(StateRTS),
	"IBV_QPS_SQD": int64(StateSQDrained), "IBV_QPS_SQE": int64(StateSQError), "IBV_QPS_ERR": int64(StateErr), "IBV_QPS_UNKNOWN": int64(StateUnknown),
	"IBV_QP_STATE": setState, "IBV_QP_ACCESS_FLAGS": setAccess, "IBV_QP_PKEY_INDEX": setPKeyIndex, "IBV_QP_PORT": setPort, "IBV_QP_QKEY": setQKey,
	"IBV_QP_AV": setAddress, "IBV_QP_PATH_MTU": setPathMTU, "IBV_QP_TIMEOUT": setTimeout, "IBV_QP_RETRY_CNT": setRetryCount, "IBV_QP_RNR_RETRY": setRNRRetry,
	"IBV_QP_RQ_PSN": setRQPSN, "IBV_QP_MAX_QP_RD_ATOMIC": setMaxRDAtomic, "IBV_QP_MIN_RNR_TIMER": setMinRNRTimer, "IBV_QP_SQ_PSN": setSQPSN,
	"IBV_QP_MAX_DEST_RD_ATOMIC": setMaxDestRDAtomic, "IBV_QP_CAP": setCaps, "IBV_QP_DEST_QPN": setDestQPN, "IBV_SRQ_LIMIT": 2, "IBV_QPF_GRH_REQUIRED": 1,
	"IBV_GID_TYPE_IB": int64(GIDInfiniBand), "IBV_GID_TYPE_ROCE_V1": int64(GIDRoCEv1), "IBV_GID_TYPE_ROCE_V2": int64(GIDRoCEv2),

	"IBV_EVENT_CQ_ERR": int64(EventCQError), "IBV_EVENT_QP_FATAL": int64(EventQPFatal), "IBV_EVENT_QP_REQ_ERR": int64(EventQPRequestError),
	"IBV_EVENT_QP_ACCESS_ERR": int64(EventQPAccessError), "IBV_EVENT_COMM_EST": int64(EventCommEstablished), "IBV_EVENT_SQ_DRAINED": int64(EventSQDrained),
	"IBV_EVENT_PATH_MIG": int64(EventPathMigrated), "IBV_EVENT_PATH_MIG_ERR": int64(EventPathMigrationError), "IBV_EVENT_DEVICE_FATAL": int64(EventDeviceFatal),
	"IBV_EVENT_PORT_ACTIVE": int64(EventPortActive), "IBV_EVENT_PORT_ERR": int64(EventPortError), "IBV_EVENT_LID_CHANGE": int64(EventLIDChange),
	"IBV_EVENT_PKEY_CHANGE": int64(EventPKeyChange), "IBV_EVENT_SM_CHANGE": int64(EventSMChange), "IBV_EVENT_SRQ_ERR": int64(EventSRQError),
	"IBV_EVENT_SRQ_LIMIT_REACHED": int64(EventSRQLimit), "IBV_EVENT_QP_LAST_WQE_REACHED": int64(EventLastWQE),
	"IBV_EVENT_CLIENT_REREGISTER": int64(EventClientReregister), "IBV_EVENT_GID_CHANGE": int64(EventGIDChange), "IBV_EVENT_WQ_FATAL": int64(EventWQFatal),
}

// TestHeaders holds the shim's declarations to the system's headers: a C
// program that includes both prints sizes, offsets and constants.
func TestHeaders(t *testing.T) {
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "gcc"
	}
	if _, err := exec.LookPath(cc); err != nil {
		cannotRun(t, "no C compiler to compare the declarations with the system's headers: %v", err)
	}
	if err := exec.Command(cc, "-fsyntax-only", "-include", "infiniband/verbs.h", "-x", "c", "/dev/null").Run(); err != nil {
		cannotRun(t, "no headers to compare the declarations with (Debian: libibverbs-dev): %v", err)
	}

	var src bytes.Buffer
	src.WriteString("#include <infiniband/verbs.h>\n#include <stdio.h>\n#include \"shim.h\"\nint main(void) {\n")
	expect := make(map[string]int64)
	for _, s := range shimStructs {
		theirs := "struct " + s.theirs
		if s.theirs == "ibv_gid" {
			theirs = "union ibv_gid"
		}
		if !s.prefix {
			fmt.Fprintf(&src, "printf(\"size %s %%zu %%zu\\n\", sizeof(struct %s), sizeof(%s));\n", s.ours, s.ours, theirs)
			fmt.Fprintf(&src, "printf(\"alignment %s %%zu %%zu\\n\", _Alignof(struct %s), _Alignof(%s));\n", s.ours, s.ours, theirs)
		}
		for _, f := range s.fields {
			fmt.Fprintf(&src, "printf(\"offset %s.%s %%zu %%zu\\n\", offsetof(struct %s, %s), offsetof(%s, %s));\n", s.ours, f, s.ours, f, theirs, f)
			fmt.Fprintf(&src, "printf(\"width %s.%s %%zu %%zu\\n\", sizeof(((struct %s *)0)->%s), sizeof(((%s *)0)->%s));\n", s.ours, f, s.ours, f, theirs, f)
		}
	}
	for f, offset := range unionOffsets {
		expect["go "+f] = int64(offset)
		fmt.Fprintf(&src, "printf(\"go %s %%zu %%zu\\n\", offsetof(struct tv_send_wr, %s), offsetof(struct ibv_send_wr, %s));\n", f, f, f)
	}
	for name, v := range constants {
		key := strings.ReplaceAll(name, " ", "_")
		expect["constant "+key] = v
		fmt.Fprintf(&src, "printf(\"constant %s %%lld %%lld\\n\", (long long)(%s), (long long)(%s));\n", key, name, name)
	}
	src.WriteString("return 0; }\n")

	dir := t.TempDir()
	file, program := filepath.Join(dir, "abi.c"), filepath.Join(dir, "abi")
	if err := os.WriteFile(file, src.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-I", wd, "-o", program, file).CombinedOutput(); err != nil {
		t.Fatalf("compiling the comparison: %v\n%s", err, out)
	}
	out, err := exec.Command(program).Output()
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		var what, name string
		var ours, theirs int64
		if n, err := fmt.Sscan(lines.Text(), &what, &name, &ours, &theirs); n != 4 {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		if v, ok := expect[what+" "+name]; ok {
			ours = v
		}
		if ours != theirs {
			t.Errorf("%s of %s: %d here, %d in the headers", what, name, ours, theirs)
		}
		compared++
	}
	if compared < 350 {
		t.Errorf("compared %d things only", compared)
	}
	t.Logf("compared %d sizes, offsets and constants", compared)
}

// cannotRun skips a test that this machine has no means for. In CI there must
// be the means.
func cannotRun(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}
