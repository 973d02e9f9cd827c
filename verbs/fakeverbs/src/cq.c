/* Completion queues. */
#include "fv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

fv_export struct ibv_cq *ibv_create_cq(struct ibv_context *x, int cqe, void *cq_context, struct ibv_comp_channel *channel, int vector)
{
	if (cqe < 1 || (uint32_t)cqe > fv.config.max_cqe || vector < 0 || vector >= x->num_comp_vectors) {
		errno = EINVAL;
		return NULL;
	}
	if (fv_dev(x)->fatal) {
		errno = EIO;
		return NULL;
	}
	struct fv_cq *cq = calloc(1, sizeof *cq);
	if (!cq || !(cq->ring = calloc((size_t)cqe, sizeof *cq->ring))) {
		free(cq);
		errno = ENOMEM;
		return NULL;
	}
	cq->ibv.context = x;
	cq->ibv.channel = channel;
	cq->ibv.cq_context = cq_context;
	cq->ibv.cqe = cqe;
	pthread_mutex_init(&cq->ibv.mutex, NULL);
	pthread_cond_init(&cq->ibv.cond, NULL);
	pthread_mutex_init(&cq->lock, NULL);
	fv_lock();
	if (channel)
		channel->refcnt++;
	fv_unlock();
	fv_ctx(x)->objects++;
	cq->ibv.handle = (uint32_t)++fv.cqs;
	return &cq->ibv;
}

fv_export int ibv_destroy_cq(struct ibv_cq *c)
{
	struct fv_cq *cq = (struct fv_cq *)c;
	if (cq->refs != 0)
		return EBUSY;
	fv_events_forget(&fv_ctx(c->context)->async, cq);
	if (c->channel)
		fv_events_forget(&((struct fv_channel *)c->channel)->events, cq);
	fv_await_acks(&c->mutex, &c->cond, &c->comp_events_completed, &cq->comp_reported, "completion queue");
	fv_await_acks(&c->mutex, &c->cond, &c->async_events_completed, &cq->async_reported, "completion queue");
	fv_lock();
	if (c->channel)
		c->channel->refcnt--;
	fv_unlock();
	fv_ctx(c->context)->objects--;
	fv.cqs--;
	pthread_mutex_destroy(&c->mutex);
	pthread_cond_destroy(&c->cond);
	pthread_mutex_destroy(&cq->lock);
	free(cq->ring);
	free(cq);
	return 0;
}

fv_export int ibv_resize_cq(struct ibv_cq *c, int cqe)
{
	struct fv_cq *cq = (struct fv_cq *)c;
	if (cqe < 1 || (uint32_t)cqe > fv.config.max_cqe)
		return EINVAL;
	struct fv_completion *ring = calloc((size_t)cqe, sizeof *ring);
	if (!ring)
		return ENOMEM;
	pthread_mutex_lock(&cq->lock);
	bool fits = cq->count <= (uint32_t)cqe;
	if (fits) {
		for (uint32_t i = 0; i < cq->count; i++)
			ring[i] = cq->ring[(cq->head + i) % (uint32_t)c->cqe];
		struct fv_completion *old = cq->ring;
		cq->ring = ring;
		ring = old;
		cq->head = 0;
		c->cqe = cqe;
	}
	pthread_mutex_unlock(&cq->lock);
	free(ring);
	return fits ? 0 : EINVAL;
}

bool fv_complete(struct fv_cq *cq, const struct fv_completion *c, bool solicited)
{
	pthread_mutex_lock(&cq->lock);
	bool full = cq->count == (uint32_t)cq->ibv.cqe, fire = false;
	if (!full && !cq->overrun) {
		struct fv_completion *to = &cq->ring[(cq->head + cq->count++) % (uint32_t)cq->ibv.cqe];
		*to = *c;
		fire = cq->armed == 2 || (cq->armed == 1 && (solicited || c->wc.status != WC_SUCCESS));
		if (fire)
			cq->armed = 0;
	}
	bool first = full && !cq->overrun;
	if (full)
		cq->overrun = true; /* it never works again */
	bool broken = cq->overrun;
	pthread_mutex_unlock(&cq->lock);
	if (fire && cq->ibv.channel)
		fv_events_push(&((struct fv_channel *)cq->ibv.channel)->events, cq, NULL);
	if (first)
		fv_raise(fv_ctx(cq->ibv.context), EV_CQ_ERR, cq, 0);
	return !broken;
}

static void free_slots(const struct fv_completion *c)
{
	if (c->rq) {
		pthread_mutex_lock(&c->rq->lock);
		c->rq->freed++;
		pthread_mutex_unlock(&c->rq->lock);
	} else
		atomic_store_explicit(&c->qp->freed, c->freed_upto, memory_order_release);
}

static int take(struct fv_cq *cq, int room, struct ibv_wc *out)
{
	int n = 0;
	pthread_mutex_lock(&cq->lock);
	while (n < room && cq->count > 0) {
		struct fv_completion *c = &cq->ring[cq->head];
		out[n++] = c->wc;
		free_slots(c);
		cq->head = (cq->head + 1) % (uint32_t)cq->ibv.cqe;
		cq->count--;
	}
	pthread_mutex_unlock(&cq->lock);
	return n;
}

int fv_poll_cq(struct ibv_cq *c, int room, struct ibv_wc *out)
{
	struct fv_cq *cq = (struct fv_cq *)c;
	int n = take(cq, room, out);
	if (n > 0 || room <= 0)
		return n;
	fv_poll_progress();
	return take(cq, room, out);
}

/* What is in the queue already makes no event: whoever arms it must poll once
 * more. */
int fv_req_notify_cq(struct ibv_cq *c, int solicited_only)
{
	struct fv_cq *cq = (struct fv_cq *)c;
	int level = solicited_only ? 1 : 2;
	pthread_mutex_lock(&cq->lock);
	if (cq->armed < level)
		cq->armed = level;
	pthread_mutex_unlock(&cq->lock);
	return 0;
}

/* fv_forget drops the completions of a queue pair that is reset or destroyed. */
void fv_forget(struct fv_cq *cq, struct fv_qp *qp)
{
	pthread_mutex_lock(&cq->lock);
	uint32_t kept = 0, size = (uint32_t)cq->ibv.cqe;
	for (uint32_t i = 0; i < cq->count; i++) {
		struct fv_completion *c = &cq->ring[(cq->head + i) % size];
		if (c->qp == qp) {
			free_slots(c); /* of an SRQ, which goes on */
			continue;
		}
		cq->ring[(cq->head + kept++) % size] = *c;
	}
	cq->count = kept;
	pthread_mutex_unlock(&cq->lock);
}
