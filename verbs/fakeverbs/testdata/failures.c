/* How work requests fail, and what else fails with them. */
#include "harness.h"

static const struct options plain;

/* Requests that a peer's memory refuses, one queue pair each. */
static void access_rights(void)
{
	struct ibv_context *ctx = open_first();
	const int rw = ACC_LOCAL_WRITE | ACC_REMOTE_WRITE;
	struct {
		const char *what;
		int qp_access, mr_access, opcode, bytes;
		size_t at;
		uint32_t key; /* 0: the right one, 1: the local one, other: that */
		int status, event;
	} t[] = {
		{"write past the end", rw, rw, WR_RDMA_WRITE, 2, 65535, 0, WC_REM_ACCESS_ERR, EV_QP_ACCESS_ERR},
		{"write before the beginning", rw, rw, WR_RDMA_WRITE, 2, (size_t)-1, 0, WC_REM_ACCESS_ERR, EV_QP_ACCESS_ERR},
		{"no such key", rw, rw, WR_RDMA_WRITE, 2, 0, 0xdeadbeef, WC_REM_ACCESS_ERR, EV_QP_ACCESS_ERR},
		{"the local key", rw, rw, WR_RDMA_WRITE, 2, 0, 1, WC_REM_ACCESS_ERR, EV_QP_ACCESS_ERR},
		{"region not writable", rw, ACC_LOCAL_WRITE, WR_RDMA_WRITE, 2, 0, 0, WC_REM_ACCESS_ERR, EV_QP_ACCESS_ERR},
		{"region not readable", rw | ACC_REMOTE_READ, rw, WR_RDMA_READ, 2, 0, 0, WC_REM_ACCESS_ERR, EV_QP_ACCESS_ERR},
		{"queue pair not writable", ACC_LOCAL_WRITE, rw, WR_RDMA_WRITE, 2, 0, 0, WC_REM_INV_REQ_ERR, EV_QP_REQ_ERR},
		{"queue pair not readable", rw, rw | ACC_REMOTE_READ, WR_RDMA_READ, 2, 0, 0, WC_REM_INV_REQ_ERR, EV_QP_REQ_ERR},
	};
	for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
		struct end a, b;
		pair(ctx, &a, &b, plain, (struct options){.qp_access = t[i].qp_access, .mr_access = t[i].mr_access});
		struct address to = address_of(&b);
		if (t[i].key)
			to.rkey = t[i].key == 1 ? b.mr->lkey : t[i].key;
		CHECK(put(&a, to, t[i].opcode, 0, 0, t[i].at, (uint32_t)t[i].bytes) == 0); /* not signalled: and yet */
		struct ibv_wc wc = await(a.cq);
		CHECK(wc.status == t[i].status && wc.wr_id == 1000 && wc.qp_num == a.qp->qp_num, "%s: %d", t[i].what, wc.status);
		CHECK(await_event(ctx) == t[i].event, "%s", t[i].what);
		CHECK(state_of(&a) == QPS_ERR && state_of(&b) == QPS_ERR, "%s", t[i].what);
		for (int k = 0; k < 65536; k++)
			CHECK(b.buf[k] == 0, "%s", t[i].what);
		free_end(&a);
		free_end(&b);
	}
	/* A write of nothing names no memory. */
	struct end a, b;
	pair(ctx, &a, &b, plain, plain);
	struct address nowhere = {.rkey = 0xdeadbeef};
	CHECK(put(&a, nowhere, WR_RDMA_WRITE, SEND_SIGNALED, 0, 0, 0) == 0 && await(a.cq).status == WC_SUCCESS);
	free_end(&a);
	free_end(&b);
	CHECK(ibv_close_device(ctx) == 0);
}

static void local_faults(void)
{
	struct ibv_context *ctx = open_first();
	struct {
		const char *what;
		int opcode;
		uint32_t bytes, lkey;
		int mr_access, status;
	} t[] = {
		{"no such key", WR_RDMA_WRITE, 8, 0xdead, 0, WC_LOC_PROT_ERR},
		{"past the end", WR_RDMA_WRITE, 65537, 0, 0, WC_LOC_PROT_ERR},
		{"read into what is not writable", WR_RDMA_READ, 8, 0, ACC_REMOTE_READ, WC_LOC_PROT_ERR},
		{"too long a message", WR_RDMA_WRITE, (1 << 20) + 1, 0, 0, WC_LOC_LEN_ERR},
		{"an atomic of 4 bytes", WR_FETCH_ADD, 4, 0, 0, WC_LOC_LEN_ERR},
	};
	for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
		struct end a, b;
		pair(ctx, &a, &b, (struct options){.mr_access = t[i].mr_access}, plain);
		struct address to = address_of(&b);
		struct ibv_sge sge;
		for (int k = 0; k < 3; k++) /* and those around it */
			if (k == 1) {
				struct ibv_send_wr wr = send_wr(&a, &sge, t[i].opcode, 0, 0, t[i].bytes);
				wr.wr_id = 99;
				if (t[i].lkey)
					sge.lkey = t[i].lkey;
				wr.wr.rdma.remote_addr = to.addr;
				wr.wr.rdma.rkey = to.rkey;
				CHECK(post(&a, &wr) == 0);
			} else
				CHECK(put(&a, to, WR_RDMA_WRITE, k == 0 ? SEND_SIGNALED : 0, 0, 0, 8) == 0);
		CHECK(await(a.cq).status == WC_SUCCESS, "%s: the one before", t[i].what);
		struct ibv_wc wc = await(a.cq);
		CHECK(wc.status == t[i].status && wc.wr_id == 99, "%s: %d", t[i].what, wc.status);
		CHECK(await(a.cq).status == WC_WR_FLUSH_ERR, "%s: the one behind", t[i].what);
		CHECK(state_of(&b) == QPS_RTS); /* it has not heard of it */
		free_end(&a);
		free_end(&b);
	}
	CHECK(ibv_close_device(ctx) == 0);
}

/* Everything outstanding ends, also what is not signalled, in order, and what
 * is posted afterwards; of failed completions most fields are noise. */
static void flushes(void)
{
	struct ibv_context *ctx = open_first();
	struct end a, b;
	pair(ctx, &a, &b, plain, plain);
	struct address to = address_of(&b);
	for (int i = 0; i < 10; i++)
		CHECK(receive(&a, 500 + (uint64_t)i, 0, 64) == 0);
	ask("hold 1");
	for (size_t i = 0; i < 20; i++)
		CHECK(put(&a, to, WR_RDMA_WRITE, i % 2 ? SEND_SIGNALED : 0, i, i, 1) == 0);
	CHECK(quiet(a.cq, 5));
	struct ibv_qp_attr err = {.qp_state = QPS_ERR};
	CHECK(ibv_modify_qp(a.qp, &err, QP_STATE) == 0);
	int opcodes = 0;
	for (uint64_t i = 0; i < 30; i++) {
		struct ibv_wc wc = await(a.cq);
		CHECK(wc.status == WC_WR_FLUSH_ERR && wc.qp_num == a.qp->qp_num && wc.wr_id == (i < 20 ? 1000 + i : 480 + i), "%d: %d", (int)i, (int)wc.wr_id);
		opcodes += wc.opcode != WC_RDMA_WRITE;
	}
	CHECK(opcodes > 10, "failed completions look as if they had an opcode");
	CHECK(put(&a, to, WR_RDMA_WRITE, 0, 0, 0, 1) == 0 && await(a.cq).status == WC_WR_FLUSH_ERR);
	CHECK(receive(&a, 7, 0, 64) == 0 && await(a.cq).wr_id == 7);
	CHECK(quiet(a.cq, 5));
	ask("hold 0");
	/* The peer's sends find nobody. */
	CHECK(put(&b, address_of(&a), WR_RDMA_WRITE, SEND_SIGNALED, 0, 0, 1) == 0);
	CHECK(await(b.cq).status == WC_RETRY_EXC_ERR);
	free_end(&a);
	free_end(&b);
	CHECK(ibv_close_device(ctx) == 0);
}

static void overruns(void)
{
	struct ibv_context *ctx = open_first();
	struct end a, b;
	pair(ctx, &a, &b, (struct options){.cqe = 2}, plain);
	struct address to = address_of(&b);
	for (int i = 0; i < 4; i++)
		CHECK(put(&a, to, WR_RDMA_WRITE, SEND_SIGNALED, 0, 0, 1) == 0);
	CHECK(await_event(ctx) == EV_CQ_ERR);
	CHECK(await_event(ctx) == EV_QP_FATAL);
	CHECK(state_of(&a) == QPS_ERR);
	free_end(&a);
	free_end(&b);
	CHECK(ibv_close_device(ctx) == 0);
}

/* Without a receive the sender tries as often as it was told. */
static void not_ready(void)
{
	struct ibv_context *ctx = open_first();
	for (int imm = 0; imm < 2; imm++) {
		int opcode = imm ? WR_RDMA_WRITE_WITH_IMM : WR_SEND;
		struct end a, b;
		pair(ctx, &a, &b, plain, plain);
		CHECK(put(&a, address_of(&b), opcode, 0, 0, 0, 5000) == 0);
		CHECK(await(a.cq).status == WC_RNR_RETRY_EXC_ERR);
		CHECK(state_of(&b) == QPS_RTS);
		free_end(&a);
		free_end(&b);

		pair(ctx, &a, &b, (struct options){.rnr_retry = 7}, plain);
		struct address to = address_of(&b);
		for (int i = 0; i < 5000; i++)
			a.buf[i] = (unsigned char)i;
		for (int i = 0; i < 5; i++) /* one waits, and those behind it */
			CHECK(put(&a, to, i % 2 ? WR_RDMA_WRITE : opcode, SEND_SIGNALED, 0, 8192, 5000) == 0);
		CHECK(quiet(a.cq, 20));
		for (int i = 0; i < 3; i++) {
			CHECK(receive(&b, (uint64_t)i, 0, 8000) == 0);
			CHECK(await(b.cq).wr_id == (uint64_t)i);
		}
		for (int i = 0; i < 5; i++)
			CHECK(await(a.cq).status == WC_SUCCESS);
		CHECK(memcmp(b.buf + (imm ? 8192 : 0), a.buf, 5000) == 0);
		CHECK(quiet(b.cq, 5));
		free_end(&a);
		free_end(&b);
	}
	CHECK(ibv_close_device(ctx) == 0);
}

static void bad_receives(void)
{
	struct ibv_context *ctx = open_first();
	struct end a, b;
	pair(ctx, &a, &b, plain, plain);
	CHECK(receive(&b, 1, 0, 99) == 0 && receive(&b, 2, 0, 99) == 0);
	CHECK(put(&a, address_of(&b), WR_SEND, 0, 0, 0, 100) == 0);
	struct ibv_wc wc = await(b.cq);
	CHECK(wc.status == WC_LOC_LEN_ERR && wc.wr_id == 1);
	wc = await(b.cq);
	CHECK(wc.status == WC_WR_FLUSH_ERR && wc.wr_id == 2);
	CHECK(await(a.cq).status == WC_REM_INV_REQ_ERR);
	free_end(&a);
	free_end(&b);

	pair(ctx, &a, &b, plain, (struct options){.mr_access = ACC_REMOTE_READ}); /* not to be written locally */
	CHECK(receive(&b, 1, 0, 100) == 0);
	CHECK(put(&a, address_of(&b), WR_SEND, 0, 0, 0, 100) == 0);
	CHECK(await(b.cq).status == WC_LOC_PROT_ERR);
	CHECK(await(a.cq).status == WC_REM_OP_ERR);
	free_end(&a);
	free_end(&b);
	CHECK(ibv_close_device(ctx) == 0);
}

/* Ends that do not agree on how they are connected. */
static void mismatches(void)
{
	struct ibv_context *ctx = open_first();
	for (int kind = 0; kind < 4; kind++) {
		struct end a = make_end(ctx, plain), b = make_end(ctx, plain);
		struct address to = address_of(&b), from = address_of(&a);
		connect_end(&a, to);
		struct ibv_qp_attr attr = init_attr(&b);
		CHECK(ibv_modify_qp(b.qp, &attr, RC_INIT) == 0);
		attr = rtr_attr(&b, from);
		if (kind == 0)
			attr.rq_psn = PSN + 1;
		if (kind == 1)
			attr.dest_qp_num = from.qpn + 1;
		if (kind == 2) { /* another address of the same port */
			attr.ah_attr.grh.sgid_index = 1;
			CHECK(ibv_query_gid(ctx, 1, 1, &attr.ah_attr.grh.dgid) == 0);
		}
		if (kind == 3)
			attr.path_mtu = MTU_512;
		CHECK(ibv_modify_qp(b.qp, &attr, RC_RTR) == 0);
		if (kind == 3) { /* one packet does not show it */
			CHECK(put(&a, to, WR_RDMA_WRITE, SEND_SIGNALED, 0, 0, 500) == 0);
			CHECK(await(a.cq).status == WC_SUCCESS);
		}
		CHECK(put(&a, to, WR_RDMA_WRITE, SEND_SIGNALED, 0, 0, 600) == 0);
		struct ibv_wc wc = await(a.cq);
		CHECK(wc.status == (kind == 3 ? WC_REM_INV_REQ_ERR : WC_RETRY_EXC_ERR), "%d: %d", kind, wc.status);
		if (kind == 3)
			CHECK(await_event(ctx) == EV_COMM_EST && await_event(ctx) == EV_QP_REQ_ERR);
		free_end(&a);
		free_end(&b);
	}
	CHECK(ibv_close_device(ctx) == 0);
}

/* What tests can make happen. */
static void injections(void)
{
	struct ibv_context *ctx = open_first();
	struct end a, b;
	for (int status = 1; status < WC_STATUS_COUNT; status++) {
		pair(ctx, &a, &b, plain, plain);
		ask("fail %u send 3 %d 0", a.qp->qp_num, status);
		for (size_t i = 0; i < 4; i++)
			CHECK(put(&a, address_of(&b), WR_RDMA_WRITE, SEND_SIGNALED, i, i, 1) == 0);
		for (int i = 0; i < 4; i++) {
			struct ibv_wc wc = await(a.cq);
			CHECK(wc.status == (i < 2 ? WC_SUCCESS : i == 2 ? status : WC_WR_FLUSH_ERR), "%d of %d: %d", i, status, wc.status);
		}
		free_end(&a);
		free_end(&b);
	}
	/* The peer may have what the sender believes lost. */
	pair(ctx, &a, &b, plain, plain);
	ask("fail %u send 1 %d 1", a.qp->qp_num, WC_RETRY_EXC_ERR);
	a.buf[0] = 9;
	CHECK(receive(&b, 1, 0, 0) == 0);
	CHECK(put(&a, address_of(&b), WR_RDMA_WRITE_WITH_IMM, 0, 0, 100, 1) == 0);
	CHECK(await(a.cq).status == WC_RETRY_EXC_ERR);
	CHECK(await(b.cq).status == WC_SUCCESS && b.buf[100] == 9);
	free_end(&a);
	free_end(&b);

	pair(ctx, &a, &b, plain, plain);
	ask("fail %u recv 2 %d 0", b.qp->qp_num, WC_LOC_PROT_ERR);
	CHECK(receive(&b, 1, 0, 8) == 0 && receive(&b, 2, 0, 8) == 0 && receive(&b, 3, 0, 8) == 0);
	CHECK(put(&a, address_of(&b), WR_SEND, SEND_SIGNALED, 0, 0, 1) == 0 && await(a.cq).status == WC_SUCCESS && await(b.cq).status == WC_SUCCESS);
	CHECK(put(&a, address_of(&b), WR_SEND, SEND_SIGNALED, 0, 0, 1) == 0 && await(a.cq).status == WC_REM_OP_ERR);
	CHECK(await(b.cq).status == WC_LOC_PROT_ERR && await(b.cq).status == WC_WR_FLUSH_ERR);
	free_end(&a);
	free_end(&b);

	pair(ctx, &a, &b, plain, plain);
	CHECK(receive(&b, 1, 0, 8) == 0);
	ask("kill %u", b.qp->qp_num);
	CHECK(await_event(ctx) == EV_QP_FATAL && await(b.cq).status == WC_WR_FLUSH_ERR && state_of(&b) == QPS_ERR);
	CHECK(put(&a, address_of(&b), WR_RDMA_WRITE, 0, 0, 0, 1) == 0 && await(a.cq).status == WC_RETRY_EXC_ERR);
	ask("event %d %u", EV_PATH_MIG, a.qp->qp_num);
	CHECK(await_event(ctx) == EV_PATH_MIG);
	ask("event %d 0", EV_GID_CHANGE);
	CHECK(await_event(ctx) == EV_GID_CHANGE);
	ask("event %d %u", EV_CQ_ERR, b.qp->qp_num);
	CHECK(await_event(ctx) == EV_CQ_ERR);
	free_end(&a);
	free_end(&b);

	/* Held before its end a message is there and has not completed. */
	pair(ctx, &a, &b, plain, plain);
	ask("hold 2");
	memset(a.buf, 3, 20000);
	CHECK(put(&a, address_of(&b), WR_RDMA_WRITE, SEND_SIGNALED, 0, 0, 20000) == 0);
	CHECK(quiet(a.cq, 30));
	ask("hold 0");
	CHECK(await(a.cq).status == WC_SUCCESS && b.buf[19999] == 3);
	ask("hold 4");
	CHECK(put(&a, address_of(&b), WR_RDMA_WRITE, SEND_SIGNALED, 0, 20000, 20000) == 0);
	while (((volatile unsigned char *)b.buf)[39999] != 3)
		;
	CHECK(quiet(a.cq, 20));
	ask("hold 0");
	CHECK(await(a.cq).status == WC_SUCCESS);
	free_end(&a);
	free_end(&b);

	pair(ctx, &a, &b, plain, plain);
	ask("delay 100");
	double before = seconds();
	CHECK(put(&a, address_of(&b), WR_RDMA_WRITE, SEND_SIGNALED, 0, 0, 1) == 0);
	CHECK(await(a.cq).status == WC_SUCCESS && seconds() - before >= 0.05);
	ask("delay 0");
	free_end(&a);
	free_end(&b);

	pair(ctx, &a, &b, plain, plain);
	ask("event %d 0", EV_DEVICE_FATAL);
	CHECK(await_event(ctx) == EV_DEVICE_FATAL);
	CHECK(put(&a, address_of(&b), WR_RDMA_WRITE, SEND_SIGNALED, 0, 0, 1) == EIO);
	CHECK(state_of(&a) == QPS_ERR);
	free_end(&a);
	free_end(&b);
	CHECK(ibv_close_device(ctx) == 0);
}

static void draining(void)
{
	struct ibv_context *ctx = open_first();
	struct end a, b;
	pair(ctx, &a, &b, plain, plain);
	struct address to = address_of(&b);
	ask("hold 4");
	CHECK(put(&a, to, WR_RDMA_WRITE, SEND_SIGNALED, 0, 0, 9000) == 0);
	usleep(10000); /* it has begun */
	struct ibv_qp_attr sqd = {.qp_state = QPS_SQD, .en_sqd_async_notify = 1}, rts = {.qp_state = QPS_RTS};
	CHECK(ibv_modify_qp(a.qp, &sqd, QP_STATE | QP_EN_SQD_ASYNC_NOTIFY) == 0);
	CHECK(put(&a, to, WR_RDMA_WRITE, SEND_SIGNALED, 1, 0, 8) == 0);
	CHECK(quiet(a.cq, 10) && !event_waits(ctx));
	ask("hold 0");
	CHECK(await(a.cq).wr_id == 1000);
	CHECK(await_event(ctx) == EV_SQ_DRAINED);
	CHECK(quiet(a.cq, 10));
	CHECK(ibv_modify_qp(a.qp, &rts, QP_STATE) == 0);
	CHECK(await(a.cq).wr_id == 1001);
	free_end(&a);
	free_end(&b);
	CHECK(ibv_close_device(ctx) == 0);
}

/* A test that asks for what there is not shall hear of it. */
static void nonsense(void)
{
	struct ibv_context *ctx = open_first();
	ask("nonsense");
	CHECK(ibv_close_device(ctx) == 0);
}

const struct test failures[] = {
	{"nonsense", nonsense},
	{"access", access_rights}, {"local-faults", local_faults}, {"flushes", flushes},       {"overruns", overruns}, {"not-ready", not_ready},
	{"bad-receives", bad_receives}, {"mismatches", mismatches}, {"injections", injections}, {"draining", draining}, {NULL, NULL},
};
