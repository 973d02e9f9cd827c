/* The receiving half of a queue pair: places what arrives, completes receives,
 * answers. */
#include "fv.h"

#include <stdlib.h>
#include <string.h>

static void refuse(struct fv_qp *qp, const struct packet *p)
{
	if (qp->lost_told && qp->lost_attempt == p->attempt)
		return;
	qp->lost_told = true;
	qp->lost_attempt = p->attempt;
	fv_notice_lost(p);
}

static void owe(struct fv_qp *qp, const struct fv_response *what)
{
	/* One acknowledgement speaks for those before it. */
	if (what->type == PKT_ACK && qp->owed) {
		struct fv_response *last = (struct fv_response *)((char *)qp->owed_tail - offsetof(struct fv_response, next));
		if (last->type == PKT_ACK) {
			last->seq = what->seq;
			last->attempt = what->attempt;
			return;
		}
	}
	struct fv_response *r = malloc(sizeof *r);
	if (!r)
		abort();
	*r = *what;
	r->next = NULL;
	r->begun = false;
	*qp->owed_tail = r;
	qp->owed_tail = &r->next;
	if (r->type == PKT_READ_DATA || r->type == PKT_ATOMIC_VALUE)
		qp->owed_reads++;
	fv_busy(qp);
}

static void pay(struct fv_qp *qp)
{
	struct fv_response *r = qp->owed;
	qp->owed = r->next;
	if (!qp->owed)
		qp->owed_tail = &qp->owed;
	if (r->type == PKT_READ_DATA || r->type == PKT_ATOMIC_VALUE)
		qp->owed_reads--;
	free(r);
}

/* Answers to an earlier attempt are awaited by nobody: the requester asks for
 * all of them again. */
static void drop_stale(struct fv_qp *qp, uint32_t attempt)
{
	for (struct fv_response **p = &qp->owed; *p;) {
		struct fv_response *r = *p;
		if ((r->type != PKT_READ_DATA && r->type != PKT_ATOMIC_VALUE) || r->attempt >= attempt) {
			p = &r->next;
			continue;
		}
		*p = r->next;
		qp->owed_reads--;
		free(r);
	}
	qp->owed_tail = &qp->owed;
	while (*qp->owed_tail)
		qp->owed_tail = &(*qp->owed_tail)->next;
}

void fv_drop_owed(struct fv_qp *qp)
{
	while (qp->owed)
		pay(qp);
}

/* nak tells the requester how its message failed, and the own program by an
 * event, unless a completion does. */
static void nak(struct fv_qp *qp, const struct packet *p, int status, int event)
{
	owe(qp, &(struct fv_response){.type = PKT_NAK, .status = (uint8_t)status, .seq = p->seq, .attempt = p->attempt});
	fv_qp_error(qp);
	if (event >= 0)
		fv_qp_event(qp, event);
}

bool fv_take_receive(struct fv_qp *qp, struct fv_receive *r)
{
	struct fv_rq *rq = qp->srq ? &qp->srq->rq : &qp->rq;
	pthread_mutex_lock(&rq->lock);
	bool any = rq->taken < rq->posted;
	if (any)
		*r = rq->ring[rq->taken++ % rq->max_wr];
	uint64_t left = rq->posted - rq->taken;
	pthread_mutex_unlock(&rq->lock);
	if (any && qp->srq && left < qp->srq->limit) {
		qp->srq->limit = 0; /* until it is armed again */
		fv_raise(qp->context, EV_SRQ_LIMIT_REACHED, qp->srq, 0);
	}
	return any;
}

/* fv_receive_complete ends the receive in hand; p is the packet that ends the
 * message. */
void fv_receive_complete(struct fv_qp *qp, int status, const struct packet *p)
{
	struct fv_completion c = {
		.wc = {.wr_id = qp->receive.wr_id, .status = status, .qp_num = qp->ibv.qp_num},
		.qp = qp,
		.rq = qp->srq ? &qp->srq->rq : &qp->rq,
	};
	qp->have_receive = false;
	uint64_t noise = fv_random();
	if (status != WC_SUCCESS) {
		c.wc.opcode = (int)(noise % 200);
		c.wc.vendor_err = 0x80 + (uint32_t)status;
		c.wc.byte_len = (uint32_t)noise;
		c.wc.imm_data = (uint32_t)(noise >> 32);
		c.wc.src_qp = (uint32_t)(noise >> 8) & 0xffffff;
		c.wc.wc_flags = (unsigned)(noise >> 16) & 7;
	} else {
		bool datagram = p->type == PKT_DATAGRAM;
		c.wc.opcode = p->flags & PKT_SEND ? WC_RECV : WC_RECV_RDMA_WITH_IMM;
		c.wc.byte_len = p->total + (datagram ? (uint32_t)sizeof(struct ibv_grh) : 0);
		c.wc.imm_data = p->flags & PKT_IMM ? p->imm : (uint32_t)noise;
		c.wc.wc_flags = (p->flags & PKT_IMM ? WC_WITH_IMM : 0) | (datagram ? WC_GRH : 0);
		c.wc.src_qp = p->from;
	}
	if (!fv_complete(qp->rcq, &c, p && p->flags & PKT_SOLICITED) && qp->state != QPS_ERR) {
		fv_qp_error(qp);
		fv_qp_event(qp, EV_QP_FATAL);
	}
}

/* need_receive takes a posted receive for the message, or asks the requester
 * to come again. */
static bool need_receive(struct fv_qp *qp, const struct packet *p)
{
	if (qp->have_receive)
		return true;
	if (fv_take_receive(qp, &qp->receive)) {
		qp->have_receive = true;
		return true;
	}
	qp->min_attempt = p->attempt + 1;
	qp->got = 0;
	owe(qp, &(struct fv_response){.type = PKT_RNR, .status = qp->attr.min_rnr_timer, .seq = p->seq, .attempt = p->attempt});
	return false;
}

/* injected ends the receive in hand with an injected status. */
static bool injected(struct fv_qp *qp, const struct packet *p)
{
	struct fv_fault *f = fv_fault_for(qp, true);
	if (!f)
		return false;
	fv_receive_complete(qp, f->status, p);
	free(f);
	nak(qp, p, WC_REM_OP_ERR, -1);
	return true;
}

static bool place_send(struct fv_qp *qp, const struct packet *p, const void *payload)
{
	if (!need_receive(qp, p))
		return false;
	const struct fv_receive *r = &qp->receive;
	if (p->total > fv_sge_bytes(r->sge, r->sges)) {
		fv_receive_complete(qp, WC_LOC_LEN_ERR, p);
		nak(qp, p, WC_REM_INV_REQ_ERR, -1);
		return false;
	}
	if (!fv_check_sges(qp, r->sge, r->sges, ACC_LOCAL_WRITE) || !fv_scatter(qp, r->sge, r->sges, p->offset, payload, p->bytes)) {
		fv_receive_complete(qp, WC_LOC_PROT_ERR, p);
		nak(qp, p, WC_REM_OP_ERR, -1);
		return false;
	}
	return true;
}

/* reach finds the bytes that a request names, if the queue pair and a region
 * let it. */
static struct fv_mr *reach(struct fv_qp *qp, const struct packet *p, unsigned access, uint32_t bytes, unsigned char **to)
{
	if (!(qp->attr.qp_access_flags & access)) {
		nak(qp, p, WC_REM_INV_REQ_ERR, EV_QP_REQ_ERR);
		return NULL;
	}
	struct fv_mr *mr = fv_find(qp->device, qp->pd, p->rkey, true, p->address, bytes, access, to);
	if (!mr)
		nak(qp, p, WC_REM_ACCESS_ERR, EV_QP_ACCESS_ERR);
	return mr;
}

static bool place_write(struct fv_qp *qp, const struct packet *p, const void *payload)
{
	unsigned char *to;
	if (p->total == 0)
		return true; /* names no memory */
	struct fv_mr *mr = reach(qp, p, ACC_REMOTE_WRITE, p->total, &to);
	if (!mr)
		return false;
	fv_write(qp, mr, to + p->offset, payload, p->bytes);
	return true;
}

static void data(struct fv_qp *qp, const struct packet *p, const void *payload)
{
	if (p->attempt != qp->cur_attempt) {
		qp->cur_attempt = p->attempt;
		qp->got = 0;
	}
	if (p->total > fv.config.max_msg || p->offset > p->total || p->bytes > p->total - p->offset) {
		nak(qp, p, WC_REM_INV_REQ_ERR, EV_QP_REQ_ERR);
		return;
	}
	/* What is placed from here on may not be seen before what was. */
	atomic_thread_fence(memory_order_release);
	if (!(p->flags & PKT_SEND ? place_send : place_write)(qp, p, payload))
		return;
	if (!(p->flags & PKT_AGAIN))
		qp->got += p->bytes;
	if (!(p->flags & PKT_LAST))
		return;
	if (qp->got != p->total) { /* a part of it went by while the port was down */
		refuse(qp, p);
		return;
	}
	if (p->flags & (PKT_SEND | PKT_IMM)) {
		if (!need_receive(qp, p))
			return;
		fv_settle(qp); /* a completed receive orders all before it */
		if (injected(qp, p))
			return;
		fv_receive_complete(qp, WC_SUCCESS, p);
	}
	qp->got = 0;
	qp->expected++;
	owe(qp, &(struct fv_response){.type = PKT_ACK, .seq = p->seq, .attempt = p->attempt});
}

static bool may_ask(struct fv_qp *qp, const struct packet *p)
{
	if (qp->owed_reads < qp->attr.max_dest_rd_atomic)
		return true;
	nak(qp, p, WC_REM_INV_REQ_ERR, EV_QP_REQ_ERR);
	return false;
}

static void read_request(struct fv_qp *qp, const struct packet *p)
{
	unsigned char *from;
	if (!may_ask(qp, p) || (p->total > 0 && !reach(qp, p, ACC_REMOTE_READ, p->total, &from)))
		return;
	fv_settle(qp); /* a read sees the writes before it */
	if (p->seq == qp->expected)
		qp->expected++;
	owe(qp, &(struct fv_response){
			.type = PKT_READ_DATA, .seq = p->seq, .attempt = p->attempt, .address = p->address, .rkey = p->rkey, .length = p->total});
}

static void owe_value(struct fv_qp *qp, const struct packet *p, uint64_t value)
{
	owe(qp, &(struct fv_response){.type = PKT_ATOMIC_VALUE, .seq = p->seq, .attempt = p->attempt, .value = value});
}

static void atomic_request(struct fv_qp *qp, const struct packet *p)
{
	unsigned char *to;
	if (!may_ask(qp, p))
		return;
	if (p->address % 8 != 0) {
		nak(qp, p, WC_REM_INV_REQ_ERR, EV_QP_REQ_ERR);
		return;
	}
	if (!reach(qp, p, ACC_REMOTE_ATOMIC, 8, &to))
		return;
	fv_settle(qp);
	uint64_t *word = (uint64_t *)to, value;
	if (p->opcode == WR_FETCH_ADD)
		value = __atomic_fetch_add(word, p->operand, __ATOMIC_SEQ_CST);
	else {
		value = p->operand;
		__atomic_compare_exchange_n(word, &value, p->swap, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	}
	unsigned slot = qp->atomic_count++ % FV_MAX_RD_ATOMIC;
	qp->atomics[slot].seq = p->seq;
	qp->atomics[slot].value = value;
	qp->expected++;
	owe_value(qp, p, value);
}

/* repeated takes a message that was done before: its answer was lost. */
static void repeated(struct fv_qp *qp, const struct packet *p)
{
	for (const struct fv_response *r = qp->owed; r; r = r->next)
		if (r->seq == p->seq && r->attempt == p->attempt && r->type != PKT_ACK)
			return;
	if (p->type == PKT_DATA && p->flags & PKT_LAST)
		owe(qp, &(struct fv_response){.type = PKT_ACK, .seq = p->seq, .attempt = p->attempt});
	else if (p->type == PKT_READ)
		read_request(qp, p);
	else if (p->type == PKT_ATOMIC)
		for (unsigned i = 0; i < FV_MAX_RD_ATOMIC && i < qp->atomic_count; i++)
			if (qp->atomics[i].seq == p->seq)
				owe_value(qp, p, qp->atomics[i].value);
}

static bool same_place(struct fabric_addr a, struct fabric_addr b)
{
	return a.host == b.host && a.device == b.device && a.port == b.port && fv_same_kind(a.gid_index, b.gid_index);
}

static void datagram(struct fv_qp *qp, const struct packet *p, const void *payload)
{
	int state = qp->state;
	if (qp->ibv.qp_type != QPT_UD || (state != QPS_RTR && state != QPS_RTS && state != QPS_SQD && state != QPS_SQE))
		return;
	if (p->qkey != qp->attr.qkey || p->target.host != fv.config.host || p->target.device != qp->device->index ||
	    p->target.port != qp->attr.port_num || !fv_port_up(&p->target) || !fv_take_receive(qp, &qp->receive))
		return;
	qp->have_receive = true;
	const struct fv_receive *r = &qp->receive;
	struct ibv_gid_entry source, target;
	struct ibv_grh grh = {.next_hdr = 0x1b, .hop_limit = 255};
	fv_gid(p->source.host, p->source.device, p->source.port, p->source.gid_index, &source);
	fv_gid(p->target.host, p->target.device, p->target.port, p->target.gid_index, &target);
	grh.sgid = source.gid;
	grh.dgid = target.gid;
	int status = WC_SUCCESS;
	if (p->total + sizeof grh > fv_sge_bytes(r->sge, r->sges))
		status = WC_LOC_LEN_ERR;
	else if (!fv_scatter(qp, r->sge, r->sges, 0, (const unsigned char *)&grh, sizeof grh) ||
		 !fv_scatter(qp, r->sge, r->sges, sizeof grh, payload, p->bytes))
		status = WC_LOC_PROT_ERR;
	struct fv_fault *f = fv_fault_for(qp, true);
	if (f)
		status = f->status;
	free(f);
	fv_receive_complete(qp, status, p);
	if (status != WC_SUCCESS)
		fv_qp_error(qp);
}

/* fv_request takes what a requester sends. */
void fv_request(struct fv_qp *qp, const struct packet *p, const void *payload)
{
	if (p->type == PKT_DATAGRAM) {
		datagram(qp, p, payload);
		return;
	}
	if (p->attempt < qp->min_attempt)
		return;
	int state = qp->state;
	if (qp->ibv.qp_type != QPT_RC || (state != QPS_RTR && state != QPS_RTS && state != QPS_SQD) || p->from != qp->attr.dest_qp_num ||
	    !same_place(p->source, qp->peer) || !same_place(p->target, qp->self) || p->psn != qp->attr.rq_psn || !fv_port_up(&qp->self)) {
		refuse(qp, p);
		return;
	}
	if (!qp->established) {
		qp->established = true;
		if (state == QPS_RTR)
			fv_qp_event(qp, EV_COMM_EST);
	}
	if (p->attempt > qp->newest_attempt) {
		qp->newest_attempt = p->attempt;
		drop_stale(qp, p->attempt);
	}
	if (p->seq < qp->expected) {
		repeated(qp, p);
		return;
	}
	if (p->seq > qp->expected) {
		refuse(qp, p);
		return;
	}
	/* A message of several packets shows that the two do not agree. */
	int mtu = qp->attr.path_mtu;
	if (p->mtu != mtu && p->type == PKT_DATA && p->total > fv_mtu_bytes(p->mtu < mtu ? p->mtu : mtu)) {
		nak(qp, p, WC_REM_INV_REQ_ERR, EV_QP_REQ_ERR);
		return;
	}
	switch (p->type) {
	case PKT_DATA:
		data(qp, p, payload);
		return;
	case PKT_READ:
		read_request(qp, p);
		return;
	case PKT_ATOMIC:
		atomic_request(qp, p);
	}
}

/* answer sends one packet of the oldest answer that is owed; false when there
 * is no room. */
static bool answer(struct fv_qp *qp, struct fv_response *r)
{
	struct packet p = {
		.type = r->type,
		.from = qp->ibv.qp_num,
		.to = qp->attr.dest_qp_num,
		.seq = r->seq,
		.attempt = r->attempt,
		.status = r->status,
		.operand = r->value,
		.flags = PKT_LAST,
	};
	unsigned char *from = NULL;
	if (r->type == PKT_READ_DATA) {
		if (r->length > 0 && !fv_find(qp->device, qp->pd, r->rkey, true, r->address, r->length, ACC_REMOTE_READ, &from)) {
			r->type = PKT_NAK; /* gone while it was read */
			r->status = WC_REM_OP_ERR;
			fv_qp_error(qp);
			return true;
		}
		if (!r->begun) {
			r->begun = true;
			fv_cut(&qp->answering, r->length, 0, false);
		}
		const struct fv_piece *piece = &qp->answering.piece[qp->answering.sent];
		p.offset = piece->offset;
		p.bytes = piece->bytes;
		p.total = r->length;
		if (qp->answering.sent + 1 < qp->answering.count)
			p.flags = 0;
	}
	void *payload;
	switch (fabric_begin(qp->peer_node, &p, &payload)) {
	case FABRIC_FULL:
		return fabric_probe(qp->peer_node) ? false : (pay(qp), true);
	case FABRIC_GONE:
		pay(qp);
		return true;
	}
	if (p.bytes > 0)
		memcpy(payload, from + p.offset, p.bytes);
	fabric_commit(qp->peer_node);
	qp->answering.sent++;
	if (p.flags & PKT_LAST)
		pay(qp);
	return true;
}

bool fv_respond_step(struct fv_qp *qp)
{
	bool any = false;
	for (int i = 0; i < 16 && qp->owed; i++) {
		if (qp->device->hold & HOLD_ACK)
			break;
		if (!fv_port_up(&qp->self)) {
			struct packet lost = {.type = PKT_LOST, .from = qp->ibv.qp_num, .to = qp->attr.dest_qp_num, .attempt = qp->owed->attempt};
			fv_notice(qp->peer_node, &lost);
			pay(qp);
			continue;
		}
		if (!answer(qp, qp->owed))
			break;
		any = true;
	}
	return any;
}
