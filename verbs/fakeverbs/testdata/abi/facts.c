/* Prints sizes, offsets and numbers: of our declarations, or with -DSYSTEM of
 * the system's header. The test compares. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef SYSTEM
#include <infiniband/verbs.h>
#define NUMBER(ours, theirs) printf("%s %lld\n", #theirs, (long long)(theirs));
#else
#include "../../src/abi.h"
#define NUMBER(ours, theirs) printf("%s %lld\n", #theirs, (long long)(ours));
#endif

#define SIZE(s) printf("sizeof " #s " %zu\n", sizeof(struct s));
#define AT(s, f) printf("offset " #s "." #f " %zu\n", offsetof(struct s, f));
#define BEFORE(f) \
	printf("before the context: " #f " %zu\n", offsetof(struct verbs_context, context) - offsetof(struct verbs_context, f));
#define SAME(name) NUMBER(name, IBV_##name)

int main(void)
{
	SIZE(ibv_context) AT(ibv_context, device) AT(ibv_context, ops) AT(ibv_context, cmd_fd) AT(ibv_context, async_fd)
	AT(ibv_context, num_comp_vectors) AT(ibv_context, mutex) AT(ibv_context, abi_compat)
	AT(ibv_context, ops.poll_cq) AT(ibv_context, ops.req_notify_cq) AT(ibv_context, ops.post_srq_recv)
	AT(ibv_context, ops.post_send) AT(ibv_context, ops.post_recv)
	BEFORE(query_port) BEFORE(create_qp_ex) BEFORE(sz)
	SIZE(ibv_device) AT(ibv_device, node_type) AT(ibv_device, transport_type) AT(ibv_device, name) AT(ibv_device, dev_name)
	AT(ibv_device, dev_path) AT(ibv_device, ibdev_path)
	SIZE(ibv_device_attr) AT(ibv_device_attr, node_guid) AT(ibv_device_attr, sys_image_guid) AT(ibv_device_attr, max_mr_size)
	AT(ibv_device_attr, page_size_cap) AT(ibv_device_attr, vendor_id) AT(ibv_device_attr, max_qp) AT(ibv_device_attr, max_qp_wr)
	AT(ibv_device_attr, device_cap_flags) AT(ibv_device_attr, max_sge) AT(ibv_device_attr, max_cqe) AT(ibv_device_attr, max_mr)
	AT(ibv_device_attr, max_pd) AT(ibv_device_attr, max_qp_rd_atom) AT(ibv_device_attr, max_qp_init_rd_atom)
	AT(ibv_device_attr, atomic_cap) AT(ibv_device_attr, max_ah) AT(ibv_device_attr, max_srq) AT(ibv_device_attr, max_srq_wr)
	AT(ibv_device_attr, max_srq_sge) AT(ibv_device_attr, max_pkeys) AT(ibv_device_attr, local_ca_ack_delay) AT(ibv_device_attr, phys_port_cnt)
	AT(ibv_port_attr, state) AT(ibv_port_attr, max_mtu) AT(ibv_port_attr, active_mtu) AT(ibv_port_attr, gid_tbl_len)
	AT(ibv_port_attr, port_cap_flags) AT(ibv_port_attr, max_msg_sz) AT(ibv_port_attr, pkey_tbl_len) AT(ibv_port_attr, lid)
	AT(ibv_port_attr, max_vl_num) AT(ibv_port_attr, active_width) AT(ibv_port_attr, active_speed) AT(ibv_port_attr, phys_state)
	AT(ibv_port_attr, link_layer) AT(ibv_port_attr, flags) AT(ibv_port_attr, port_cap_flags2)
	SIZE(ibv_gid_entry) AT(ibv_gid_entry, gid) AT(ibv_gid_entry, gid_index) AT(ibv_gid_entry, port_num) AT(ibv_gid_entry, gid_type)
	AT(ibv_gid_entry, ndev_ifindex)
	SIZE(ibv_async_event) AT(ibv_async_event, element) AT(ibv_async_event, event_type)
	SIZE(ibv_wc) AT(ibv_wc, wr_id) AT(ibv_wc, status) AT(ibv_wc, opcode) AT(ibv_wc, vendor_err) AT(ibv_wc, byte_len) AT(ibv_wc, imm_data)
	AT(ibv_wc, qp_num) AT(ibv_wc, src_qp) AT(ibv_wc, wc_flags) AT(ibv_wc, pkey_index) AT(ibv_wc, slid) AT(ibv_wc, sl)
	SIZE(ibv_global_route) AT(ibv_global_route, dgid) AT(ibv_global_route, flow_label) AT(ibv_global_route, sgid_index)
	AT(ibv_global_route, hop_limit) AT(ibv_global_route, traffic_class)
	SIZE(ibv_grh) AT(ibv_grh, version_tclass_flow) AT(ibv_grh, paylen) AT(ibv_grh, next_hdr) AT(ibv_grh, hop_limit) AT(ibv_grh, sgid)
	AT(ibv_grh, dgid)
	SIZE(ibv_ah_attr) AT(ibv_ah_attr, grh) AT(ibv_ah_attr, dlid) AT(ibv_ah_attr, sl) AT(ibv_ah_attr, is_global) AT(ibv_ah_attr, port_num)
	SIZE(ibv_srq_attr) SIZE(ibv_srq_init_attr) AT(ibv_srq_init_attr, attr)
	SIZE(ibv_qp_cap) SIZE(ibv_qp_init_attr) AT(ibv_qp_init_attr, send_cq) AT(ibv_qp_init_attr, recv_cq) AT(ibv_qp_init_attr, srq)
	AT(ibv_qp_init_attr, cap) AT(ibv_qp_init_attr, qp_type) AT(ibv_qp_init_attr, sq_sig_all)
	AT(ibv_qp_init_attr_ex, comp_mask) AT(ibv_qp_init_attr_ex, pd)
	SIZE(ibv_qp_attr) AT(ibv_qp_attr, qp_state) AT(ibv_qp_attr, cur_qp_state) AT(ibv_qp_attr, path_mtu) AT(ibv_qp_attr, qkey)
	AT(ibv_qp_attr, rq_psn) AT(ibv_qp_attr, sq_psn) AT(ibv_qp_attr, dest_qp_num) AT(ibv_qp_attr, qp_access_flags) AT(ibv_qp_attr, cap)
	AT(ibv_qp_attr, ah_attr) AT(ibv_qp_attr, pkey_index) AT(ibv_qp_attr, en_sqd_async_notify) AT(ibv_qp_attr, sq_draining)
	AT(ibv_qp_attr, max_rd_atomic) AT(ibv_qp_attr, max_dest_rd_atomic) AT(ibv_qp_attr, min_rnr_timer) AT(ibv_qp_attr, port_num)
	AT(ibv_qp_attr, timeout) AT(ibv_qp_attr, retry_cnt) AT(ibv_qp_attr, rnr_retry) AT(ibv_qp_attr, rate_limit)
	SIZE(ibv_sge) AT(ibv_sge, addr) AT(ibv_sge, length) AT(ibv_sge, lkey)
	SIZE(ibv_send_wr) AT(ibv_send_wr, wr_id) AT(ibv_send_wr, next) AT(ibv_send_wr, sg_list) AT(ibv_send_wr, num_sge)
	AT(ibv_send_wr, opcode) AT(ibv_send_wr, send_flags) AT(ibv_send_wr, imm_data) AT(ibv_send_wr, wr.rdma.remote_addr)
	AT(ibv_send_wr, wr.rdma.rkey) AT(ibv_send_wr, wr.atomic.remote_addr) AT(ibv_send_wr, wr.atomic.compare_add)
	AT(ibv_send_wr, wr.atomic.swap) AT(ibv_send_wr, wr.atomic.rkey) AT(ibv_send_wr, wr.ud.ah) AT(ibv_send_wr, wr.ud.remote_qpn)
	AT(ibv_send_wr, wr.ud.remote_qkey)
	SIZE(ibv_recv_wr) AT(ibv_recv_wr, wr_id) AT(ibv_recv_wr, next) AT(ibv_recv_wr, sg_list) AT(ibv_recv_wr, num_sge)
	SIZE(ibv_pd) SIZE(ibv_mr) AT(ibv_mr, addr) AT(ibv_mr, length) AT(ibv_mr, lkey) AT(ibv_mr, rkey) SIZE(ibv_ah)
	SIZE(ibv_comp_channel) AT(ibv_comp_channel, fd) AT(ibv_comp_channel, refcnt)
	SIZE(ibv_cq) AT(ibv_cq, channel) AT(ibv_cq, cq_context) AT(ibv_cq, cqe) AT(ibv_cq, comp_events_completed) AT(ibv_cq, async_events_completed)
	SIZE(ibv_srq) AT(ibv_srq, srq_context) AT(ibv_srq, pd) AT(ibv_srq, events_completed)
	SIZE(ibv_qp) AT(ibv_qp, context) AT(ibv_qp, qp_context) AT(ibv_qp, pd) AT(ibv_qp, send_cq) AT(ibv_qp, recv_cq) AT(ibv_qp, srq)
	AT(ibv_qp, handle) AT(ibv_qp, qp_num) AT(ibv_qp, state) AT(ibv_qp, qp_type) AT(ibv_qp, events_completed)
	SIZE(ibv_ece)

	NUMBER(ACC_LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE) NUMBER(ACC_REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE)
	NUMBER(ACC_REMOTE_READ, IBV_ACCESS_REMOTE_READ) NUMBER(ACC_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_ATOMIC)
	NUMBER(ACC_MW_BIND, IBV_ACCESS_MW_BIND) NUMBER(ACC_ZERO_BASED, IBV_ACCESS_ZERO_BASED) NUMBER(ACC_ON_DEMAND, IBV_ACCESS_ON_DEMAND)
	NUMBER(ACC_HUGETLB, IBV_ACCESS_HUGETLB) NUMBER(ACC_RELAXED, IBV_ACCESS_RELAXED_ORDERING) NUMBER(ACC_OPTIONAL, IBV_ACCESS_OPTIONAL_RANGE)
	SAME(QPT_RC) SAME(QPT_UC) SAME(QPT_UD)
	SAME(QPS_RESET) SAME(QPS_INIT) SAME(QPS_RTR) SAME(QPS_RTS) SAME(QPS_SQD) SAME(QPS_SQE) SAME(QPS_ERR)
	SAME(QP_STATE) SAME(QP_CUR_STATE) SAME(QP_EN_SQD_ASYNC_NOTIFY) SAME(QP_ACCESS_FLAGS) SAME(QP_PKEY_INDEX) SAME(QP_PORT) SAME(QP_QKEY)
	SAME(QP_AV) SAME(QP_PATH_MTU) SAME(QP_TIMEOUT) SAME(QP_RETRY_CNT) SAME(QP_RNR_RETRY) SAME(QP_RQ_PSN) SAME(QP_MAX_QP_RD_ATOMIC)
	SAME(QP_ALT_PATH) SAME(QP_MIN_RNR_TIMER) SAME(QP_SQ_PSN) SAME(QP_MAX_DEST_RD_ATOMIC) SAME(QP_PATH_MIG_STATE) SAME(QP_CAP)
	SAME(QP_DEST_QPN) SAME(QP_RATE_LIMIT)
	SAME(WR_RDMA_WRITE) SAME(WR_RDMA_WRITE_WITH_IMM) SAME(WR_SEND) SAME(WR_SEND_WITH_IMM) SAME(WR_RDMA_READ)
	NUMBER(WR_CMP_SWP, IBV_WR_ATOMIC_CMP_AND_SWP) NUMBER(WR_FETCH_ADD, IBV_WR_ATOMIC_FETCH_AND_ADD)
	SAME(SEND_FENCE) SAME(SEND_SIGNALED) SAME(SEND_SOLICITED) SAME(SEND_INLINE)
	SAME(WC_SUCCESS) SAME(WC_LOC_LEN_ERR) SAME(WC_LOC_QP_OP_ERR) SAME(WC_LOC_EEC_OP_ERR) SAME(WC_LOC_PROT_ERR) SAME(WC_WR_FLUSH_ERR)
	SAME(WC_MW_BIND_ERR) SAME(WC_BAD_RESP_ERR) SAME(WC_LOC_ACCESS_ERR) SAME(WC_REM_INV_REQ_ERR) SAME(WC_REM_ACCESS_ERR)
	SAME(WC_REM_OP_ERR) SAME(WC_RETRY_EXC_ERR) SAME(WC_RNR_RETRY_EXC_ERR) SAME(WC_LOC_RDD_VIOL_ERR) SAME(WC_REM_INV_RD_REQ_ERR)
	SAME(WC_REM_ABORT_ERR) SAME(WC_INV_EECN_ERR) SAME(WC_INV_EEC_STATE_ERR) SAME(WC_FATAL_ERR) SAME(WC_RESP_TIMEOUT_ERR)
	SAME(WC_GENERAL_ERR) SAME(WC_TM_ERR) SAME(WC_TM_RNDV_INCOMPLETE)
	SAME(WC_SEND) SAME(WC_RDMA_WRITE) SAME(WC_RDMA_READ) NUMBER(WC_COMP_SWAP, IBV_WC_COMP_SWAP) NUMBER(WC_FETCH_ADD, IBV_WC_FETCH_ADD)
	SAME(WC_RECV) SAME(WC_RECV_RDMA_WITH_IMM) SAME(WC_GRH) SAME(WC_WITH_IMM)
	SAME(PORT_NOP) SAME(PORT_DOWN) SAME(PORT_INIT) SAME(PORT_ARMED) SAME(PORT_ACTIVE) SAME(PORT_ACTIVE_DEFER)
	SAME(MTU_256) SAME(MTU_512) SAME(MTU_1024) SAME(MTU_2048) SAME(MTU_4096)
	NUMBER(LINK_LAYER_IB, IBV_LINK_LAYER_INFINIBAND) SAME(LINK_LAYER_ETHERNET)
	SAME(GID_TYPE_IB) SAME(GID_TYPE_ROCE_V1) SAME(GID_TYPE_ROCE_V2) SAME(ATOMIC_NONE) SAME(ATOMIC_HCA) SAME(ATOMIC_GLOB)
	NUMBER(EV_CQ_ERR, IBV_EVENT_CQ_ERR) NUMBER(EV_QP_FATAL, IBV_EVENT_QP_FATAL) NUMBER(EV_QP_REQ_ERR, IBV_EVENT_QP_REQ_ERR)
	NUMBER(EV_QP_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR) NUMBER(EV_COMM_EST, IBV_EVENT_COMM_EST) NUMBER(EV_SQ_DRAINED, IBV_EVENT_SQ_DRAINED)
	NUMBER(EV_PATH_MIG, IBV_EVENT_PATH_MIG) NUMBER(EV_DEVICE_FATAL, IBV_EVENT_DEVICE_FATAL) NUMBER(EV_PORT_ACTIVE, IBV_EVENT_PORT_ACTIVE)
	NUMBER(EV_PORT_ERR, IBV_EVENT_PORT_ERR) NUMBER(EV_LID_CHANGE, IBV_EVENT_LID_CHANGE) NUMBER(EV_PKEY_CHANGE, IBV_EVENT_PKEY_CHANGE)
	NUMBER(EV_SM_CHANGE, IBV_EVENT_SM_CHANGE) NUMBER(EV_SRQ_ERR, IBV_EVENT_SRQ_ERR) NUMBER(EV_SRQ_LIMIT_REACHED, IBV_EVENT_SRQ_LIMIT_REACHED)
	NUMBER(EV_QP_LAST_WQE_REACHED, IBV_EVENT_QP_LAST_WQE_REACHED) NUMBER(EV_CLIENT_REREGISTER, IBV_EVENT_CLIENT_REREGISTER)
	NUMBER(EV_GID_CHANGE, IBV_EVENT_GID_CHANGE) NUMBER(EV_WQ_FATAL, IBV_EVENT_WQ_FATAL)
	SAME(SRQ_MAX_WR) SAME(SRQ_LIMIT) NUMBER(QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_PD)
	return 0;
}
