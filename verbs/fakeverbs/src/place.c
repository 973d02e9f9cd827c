/* The order in which bytes appear in memory, which is no order. */
#include "fv.h"

#include <stdlib.h>
#include <string.h>

/* xoroshiro128+, of which each process has its own beginning. */
uint64_t fv_random(void)
{
	uint64_t a = fv.random[0], b = fv.random[1], sum = a + b;
	b ^= a;
	fv.random[0] = (a << 24 | a >> 40) ^ b ^ b << 16;
	fv.random[1] = b << 37 | b >> 27;
	return sum;
}

uint64_t fv_below(uint64_t n) { return n == 0 ? 0 : (fv_random() >> 16) % n; }

static void add(struct fv_pieces *p, uint32_t offset, uint32_t bytes, bool again)
{
	if (p->count == p->room) {
		p->room = p->room ? 2 * p->room : 16;
		p->piece = realloc(p->piece, p->room * sizeof *p->piece);
		if (!p->piece)
			abort();
	}
	p->piece[p->count++] = (struct fv_piece){offset, bytes, again};
}

/*
 * fv_cut divides a message that goes to address into pieces of random sizes in
 * random order. Aligned words of 8 bytes stay whole unless asked otherwise. It
 * may have a piece sent once more, as a retransmission would.
 */
void fv_cut(struct fv_pieces *p, uint32_t bytes, uint64_t address, bool may_repeat)
{
	static const uint32_t sizes[] = {8, 64, 256, 1024, 4096, FABRIC_PAYLOAD};
	p->count = p->sent = 0;
	if (bytes == 0) {
		add(p, 0, 0, false);
		return;
	}
	/* Large messages in many small pieces would take for ever. */
	uint32_t largest = sizes[fv_below(sizeof sizes / sizeof *sizes)], least = bytes / 48;
	if (largest < least)
		largest = least;
	if (largest > FABRIC_PAYLOAD || fv.config.placement == PLACE_IN_ORDER)
		largest = FABRIC_PAYLOAD;
	bool tear = fv.config.tear;
	for (uint32_t at = 0; at < bytes;) {
		uint32_t n = fv.config.placement == PLACE_IN_ORDER ? largest : 1 + (uint32_t)fv_below(largest);
		if (!tear) { /* up to the end of a word */
			uint32_t over = (uint32_t)((address + at + n) % 8);
			n += over ? 8 - over : 0;
			if (n > FABRIC_PAYLOAD)
				n -= 8;
		}
		if (n > bytes - at)
			n = bytes - at;
		add(p, at, n, false);
		at += n;
	}
	if (fv.config.placement == PLACE_IN_ORDER)
		return;
	for (uint32_t i = p->count; i > 1; i--) {
		uint32_t j = (uint32_t)fv_below(i);
		struct fv_piece t = p->piece[i - 1];
		p->piece[i - 1] = p->piece[j];
		p->piece[j] = t;
	}
	if (may_repeat && p->count > 1 && fv_below(8) == 0) {
		/* Before the last one, which ends the message. */
		struct fv_piece last = p->piece[p->count - 1];
		p->piece[p->count - 1] = p->piece[fv_below(p->count - 1)];
		p->piece[p->count - 1].again = true;
		add(p, last.offset, last.bytes, false);
	}
}

/* fv_place writes aligned words of 8 bytes at once, as an adapter does. The
 * program reads them meanwhile. */
void fv_place(unsigned char *to, const unsigned char *from, size_t bytes)
{
	while (bytes > 0 && ((uintptr_t)to % 8 != 0 || bytes < 8)) {
		__atomic_store_n(to++, *from++, __ATOMIC_RELAXED);
		bytes--;
	}
	for (; bytes >= 8; bytes -= 8, to += 8, from += 8) {
		uint64_t word;
		memcpy(&word, from, 8);
		__atomic_store_n((uint64_t *)to, word, __ATOMIC_RELAXED);
	}
	for (; bytes > 0; bytes--)
		__atomic_store_n(to++, *from++, __ATOMIC_RELAXED);
}

static uint64_t late_count; /* of all queue pairs */

/* A write into a region of relaxed order, or anywhere if so configured, may
 * become visible later than what follows, until a completion orders them. */
void fv_write(struct fv_qp *qp, struct fv_mr *mr, unsigned char *to, const unsigned char *from, uint32_t bytes)
{
	bool relaxed = fv.config.placement == PLACE_RELAXED || (fv.config.placement == PLACE_MESSAGES && mr->access & ACC_RELAXED);
	/* Of two writes of one queue pair to the same bytes the later one stays,
	 * however late the earlier one comes. */
	for (struct fv_late *l = qp->late; l; l = l->next)
		if (l->to < to + bytes && to < l->to + l->bytes) {
			fv_settle(qp);
			break;
		}
	if (!relaxed || bytes == 0 || fv_below(2) == 0) {
		fv_place(to, from, bytes);
		return;
	}
	struct fv_late *l = malloc(sizeof *l + bytes);
	if (!l)
		abort();
	*l = (struct fv_late){.next = qp->late, .mr = mr, .to = to, .bytes = bytes, .due = fv_now() + fv_below(2000000)};
	memcpy(l->data, from, bytes);
	qp->late = l;
	late_count++;
	fv_busy(qp);
}

static void place_late(struct fv_late **p)
{
	struct fv_late *l = *p;
	*p = l->next;
	fv_place(l->to, l->data, l->bytes);
	free(l);
	late_count--;
}

void fv_settle(struct fv_qp *qp)
{
	/* By chance from the front or not: there is no order among them. */
	while (qp->late) {
		struct fv_late **p = &qp->late;
		while ((*p)->next && fv_below(2))
			p = &(*p)->next;
		place_late(p);
	}
}

void fv_settle_due(struct fv_qp *qp, uint64_t now)
{
	for (struct fv_late **p = &qp->late; *p;)
		if ((*p)->due <= now)
			place_late(p);
		else {
			fv_wake_at((*p)->due);
			p = &(*p)->next;
		}
}

void fv_settle_mr(struct fv_mr *mr)
{
	for (int i = 0; i < FV_QPS && late_count > 0; i++) {
		struct fv_qp *qp = fv.qps[i];
		if (!qp)
			continue;
		for (struct fv_late **p = &qp->late; *p;)
			if ((*p)->mr == mr)
				place_late(p);
			else
				p = &(*p)->next;
	}
}
