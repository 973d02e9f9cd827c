// Declarations of what this package uses of libibverbs, written from the facts
// of its binary interface, so that neither headers nor the library are needed
// to build. abi_test.go holds them to the system's headers. Structures that
// the library allocates are declared as far as they are read, no further.
#ifndef TUTTI_VERBS_SHIM_H
#define TUTTI_VERBS_SHIM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// The library's own.

struct tv_device {
	void *ops[2];
	int32_t node_type;
	int32_t transport_type;
	char name[64];
	char dev_name[64];
	char dev_path[256];
	char ibdev_path[256];
};

struct tv_cq;
struct tv_qp;
struct tv_srq;
struct tv_wc;
struct tv_send_wr;
struct tv_recv_wr;

struct tv_context_ops {
	void *before_poll[11];
	int (*poll_cq)(struct tv_cq *, int, struct tv_wc *);
	int (*req_notify_cq)(struct tv_cq *, int);
	void *before_post_srq[7];
	int (*post_srq_recv)(struct tv_srq *, struct tv_recv_wr *, struct tv_recv_wr **);
	void *before_post[4];
	int (*post_send)(struct tv_qp *, struct tv_send_wr *, struct tv_send_wr **);
	int (*post_recv)(struct tv_qp *, struct tv_recv_wr *, struct tv_recv_wr **);
	void *after_post[5];
};

struct tv_context {
	struct tv_device *device;
	struct tv_context_ops ops;
	int cmd_fd;
	int async_fd;
	int num_comp_vectors;
};

struct tv_mr {
	struct tv_context *context;
	void *pd;
	void *addr;
	size_t length;
	uint32_t handle;
	uint32_t lkey;
	uint32_t rkey;
};

struct tv_comp_channel {
	struct tv_context *context;
	int fd;
};

struct tv_cq {
	struct tv_context *context;
	struct tv_comp_channel *channel;
	void *cq_context;
	uint32_t handle;
	int cqe;
};

struct tv_srq {
	struct tv_context *context;
};

struct tv_qp {
	struct tv_context *context;
	void *qp_context;
	void *pd;
	struct tv_cq *send_cq;
	struct tv_cq *recv_cq;
	struct tv_srq *srq;
	uint32_t handle;
	uint32_t qp_num;
	uint32_t state;
	uint32_t qp_type;
};

// Arguments and results: declared whole.

struct tv_device_attr {
	char fw_ver[64];
	uint64_t node_guid; // big-endian
	uint64_t sys_image_guid;
	uint64_t max_mr_size;
	uint64_t page_size_cap;
	uint32_t vendor_id;
	uint32_t vendor_part_id;
	uint32_t hw_ver;
	int max_qp;
	int max_qp_wr;
	uint32_t device_cap_flags;
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
	uint32_t atomic_cap;
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

// The structure has grown at its end and may again; the shim gives the library
// more room than this.
struct tv_port_attr {
	uint32_t state;
	uint32_t max_mtu;
	uint32_t active_mtu;
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
	uint16_t port_cap_flags2;
};

struct tv_gid {
	uint8_t raw[16] __attribute__((aligned(8)));
};

struct tv_gid_entry {
	struct tv_gid gid;
	uint32_t gid_index;
	uint32_t port_num;
	uint32_t gid_type;
	uint32_t ndev_ifindex;
};

struct tv_global_route {
	struct tv_gid dgid;
	uint32_t flow_label;
	uint8_t sgid_index;
	uint8_t hop_limit;
	uint8_t traffic_class;
};

struct tv_ah_attr {
	struct tv_global_route grh;
	uint16_t dlid;
	uint8_t sl;
	uint8_t src_path_bits;
	uint8_t static_rate;
	uint8_t is_global;
	uint8_t port_num;
};

struct tv_qp_cap {
	uint32_t max_send_wr;
	uint32_t max_recv_wr;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_inline_data;
};

struct tv_qp_init_attr {
	void *qp_context;
	struct tv_cq *send_cq;
	struct tv_cq *recv_cq;
	struct tv_srq *srq;
	struct tv_qp_cap cap;
	uint32_t qp_type;
	int sq_sig_all;
};

struct tv_qp_attr {
	uint32_t qp_state;
	uint32_t cur_qp_state;
	uint32_t path_mtu;
	uint32_t path_mig_state;
	uint32_t qkey;
	uint32_t rq_psn;
	uint32_t sq_psn;
	uint32_t dest_qp_num;
	uint32_t qp_access_flags;
	struct tv_qp_cap cap;
	struct tv_ah_attr ah_attr;
	struct tv_ah_attr alt_ah_attr;
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

struct tv_srq_attr {
	uint32_t max_wr;
	uint32_t max_sge;
	uint32_t srq_limit;
};

struct tv_srq_init_attr {
	void *srq_context;
	struct tv_srq_attr attr;
};

struct tv_async_event {
	union {
		void *object;
		int port_num;
	} element;
	uint32_t event_type;
};

struct tv_sge {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

struct tv_send_wr {
	uint64_t wr_id;
	struct tv_send_wr *next;
	struct tv_sge *sg_list;
	int num_sge;
	uint32_t opcode;
	uint32_t send_flags;
	uint32_t imm_data; // big-endian
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
			void *ah;
			uint32_t remote_qpn;
			uint32_t remote_qkey;
		} ud;
	} wr;
	uint64_t unused[7]; // XRC, memory windows, TSO
};

struct tv_recv_wr {
	uint64_t wr_id;
	struct tv_recv_wr *next;
	struct tv_sge *sg_list;
	int num_sge;
};

struct tv_wc {
	uint64_t wr_id;
	uint32_t status;
	uint32_t opcode;
	uint32_t vendor_err;
	uint32_t byte_len;
	uint32_t imm_data; // big-endian
	uint32_t qp_num;
	uint32_t src_qp;
	uint32_t wc_flags;
	uint16_t pkey_index;
	uint16_t slid;
	uint8_t sl;
	uint8_t dlid_path_bits;
};

// The shim's own.

// A chain is what is posted to one queue: the C end of a Batch or RecvBatch.
// Its owner fills it; tv_post_poll reads it and writes the last two.
struct tv_chain {
	uintptr_t queue;       // a tv_qp, or a tv_srq
	uintptr_t first;       // the first request to be posted, or 0 for none
	uintptr_t next;        // the next chain of the same call, or 0
	uint32_t kind;         // TV_SEND, TV_RECV, TV_SRQ_RECV
	int32_t rc;            // errno, 0 if all were posted
	uintptr_t bad;         // where rc is not 0: the first request not posted
};

enum { TV_SEND, TV_RECV, TV_SRQ_RECV };

// What the library has besides what every release has.
enum {
	TV_HAS_REG_IOVA2 = 1,
	TV_HAS_DMABUF = 2,
	TV_HAS_GID_TABLE = 4,
	TV_HAS_DATA_IN_ORDER = 8,
	TV_HAS_PORT_SPEED = 16,
};

// tv_load opens the library once. It returns 0, or -1 with the reason in why.
int tv_load(const char *path, char *why, size_t room);
int tv_features(void);

// Calls of the library. Pointers are results, NULL with *err an errno; ints are
// 0 or an errno.
struct tv_device **tv_get_device_list(int *n, int *err);
void tv_free_device_list(struct tv_device **list);
uint64_t tv_device_guid(struct tv_device *d);
struct tv_context *tv_open_device(struct tv_device *d, int *err);
int tv_close_device(struct tv_context *c);
int tv_query_device(struct tv_context *c, struct tv_device_attr *a);
int tv_query_port(struct tv_context *c, uint8_t port, struct tv_port_attr *a);
int tv_query_port_speed(struct tv_context *c, uint32_t port, uint64_t *speed);
int tv_query_gid(struct tv_context *c, uint8_t port, int index, struct tv_gid *g);
ssize_t tv_query_gid_table(struct tv_context *c, struct tv_gid_entry *e, size_t max, int *err);
int tv_query_pkey(struct tv_context *c, uint8_t port, int index, uint16_t *pkey);
int tv_get_async_event(struct tv_context *c, struct tv_async_event *e);
void tv_ack_async_event(struct tv_async_event *e);

void *tv_alloc_pd(struct tv_context *c, int *err);
int tv_dealloc_pd(void *pd);
struct tv_mr *tv_reg_mr(void *pd, uint64_t addr, size_t length, uint64_t iova, uint32_t access, int *err);
struct tv_mr *tv_reg_dmabuf_mr(void *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access, int *err);
int tv_dereg_mr(struct tv_mr *mr);

struct tv_comp_channel *tv_create_channel(struct tv_context *c, int *err);
int tv_destroy_channel(struct tv_comp_channel *ch);
struct tv_cq *tv_create_cq(struct tv_context *c, int cqe, struct tv_comp_channel *ch, int vector, int *err);
int tv_destroy_cq(struct tv_cq *cq);
int tv_get_cq_event(struct tv_comp_channel *ch, struct tv_cq **cq);
void tv_ack_cq_events(struct tv_cq *cq, unsigned int n);
int tv_req_notify_cq(struct tv_cq *cq, int solicited);

struct tv_qp *tv_create_qp(void *pd, struct tv_qp_init_attr *a, int *err);
int tv_modify_qp(struct tv_qp *qp, struct tv_qp_attr *a, int mask);
int tv_query_qp(struct tv_qp *qp, struct tv_qp_attr *a, int mask, struct tv_qp_init_attr *init);
int tv_query_qp_data_in_order(struct tv_qp *qp, uint32_t opcode, uint32_t flags);
int tv_destroy_qp(struct tv_qp *qp);
void *tv_create_ah(void *pd, struct tv_ah_attr *a, int *err);
int tv_destroy_ah(void *ah);
struct tv_srq *tv_create_srq(void *pd, struct tv_srq_init_attr *a, int *err);
int tv_modify_srq(struct tv_srq *srq, struct tv_srq_attr *a, int mask);
int tv_query_srq(struct tv_srq *srq, struct tv_srq_attr *a);
int tv_destroy_srq(struct tv_srq *srq);

// tv_post_poll posts the chains in order, each whatever becomes of the others,
// and then takes up to room completions out of cq, if there is one. It returns
// how many, or what the device said, which is negative.
// Pointers come as numbers, which Go hands over without looking where they lead.
int tv_post_poll(uintptr_t chains, uintptr_t cq, int room, struct tv_wc *out);

#endif
