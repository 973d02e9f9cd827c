/* What moves the bytes: a thread of the process's own, and threads that poll
 * an empty queue or have just posted, which lend themselves. */
#define _GNU_SOURCE
#include "fv.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum {
	PACKETS = 64, /* taken from the mailbox at a time */
	NAP_NS = 50000,
};

static struct fv_qp *_Atomic rung; /* posted to, and not noticed yet */
static struct fv_qp *busy;
static uint64_t wake; /* when something is due; 0: never */
static _Atomic uint64_t polled_at;
static _Atomic uint64_t asleep_until; /* when the thread looks again by itself */

/* Packets that found no room. */
struct notice {
	struct notice *next;
	int node;
	struct packet p;
};
static struct notice *notices;

uint64_t fv_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void fv_lock(void)
{
	fv.wanting++;
	pthread_mutex_lock(&fv.lock);
	fv.wanting--;
}

void fv_unlock(void) { pthread_mutex_unlock(&fv.lock); }

void fv_busy(struct fv_qp *qp)
{
	if (qp->busy)
		return;
	qp->busy = true;
	qp->busy_next = busy;
	if (busy)
		busy->busy_prev = &qp->busy_next;
	qp->busy_prev = &busy;
	busy = qp;
}

static void notice_rung(void)
{
	struct fv_qp *qp = atomic_exchange(&rung, NULL);
	while (qp) {
		struct fv_qp *next = qp->rung_next;
		qp->rung = false;
		fv_busy(qp);
		qp = next;
	}
}

void fv_idle(struct fv_qp *qp)
{
	notice_rung();
	if (!qp->busy)
		return;
	qp->busy = false;
	*qp->busy_prev = qp->busy_next;
	if (qp->busy_next)
		qp->busy_next->busy_prev = qp->busy_prev;
}

void fv_wake_at(uint64_t when)
{
	if (wake == 0 || when < wake)
		wake = when;
}

static bool send_notice(int node, const struct packet *p)
{
	void *payload;
	if (node < 0 || node >= FABRIC_NODES)
		return true;
	switch (fabric_begin(node, p, &payload)) {
	case FABRIC_FULL:
		return !fabric_probe(node);
	case FABRIC_OK:
		fabric_commit(node);
	}
	return true;
}

void fv_notice(int node, const struct packet *p)
{
	if (!notices && send_notice(node, p))
		return;
	struct notice *n = malloc(sizeof *n);
	if (!n)
		abort();
	*n = (struct notice){.node = node, .p = *p};
	struct notice **end = &notices;
	while (*end)
		end = &(*end)->next;
	*end = n;
}

void fv_notice_lost(const struct packet *p)
{
	struct packet lost = {.type = PKT_LOST, .from = p->to, .to = p->from, .seq = p->seq, .attempt = p->attempt};
	fv_notice((int)(p->from >> 16), &lost);
}

static void send_notices(void)
{
	while (notices && send_notice(notices->node, &notices->p)) {
		struct notice *n = notices;
		notices = n->next;
		free(n);
	}
}

static bool take_packets(void)
{
	bool any = false;
	for (int i = 0; i < PACKETS; i++) {
		void *payload;
		const struct packet *p = fabric_next(&payload);
		if (!p)
			break;
		any = true;
		struct fv_qp *qp = fv_qp_by_number(p->to);
		if (p->type >= PKT_ACK) {
			if (qp)
				fv_response(qp, p, payload);
		} else if (qp)
			fv_request(qp, p, payload);
		else if (p->type != PKT_DATAGRAM)
			fv_notice_lost(p);
		fabric_done();
	}
	return any;
}

static bool has_work(struct fv_qp *qp)
{
	int state = qp->state;
	if (qp->owed || qp->late)
		return true;
	if (state == QPS_ERR && !qp->flushed)
		return true;
	return state >= QPS_RTS && qp->acked < atomic_load_explicit(&qp->posted, memory_order_acquire);
}

/* progress does some of what can be done; false when nothing could. */
static bool progress(void)
{
	wake = 0;
	notice_rung();
	bool any = take_packets();
	uint64_t now = fv_now();
	for (struct fv_qp *qp = busy, *next; qp; qp = next) {
		next = qp->busy_next;
		any |= fv_respond_step(qp);
		any |= fv_send_step(qp, now);
		fv_settle_due(qp, now);
		if (!has_work(qp)) {
			fv_idle(qp);
			if (has_work(qp)) /* posted since we looked; fv_idle has taken the bell for it */
				fv_busy(qp);
		}
	}
	send_notices();
	return any;
}

static uint64_t sleeping_until; /* as the thread has it */

static bool idle(void) { return atomic_load(&rung) == NULL && asleep_until == sleeping_until; }

/* An adapter does not compete with programs for cores. Where the machine lets
 * us, this goes before them; it sleeps when it has nothing to do. A real-time
 * priority would be quicker still, and could starve the programs. */
static void prefer(void)
{
	(void)!setpriority(PRIO_PROCESS, (id_t)gettid(), -15);
}

static void *engine(void *arg)
{
	(void)arg;
	prefer();
	for (;;) {
		pthread_mutex_lock(&fv.lock);
		bool any = progress();
		uint64_t now = fv_now(), due = now + (notices ? 1000000 : 1000000000);
		if (wake && wake < due)
			due = wake;
		asleep_until = sleeping_until = due;
		pthread_mutex_unlock(&fv.lock);
		if (any) {
			for (int i = 0; i < 8 && fv.wanting > 0; i++)
				nanosleep(&(struct timespec){.tv_nsec = 5000}, NULL);
			continue;
		}
		if (now - polled_at < NAP_NS) {
			/* Somebody polls all the time and does the work meanwhile. */
			nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
			continue;
		}
		fabric_sleep(due > now ? (int64_t)(due - now) : 1, idle);
	}
	return NULL;
}

int fv_engine_start(void)
{
	/* Signals are the program's. */
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pthread_t t;
	int err = pthread_create(&t, NULL, engine, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err == 0) {
		pthread_setname_np(t, "fakeverbs");
		pthread_detach(t);
	}
	return err;
}

static void lend(void)
{
	if (pthread_mutex_trylock(&fv.lock) != 0)
		return;
	bool more = true;
	for (int i = 0; i < 4 && more; i++)
		more = progress();
	/* The rest is the thread's, and what is due before it looks again. */
	more |= wake && wake < asleep_until;
	if (more)
		asleep_until = wake ? wake : 1;
	pthread_mutex_unlock(&fv.lock);
	if (more)
		fabric_ring(fabric_self());
}

/* fv_kick tells the engine of new work. By chance the caller does some of it:
 * a program must neither count on a post having read its buffers nor on its
 * not having. */
void fv_kick(struct fv_qp *qp)
{
	static _Atomic uint32_t turn;
	if (!atomic_exchange(&qp->rung, true)) {
		struct fv_qp *head = atomic_load(&rung);
		do
			qp->rung_next = head;
		while (!atomic_compare_exchange_weak(&rung, &head, qp));
	}
	uint32_t t = atomic_fetch_add(&turn, 1) * 2654435761u;
	if (t >> 31)
		lend();
	if (atomic_load(&rung))
		fabric_ring(fabric_self());
}

void fv_poll_progress(void)
{
	static _Thread_local uint64_t last;
	uint64_t now = fv_now();
	if (now - last < 5000)
		polled_at = now;
	last = now;
	lend();
}
