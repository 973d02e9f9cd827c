/* Posting work requests. */
#include "fv.h"

#include <errno.h>
#include <string.h>

#include "calls.h"

/* What a device refuses before it looks at any memory. */
static int check_send(const struct fv_qp *qp, const struct ibv_send_wr *wr)
{
	const struct ibv_qp_cap *cap = &qp->init.cap;
	int state = qp->state;
	if (qp->device->fatal)
		return EIO;
	if (state != QPS_RTS && state != QPS_SQD && state != QPS_SQE && state != QPS_ERR)
		return EINVAL;
	if (qp->posted - atomic_load_explicit(&qp->freed, memory_order_acquire) >= cap->max_send_wr)
		return ENOMEM;
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > cap->max_send_sge || wr->opcode < 0 || wr->opcode > WR_FETCH_ADD)
		return EINVAL;
	if (wr->send_flags & ~(unsigned)(SEND_FENCE | SEND_SIGNALED | SEND_SOLICITED | SEND_INLINE))
		return EINVAL;
	bool datagram = qp->ibv.qp_type == QPT_UD;
	if (datagram && ((wr->opcode != WR_SEND && wr->opcode != WR_SEND_WITH_IMM) || !wr->wr.ud.ah || wr->wr.ud.remote_qpn >> 24 != 0))
		return EINVAL;
	if (datagram && wr->wr.ud.ah->pd != qp->ibv.pd)
		return EINVAL;
	if (wr->send_flags & SEND_INLINE && (wr->opcode >= WR_RDMA_READ || fv_sge_bytes(wr->sg_list, wr->num_sge) > cap->max_inline_data))
		return EINVAL;
	return 0;
}

static void take_send(struct fv_qp *qp, struct fv_send *s, const struct ibv_send_wr *wr)
{
	unsigned char *data = s->data;
	*s = (struct fv_send){
		.wr_id = wr->wr_id,
		.opcode = (uint8_t)wr->opcode,
		.signaled = wr->send_flags & SEND_SIGNALED || qp->init.sq_sig_all,
		.fence = (wr->send_flags & SEND_FENCE) != 0,
		.solicited = (wr->send_flags & SEND_SOLICITED) != 0,
		.is_inline = (wr->send_flags & SEND_INLINE) != 0,
		.sges = wr->num_sge,
		.data = data,
	};
	uint64_t bytes = fv_sge_bytes(wr->sg_list, wr->num_sge);
	s->length = bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes; /* too long either way */
	for (int i = 0; i < wr->num_sge; i++)
		s->sge[i] = wr->sg_list[i];
	if (s->is_inline)
		for (int i = 0; i < wr->num_sge; i++) {
			memcpy(data, (void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
			data += wr->sg_list[i].length;
		}
	switch (wr->opcode) {
	case WR_RDMA_WRITE_WITH_IMM:
		s->imm = wr->imm_data;
		/* fall through */
	case WR_RDMA_WRITE:
	case WR_RDMA_READ:
		s->address = wr->wr.rdma.remote_addr;
		s->rkey = wr->wr.rdma.rkey;
		break;
	case WR_CMP_SWP:
	case WR_FETCH_ADD:
		s->address = wr->wr.atomic.remote_addr;
		s->rkey = wr->wr.atomic.rkey;
		s->operand = wr->wr.atomic.compare_add;
		s->swap = wr->wr.atomic.swap;
		break;
	case WR_SEND_WITH_IMM:
		s->imm = wr->imm_data;
	}
	if (qp->ibv.qp_type == QPT_UD) {
		struct fv_ah *ah = (struct fv_ah *)wr->wr.ud.ah;
		s->source = ah->source;
		s->target = ah->target;
		s->remote_qpn = wr->wr.ud.remote_qpn;
		/* A key with the top bit means: my own. */
		s->remote_qkey = wr->wr.ud.remote_qkey >> 31 ? qp->attr.qkey : wr->wr.ud.remote_qkey;
	}
}

int fv_post_send(struct ibv_qp *q, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct fv_qp *qp = (struct fv_qp *)q;
	int err = 0;
	pthread_mutex_lock(&qp->send_lock);
	for (; wr; wr = wr->next) {
		if ((err = check_send(qp, wr)) != 0) {
			*bad = wr;
			break;
		}
		uint64_t at = atomic_load_explicit(&qp->posted, memory_order_relaxed);
		take_send(qp, &qp->sends[at % qp->init.cap.max_send_wr], wr);
		atomic_store_explicit(&qp->posted, at + 1, memory_order_release);
	}
	pthread_mutex_unlock(&qp->send_lock);
	fv_kick(qp);
	return err;
}

static int post_receives(struct fv_rq *rq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int err = 0;
	pthread_mutex_lock(&rq->lock);
	for (; wr; wr = wr->next) {
		if (rq->posted - rq->freed >= rq->max_wr)
			err = ENOMEM;
		else if (wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->max_sge)
			err = EINVAL;
		if (err) {
			*bad = wr;
			break;
		}
		struct fv_receive *r = &rq->ring[rq->posted++ % rq->max_wr];
		r->wr_id = wr->wr_id;
		r->sges = wr->num_sge;
		for (int i = 0; i < wr->num_sge; i++)
			r->sge[i] = wr->sg_list[i];
	}
	pthread_mutex_unlock(&rq->lock);
	return err;
}

int fv_post_recv(struct ibv_qp *q, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct fv_qp *qp = (struct fv_qp *)q;
	int state = qp->state;
	if (qp->device->fatal || state == QPS_RESET || qp->srq) {
		*bad = wr;
		return qp->device->fatal ? EIO : EINVAL;
	}
	int err = post_receives(&qp->rq, wr, bad);
	if (qp->state == QPS_ERR)
		fv_kick(qp); /* to be flushed */
	return err;
}

int fv_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return post_receives(&((struct fv_srq *)srq)->rq, wr, bad);
}
