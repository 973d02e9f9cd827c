#include "harness.h"

#include <poll.h>


#include <stdarg.h>
#include <time.h>

enum { PATIENCE = 20 };

double seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

struct ibv_context *open_first(void)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	CHECK(list && n >= 1);
	struct ibv_context *ctx = ibv_open_device(list[0]);
	CHECK(ctx, "%s", strerror(errno));
	ibv_free_device_list(list);
	return ctx;
}

struct end make_end(struct ibv_context *ctx, struct options o)
{
	const int all = ACC_LOCAL_WRITE | ACC_REMOTE_WRITE | ACC_REMOTE_READ | ACC_REMOTE_ATOMIC;
	o.type = o.type ? o.type : QPT_RC;
	o.depth = o.depth ? o.depth : 64;
	o.cqe = o.cqe ? o.cqe : 512;
	o.bytes = o.bytes ? o.bytes : 1 << 16;
	o.qp_access = o.qp_access ? o.qp_access : all;
	o.mr_access = o.mr_access ? o.mr_access : all;
	o.timeout = o.timeout ? o.timeout : 12;
	o.sges = o.sges ? o.sges : 4;
	struct end e = {.ctx = ctx, .o = o};
	CHECK(e.pd = ibv_alloc_pd(ctx));
	if (o.channel)
		CHECK(e.channel = ibv_create_comp_channel(ctx));
	CHECK(e.cq = ibv_create_cq(ctx, o.cqe, NULL, e.channel, 0));
	if (o.srq) {
		struct ibv_srq_init_attr a = {.attr = {.max_wr = (uint32_t)o.srq, .max_sge = 4}};
		CHECK(e.srq = ibv_create_srq(e.pd, &a));
	}
	struct ibv_qp_init_attr a = {
		.send_cq = e.cq,
		.recv_cq = e.cq,
		.srq = e.srq,
		.qp_type = o.type,
		.cap = {(uint32_t)o.depth, (uint32_t)o.depth, (uint32_t)o.sges, (uint32_t)o.sges, (uint32_t)o.inline_data},
	};
	CHECK(e.qp = ibv_create_qp(e.pd, &a), "%s", strerror(errno));
	CHECK(e.buf = aligned_alloc(4096, o.bytes));
	memset(e.buf, 0, o.bytes);
	CHECK(e.mr = ibv_reg_mr(e.pd, e.buf, o.bytes, o.mr_access), "%s", strerror(errno));
	return e;
}

void free_end(struct end *e)
{
	int err;
	if (e->mr)
		CHECK((err = ibv_dereg_mr(e->mr)) == 0, "%d", err);
	if (e->qp)
		CHECK((err = ibv_destroy_qp(e->qp)) == 0, "%d", err);
	if (e->srq)
		CHECK((err = ibv_destroy_srq(e->srq)) == 0, "%d", err);
	CHECK((err = ibv_destroy_cq(e->cq)) == 0, "%d", err);
	if (e->channel)
		CHECK((err = ibv_destroy_comp_channel(e->channel)) == 0, "%d", err);
	CHECK((err = ibv_dealloc_pd(e->pd)) == 0, "%d", err);
	free(e->buf);
}

struct address address_of(struct end *e)
{
	struct address a = {.qpn = e->qp->qp_num, .rkey = e->mr->rkey, .addr = (uintptr_t)e->buf};
	CHECK(ibv_query_gid(e->ctx, 1, GID, &a.gid) == 0);
	return a;
}

struct ibv_qp_attr init_attr(struct end *e)
{
	return (struct ibv_qp_attr){.qp_state = QPS_INIT, .port_num = 1, .qp_access_flags = (unsigned)e->o.qp_access, .qkey = QKEY};
}

struct ibv_qp_attr rtr_attr(struct end *e, struct address peer)
{
	(void)e;
	struct ibv_qp_attr a = {
		.qp_state = QPS_RTR,
		.path_mtu = MTU_1024,
		.dest_qp_num = peer.qpn,
		.rq_psn = PSN,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = GID, .hop_limit = 64}},
	};
	a.ah_attr.grh.dgid = peer.gid;
	return a;
}

struct ibv_qp_attr rts_attr(struct end *e)
{
	return (struct ibv_qp_attr){
		.qp_state = QPS_RTS,
		.sq_psn = PSN,
		.timeout = (uint8_t)e->o.timeout,
		.retry_cnt = 2,
		.rnr_retry = (uint8_t)e->o.rnr_retry,
		.max_rd_atomic = 4,
	};
}

void connect_end(struct end *e, struct address peer)
{
	struct ibv_qp_attr a = init_attr(e);
	int err = ibv_modify_qp(e->qp, &a, e->o.type == QPT_UD ? QP_STATE | QP_PKEY_INDEX | QP_PORT | QP_QKEY : RC_INIT);
	CHECK(err == 0, "%s", strerror(err));
	a = rtr_attr(e, peer);
	err = ibv_modify_qp(e->qp, &a, e->o.type == QPT_UD ? QP_STATE : RC_RTR);
	CHECK(err == 0, "%s", strerror(err));
	a = rts_attr(e);
	err = ibv_modify_qp(e->qp, &a, e->o.type == QPT_UD ? QP_STATE | QP_SQ_PSN : RC_RTS);
	CHECK(err == 0, "%s", strerror(err));
}

void pair(struct ibv_context *ctx, struct end *a, struct end *b, struct options oa, struct options ob)
{
	*a = make_end(ctx, oa);
	*b = make_end(ctx, ob);
	connect_end(a, address_of(b));
	connect_end(b, address_of(a));
}

struct ibv_send_wr send_wr(struct end *e, struct ibv_sge *sge, int opcode, int flags, size_t offset, uint32_t bytes)
{
	*sge = (struct ibv_sge){(uintptr_t)e->buf + offset, bytes, e->mr->lkey};
	return (struct ibv_send_wr){.wr_id = 1000 + offset, .sg_list = sge, .num_sge = 1, .opcode = opcode, .send_flags = (unsigned)flags};
}

int post(struct end *e, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	return e->ctx->ops.post_send(e->qp, wr, &bad);
}

int put(struct end *e, struct address to, int opcode, int flags, size_t from, size_t at, uint32_t bytes)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = send_wr(e, &sge, opcode, flags, from, bytes);
	wr.wr.rdma.remote_addr = to.addr + at;
	wr.wr.rdma.rkey = to.rkey;
	wr.imm_data = 0x11223344;
	return post(e, &wr);
}

int receive(struct end *e, uint64_t id, size_t offset, uint32_t bytes)
{
	struct ibv_sge sge = {(uintptr_t)e->buf + offset, bytes, e->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = bytes > 0}, *bad;
	return e->srq ? e->ctx->ops.post_srq_recv(e->srq, &wr, &bad) : e->ctx->ops.post_recv(e->qp, &wr, &bad);
}

int poll_cq(struct ibv_cq *cq, int room, struct ibv_wc *wc) { return cq->context->ops.poll_cq(cq, room, wc); }

struct ibv_wc await(struct ibv_cq *cq)
{
	struct ibv_wc wc = {0};
	for (double end = seconds() + PATIENCE; seconds() < end;)
		if (poll_cq(cq, 1, &wc) == 1)
			return wc;
	CHECK(false, "no completion");
	return wc;
}

bool quiet(struct ibv_cq *cq, int ms)
{
	struct ibv_wc wc;
	for (double end = seconds() + ms / 1e3; seconds() < end;)
		if (poll_cq(cq, 1, &wc) != 0)
			return false;
	return true;
}

int state_of(struct end *e)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr i;
	CHECK(ibv_query_qp(e->qp, &a, QP_STATE, &i) == 0);
	return a.qp_state;
}



int poll_fds(int fd, int ms)
{
	struct pollfd f = {.fd = fd, .events = POLLIN};
	return poll(&f, 1, ms);
}

bool event_waits(struct ibv_context *ctx) { return poll_fds(ctx->async_fd, 0) == 1; }

int await_event(struct ibv_context *ctx)
{
	struct ibv_async_event e;
	CHECK(poll_fds(ctx->async_fd, PATIENCE * 1000) == 1, "no event");
	CHECK(ibv_get_async_event(ctx, &e) == 0);
	int type = e.event_type;
	ibv_ack_async_event(&e);
	return type;
}

void ask(const char *format, ...)
{
	char line[64];
	va_list ap;
	va_start(ap, format);
	printf("ask ");
	vprintf(format, ap);
	printf("\n");
	va_end(ap);
	fflush(stdout);
	CHECK(fgets(line, sizeof line, stdin) && strcmp(line, "done\n") == 0, "the test did not do it");
}

static bool run(const struct test *t, const char *name)
{
	for (; t->name; t++)
		if (strcmp(t->name, name) == 0) {
			t->run();
			return true;
		}
	return false;
}

int main(int argc, char **argv)
{
	const struct test *all[] = {rules, transfers, failures, processes};
	for (int i = 0; i < 4 && argc == 1; i++)
		for (const struct test *t = all[i]; t->name; t++)
			printf("%s\n", t->name);
	for (int i = 1; i < argc; i++) {
		bool found = false;
		for (int k = 0; k < 4 && !found; k++)
			found = run(all[k], argv[i]);
		CHECK(found, "no case %s", argv[i]);
	}
	return 0;
}
