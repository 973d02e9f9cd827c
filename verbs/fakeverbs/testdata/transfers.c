/* What arrives, and in which order. */
#include "harness.h"

#include <stdatomic.h>

static const struct options plain;

static uint32_t seed = 12345;
static uint32_t below(uint32_t n) { return (seed = seed * 1664525 + 1013904223) / 65536 % n; }

/* Every operation, with random sizes and places, against a copy that is kept
 * by hand. */
static void operations(void)
{
	struct ibv_context *ctx = open_first();
	struct end a, b;
	pair(ctx, &a, &b, (struct options){.bytes = 1 << 18, .rnr_retry = 7}, (struct options){.bytes = 1 << 18});
	struct address to = address_of(&b);
	static unsigned char want[1 << 18];
	for (int i = 0; i < 1500; i++) {
		uint32_t bytes = below(3) ? below(300) : below(1 << 17), from = below((1 << 18) - bytes), at = below((1 << 18) - bytes);
		for (uint32_t k = 0; k < bytes; k++)
			a.buf[from + k] = (unsigned char)below(256);
		switch (below(5)) {
		case 0:
			CHECK(put(&a, to, WR_RDMA_WRITE, SEND_SIGNALED, from, at, bytes) == 0);
			memcpy(want + at, a.buf + from, bytes);
			break;
		case 1: {
			CHECK(receive(&b, 5, 0, 0) == 0);
			CHECK(put(&a, to, WR_RDMA_WRITE_WITH_IMM, SEND_SIGNALED, from, at, bytes) == 0);
			memcpy(want + at, a.buf + from, bytes);
			struct ibv_wc wc = await(b.cq);
			CHECK(wc.status == WC_SUCCESS && wc.opcode == WC_RECV_RDMA_WITH_IMM && wc.wr_id == 5);
			CHECK(wc.wc_flags == WC_WITH_IMM && wc.imm_data == 0x11223344 && wc.byte_len == bytes && wc.qp_num == b.qp->qp_num);
			break;
		}
		case 2: {
			uint32_t more = at + bytes + 10 > 1 << 18 ? 0 : below(10);
			CHECK(receive(&b, 6, at, bytes + more) == 0);
			CHECK(put(&a, to, WR_SEND_WITH_IMM, SEND_SIGNALED, from, 0, bytes) == 0);
			memcpy(want + at, a.buf + from, bytes);
			struct ibv_wc wc = await(b.cq);
			CHECK(wc.status == WC_SUCCESS && wc.opcode == WC_RECV && wc.byte_len == bytes, "status %d", wc.status);
			CHECK(wc.wc_flags == WC_WITH_IMM && wc.imm_data == 0x11223344 && wc.src_qp == a.qp->qp_num);
			break;
		}
		case 3:
			CHECK(put(&a, to, WR_RDMA_READ, SEND_SIGNALED, from, at, bytes) == 0);
			break;
		case 4: { /* gathered from three */
			struct ibv_sge s[3];
			uint32_t x = bytes / 3, y = bytes / 5;
			s[0] = (struct ibv_sge){(uintptr_t)a.buf + from, x, a.mr->lkey};
			s[1] = (struct ibv_sge){(uintptr_t)a.buf + from + x, y, a.mr->lkey};
			s[2] = (struct ibv_sge){(uintptr_t)a.buf + from + x + y, bytes - x - y, a.mr->lkey};
			struct ibv_send_wr wr = {.sg_list = s, .num_sge = 3, .opcode = WR_RDMA_WRITE, .send_flags = SEND_SIGNALED};
			wr.wr.rdma.remote_addr = to.addr + at;
			wr.wr.rdma.rkey = to.rkey;
			CHECK(post(&a, &wr) == 0);
			memcpy(want + at, a.buf + from, bytes);
		}
		}
		struct ibv_wc wc = await(a.cq);
		CHECK(wc.status == WC_SUCCESS && wc.qp_num == a.qp->qp_num, "status %d", wc.status);
		if (wc.opcode == WC_RDMA_READ) {
			CHECK(wc.byte_len == bytes);
			CHECK(memcmp(a.buf + from, want + at, bytes) == 0);
		}
	}
	/* A completed write needs no more to be seen, except where order is
	 * relaxed: a read on the same queue pair sees it in any case. */
	CHECK(put(&a, to, WR_RDMA_READ, SEND_SIGNALED, 0, 0, 1 << 18) == 0);
	CHECK(await(a.cq).status == WC_SUCCESS);
	CHECK(memcmp(a.buf, want, sizeof want) == 0);
	free_end(&a);
	free_end(&b);
	CHECK(ibv_close_device(ctx) == 0);
}

static void atomics(void)
{
	struct ibv_context *ctx = open_first();
	struct end a, b;
	pair(ctx, &a, &b, plain, plain);
	struct address to = address_of(&b);
	uint64_t *word = (uint64_t *)(b.buf + 64), *old = (uint64_t *)a.buf;
	*word = 10;
	struct ibv_sge sge;
	for (int i = 0; i < 200; i++) {
		struct ibv_send_wr wr = send_wr(&a, &sge, WR_FETCH_ADD, SEND_SIGNALED, 0, 8);
		wr.wr.atomic.remote_addr = to.addr + 64;
		wr.wr.atomic.rkey = to.rkey;
		wr.wr.atomic.compare_add = 3;
		CHECK(post(&a, &wr) == 0);
		struct ibv_wc wc = await(a.cq);
		CHECK(wc.status == WC_SUCCESS && wc.opcode == WC_FETCH_ADD && *old == 10 + 3 * (uint64_t)i);
	}
	struct ibv_send_wr wr = send_wr(&a, &sge, WR_CMP_SWP, SEND_SIGNALED, 0, 8);
	wr.wr.atomic.remote_addr = to.addr + 64;
	wr.wr.atomic.rkey = to.rkey;
	wr.wr.atomic.compare_add = 610;
	wr.wr.atomic.swap = 1;
	CHECK(post(&a, &wr) == 0 && await(a.cq).opcode == WC_COMP_SWAP && *old == 610 && *word == 1);
	CHECK(post(&a, &wr) == 0 && await(a.cq).status == WC_SUCCESS && *old == 1 && *word == 1);
	wr.wr.atomic.remote_addr += 4;
	CHECK(post(&a, &wr) == 0 && await(a.cq).status == WC_REM_INV_REQ_ERR);
	CHECK(await_event(ctx) == EV_QP_REQ_ERR);
	free_end(&a);
	free_end(&b);
	CHECK(ibv_close_device(ctx) == 0);
}

/* Many reads at a time, more than the responder takes, and writes between:
 * completions come in order. */
static void pipelines(void)
{
	struct ibv_context *ctx = open_first();
	struct end a, b;
	pair(ctx, &a, &b, plain, plain);
	struct address to = address_of(&b);
	for (int i = 0; i < 1 << 15; i++)
		b.buf[i] = (unsigned char)(i * 7);
	for (int round = 0; round < 20; round++) {
		for (size_t i = 0; i < 30; i++)
			if (i % 3 == 2)
				CHECK(put(&a, to, WR_RDMA_WRITE, SEND_SIGNALED | (i % 2 ? SEND_FENCE : 0), i * 1000, 32768 + i * 1000, 1000) == 0);
			else
				CHECK(put(&a, to, WR_RDMA_READ, SEND_SIGNALED, i * 1000, i * 1000, 1000) == 0);
		for (size_t i = 0; i < 30; i++) {
			struct ibv_wc wc = await(a.cq);
			CHECK(wc.status == WC_SUCCESS && wc.wr_id == 1000 + i * 1000, "%d of %d", (int)wc.wr_id, (int)i);
		}
		for (int i = 0; i < 2000; i++)
			CHECK(a.buf[i] == (unsigned char)(i * 7));
	}
	free_end(&a);
	free_end(&b);
	CHECK(ibv_close_device(ctx) == 0);
}

/* How many of some messages show a later byte before an earlier one, when they
 * are stopped before their last piece. */
static int out_of_order(void)
{
	struct ibv_context *ctx = open_first();
	struct end a, b;
	pair(ctx, &a, &b, plain, plain);
	enum { BYTES = 60000 };
	int found = 0;
	for (int i = 1; i <= 20; i++) {
		memset(a.buf, i, BYTES);
		ask("hold 2");
		CHECK(put(&a, address_of(&b), WR_RDMA_WRITE, SEND_SIGNALED, 0, 0, BYTES) == 0);
		CHECK(quiet(a.cq, 10));
		volatile unsigned char *p = b.buf;
		bool missing = false, late = false;
		for (int k = 0; k < BYTES; k++) {
			missing |= p[k] != i;
			late |= missing && p[k] == i;
		}
		CHECK(missing, "a held message is complete");
		found += late;
		ask("hold 0");
		CHECK(await(a.cq).status == WC_SUCCESS);
	}
	free_end(&a);
	free_end(&b);
	CHECK(ibv_close_device(ctx) == 0);
	return found;
}

/* How many of some messages are passed by a flag that is written after them,
 * for a reader who looks all the time. */
static int passed(bool relaxed_region, bool imm)
{
	struct ibv_context *ctx = open_first();
	struct end a, b;
	int access = ACC_LOCAL_WRITE | ACC_REMOTE_WRITE | ACC_REMOTE_READ | (relaxed_region ? ACC_RELAXED : 0);
	pair(ctx, &a, &b, plain, (struct options){.mr_access = access});
	struct address to = address_of(&b);
	int early = 0;
	enum { BYTES = 4096, FLAG = 8192 };
	for (int i = 1; i <= 600; i++) {
		memset(a.buf, i, BYTES);
		volatile unsigned char *p = b.buf;
		CHECK(receive(&b, 1, 0, 0) == 0);
		CHECK(put(&a, to, WR_RDMA_WRITE, 0, 0, 0, BYTES) == 0);
		CHECK(put(&a, to, imm ? WR_RDMA_WRITE_WITH_IMM : WR_RDMA_WRITE, SEND_SIGNALED, 0, FLAG, 8) == 0);
		unsigned char now = (unsigned char)i;
		for (double end = seconds() + 20; !imm && p[FLAG] != now;)
			CHECK(seconds() < end);
		if (imm)
			CHECK(await(b.cq).status == WC_SUCCESS);
		atomic_thread_fence(memory_order_acquire);
		for (int k = 0; k < BYTES; k++)
			if (p[k] != now) {
				early++;
				break;
			}
		CHECK(await(a.cq).status == WC_SUCCESS);
		if (!imm) { /* a receive that is used up, so that all is settled */
			CHECK(put(&a, to, WR_SEND, SEND_SIGNALED, 0, 0, 0) == 0);
			CHECK(await(b.cq).status == WC_SUCCESS && await(a.cq).status == WC_SUCCESS);
		}
		for (int k = 0; k < BYTES; k++)
			CHECK(p[k] == now, "byte %d after a completed receive", k);
	}
	free_end(&a);
	free_end(&b);
	CHECK(ibv_close_device(ctx) == 0);
	return early;
}

static void order_messages(void)
{
	CHECK(out_of_order() > 0);
	CHECK(passed(false, false) == 0);
	CHECK(passed(false, true) == 0);
}

static void order_in_order(void)
{
	CHECK(out_of_order() == 0);
	CHECK(passed(false, false) == 0);
}

static void order_relaxed(void)
{
	CHECK(passed(false, false) > 0);
	CHECK(passed(false, true) == 0);
}

static void order_relaxed_region(void)
{
	CHECK(passed(true, false) > 0);
	CHECK(passed(true, true) == 0);
}

/* A buffer is the device's until the completion: who changes it before cannot
 * know what is sent. */
static void early_reuse(void)
{
	struct ibv_context *ctx = open_first();
	struct end a, b;
	pair(ctx, &a, &b, plain, plain);
	struct address to = address_of(&b);
	int changed = 0, kept = 0;
	for (int i = 0; i < 400; i++) {
		memset(a.buf, 1, 1024);
		CHECK(put(&a, to, WR_RDMA_WRITE, SEND_SIGNALED, 0, 0, 1024) == 0);
		memset(a.buf, 2, 1024);
		CHECK(await(a.cq).status == WC_SUCCESS);
		changed += b.buf[0] == 2;
		kept += b.buf[0] == 1;
	}
	CHECK(changed > 0 && kept > 0, "%d of 400 were changed", changed);
	free_end(&a);
	free_end(&b);
	CHECK(ibv_close_device(ctx) == 0);
}

static void datagrams(void)
{
	struct ibv_context *ctx = open_first();
	struct end a, b;
	struct options o = {.type = QPT_UD};
	pair(ctx, &a, &b, o, o);
	struct ibv_ah_attr aa = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = GID, .hop_limit = 9}};
	aa.grh.dgid = address_of(&b).gid;
	struct ibv_ah *ah = ibv_create_ah(a.pd, &aa);
	CHECK(ah);
	struct ibv_sge sge;
	memset(a.buf, 0x5a, 4096);
#define DATAGRAM(bytes, key, errno_)                                                    \
	do {                                                                            \
		struct ibv_send_wr wr = send_wr(&a, &sge, WR_SEND_WITH_IMM, SEND_SIGNALED, 0, bytes); \
		wr.imm_data = 42;                                                       \
		wr.wr.ud.ah = ah;                                                       \
		wr.wr.ud.remote_qpn = b.qp->qp_num;                                     \
		wr.wr.ud.remote_qkey = key;                                             \
		CHECK(post(&a, &wr) == errno_);                                         \
	} while (0)
	CHECK(receive(&b, 3, 0, 4096 + 40) == 0);
	DATAGRAM(4096, QKEY, 0);
	CHECK(await(a.cq).status == WC_SUCCESS);
	struct ibv_wc wc = await(b.cq);
	CHECK(wc.status == WC_SUCCESS && wc.byte_len == 4096 + 40 && wc.wc_flags == (WC_GRH | WC_WITH_IMM) && wc.imm_data == 42);
	CHECK(wc.src_qp == a.qp->qp_num && b.buf[40] == 0x5a && b.buf[4135] == 0x5a);
	/* Nobody waits for it, or it has the wrong key: it is gone, and sent. */
	DATAGRAM(8, QKEY, 0);
	CHECK(await(a.cq).status == WC_SUCCESS && quiet(b.cq, 5));
	CHECK(receive(&b, 4, 0, 4096 + 40) == 0);
	DATAGRAM(8, QKEY + 1, 0);
	CHECK(await(a.cq).status == WC_SUCCESS && quiet(b.cq, 5));
	/* Too long for a packet: the send queue stops, receiving goes on. */
	DATAGRAM(4097, QKEY, 0);
	CHECK(await(a.cq).status == WC_LOC_LEN_ERR && state_of(&a) == QPS_SQE);
	DATAGRAM(8, QKEY, 0);
	CHECK(await(a.cq).status == WC_WR_FLUSH_ERR);
	struct ibv_qp_attr rts = {.qp_state = QPS_RTS};
	CHECK(ibv_modify_qp(a.qp, &rts, QP_STATE) == 0);
	DATAGRAM(8, QKEY, 0);
	CHECK(await(a.cq).status == WC_SUCCESS && await(b.cq).wr_id == 4);
	CHECK(put(&a, address_of(&b), WR_RDMA_WRITE, 0, 0, 0, 8) == EINVAL);
	CHECK(ibv_destroy_ah(ah) == 0);
	free_end(&a);
	free_end(&b);
	CHECK(ibv_close_device(ctx) == 0);
}

static void shared_receives(void)
{
	struct ibv_context *ctx = open_first();
	struct end a, b;
	pair(ctx, &a, &b, (struct options){.rnr_retry = 7}, (struct options){.srq = 8});
	struct address to = address_of(&b);
	struct ibv_srq_attr limit = {.srq_limit = 3};
	for (int i = 0; i < 8; i++)
		CHECK(receive(&b, (uint64_t)i, (size_t)i * 64, 64) == 0);
	CHECK(receive(&b, 9, 0, 64) == ENOMEM);
	CHECK(ibv_modify_srq(b.srq, &limit, SRQ_LIMIT) == 0);
	for (int i = 0; i < 6; i++) {
		CHECK(!event_waits(ctx));
		CHECK(put(&a, to, WR_SEND, SEND_SIGNALED, 0, 0, 64) == 0);
		CHECK(await(a.cq).status == WC_SUCCESS);
		struct ibv_wc wc = await(b.cq);
		CHECK(wc.status == WC_SUCCESS && wc.wr_id == (uint64_t)i);
	}
	CHECK(await_event(ctx) == EV_SRQ_LIMIT_REACHED);
	CHECK(put(&a, to, WR_SEND, SEND_SIGNALED, 0, 0, 64) == 0 && await(a.cq).status == WC_SUCCESS && await(b.cq).wr_id == 6);
	CHECK(!event_waits(ctx)); /* once */
	struct ibv_qp_attr err = {.qp_state = QPS_ERR};
	CHECK(ibv_modify_qp(b.qp, &err, QP_STATE) == 0);
	CHECK(await_event(ctx) == EV_QP_LAST_WQE_REACHED);
	CHECK(quiet(b.cq, 5)); /* what is left belongs to the shared queue */
	free_end(&a);
	free_end(&b);
	CHECK(ibv_close_device(ctx) == 0);
}

/* Threads that share what may be shared: the device, a domain, a completion
 * queue; and others that come and go beside them. */
struct worker {
	pthread_t thread;
	struct ibv_context *ctx;
	int number;
};

static void *comes_and_goes(void *arg)
{
	struct worker *w = arg;
	for (int round = 0; round < 30; round++) {
		struct end a, b;
		pair(w->ctx, &a, &b, (struct options){.channel = true}, plain);
		struct address to = address_of(&b);
		CHECK(receive(&b, 1, 0, 4096) == 0 && receive(&b, 2, 0, 4096) == 0);
		memset(a.buf, w->number + 1, 4096);
		CHECK(w->ctx->ops.req_notify_cq(a.cq, 0) == 0);
		CHECK(put(&a, to, WR_SEND, SEND_SIGNALED, 0, 0, 4096) == 0);
		struct ibv_cq *cq;
		void *context;
		CHECK(ibv_get_cq_event(a.channel, &cq, &context) == 0);
		ibv_ack_cq_events(cq, 1);
		CHECK(await(a.cq).status == WC_SUCCESS && await(b.cq).status == WC_SUCCESS);
		for (int i = 0; i < 4096; i++)
			CHECK(b.buf[i] == w->number + 1);
		for (int i = 0; i < 10; i++)
			put(&a, to, WR_RDMA_WRITE, SEND_SIGNALED, 0, 8192, 20000);
		free_end(&a); /* in the middle of it */
		free_end(&b);
	}
	return NULL;
}

static void threads(void)
{
	struct ibv_context *ctx = open_first();
	struct worker w[4];
	for (int i = 0; i < 4; i++) {
		w[i] = (struct worker){.ctx = ctx, .number = i};
		CHECK(pthread_create(&w[i].thread, NULL, comes_and_goes, &w[i]) == 0);
	}
	for (int i = 0; i < 4; i++)
		CHECK(pthread_join(w[i].thread, NULL) == 0);
	CHECK(ibv_close_device(ctx) == 0);
}

const struct test transfers[] = {
	{"threads", threads},
	{"operations", operations},
	{"atomics", atomics},
	{"pipelines", pipelines},
	{"order-messages", order_messages},
	{"order-inorder", order_in_order},
	{"order-relaxed", order_relaxed},
	{"order-relaxed-region", order_relaxed_region},
	{"early-reuse", early_reuse},
	{"datagrams", datagrams},
	{"shared-receives", shared_receives},
	{NULL, NULL},
};
