/* Queues of events behind descriptors: asynchronous ones and those of
 * completion channels. */
#define _GNU_SOURCE
#include "fv.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

int fv_events_open(struct fv_event_queue *q)
{
	pthread_mutex_init(&q->lock, NULL);
	q->head = NULL;
	q->tail = &q->head;
	q->fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
	return q->fd < 0 ? errno : 0;
}

void fv_events_close(struct fv_event_queue *q)
{
	close(q->fd);
	while (q->head) {
		struct fv_event *e = q->head;
		q->head = e->next;
		free(e);
	}
	pthread_mutex_destroy(&q->lock);
}

void fv_events_push(struct fv_event_queue *q, void *object, const struct ibv_async_event *async)
{
	struct fv_event *e = calloc(1, sizeof *e);
	if (!e)
		abort();
	e->object = object;
	if (async)
		e->async = *async;
	pthread_mutex_lock(&q->lock);
	*q->tail = e;
	q->tail = &e->next;
	pthread_mutex_unlock(&q->lock);
	uint64_t one = 1;
	(void)!write(q->fd, &one, sizeof one);
}

static void count_reported(const struct fv_event *e, bool completion)
{
	if (completion) {
		((struct fv_cq *)e->object)->comp_reported++;
		return;
	}
	switch (e->async.event_type) {
	case EV_CQ_ERR:
		((struct fv_cq *)e->object)->async_reported++;
		break;
	case EV_SRQ_ERR:
	case EV_SRQ_LIMIT_REACHED:
		((struct fv_srq *)e->object)->reported++;
		break;
	default:
		if (e->object)
			((struct fv_qp *)e->object)->reported++;
	}
}

static int pop(struct fv_event_queue *q, struct fv_event *out, bool completion)
{
	for (;;) {
		uint64_t one;
		ssize_t n = read(q->fd, &one, sizeof one);
		if (n != sizeof one)
			return -1;
		pthread_mutex_lock(&q->lock);
		struct fv_event *e = q->head;
		if (e) {
			q->head = e->next;
			if (!q->head)
				q->tail = &q->head;
			/* Under the lock, so that who destroys the object has either
			 * taken the event away or sees that it is to be acknowledged. */
			count_reported(e, completion);
		}
		pthread_mutex_unlock(&q->lock);
		if (e) {
			*out = *e;
			free(e);
			return 0;
		}
	}
}

/* Events that nobody has read go with the object they are about. */
void fv_events_forget(struct fv_event_queue *q, void *object)
{
	pthread_mutex_lock(&q->lock);
	for (struct fv_event **p = &q->head; *p;) {
		struct fv_event *e = *p;
		if (e->object != object) {
			p = &e->next;
			continue;
		}
		*p = e->next;
		free(e);
		uint64_t one;
		struct pollfd f = {.fd = q->fd, .events = POLLIN};
		if (poll(&f, 1, 0) == 1)
			(void)!read(q->fd, &one, sizeof one);
	}
	q->tail = &q->head;
	while (*q->tail)
		q->tail = &(*q->tail)->next;
	pthread_mutex_unlock(&q->lock);
}

void fv_raise(struct fv_context *c, int type, void *object, int port)
{
	struct ibv_async_event e = {.event_type = type};
	if (object)
		e.element.qp = object;
	else
		e.element.port_num = port;
	fv_events_push(&c->async, object, &e);
}

void fv_raise_all(struct fv_device *d, int type, int port)
{
	for (struct fv_context *c = fv.contexts; c; c = c->next)
		if (c->device == d)
			fv_raise(c, type, NULL, port);
}

/* Destroying waits for acknowledgements, as the specification says; that it
 * does not wait unseen is a service to who has forgotten one. */
void fv_await_acks(pthread_mutex_t *m, pthread_cond_t *c, const uint32_t *completed, const uint32_t *reported, const char *what)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_sec += 2;
	pthread_mutex_lock(m);
	bool said = false;
	while (*completed != *reported) {
		if (said)
			pthread_cond_wait(c, m);
		else if (pthread_cond_timedwait(c, m, &t) == ETIMEDOUT) {
			said = true;
			fv_say("destroying a %s waits until its events are acknowledged: %u of %u are", what, *completed, *reported);
		}
	}
	pthread_mutex_unlock(m);
}

fv_export int ibv_get_async_event(struct ibv_context *x, struct ibv_async_event *out)
{
	struct fv_event e;
	if (pop(&fv_ctx(x)->async, &e, false) < 0)
		return -1;
	*out = e.async;
	return 0;
}

static void ack(pthread_mutex_t *m, pthread_cond_t *c, uint32_t *count, uint32_t n)
{
	pthread_mutex_lock(m);
	*count += n;
	pthread_cond_broadcast(c);
	pthread_mutex_unlock(m);
}

fv_export void ibv_ack_async_event(struct ibv_async_event *e)
{
	switch (e->event_type) {
	case EV_CQ_ERR: {
		struct ibv_cq *cq = e->element.cq;
		ack(&cq->mutex, &cq->cond, &cq->async_events_completed, 1);
		return;
	}
	case EV_SRQ_ERR:
	case EV_SRQ_LIMIT_REACHED: {
		struct ibv_srq *s = e->element.srq;
		ack(&s->mutex, &s->cond, &s->events_completed, 1);
		return;
	}
	case EV_QP_FATAL:
	case EV_QP_REQ_ERR:
	case EV_QP_ACCESS_ERR:
	case EV_COMM_EST:
	case EV_SQ_DRAINED:
	case EV_PATH_MIG:
	case EV_PATH_MIG_ERR:
	case EV_QP_LAST_WQE_REACHED: {
		struct ibv_qp *qp = e->element.qp;
		ack(&qp->mutex, &qp->cond, &qp->events_completed, 1);
	}
	}
}

fv_export struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *x)
{
	struct fv_channel *ch = calloc(1, sizeof *ch);
	if (!ch)
		return NULL;
	int err = fv_events_open(&ch->events);
	if (err) {
		free(ch);
		errno = err;
		return NULL;
	}
	ch->ibv.context = x;
	ch->ibv.fd = ch->events.fd;
	fv_ctx(x)->objects++;
	fv.channels++;
	return &ch->ibv;
}

fv_export int ibv_destroy_comp_channel(struct ibv_comp_channel *c)
{
	struct fv_channel *ch = (struct fv_channel *)c;
	fv_lock();
	bool used = c->refcnt != 0;
	fv_unlock();
	if (used)
		return EBUSY;
	fv_ctx(c->context)->objects--;
	fv.channels--;
	fv_events_close(&ch->events);
	free(ch);
	return 0;
}

fv_export int ibv_get_cq_event(struct ibv_comp_channel *c, struct ibv_cq **cq, void **cq_context)
{
	struct fv_event e;
	if (pop(&((struct fv_channel *)c)->events, &e, true) < 0)
		return -1;
	*cq = e.object;
	*cq_context = (*cq)->cq_context;
	return 0;
}

fv_export void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n) { ack(&cq->mutex, &cq->cond, &cq->comp_events_completed, n); }
