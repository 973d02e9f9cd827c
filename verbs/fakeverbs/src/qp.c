/* Queue pairs: their making, their states, their end. */
#include "fv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

struct fv_qp *fv_qp_by_number(uint32_t qpn)
{
	struct fv_qp *qp = qpn >> 16 == (uint32_t)fabric_self() ? fv.qps[qpn % FV_QPS] : NULL;
	return qp && qp->ibv.qp_num == qpn ? qp : NULL;
}

static int number(struct fv_qp *qp)
{
	if (fv.qp_count >= (int)fv.config.max_qp)
		return ENOMEM;
	do
		if (++fv.next_qpn >= FV_QPS)
			fv.next_qpn = 16; /* small ones mean something elsewhere */
	while (fv.qps[fv.next_qpn]);
	qp->ibv.qp_num = (uint32_t)fabric_self() << 16 | fv.next_qpn;
	qp->ibv.handle = fv.next_qpn;
	fv.qps[fv.next_qpn] = qp;
	fv.qp_count++;
	return 0;
}

static bool capable(const struct ibv_qp_init_attr *a)
{
	const struct ibv_qp_cap *c = &a->cap;
	return (a->qp_type == QPT_RC || a->qp_type == QPT_UD) && a->send_cq && a->recv_cq && c->max_send_wr <= fv.config.max_qp_wr &&
	       c->max_recv_wr <= fv.config.max_qp_wr && c->max_send_sge <= fv.config.max_sge && c->max_recv_sge <= fv.config.max_sge &&
	       c->max_inline_data <= fv.config.max_inline;
}

fv_export struct ibv_qp *ibv_create_qp(struct ibv_pd *p, struct ibv_qp_init_attr *a)
{
	int err = !capable(a) ? EINVAL : fv_dev(p->context)->fatal ? EIO : 0;
	struct fv_qp *qp = err ? NULL : calloc(1, sizeof *qp);
	if (!qp) {
		errno = err ? err : ENOMEM;
		return NULL;
	}
	if (a->srq)
		a->cap.max_recv_wr = a->cap.max_recv_sge = 0;
	qp->init = *a;
	qp->context = fv_ctx(p->context);
	qp->device = fv_dev(p->context);
	qp->pd = (struct fv_pd *)p;
	qp->scq = (struct fv_cq *)a->send_cq;
	qp->rcq = (struct fv_cq *)a->recv_cq;
	qp->srq = (struct fv_srq *)a->srq;
	qp->owed_tail = &qp->owed;
	qp->rq.max_wr = a->cap.max_recv_wr;
	qp->rq.max_sge = a->cap.max_recv_sge;
	uint32_t sends = a->cap.max_send_wr, receives = a->cap.max_recv_wr;
	qp->sends = calloc(sends ? sends : 1, sizeof *qp->sends);
	qp->rq.ring = calloc(receives ? receives : 1, sizeof *qp->rq.ring);
	unsigned char *data = calloc(sends ? sends : 1, a->cap.max_inline_data ? a->cap.max_inline_data : 1);
	if (!qp->sends || !qp->rq.ring || !data) {
		free(qp->sends);
		free(qp->rq.ring);
		free(data);
		free(qp);
		errno = ENOMEM;
		return NULL;
	}
	for (uint32_t i = 0; i < (sends ? sends : 1); i++)
		qp->sends[i].data = data + (size_t)i * a->cap.max_inline_data;
	struct ibv_qp *q = &qp->ibv;
	q->context = p->context;
	q->qp_context = a->qp_context;
	q->pd = p;
	q->send_cq = a->send_cq;
	q->recv_cq = a->recv_cq;
	q->srq = a->srq;
	q->qp_type = a->qp_type;
	q->state = QPS_RESET;
	pthread_mutex_init(&q->mutex, NULL);
	pthread_cond_init(&q->cond, NULL);
	pthread_mutex_init(&qp->send_lock, NULL);
	pthread_mutex_init(&qp->rq.lock, NULL);
	fv_lock();
	err = number(qp);
	fv_unlock();
	if (err) {
		free(qp->sends);
		free(qp->rq.ring);
		free(data);
		free(qp);
		errno = err;
		return NULL;
	}
	qp->scq->refs++;
	qp->rcq->refs++;
	if (qp->srq)
		qp->srq->refs++;
	qp->pd->refs++;
	qp->context->objects++;
	fv.qp_live++;
	return q;
}

struct ibv_qp *fv_create_qp_ex(struct ibv_context *x, struct ibv_qp_init_attr_ex *a)
{
	if (a->comp_mask != QP_INIT_ATTR_PD || a->pd->context != x) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	return ibv_create_qp(a->pd, (struct ibv_qp_init_attr *)a);
}

fv_export void *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	(void)qp;
	errno = EOPNOTSUPP;
	return NULL;
}

/* forget drops all that a queue pair has in hand. */
static void forget(struct fv_qp *qp)
{
	fv_settle(qp);
	fv_idle(qp);
	fv_drop_owed(qp);
	fv_forget(qp->scq, qp);
	fv_forget(qp->rcq, qp);
	if (qp->have_receive && qp->srq) { /* taken, and never to be completed */
		pthread_mutex_lock(&qp->srq->rq.lock);
		qp->srq->rq.freed++;
		pthread_mutex_unlock(&qp->srq->rq.lock);
	}
	qp->have_receive = false;
}

fv_export int ibv_destroy_qp(struct ibv_qp *q)
{
	struct fv_qp *qp = (struct fv_qp *)q;
	fv_lock();
	forget(qp);
	fv.qps[q->qp_num % FV_QPS] = NULL;
	fv.qp_count--;
	fv_unlock();
	fv_events_forget(&qp->context->async, qp);
	fv_await_acks(&q->mutex, &q->cond, &q->events_completed, &qp->reported, "queue pair");
	qp->scq->refs--;
	qp->rcq->refs--;
	if (qp->srq)
		qp->srq->refs--;
	qp->pd->refs--;
	qp->context->objects--;
	fv.qp_live--;
	pthread_mutex_destroy(&q->mutex);
	pthread_cond_destroy(&q->cond);
	free(qp->sending.piece);
	free(qp->answering.piece);
	free(qp->sends[0].data);
	free(qp->sends);
	free(qp->rq.ring);
	memset(qp, 0xdb, sizeof *qp);
	free(qp);
	return 0;
}

/* Which attributes a change of state must have, and may. */
struct transition {
	int required, optional;
};

static const int rc_init = QP_PKEY_INDEX | QP_PORT | QP_ACCESS_FLAGS, ud_init = QP_PKEY_INDEX | QP_PORT | QP_QKEY;
static const int rc_later = QP_CUR_STATE | QP_ACCESS_FLAGS | QP_MIN_RNR_TIMER;

static bool transition(int type, int from, int to, struct transition *t)
{
	*t = (struct transition){0, 0};
	bool rc = type == QPT_RC;
	if (to == QPS_RESET || to == QPS_ERR)
		return true;
	if (to == QPS_INIT && (from == QPS_RESET || from == QPS_INIT)) {
		*(from == QPS_RESET ? &t->required : &t->optional) = rc ? rc_init : ud_init;
		return true;
	}
	if (from == QPS_INIT && to == QPS_RTR) {
		t->required = rc ? QP_AV | QP_PATH_MTU | QP_DEST_QPN | QP_RQ_PSN | QP_MAX_DEST_RD_ATOMIC | QP_MIN_RNR_TIMER : 0;
		t->optional = rc ? QP_ACCESS_FLAGS | QP_PKEY_INDEX : QP_PKEY_INDEX | QP_QKEY;
		return true;
	}
	if (from == QPS_RTR && to == QPS_RTS) {
		t->required = rc ? QP_SQ_PSN | QP_TIMEOUT | QP_RETRY_CNT | QP_RNR_RETRY | QP_MAX_QP_RD_ATOMIC : QP_SQ_PSN;
		t->optional = rc ? rc_later : QP_CUR_STATE | QP_QKEY;
		return true;
	}
	if (to == QPS_RTS && (from == QPS_RTS || from == QPS_SQD || (from == QPS_SQE && !rc))) {
		t->optional = rc ? rc_later : QP_CUR_STATE | QP_QKEY;
		return true;
	}
	if (from == QPS_RTS && to == QPS_SQD) {
		t->optional = QP_EN_SQD_ASYNC_NOTIFY;
		return true;
	}
	return false;
}

static int check_values(struct fv_qp *qp, const struct ibv_qp_attr *a, int mask, struct fabric_addr *source, struct fabric_addr *target)
{
	if ((mask & QP_PKEY_INDEX && a->pkey_index != 0) || (mask & QP_PORT && (a->port_num < 1 || a->port_num > fv.config.ports)) ||
	    (mask & QP_PATH_MTU && (a->path_mtu < MTU_256 || a->path_mtu > fv.config.mtu)) ||
	    (mask & QP_MAX_DEST_RD_ATOMIC && a->max_dest_rd_atomic > fv.config.max_rd_atomic) ||
	    (mask & QP_MAX_QP_RD_ATOMIC && a->max_rd_atomic > fv.config.max_rd_atomic) || (mask & QP_MIN_RNR_TIMER && a->min_rnr_timer > 31) ||
	    (mask & QP_TIMEOUT && a->timeout > 31) || (mask & QP_RETRY_CNT && a->retry_cnt > 7) || (mask & QP_RNR_RETRY && a->rnr_retry > 7) ||
	    (mask & QP_DEST_QPN && a->dest_qp_num >> 24 != 0))
		return EINVAL;
	if (mask & QP_AV) {
		int port = mask & QP_PORT ? a->port_num : qp->attr.port_num;
		if (a->ah_attr.port_num != port)
			return EINVAL;
		return fv_check_av(qp->device, &a->ah_attr, source, target);
	}
	return 0;
}

static void take_values(struct fv_qp *qp, const struct ibv_qp_attr *a, int mask)
{
	struct ibv_qp_attr *to = &qp->attr;
	if (mask & QP_EN_SQD_ASYNC_NOTIFY)
		to->en_sqd_async_notify = a->en_sqd_async_notify;
	if (mask & QP_ACCESS_FLAGS)
		to->qp_access_flags = a->qp_access_flags;
	if (mask & QP_PKEY_INDEX)
		to->pkey_index = a->pkey_index;
	if (mask & QP_PORT)
		to->port_num = a->port_num;
	if (mask & QP_QKEY)
		to->qkey = a->qkey;
	if (mask & QP_AV)
		to->ah_attr = a->ah_attr;
	if (mask & QP_PATH_MTU)
		to->path_mtu = a->path_mtu;
	if (mask & QP_TIMEOUT)
		to->timeout = a->timeout;
	if (mask & QP_RETRY_CNT)
		to->retry_cnt = a->retry_cnt;
	if (mask & QP_RNR_RETRY)
		to->rnr_retry = a->rnr_retry;
	if (mask & QP_RQ_PSN)
		to->rq_psn = a->rq_psn & 0xffffff;
	if (mask & QP_SQ_PSN)
		to->sq_psn = a->sq_psn & 0xffffff;
	if (mask & QP_MAX_QP_RD_ATOMIC)
		to->max_rd_atomic = a->max_rd_atomic;
	if (mask & QP_MAX_DEST_RD_ATOMIC)
		to->max_dest_rd_atomic = a->max_dest_rd_atomic;
	if (mask & QP_MIN_RNR_TIMER)
		to->min_rnr_timer = a->min_rnr_timer;
	if (mask & QP_DEST_QPN)
		to->dest_qp_num = a->dest_qp_num;
}

static void reset(struct fv_qp *qp)
{
	forget(qp);
	pthread_mutex_lock(&qp->send_lock);
	qp->state = QPS_RESET;
	qp->posted = qp->freed = 0;
	pthread_mutex_unlock(&qp->send_lock);
	qp->next = qp->acked = 0;
	qp->attempt = 0;
	qp->lost = qp->drained = false;
	qp->timeout_at = qp->not_before = 0;
	qp->reads = 0;
	qp->sending.count = qp->sending.sent = 0;
	pthread_mutex_lock(&qp->rq.lock);
	qp->rq.posted = qp->rq.taken = qp->rq.freed = 0;
	pthread_mutex_unlock(&qp->rq.lock);
	qp->expected = 0;
	qp->min_attempt = qp->cur_attempt = qp->newest_attempt = qp->lost_attempt = qp->got = 0;
	qp->lost_told = false;
	qp->atomic_count = 0;
	qp->established = qp->flushed = qp->last_wqe_told = false;
	memset(&qp->attr, 0, sizeof qp->attr);
}

fv_export int ibv_modify_qp(struct ibv_qp *q, struct ibv_qp_attr *a, int mask)
{
	struct fv_qp *qp = (struct fv_qp *)q;
	struct fabric_addr source = {0}, target = {0};
	struct transition t;
	fv_lock();
	int from = qp->state, to = mask & QP_STATE ? a->qp_state : from, given = mask & ~QP_STATE, err = 0;
	if (qp->device->fatal && to != QPS_RESET && to != QPS_ERR)
		err = EIO;
	else if ((mask & QP_CUR_STATE && a->cur_qp_state != from) || !transition(q->qp_type, from, to, &t) || (given & t.required) != t.required ||
		 (given & ~(t.required | t.optional)) != 0)
		err = EINVAL;
	else
		err = check_values(qp, a, mask, &source, &target);
	if (err) {
		fv_unlock();
		if (err == EINVAL && fv.config.verbose)
			fv_say("modify_qp %06x from state %d to %d with mask %#x is refused: needs %#x, may have %#x", q->qp_num, from, to, mask,
			       t.required, t.optional);
		return err;
	}
	take_values(qp, a, mask);
	if (mask & QP_AV) {
		qp->self = source;
		qp->peer = target;
	}
	if (from != to) {
		switch (to) {
		case QPS_RESET:
			reset(qp);
			break;
		case QPS_ERR:
			fv_qp_error(qp);
			break;
		case QPS_RTR:
			qp->peer_node = (int)(qp->attr.dest_qp_num >> 16);
			break;
		case QPS_RTS:
			qp->retries = qp->attr.retry_cnt;
			qp->rnr_retries = qp->attr.rnr_retry;
			break;
		case QPS_SQD:
			qp->drained = false;
		}
		if (to != QPS_RESET && to != QPS_ERR) {
			pthread_mutex_lock(&qp->send_lock);
			qp->state = to;
			pthread_mutex_unlock(&qp->send_lock);
			fv_busy(qp);
		}
	}
	fv_unlock();
	fv_kick(qp);
	q->state = to;
	return 0;
}

/* fv_qp_error puts a queue pair into the error state; the engine flushes it. */
void fv_qp_error(struct fv_qp *qp)
{
	if (qp->state == QPS_ERR)
		return;
	pthread_mutex_lock(&qp->send_lock);
	qp->state = QPS_ERR;
	pthread_mutex_unlock(&qp->send_lock);
	fv_settle(qp);
	fv_busy(qp);
}

void fv_qp_event(struct fv_qp *qp, int type) { fv_raise(qp->context, type, qp, 0); }

fv_export int ibv_query_qp(struct ibv_qp *q, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init)
{
	(void)mask;
	struct fv_qp *qp = (struct fv_qp *)q;
	fv_lock();
	*a = qp->attr;
	a->qp_state = a->cur_qp_state = qp->state;
	a->sq_draining = qp->state == QPS_SQD && !qp->drained;
	a->cap = qp->init.cap;
	*init = qp->init;
	fv_unlock();
	q->state = a->qp_state;
	return 0;
}

/* The answer is about the bytes of one message. */
fv_export int ibv_query_qp_data_in_order(struct ibv_qp *q, int opcode, uint32_t flags)
{
	(void)opcode;
	bool in_order = fv.config.placement == PLACE_IN_ORDER && ((struct fv_qp *)q)->state == QPS_RTS;
	return !in_order ? 0 : flags & 1 ? 3 : 1; /* with capabilities asked for: whole message, units of 128 bytes */
}

/* There is nothing by which two ends could differ. */
fv_export int ibv_query_ece(struct ibv_qp *q, struct ibv_ece *ece)
{
	(void)q;
	memset(ece, 0, sizeof *ece);
	return 0;
}

fv_export int ibv_set_ece(struct ibv_qp *q, struct ibv_ece *ece)
{
	(void)q;
	return ece->vendor_id ? EOPNOTSUPP : 0;
}
