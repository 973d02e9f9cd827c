/*
 * The binary interface of libibverbs as programs see it: the structures that
 * cross it, the numbers in them, the places of the functions that programs
 * call through a context. Declared here so that the fake builds with a C
 * compiler alone; the assertions at the end hold sizes and offsets to those of
 * the 64-bit ABI, which has not moved since 2005, and a test compares all of
 * it with the system's header where there is one.
 */
#ifndef FAKEVERBS_ABI_H
#define FAKEVERBS_ABI_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Access rights of a memory region and of a queue pair. */
enum {
	ACC_LOCAL_WRITE = 1,
	ACC_REMOTE_WRITE = 2,
	ACC_REMOTE_READ = 4,
	ACC_REMOTE_ATOMIC = 8,
	ACC_MW_BIND = 16,
	ACC_ZERO_BASED = 32,
	ACC_ON_DEMAND = 64,
	ACC_HUGETLB = 128,
	ACC_RELAXED = 1 << 20,
	ACC_OPTIONAL = 0x3ff00000, /* bits 20 to 29: a device may ignore them */
};

enum { QPT_RC = 2, QPT_UC = 3, QPT_UD = 4 };

enum { QPS_RESET, QPS_INIT, QPS_RTR, QPS_RTS, QPS_SQD, QPS_SQE, QPS_ERR, QPS_COUNT };

/* Masks of ibv_modify_qp. */
enum {
	QP_STATE = 1 << 0,
	QP_CUR_STATE = 1 << 1,
	QP_EN_SQD_ASYNC_NOTIFY = 1 << 2,
	QP_ACCESS_FLAGS = 1 << 3,
	QP_PKEY_INDEX = 1 << 4,
	QP_PORT = 1 << 5,
	QP_QKEY = 1 << 6,
	QP_AV = 1 << 7,
	QP_PATH_MTU = 1 << 8,
	QP_TIMEOUT = 1 << 9,
	QP_RETRY_CNT = 1 << 10,
	QP_RNR_RETRY = 1 << 11,
	QP_RQ_PSN = 1 << 12,
	QP_MAX_QP_RD_ATOMIC = 1 << 13,
	QP_ALT_PATH = 1 << 14,
	QP_MIN_RNR_TIMER = 1 << 15,
	QP_SQ_PSN = 1 << 16,
	QP_MAX_DEST_RD_ATOMIC = 1 << 17,
	QP_PATH_MIG_STATE = 1 << 18,
	QP_CAP = 1 << 19,
	QP_DEST_QPN = 1 << 20,
	QP_RATE_LIMIT = 1 << 25,
};

/* Opcodes of send work requests. */
enum {
	WR_RDMA_WRITE,
	WR_RDMA_WRITE_WITH_IMM,
	WR_SEND,
	WR_SEND_WITH_IMM,
	WR_RDMA_READ,
	WR_CMP_SWP,
	WR_FETCH_ADD,
};

enum { SEND_FENCE = 1, SEND_SIGNALED = 2, SEND_SOLICITED = 4, SEND_INLINE = 8 };

/* Statuses of work completions. */
enum {
	WC_SUCCESS,
	WC_LOC_LEN_ERR,
	WC_LOC_QP_OP_ERR,
	WC_LOC_EEC_OP_ERR,
	WC_LOC_PROT_ERR,
	WC_WR_FLUSH_ERR,
	WC_MW_BIND_ERR,
	WC_BAD_RESP_ERR,
	WC_LOC_ACCESS_ERR,
	WC_REM_INV_REQ_ERR,
	WC_REM_ACCESS_ERR,
	WC_REM_OP_ERR,
	WC_RETRY_EXC_ERR,
	WC_RNR_RETRY_EXC_ERR,
	WC_LOC_RDD_VIOL_ERR,
	WC_REM_INV_RD_REQ_ERR,
	WC_REM_ABORT_ERR,
	WC_INV_EECN_ERR,
	WC_INV_EEC_STATE_ERR,
	WC_FATAL_ERR,
	WC_RESP_TIMEOUT_ERR,
	WC_GENERAL_ERR,
	WC_TM_ERR,
	WC_TM_RNDV_INCOMPLETE,
	WC_STATUS_COUNT,
};

/* Opcodes and flags of work completions. */
enum { WC_SEND, WC_RDMA_WRITE, WC_RDMA_READ, WC_COMP_SWAP, WC_FETCH_ADD, WC_RECV = 128, WC_RECV_RDMA_WITH_IMM = 129 };
enum { WC_GRH = 1, WC_WITH_IMM = 2 };

enum { PORT_NOP, PORT_DOWN, PORT_INIT, PORT_ARMED, PORT_ACTIVE, PORT_ACTIVE_DEFER };
enum { MTU_256 = 1, MTU_512, MTU_1024, MTU_2048, MTU_4096 };
enum { LINK_LAYER_IB = 1, LINK_LAYER_ETHERNET = 2 };
enum { GID_TYPE_IB, GID_TYPE_ROCE_V1, GID_TYPE_ROCE_V2 };
enum { ATOMIC_NONE, ATOMIC_HCA, ATOMIC_GLOB };

/* Asynchronous events. */
enum {
	EV_CQ_ERR,
	EV_QP_FATAL,
	EV_QP_REQ_ERR,
	EV_QP_ACCESS_ERR,
	EV_COMM_EST,
	EV_SQ_DRAINED,
	EV_PATH_MIG,
	EV_PATH_MIG_ERR,
	EV_DEVICE_FATAL,
	EV_PORT_ACTIVE,
	EV_PORT_ERR,
	EV_LID_CHANGE,
	EV_PKEY_CHANGE,
	EV_SM_CHANGE,
	EV_SRQ_ERR,
	EV_SRQ_LIMIT_REACHED,
	EV_QP_LAST_WQE_REACHED,
	EV_CLIENT_REREGISTER,
	EV_GID_CHANGE,
	EV_WQ_FATAL,
	EV_COUNT,
};

enum { SRQ_MAX_WR = 1, SRQ_LIMIT = 2 };
enum { QP_INIT_ATTR_PD = 1 };

struct ibv_context;
struct ibv_pd;
struct ibv_cq;
struct ibv_qp;
struct ibv_srq;
struct ibv_ah;

union ibv_gid {
	uint8_t raw[16];
	uint64_t half[2]; /* subnet prefix, interface identifier; big-endian */
};

struct ibv_gid_entry {
	union ibv_gid gid;
	uint32_t gid_index;
	uint32_t port_num;
	uint32_t gid_type;
	uint32_t ndev_ifindex;
};

struct ibv_device_attr {
	char fw_ver[64];
	uint64_t node_guid; /* big-endian */
	uint64_t sys_image_guid;
	uint64_t max_mr_size;
	uint64_t page_size_cap;
	uint32_t vendor_id;
	uint32_t vendor_part_id;
	uint32_t hw_ver;
	int max_qp;
	int max_qp_wr;
	unsigned device_cap_flags;
	int max_sge;
	int max_sge_rd;
	int max_cq;
	int max_cqe;
	int max_mr;
	int max_pd;
	int max_qp_rd_atom;
	int max_ee_rd_atom;
	int max_res_rd_atom;
	int max_qp_init_rd_atom;
	int max_ee_init_rd_atom;
	int atomic_cap;
	int max_ee;
	int max_rdd;
	int max_mw;
	int max_raw_ipv6_qp;
	int max_raw_ethy_qp;
	int max_mcast_grp;
	int max_mcast_qp_attach;
	int max_total_mcast_qp_attach;
	int max_ah;
	int max_fmr;
	int max_map_per_fmr;
	int max_srq;
	int max_srq_wr;
	int max_srq_sge;
	uint16_t max_pkeys;
	uint8_t local_ca_ack_delay;
	uint8_t phys_port_cnt;
};

struct ibv_port_attr {
	int state;
	int max_mtu;
	int active_mtu;
	int gid_tbl_len;
	uint32_t port_cap_flags;
	uint32_t max_msg_sz;
	uint32_t bad_pkey_cntr;
	uint32_t qkey_viol_cntr;
	uint16_t pkey_tbl_len;
	uint16_t lid;
	uint16_t sm_lid;
	uint8_t lmc;
	uint8_t max_vl_num;
	uint8_t sm_sl;
	uint8_t subnet_timeout;
	uint8_t init_type_reply;
	uint8_t active_width;
	uint8_t active_speed;
	uint8_t phys_state;
	uint8_t link_layer;
	uint8_t flags;
	uint16_t port_cap_flags2; /* unknown to the exported ibv_query_port */
};

struct ibv_async_event {
	union {
		struct ibv_cq *cq;
		struct ibv_qp *qp;
		struct ibv_srq *srq;
		int port_num;
	} element;
	int event_type;
};

struct ibv_wc {
	uint64_t wr_id;
	int status;
	int opcode;
	uint32_t vendor_err;
	uint32_t byte_len;
	uint32_t imm_data; /* big-endian */
	uint32_t qp_num;
	uint32_t src_qp;
	unsigned wc_flags;
	uint16_t pkey_index;
	uint16_t slid;
	uint8_t sl;
	uint8_t dlid_path_bits;
};

struct ibv_global_route {
	union ibv_gid dgid;
	uint32_t flow_label;
	uint8_t sgid_index;
	uint8_t hop_limit;
	uint8_t traffic_class;
};

struct ibv_grh {
	uint32_t version_tclass_flow; /* big-endian */
	uint16_t paylen;              /* big-endian */
	uint8_t next_hdr;
	uint8_t hop_limit;
	union ibv_gid sgid;
	union ibv_gid dgid;
};

struct ibv_ah_attr {
	struct ibv_global_route grh;
	uint16_t dlid;
	uint8_t sl;
	uint8_t src_path_bits;
	uint8_t static_rate;
	uint8_t is_global;
	uint8_t port_num;
};

struct ibv_srq_attr {
	uint32_t max_wr;
	uint32_t max_sge;
	uint32_t srq_limit;
};

struct ibv_srq_init_attr {
	void *srq_context;
	struct ibv_srq_attr attr;
};

struct ibv_qp_cap {
	uint32_t max_send_wr;
	uint32_t max_recv_wr;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_inline_data;
};

struct ibv_qp_init_attr {
	void *qp_context;
	struct ibv_cq *send_cq;
	struct ibv_cq *recv_cq;
	struct ibv_srq *srq;
	struct ibv_qp_cap cap;
	int qp_type;
	int sq_sig_all;
};

/* The beginning of ibv_qp_init_attr_ex, as far as the fake looks. */
struct ibv_qp_init_attr_ex {
	void *qp_context;
	struct ibv_cq *send_cq;
	struct ibv_cq *recv_cq;
	struct ibv_srq *srq;
	struct ibv_qp_cap cap;
	int qp_type;
	int sq_sig_all;
	uint32_t comp_mask;
	struct ibv_pd *pd;
};

struct ibv_qp_attr {
	int qp_state;
	int cur_qp_state;
	int path_mtu;
	int path_mig_state;
	uint32_t qkey;
	uint32_t rq_psn;
	uint32_t sq_psn;
	uint32_t dest_qp_num;
	unsigned qp_access_flags;
	struct ibv_qp_cap cap;
	struct ibv_ah_attr ah_attr;
	struct ibv_ah_attr alt_ah_attr;
	uint16_t pkey_index;
	uint16_t alt_pkey_index;
	uint8_t en_sqd_async_notify;
	uint8_t sq_draining;
	uint8_t max_rd_atomic;
	uint8_t max_dest_rd_atomic;
	uint8_t min_rnr_timer;
	uint8_t port_num;
	uint8_t timeout;
	uint8_t retry_cnt;
	uint8_t rnr_retry;
	uint8_t alt_port_num;
	uint8_t alt_timeout;
	uint32_t rate_limit;
};

struct ibv_sge {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

struct ibv_send_wr {
	uint64_t wr_id;
	struct ibv_send_wr *next;
	struct ibv_sge *sg_list;
	int num_sge;
	int opcode;
	unsigned send_flags;
	uint32_t imm_data; /* big-endian */
	union {
		struct {
			uint64_t remote_addr;
			uint32_t rkey;
		} rdma;
		struct {
			uint64_t remote_addr;
			uint64_t compare_add;
			uint64_t swap;
			uint32_t rkey;
		} atomic;
		struct {
			struct ibv_ah *ah;
			uint32_t remote_qpn;
			uint32_t remote_qkey;
		} ud;
	} wr;
	uint64_t unused[7]; /* XRC, memory windows, segmentation offload */
};

struct ibv_recv_wr {
	uint64_t wr_id;
	struct ibv_recv_wr *next;
	struct ibv_sge *sg_list;
	int num_sge;
};

struct ibv_pd {
	struct ibv_context *context;
	uint32_t handle;
};

struct ibv_mr {
	struct ibv_context *context;
	struct ibv_pd *pd;
	void *addr;
	size_t length;
	uint32_t handle;
	uint32_t lkey;
	uint32_t rkey;
};

struct ibv_ah {
	struct ibv_context *context;
	struct ibv_pd *pd;
	uint32_t handle;
};

struct ibv_comp_channel {
	struct ibv_context *context;
	int fd;
	int refcnt;
};

struct ibv_cq {
	struct ibv_context *context;
	struct ibv_comp_channel *channel;
	void *cq_context;
	uint32_t handle;
	int cqe;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t comp_events_completed;
	uint32_t async_events_completed;
};

struct ibv_srq {
	struct ibv_context *context;
	void *srq_context;
	struct ibv_pd *pd;
	uint32_t handle;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed;
};

struct ibv_qp {
	struct ibv_context *context;
	void *qp_context;
	struct ibv_pd *pd;
	struct ibv_cq *send_cq;
	struct ibv_cq *recv_cq;
	struct ibv_srq *srq;
	uint32_t handle;
	uint32_t qp_num;
	int state;
	int qp_type;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed;
};

struct ibv_ece {
	uint32_t vendor_id;
	uint32_t options;
	uint32_t comp_mask;
};

struct ibv_device {
	void *ops[2];
	int node_type;
	int transport_type;
	char name[64];
	char dev_name[64];
	char dev_path[256];
	char ibdev_path[256];
};

typedef void (*fv_unused)(void);

/* The functions that programs call through a context, and holes where others
 * once were. */
struct ibv_context_ops {
	fv_unused hole0[11];
	int (*poll_cq)(struct ibv_cq *, int, struct ibv_wc *);
	int (*req_notify_cq)(struct ibv_cq *, int);
	fv_unused hole13[7];
	int (*post_srq_recv)(struct ibv_srq *, struct ibv_recv_wr *, struct ibv_recv_wr **);
	fv_unused hole21[4];
	int (*post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
	int (*post_recv)(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **);
	fv_unused hole27[5];
};

struct ibv_context {
	struct ibv_device *device;
	struct ibv_context_ops ops;
	int cmd_fd;
	int async_fd;
	int num_comp_vectors;
	pthread_mutex_t mutex;
	void *abi_compat; /* all ones: a verbs_context lies before this */
};

/* What lies before a context: functions found by their distance from it. */
struct verbs_context {
	int (*query_port)(struct ibv_context *, uint8_t, struct ibv_port_attr *, size_t);
	fv_unused hole1[32];
	struct ibv_qp *(*create_qp_ex)(struct ibv_context *, struct ibv_qp_init_attr_ex *);
	fv_unused hole34[4];
	uint64_t placeholder;
	size_t sz;
	struct ibv_context context;
};

#define FV_IS(condition) _Static_assert(condition, #condition)
#define FV_AT(type, field, offset) _Static_assert(offsetof(struct type, field) == (offset), #type "." #field)
#define FV_SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type)

#if defined(__x86_64__) && !defined(__ILP32__)
FV_SIZE(ibv_context, 328);
FV_AT(ibv_context, ops, 8);
FV_AT(ibv_context, ops.poll_cq, 8 + 88);
FV_AT(ibv_context, ops.req_notify_cq, 8 + 96);
FV_AT(ibv_context, ops.post_srq_recv, 8 + 160);
FV_AT(ibv_context, ops.post_send, 8 + 200);
FV_AT(ibv_context, ops.post_recv, 8 + 208);
FV_AT(ibv_context, cmd_fd, 264);
FV_AT(ibv_context, async_fd, 268);
FV_AT(ibv_context, num_comp_vectors, 272);
FV_AT(ibv_context, abi_compat, 320);
FV_SIZE(verbs_context, 648);
FV_IS(offsetof(struct verbs_context, context) - offsetof(struct verbs_context, query_port) == 320);
FV_IS(offsetof(struct verbs_context, context) - offsetof(struct verbs_context, create_qp_ex) == 56);
FV_IS(offsetof(struct verbs_context, context) - offsetof(struct verbs_context, sz) == 8);
FV_SIZE(ibv_qp, 160);
FV_AT(ibv_qp, qp_num, 52);
FV_AT(ibv_qp, state, 56);
FV_AT(ibv_qp, qp_type, 60);
FV_SIZE(ibv_cq, 128);
#endif
FV_SIZE(ibv_device, 664);
FV_AT(ibv_device, node_type, 16);
FV_AT(ibv_device, name, 24);
FV_SIZE(ibv_mr, 48);
FV_AT(ibv_mr, lkey, 36);
FV_AT(ibv_mr, rkey, 40);
FV_SIZE(ibv_sge, 16);
FV_SIZE(ibv_send_wr, 128);
FV_AT(ibv_send_wr, sg_list, 16);
FV_AT(ibv_send_wr, num_sge, 24);
FV_AT(ibv_send_wr, opcode, 28);
FV_AT(ibv_send_wr, send_flags, 32);
FV_AT(ibv_send_wr, imm_data, 36);
FV_AT(ibv_send_wr, wr, 40);
FV_SIZE(ibv_recv_wr, 32);
FV_SIZE(ibv_wc, 48);
FV_AT(ibv_wc, status, 8);
FV_AT(ibv_wc, opcode, 12);
FV_AT(ibv_wc, vendor_err, 16);
FV_AT(ibv_wc, byte_len, 20);
FV_AT(ibv_wc, imm_data, 24);
FV_AT(ibv_wc, qp_num, 28);
FV_AT(ibv_wc, wc_flags, 36);
FV_SIZE(ibv_qp_attr, 144);
FV_SIZE(ibv_qp_init_attr, 64);
FV_SIZE(ibv_ah_attr, 32);
FV_SIZE(ibv_device_attr, 232);
FV_AT(ibv_device_attr, phys_port_cnt, 227);
FV_SIZE(ibv_port_attr, 52);
FV_SIZE(ibv_gid_entry, 32);
FV_SIZE(ibv_ece, 12);
FV_SIZE(ibv_grh, 40);

#endif
