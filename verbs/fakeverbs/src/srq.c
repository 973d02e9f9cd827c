/* Shared receive queues. */
#include "fv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

fv_export struct ibv_srq *ibv_create_srq(struct ibv_pd *p, struct ibv_srq_init_attr *a)
{
	if (a->attr.max_wr < 1 || a->attr.max_wr > fv.config.max_qp_wr || a->attr.max_sge > fv.config.max_sge) {
		errno = EINVAL;
		return NULL;
	}
	struct fv_srq *s = calloc(1, sizeof *s);
	if (!s || !(s->rq.ring = calloc(a->attr.max_wr, sizeof *s->rq.ring))) {
		free(s);
		errno = ENOMEM;
		return NULL;
	}
	s->rq.max_wr = a->attr.max_wr;
	s->rq.max_sge = a->attr.max_sge;
	s->ibv.context = p->context;
	s->ibv.srq_context = a->srq_context;
	s->ibv.pd = p;
	pthread_mutex_init(&s->ibv.mutex, NULL);
	pthread_cond_init(&s->ibv.cond, NULL);
	pthread_mutex_init(&s->rq.lock, NULL);
	((struct fv_pd *)p)->refs++;
	fv_ctx(p->context)->objects++;
	s->ibv.handle = (uint32_t)++fv.srqs;
	return &s->ibv;
}

fv_export int ibv_modify_srq(struct ibv_srq *q, struct ibv_srq_attr *a, int mask)
{
	struct fv_srq *s = (struct fv_srq *)q;
	if (mask & SRQ_MAX_WR)
		return EOPNOTSUPP;
	if (mask & ~SRQ_LIMIT || a->srq_limit > s->rq.max_wr)
		return EINVAL;
	fv_lock();
	if (mask & SRQ_LIMIT) {
		pthread_mutex_lock(&s->rq.lock);
		uint64_t posted = s->rq.posted - s->rq.taken;
		pthread_mutex_unlock(&s->rq.lock);
		s->limit = a->srq_limit;
		/* Too few already: then the event comes at once. */
		if (s->limit > 0 && posted < s->limit) {
			s->limit = 0;
			fv_raise(fv_ctx(q->context), EV_SRQ_LIMIT_REACHED, s, 0);
		}
	}
	fv_unlock();
	return 0;
}

fv_export int ibv_query_srq(struct ibv_srq *q, struct ibv_srq_attr *a)
{
	struct fv_srq *s = (struct fv_srq *)q;
	fv_lock();
	*a = (struct ibv_srq_attr){s->rq.max_wr, s->rq.max_sge, s->limit};
	fv_unlock();
	return 0;
}

fv_export int ibv_destroy_srq(struct ibv_srq *q)
{
	struct fv_srq *s = (struct fv_srq *)q;
	if (s->refs != 0)
		return EBUSY;
	fv_events_forget(&fv_ctx(q->context)->async, s);
	fv_await_acks(&q->mutex, &q->cond, &q->events_completed, &s->reported, "shared receive queue");
	((struct fv_pd *)q->pd)->refs--;
	fv_ctx(q->context)->objects--;
	fv.srqs--;
	pthread_mutex_destroy(&q->mutex);
	pthread_cond_destroy(&q->cond);
	pthread_mutex_destroy(&s->rq.lock);
	free(s->rq.ring);
	free(s);
	return 0;
}
