/* What calls refuse, and what the objects demand. */
#include "harness.h"

static const struct options plain;

/* Every attribute of every change of state is needed, and no other allowed. */
static void masks(void)
{
	struct ibv_context *ctx = open_first();
	struct end e = make_end(ctx, plain);
	struct address self = address_of(&e);
	struct ibv_qp_attr attr[3] = {init_attr(&e), rtr_attr(&e, self), rts_attr(&e)};
	const int need[3] = {RC_INIT, RC_RTR, RC_RTS};
	for (int step = 0; step < 3; step++) {
		for (int bit = 1; bit <= QP_DEST_QPN; bit <<= 1)
			if (bit != QP_STATE && need[step] & bit)
				CHECK(ibv_modify_qp(e.qp, &attr[step], need[step] & ~bit) == EINVAL, "step %d without %#x", step, bit);
		CHECK(ibv_modify_qp(e.qp, &attr[step], need[step] | QP_QKEY) == EINVAL);
		if (step > 0) {
			struct ibv_qp_attr skip = attr[step];
			skip.qp_state = QPS_SQD;
			CHECK(ibv_modify_qp(e.qp, &skip, QP_STATE) == EINVAL);
		}
		int err = ibv_modify_qp(e.qp, &attr[step], need[step]);
		CHECK(err == 0, "%s", strerror(err));
		CHECK(state_of(&e) == QPS_INIT + step && e.qp->state == QPS_INIT + step);
	}
	struct ibv_qp_attr reset = {.qp_state = QPS_RESET};
	CHECK(ibv_modify_qp(e.qp, &reset, QP_STATE | QP_ACCESS_FLAGS) == EINVAL);
	CHECK(ibv_modify_qp(e.qp, &reset, QP_STATE) == 0);
	connect_end(&e, self); /* it can be used again */
	free_end(&e);
	CHECK(ibv_close_device(ctx) == 0);
}

static void values(void)
{
	struct ibv_context *ctx = open_first();
	struct end e = make_end(ctx, plain);
	struct address self = address_of(&e);
	struct ibv_qp_attr a = init_attr(&e);
	a.port_num = 9;
	CHECK(ibv_modify_qp(e.qp, &a, RC_INIT) == EINVAL);
	a = init_attr(&e);
	CHECK(ibv_modify_qp(e.qp, &a, RC_INIT) == 0);
#define REFUSED(change, errno_)                                                       \
	do {                                                                          \
		a = rtr_attr(&e, self);                                               \
		change;                                                               \
		int err_ = ibv_modify_qp(e.qp, &a, RC_RTR);                           \
		CHECK(err_ == errno_, "%s gives %d", #change, err_);                   \
	} while (0)
	REFUSED(a.ah_attr.grh.sgid_index = 9, EINVAL);  /* an empty entry */
	REFUSED(a.ah_attr.grh.sgid_index = 99, EINVAL); /* beyond the table */
	REFUSED(a.ah_attr.grh.sgid_index = 1, EINVAL);  /* IPv6 to IPv4 */
	REFUSED(a.ah_attr.is_global = 0, EINVAL);       /* RoCE needs it */
	REFUSED(a.ah_attr.port_num = 2, EINVAL);        /* not the queue pair's */
	REFUSED(memset(&a.ah_attr.grh.dgid, 0, 16), EINVAL);
	REFUSED(a.ah_attr.grh.dgid.raw[12] = 8, ETIMEDOUT); /* nobody's */
	REFUSED(a.path_mtu = 6, EINVAL);
	REFUSED(a.max_dest_rd_atomic = 5, EINVAL);
	REFUSED(a.dest_qp_num = 1 << 24, EINVAL);
	a = rtr_attr(&e, self);
	CHECK(ibv_modify_qp(e.qp, &a, RC_RTR) == 0);
	/* Not to send yet. */
	CHECK(put(&e, self, WR_RDMA_WRITE, SEND_SIGNALED, 0, 64, 8) == EINVAL);
	free_end(&e);
	CHECK(ibv_close_device(ctx) == 0);
}

static void limits(void)
{
	struct ibv_context *ctx = open_first();
	struct ibv_device_attr d;
	CHECK(ibv_query_device(ctx, &d) == 0);
	CHECK(d.max_qp_wr == 1024 && d.max_sge == 4);
	struct ibv_port_attr p;
	memset(&p, 0xee, sizeof p);
	CHECK(ibv_query_port(ctx, 1, &p) == 0);
	CHECK(p.state == PORT_ACTIVE && p.link_layer == LINK_LAYER_ETHERNET && p.max_msg_sz == 1 << 20);
	CHECK(p.port_cap_flags2 == 0xeeee, "the exported call knows only the old structure");
	CHECK(ibv_query_port(ctx, 0, &p) == EINVAL && ibv_query_port(ctx, 2, &p) == EINVAL);

	struct end e = make_end(ctx, plain);
	struct ibv_qp_init_attr a = {.send_cq = e.cq, .recv_cq = e.cq, .qp_type = QPT_RC, .cap = {1025, 1, 1, 1, 0}};
	CHECK(!ibv_create_qp(e.pd, &a) && errno == EINVAL);
	a.cap = (struct ibv_qp_cap){8, 8, 5, 1, 0};
	CHECK(!ibv_create_qp(e.pd, &a) && errno == EINVAL);
	a.cap = (struct ibv_qp_cap){8, 8, 1, 1, 221};
	CHECK(!ibv_create_qp(e.pd, &a) && errno == EINVAL);
	a.qp_type = QPT_UC;
	a.cap = (struct ibv_qp_cap){8, 8, 1, 1, 0};
	CHECK(!ibv_create_qp(e.pd, &a) && errno == EINVAL);
	CHECK(!ibv_create_cq(ctx, 0, NULL, NULL, 0) && errno == EINVAL);
	CHECK(!ibv_create_cq(ctx, 1 << 20, NULL, NULL, 0) && errno == EINVAL);
	CHECK(!ibv_create_cq(ctx, 1, NULL, NULL, 2) && errno == EINVAL);

	/* Memory that is not there, or must not be written, or rights that do
	 * not go together. */
	CHECK(!ibv_reg_mr(e.pd, (void *)4096, 4096, ACC_LOCAL_WRITE) && errno == EFAULT);
	CHECK(!ibv_reg_mr(e.pd, (void *)"constant", 4, ACC_LOCAL_WRITE) && errno == EFAULT);
	CHECK(!ibv_reg_mr(e.pd, e.buf, 4096, ACC_REMOTE_WRITE) && errno == EINVAL);
	CHECK(!ibv_reg_mr(e.pd, e.buf, 0, ACC_LOCAL_WRITE) && errno == EINVAL);
	CHECK(e.mr->lkey != e.mr->rkey, "who mixes them up should notice");
	free_end(&e);
	CHECK(ibv_close_device(ctx) == 0);
}

static void gids(void)
{
	struct ibv_context *ctx = open_first();
	struct ibv_gid_entry t[16], one;
	ssize_t n = _ibv_query_gid_table(ctx, t, 16, 0, sizeof *t);
	CHECK(n == 6);
	int v4 = 0, local = 0;
	for (int i = 0; i < n; i++) {
		CHECK(_ibv_query_gid_ex(ctx, 1, t[i].gid_index, &one, 0, sizeof one) == 0 && memcmp(&one, &t[i], sizeof one) == 0);
		v4 += t[i].gid_type == GID_TYPE_ROCE_V2 && t[i].gid.raw[10] == 0xff && t[i].gid.raw[0] == 0;
		local += t[i].gid_type == GID_TYPE_ROCE_V2 && t[i].gid.raw[0] == 0xfe;
	}
	CHECK(v4 == 1 && local == 1);
	CHECK(_ibv_query_gid_ex(ctx, 1, 9, &one, 0, sizeof one) == ENODATA);
	CHECK(_ibv_query_gid_ex(ctx, 1, 16, &one, 0, sizeof one) == EINVAL);
	CHECK(_ibv_query_gid_table(ctx, t, 3, 0, sizeof *t) == -EINVAL);
	union ibv_gid g;
	CHECK(ibv_query_gid(ctx, 1, 9, &g) == 0 && g.half[0] == 0 && g.half[1] == 0);
	CHECK(ibv_query_gid(ctx, 1, 16, &g) == -1);
	CHECK(ibv_close_device(ctx) == 0);
}

/* Slots come back when a later completion is polled, not when the work is
 * done. */
static void slots(void)
{
	struct ibv_context *ctx = open_first();
	struct end a, b;
	pair(ctx, &a, &b, (struct options){.depth = 4}, plain);
	struct address to = address_of(&b);
	for (int i = 0; i < 4; i++) {
		a.buf[i] = (unsigned char)(i + 1);
		CHECK(put(&a, to, WR_RDMA_WRITE, i == 2 ? SEND_SIGNALED : 0, (size_t)i, (size_t)i, 1) == 0);
	}
	while (((volatile unsigned char *)b.buf)[3] != 4)
		;
	usleep(20000); /* done, acknowledged, completed: and not polled */
	CHECK(put(&a, to, WR_RDMA_WRITE, 0, 0, 0, 1) == ENOMEM);
	CHECK(await(a.cq).wr_id == 1002);
	for (int i = 0; i < 3; i++)
		CHECK(put(&a, to, WR_RDMA_WRITE, i == 2 ? SEND_SIGNALED : 0, 0, 0, 1) == 0);
	CHECK(put(&a, to, WR_RDMA_WRITE, 0, 0, 0, 1) == ENOMEM);
	CHECK(await(a.cq).status == WC_SUCCESS);
	CHECK(quiet(a.cq, 5));

	/* A list stops at the first that finds no slot, and says which. */
	struct ibv_sge sge;
	struct ibv_send_wr w[6], *bad = NULL;
	for (int i = 0; i < 6; i++) {
		w[i] = send_wr(&a, &sge, WR_RDMA_WRITE, SEND_SIGNALED, 0, 1);
		w[i].wr.rdma.remote_addr = to.addr;
		w[i].wr.rdma.rkey = to.rkey;
		w[i].next = i < 5 ? &w[i + 1] : NULL;
	}
	CHECK(ctx->ops.post_send(a.qp, w, &bad) == ENOMEM && bad == &w[4]);
	for (int i = 0; i < 4; i++)
		CHECK(await(a.cq).status == WC_SUCCESS);

	/* Receives likewise. */
	for (int i = 0; i < 4; i++)
		CHECK(receive(&a, 1, 0, 8) == 0);
	CHECK(receive(&a, 1, 0, 8) == ENOMEM);
	CHECK(put(&b, to, WR_SEND, SEND_SIGNALED, 0, 0, 8) == 0);
	CHECK(await(b.cq).status == WC_SUCCESS);
	CHECK(receive(&a, 1, 0, 8) == ENOMEM);
	CHECK(await(a.cq).status == WC_SUCCESS);
	CHECK(receive(&a, 1, 0, 8) == 0);
	free_end(&a);
	free_end(&b);
	CHECK(ibv_close_device(ctx) == 0);
}

static void inlines(void)
{
	struct ibv_context *ctx = open_first();
	struct end a, b;
	pair(ctx, &a, &b, (struct options){.inline_data = 60}, plain);
	struct address to = address_of(&b);
	CHECK(put(&a, to, WR_RDMA_WRITE, SEND_INLINE, 0, 0, 61) == EINVAL);
	CHECK(put(&a, to, WR_RDMA_READ, SEND_INLINE, 0, 0, 8) == EINVAL);
	/* The buffer is the program's again at once, and needs no key. */
	for (int i = 0; i < 100; i++) {
		memset(a.buf, i, 60);
		struct ibv_sge sge = {(uintptr_t)a.buf, 60, 0xdead};
		struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = WR_RDMA_WRITE, .send_flags = SEND_INLINE | SEND_SIGNALED};
		wr.wr.rdma.remote_addr = to.addr + (size_t)i * 64;
		wr.wr.rdma.rkey = to.rkey;
		CHECK(post(&a, &wr) == 0);
		memset(a.buf, 0xff, 60);
		CHECK(await(a.cq).status == WC_SUCCESS);
	}
	for (int i = 0; i < 100; i++)
		for (int k = 0; k < 60; k++)
			CHECK(b.buf[i * 64 + k] == i);
	free_end(&a);
	free_end(&b);
	CHECK(ibv_close_device(ctx) == 0);
}

/* Nothing goes while something stands on it. */
static void order_of_destruction(void)
{
	struct ibv_context *ctx = open_first();
	struct end e = make_end(ctx, (struct options){.channel = true, .srq = 8});
	ask("objects 1 1 1 1 1 1 0 1");
	CHECK(ibv_dealloc_pd(e.pd) == EBUSY);
	CHECK(ibv_destroy_cq(e.cq) == EBUSY);
	CHECK(ibv_destroy_srq(e.srq) == EBUSY);
	CHECK(ibv_destroy_comp_channel(e.channel) == EBUSY);
	CHECK(ibv_destroy_qp(e.qp) == 0);
	CHECK(ibv_destroy_srq(e.srq) == 0);
	CHECK(ibv_dealloc_pd(e.pd) == EBUSY);
	CHECK(ibv_dereg_mr(e.mr) == 0);
	struct ibv_ah_attr aa = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = GID}};
	CHECK(ibv_query_gid(ctx, 1, GID, &aa.grh.dgid) == 0);
	struct ibv_ah *ah = ibv_create_ah(e.pd, &aa);
	CHECK(ah);
	CHECK(ibv_dealloc_pd(e.pd) == EBUSY);
	ask("objects 1 1 0 1 0 0 1 1");
	CHECK(ibv_destroy_ah(ah) == 0);
	aa.is_global = 0;
	CHECK(!ibv_create_ah(e.pd, &aa) && errno == EINVAL);
	CHECK(ibv_destroy_comp_channel(e.channel) == EBUSY);
	CHECK(ibv_destroy_cq(e.cq) == 0);
	CHECK(ibv_destroy_comp_channel(e.channel) == 0);
	CHECK(ibv_dealloc_pd(e.pd) == 0);
	ask("objects 1 0 0 0 0 0 0 0");
	CHECK(ibv_close_device(ctx) == 0);
	ask("objects 0 0 0 0 0 0 0 0");
	free(e.buf);
}

static _Atomic bool gone;

static void *destroy(void *cq)
{
	CHECK(ibv_destroy_cq(cq) == 0);
	gone = true;
	return NULL;
}

static void channels(void)
{
	struct ibv_context *ctx = open_first();
	struct end a, b;
	pair(ctx, &a, &b, (struct options){.channel = true}, (struct options){.channel = true, .rnr_retry = 7});
	struct address to = address_of(&a);
	struct ibv_cq *cq;
	void *context;
	struct ibv_wc wc;
#define ARM(solicited) CHECK(ctx->ops.req_notify_cq(a.cq, solicited) == 0)
#define WAITS() (poll_fds(a.channel->fd, 0) == 1)
#define SEND(flags)                                                          \
	do {                                                                 \
		CHECK(receive(&a, 7, 0, 64) == 0);                           \
		CHECK(put(&b, to, WR_SEND, SEND_SIGNALED | flags, 0, 0, 8) == 0); \
		CHECK(await(b.cq).status == WC_SUCCESS);                     \
		usleep(2000);                                                \
	} while (0)
	SEND(0);
	CHECK(!WAITS());
	ARM(0); /* what has come already makes no event */
	usleep(2000);
	CHECK(!WAITS());
	SEND(0);
	CHECK(WAITS());
	CHECK(ibv_get_cq_event(a.channel, &cq, &context) == 0 && cq == a.cq);
	SEND(0); /* one event for one arming */
	CHECK(!WAITS());
	CHECK(poll_cq(a.cq, 1, &wc) == 1 && poll_cq(a.cq, 1, &wc) == 1 && poll_cq(a.cq, 1, &wc) == 1);

	ARM(1);
	SEND(0);
	CHECK(!WAITS());
	SEND(SEND_SOLICITED);
	CHECK(WAITS());
	CHECK(ibv_get_cq_event(a.channel, &cq, &context) == 0);
	ARM(1);
	ARM(0); /* the wider one counts */
	SEND(0);
	CHECK(WAITS());
	CHECK(ibv_get_cq_event(a.channel, &cq, &context) == 0);
	ARM(1);
	ARM(0);
	ARM(1);
	SEND(0);
	CHECK(WAITS()); /* and is not narrowed; nobody reads this one */

	/* A failure counts as solicited. */
	ARM(1);
	struct ibv_qp_attr err = {.qp_state = QPS_ERR};
	CHECK(receive(&a, 8, 0, 64) == 0);
	CHECK(ibv_modify_qp(a.qp, &err, QP_STATE) == 0);
	usleep(10000);
	CHECK(WAITS());

	/* Three have been handed out and none acknowledged: destroying waits.
	 * Those that nobody has read go with the queue. */
	CHECK(ibv_destroy_qp(a.qp) == 0);
	a.qp = NULL;
	pthread_t t;
	CHECK(pthread_create(&t, NULL, destroy, a.cq) == 0);
	usleep(20000);
	CHECK(!gone);
	ibv_ack_cq_events(a.cq, 2);
	usleep(20000);
	CHECK(!gone);
	ibv_ack_cq_events(a.cq, 1);
	CHECK(pthread_join(t, NULL) == 0);
	CHECK(!WAITS());
	CHECK(ibv_destroy_comp_channel(a.channel) == 0);
	CHECK(ibv_dereg_mr(a.mr) == 0 && ibv_dealloc_pd(a.pd) == 0);
	free(a.buf);
	free_end(&b);
	CHECK(ibv_close_device(ctx) == 0);
}

const struct test rules[] = {
	{"masks", masks},       {"values", values},   {"limits", limits}, {"gids", gids}, {"slots", slots}, {"inlines", inlines},
	{"destruction", order_of_destruction}, {"channels", channels}, {NULL, NULL},
};
