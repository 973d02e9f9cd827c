/* The sending half of a queue pair: takes work requests in order, cuts them
 * into packets, waits for what the responder says, completes them in order. */
#include "fv.h"

#include <stdlib.h>
#include <string.h>

enum {
	PACKETS = 16,              /* sent before another queue pair has its turn */
	PATIENCE_NS = 20 * 1000000, /* between looks at whether a silent peer lives */
};

static struct fv_send *at(struct fv_qp *qp, uint64_t index) { return &qp->sends[index % qp->init.cap.max_send_wr]; }

static bool asks(const struct fv_send *s) { return s->opcode >= WR_RDMA_READ; }

static uint64_t scaled(uint64_t ns)
{
	uint64_t n = (uint64_t)((double)ns * fv.config.time_scale);
	return n < 20000 ? 20000 : n;
}

static void mark_lost(struct fv_qp *qp)
{
	if (qp->lost)
		return;
	qp->lost = true;
	qp->timeout_at = qp->attr.timeout ? fv_now() + scaled(4096ull << qp->attr.timeout) : 0;
}

static void rewind_to_acked(struct fv_qp *qp)
{
	for (uint64_t i = qp->acked; i <= qp->next && i < qp->posted; i++)
		at(qp, i)->begun = at(qp, i)->done = false;
	qp->next = qp->acked;
	qp->attempt++;
	qp->lost = false;
	qp->timeout_at = 0;
	qp->reads = 0;
	qp->sending.count = qp->sending.sent = 0;
}

static int completion_opcode(int opcode)
{
	static const int of[] = {WC_RDMA_WRITE, WC_RDMA_WRITE, WC_SEND, WC_SEND, WC_RDMA_READ, WC_COMP_SWAP, WC_FETCH_ADD};
	return of[opcode];
}

static void overrun(struct fv_qp *qp)
{
	if (qp->state == QPS_ERR)
		return;
	fv_qp_error(qp);
	fv_qp_event(qp, EV_QP_FATAL);
}

/* fv_send_complete ends the oldest work request. What the specification leaves
 * undefined in a completion is filled with whatever comes. */
void fv_send_complete(struct fv_qp *qp, int status)
{
	struct fv_send *s = at(qp, qp->acked++);
	if (asks(s) && qp->acked <= qp->next && qp->reads > 0)
		qp->reads--;
	if (qp->next < qp->acked) {
		qp->next = qp->acked;
		qp->sending.count = qp->sending.sent = 0;
	}
	if (status == WC_SUCCESS && s->fail_after)
		status = s->status;
	if (status == WC_SUCCESS && !s->signaled)
		return;
	struct fv_completion c = {
		.wc = {.wr_id = s->wr_id, .status = status, .qp_num = qp->ibv.qp_num},
		.qp = qp,
		.freed_upto = qp->acked,
	};
	uint64_t noise = fv_random();
	c.wc.opcode = status == WC_SUCCESS ? completion_opcode(s->opcode) : (int)(noise % 200);
	c.wc.vendor_err = status == WC_SUCCESS ? 0 : 0x80 + (uint32_t)status;
	c.wc.byte_len = status == WC_SUCCESS && asks(s) ? s->length : (uint32_t)noise;
	c.wc.imm_data = (uint32_t)(noise >> 32);
	c.wc.src_qp = (uint32_t)(noise >> 8) & 0xffffff;
	c.wc.wc_flags = status == WC_SUCCESS ? 0 : (unsigned)(noise >> 16) & 7;
	if (!fv_complete(qp->scq, &c, false))
		overrun(qp);
	if (status == WC_SUCCESS || qp->state == QPS_ERR)
		return;
	if (qp->ibv.qp_type != QPT_UD) {
		fv_qp_error(qp);
		return;
	}
	pthread_mutex_lock(&qp->send_lock);
	qp->state = QPS_SQE; /* datagrams are still received */
	pthread_mutex_unlock(&qp->send_lock);
}

static bool flush(struct fv_qp *qp)
{
	bool any = false;
	while (qp->acked < atomic_load_explicit(&qp->posted, memory_order_acquire)) {
		fv_send_complete(qp, WC_WR_FLUSH_ERR);
		any = true;
	}
	if (qp->state == QPS_SQE)
		return any;
	while (qp->have_receive || (!qp->srq && fv_take_receive(qp, &qp->receive))) {
		qp->have_receive = true;
		fv_receive_complete(qp, WC_WR_FLUSH_ERR, NULL);
		any = true;
	}
	qp->flushed = true;
	if (qp->srq && !qp->last_wqe_told) {
		qp->last_wqe_told = true;
		fv_qp_event(qp, EV_QP_LAST_WQE_REACHED);
	}
	return any;
}

/* check looks at a work request for the first time; the status it ends with
 * if it cannot be sent. */
static int check(struct fv_qp *qp, struct fv_send *s)
{
	if (!s->tried) {
		s->tried = true;
		struct fv_fault *f = fv_fault_for(qp, false);
		if (f) {
			s->status = (uint8_t)f->status;
			s->fail_after = f->after;
			free(f);
		}
	}
	if (s->status != WC_SUCCESS && !s->fail_after)
		return s->status;
	bool datagram = qp->ibv.qp_type == QPT_UD;
	if (s->length > fv.config.max_msg || (datagram && s->length > fv_mtu_bytes(fv.config.mtu)))
		return WC_LOC_LEN_ERR;
	if ((s->opcode == WR_CMP_SWP || s->opcode == WR_FETCH_ADD) && s->length != 8)
		return WC_LOC_LEN_ERR;
	if (asks(s) && qp->attr.max_rd_atomic == 0)
		return WC_LOC_QP_OP_ERR;
	if (!s->is_inline && !fv_check_sges(qp, s->sge, s->sges, asks(s) ? ACC_LOCAL_WRITE : 0))
		return WC_LOC_PROT_ERR;
	return WC_SUCCESS;
}

static struct packet header(const struct fv_qp *qp, const struct fv_send *s)
{
	return (struct packet){
		.type = PKT_DATA,
		.opcode = s->opcode,
		.mtu = (uint8_t)qp->attr.path_mtu,
		.from = qp->ibv.qp_num,
		.to = qp->attr.dest_qp_num,
		.source = qp->self,
		.target = qp->peer,
		.psn = qp->attr.sq_psn,
		.attempt = qp->attempt,
		.seq = qp->next,
		.address = s->address,
		.rkey = s->rkey,
		.imm = s->imm,
		.total = s->length,
		.operand = s->operand,
		.swap = s->swap,
	};
}

static void fill(struct fv_qp *qp, const struct fv_send *s, uint32_t offset, void *to, uint32_t bytes)
{
	if (s->is_inline)
		memcpy(to, s->data + offset, bytes);
	else
		fv_gather(qp, s->sge, s->sges, offset, to, bytes);
}

enum step { STEP_SENT, STEP_BLOCKED, STEP_FAILED };

/* send_piece sends the next packet of the work request. */
static enum step send_piece(struct fv_qp *qp, struct fv_send *s, bool *ended)
{
	struct packet p = header(qp, s);
	*ended = true;
	if (s->opcode == WR_RDMA_READ)
		p.type = PKT_READ;
	else if (asks(s))
		p.type = PKT_ATOMIC;
	else {
		const struct fv_piece *piece = &qp->sending.piece[qp->sending.sent];
		*ended = qp->sending.sent + 1 == qp->sending.count;
		p.offset = piece->offset;
		p.bytes = piece->bytes;
		p.flags = (piece->again ? PKT_AGAIN : 0) | (*ended ? PKT_LAST : 0) | (s->solicited ? PKT_SOLICITED : 0);
		if (s->opcode == WR_SEND || s->opcode == WR_SEND_WITH_IMM)
			p.flags |= PKT_SEND;
		if (s->opcode == WR_SEND_WITH_IMM || s->opcode == WR_RDMA_WRITE_WITH_IMM)
			p.flags |= PKT_IMM;
		/* The region may have gone since the first piece. */
		if (!s->is_inline && !fv_check_sges(qp, s->sge, s->sges, 0))
			return STEP_FAILED;
	}
	if (qp->device->hold & (*ended ? HOLD_END | HOLD_DATA : HOLD_DATA))
		return STEP_BLOCKED;
	if (!fv_port_up(&qp->self)) {
		mark_lost(qp);
		return STEP_BLOCKED;
	}
	void *payload;
	switch (fabric_begin(qp->peer_node, &p, &payload)) {
	case FABRIC_FULL:
		return STEP_BLOCKED;
	case FABRIC_GONE:
		mark_lost(qp);
		return STEP_BLOCKED;
	}
	if (p.bytes > 0)
		fill(qp, s, p.offset, payload, p.bytes);
	fabric_commit(qp->peer_node);
	qp->sending.sent++;
	return STEP_SENT;
}

/* fail ends the work request that is next: after those before it. */
static bool fail(struct fv_qp *qp, int status)
{
	if (qp->acked != qp->next)
		return false;
	fv_send_complete(qp, status);
	return true;
}

static bool send_datagram(struct fv_qp *qp, struct fv_send *s)
{
	struct packet p = header(qp, s);
	p.type = PKT_DATAGRAM;
	p.flags = PKT_SEND | PKT_LAST | (s->solicited ? PKT_SOLICITED : 0) | (s->opcode == WR_SEND_WITH_IMM ? PKT_IMM : 0);
	p.bytes = s->length;
	p.to = s->remote_qpn;
	p.source = s->source;
	p.target = s->target;
	p.qkey = s->remote_qkey;
	if (qp->device->hold & (HOLD_DATA | HOLD_END))
		return false;
	int node = (int)(s->remote_qpn >> 16);
	void *payload;
	int r = fv_port_up(&s->source) && node < FABRIC_NODES ? fabric_begin(node, &p, &payload) : FABRIC_GONE;
	if (r == FABRIC_FULL && fabric_probe(node))
		return false;
	if (r == FABRIC_OK) {
		if (p.bytes > 0)
			fill(qp, s, 0, payload, p.bytes);
		fabric_commit(node);
	}
	fv_send_complete(qp, WC_SUCCESS); /* whether or not it arrives */
	return true;
}

/* send_next goes on with the work request that is next. */
static enum step send_next(struct fv_qp *qp, uint64_t now)
{
	struct fv_send *s = at(qp, qp->next);
	if (!s->begun) {
		if (qp->state == QPS_SQD)
			return STEP_BLOCKED;
		if ((s->fence && qp->reads > 0) || (asks(s) && qp->attr.max_rd_atomic > 0 && qp->reads >= qp->attr.max_rd_atomic))
			return STEP_BLOCKED;
		int status = check(qp, s);
		if (status != WC_SUCCESS)
			return fail(qp, status) ? STEP_SENT : STEP_BLOCKED;
		s->begun = true;
		if (qp->acked == qp->next)
			qp->heard_at = now;
		if (asks(s))
			qp->sending.count = qp->sending.sent = 0;
		else {
			bool sends = s->opcode == WR_SEND || s->opcode == WR_SEND_WITH_IMM;
			fv_cut(&qp->sending, s->length, sends ? 0 : s->address, true);
		}
		/* Now and then the device is busy elsewhere, so that who touches a
		 * buffer too early is found out. */
		uint64_t delay = fv_below(8) == 0 ? fv_below(20000) : 0;
		if (qp->device->delay_ns > 0)
			delay = qp->device->delay_ns / 2 + fv_below(qp->device->delay_ns);
		if (delay > 0) {
			qp->not_before = now + delay;
			return STEP_BLOCKED;
		}
	}
	if (qp->ibv.qp_type == QPT_UD)
		return send_datagram(qp, s) ? STEP_SENT : STEP_BLOCKED;
	bool ended;
	enum step step = send_piece(qp, s, &ended);
	if (step == STEP_FAILED)
		return fail(qp, WC_LOC_PROT_ERR) ? STEP_SENT : STEP_BLOCKED;
	if (step == STEP_SENT && ended) {
		qp->next++;
		if (asks(s))
			qp->reads++;
	}
	return step;
}

static void watch(struct fv_qp *qp, uint64_t now)
{
	if (qp->lost) {
		if (qp->timeout_at == 0)
			return;
		if (now < qp->timeout_at) {
			fv_wake_at(qp->timeout_at);
			return;
		}
		if (qp->retries-- > 0)
			rewind_to_acked(qp);
		else
			fv_send_complete(qp, WC_RETRY_EXC_ERR);
		return;
	}
	if (now - qp->heard_at >= PATIENCE_NS) {
		qp->heard_at = now;
		if (!fabric_probe(qp->peer_node))
			mark_lost(qp);
	}
	fv_wake_at(qp->lost && qp->timeout_at ? qp->timeout_at : qp->heard_at + PATIENCE_NS);
}

bool fv_send_step(struct fv_qp *qp, uint64_t now)
{
	int state = qp->state;
	if (state == QPS_ERR || state == QPS_SQE)
		return flush(qp);
	if (state != QPS_RTS && state != QPS_SQD)
		return false;
	bool any = false;
	uint64_t posted = atomic_load_explicit(&qp->posted, memory_order_acquire);
	for (int i = 0; i < PACKETS && qp->next < posted && !qp->lost && qp->state == state; i++) {
		if (now < qp->not_before)
			break;
		if (send_next(qp, now) != STEP_SENT)
			break;
		any = true;
	}
	if (qp->acked < posted && qp->ibv.qp_type == QPT_RC && (qp->lost || qp->acked < qp->next || at(qp, qp->next)->begun))
		watch(qp, now);
	if (qp->not_before > now)
		fv_wake_at(qp->not_before);
	if (qp->state == QPS_SQD && qp->acked == qp->next && !qp->drained && (qp->next == posted || !at(qp, qp->next)->begun)) {
		qp->drained = true;
		if (qp->attr.en_sqd_async_notify)
			fv_qp_event(qp, EV_SQ_DRAINED);
	}
	return any || (qp->next < posted && qp->state == QPS_ERR);
}

/* acknowledge completes everything before upto that has been done. */
static void acknowledge(struct fv_qp *qp, uint64_t upto)
{
	while (qp->acked < upto && qp->acked < qp->next && qp->state != QPS_ERR) {
		struct fv_send *s = at(qp, qp->acked);
		if (asks(s) && !s->done)
			return;
		fv_send_complete(qp, WC_SUCCESS);
		qp->retries = qp->attr.retry_cnt;
		qp->rnr_retries = qp->attr.rnr_retry;
		qp->heard_at = fv_now();
		if (qp->lost && qp->timeout_at)
			qp->timeout_at = qp->heard_at + scaled(4096ull << qp->attr.timeout);
	}
}

/* Of the time for which a responder asks to be left alone, in units of 10 us. */
static uint64_t rnr_delay(unsigned code)
{
	static const uint32_t units[32] = {65536, 1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,   192,
					   256,   384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
	return scaled(units[code & 31] * 10000ull);
}

static void not_ready(struct fv_qp *qp, const struct packet *p)
{
	if (p->attempt != qp->attempt)
		return;
	acknowledge(qp, p->seq);
	if (qp->acked != p->seq || qp->state == QPS_ERR)
		return;
	if (qp->rnr_retries == 0) {
		fv_send_complete(qp, WC_RNR_RETRY_EXC_ERR);
		return;
	}
	if (qp->attr.rnr_retry != 7) /* which means: for ever */
		qp->rnr_retries--;
	rewind_to_acked(qp);
	qp->not_before = fv_now() + rnr_delay(p->status);
}

/* fv_response takes what a responder sends. */
void fv_response(struct fv_qp *qp, const struct packet *p, const void *payload)
{
	int state = qp->state;
	if ((state != QPS_RTS && state != QPS_SQD) || p->from != qp->attr.dest_qp_num)
		return;
	fv_busy(qp);
	if (!fv_port_up(&qp->self)) {
		mark_lost(qp);
		return;
	}
	switch (p->type) {
	case PKT_LOST:
		if (p->attempt == qp->attempt)
			mark_lost(qp);
		return;
	case PKT_RNR:
		not_ready(qp, p);
		return;
	case PKT_ACK:
		acknowledge(qp, p->seq + 1);
		return;
	case PKT_NAK:
		acknowledge(qp, p->seq);
		if (qp->acked == p->seq && qp->acked < qp->posted && qp->state != QPS_ERR)
			fv_send_complete(qp, (int)p->status);
		return;
	}
	/* Answers to reads and atomics. */
	if (p->attempt != qp->attempt || p->seq < qp->acked || p->seq >= qp->next)
		return;
	struct fv_send *s = at(qp, p->seq);
	if (!asks(s) || s->done)
		return;
	uint64_t value = p->operand;
	const unsigned char *from = p->type == PKT_ATOMIC_VALUE ? (const unsigned char *)&value : payload;
	uint32_t bytes = p->type == PKT_ATOMIC_VALUE ? 8 : p->bytes;
	qp->heard_at = fv_now();
	if (!fv_scatter(qp, s->sge, s->sges, p->offset, from, bytes)) {
		acknowledge(qp, p->seq);
		if (qp->acked == p->seq && qp->state != QPS_ERR)
			fv_send_complete(qp, WC_LOC_PROT_ERR);
		return;
	}
	if (p->flags & PKT_LAST) {
		s->done = true;
		acknowledge(qp, p->seq + 1);
	}
}
