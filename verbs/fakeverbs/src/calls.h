/* The calls that programs find in a context, and not by name. */
#ifndef FAKEVERBS_CALLS_H
#define FAKEVERBS_CALLS_H

#include "abi.h"

int fv_query_port(struct ibv_context *x, uint8_t port, struct ibv_port_attr *out, size_t room);
struct ibv_qp *fv_create_qp_ex(struct ibv_context *x, struct ibv_qp_init_attr_ex *a);
int fv_poll_cq(struct ibv_cq *cq, int room, struct ibv_wc *out);
int fv_req_notify_cq(struct ibv_cq *cq, int solicited_only);
int fv_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int fv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int fv_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

#endif
