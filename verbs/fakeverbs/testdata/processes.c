/* Two processes: what one sees of the other, and of its end. */
#include "harness.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

static const struct options plain;

/* Runs a function in another process, with which this one exchanges what it
 * likes through a socket. */
static int wire;

static pid_t other(void (*run)(void))
{
	int s[2];
	fflush(stdout);
	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, s) == 0);
	pid_t pid = fork(); /* before any device is open */
	CHECK(pid >= 0);
	wire = s[pid == 0];
	close(s[pid != 0]);
	if (pid == 0) {
		CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0); /* which also ends what is stopped */
		run();
		fflush(stdout);
		exit(0);
	}
	return pid;
}

static struct address swap(struct address mine)
{
	struct address theirs;
	CHECK(send(wire, &mine, sizeof mine, 0) == sizeof mine);
	CHECK(recv(wire, &theirs, sizeof theirs, 0) == sizeof theirs);
	return theirs;
}

static void meet(void) { swap((struct address){0}); }

static void ended_well(pid_t pid)
{
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0, "%x", status);
}

/* Both write to each other and check, with a receive for each message. */
static void talk(void)
{
	struct ibv_context *ctx = open_first();
	struct end e = make_end(ctx, (struct options){.bytes = 1 << 18, .rnr_retry = 7});
	struct address peer = swap(address_of(&e));
	connect_end(&e, peer);
	meet();
	enum { N = 300, MAX = 1 << 16 };
	unsigned turn = 0;
	for (int i = 0; i < N; i++) {
		uint32_t bytes = (uint32_t)(i * 7919 % MAX);
		memset(e.buf, i, bytes);
		CHECK(receive(&e, 1, 0, 0) == 0);
		CHECK(put(&e, peer, WR_RDMA_WRITE, 0, 0, 1 << 17, bytes) == 0);
		CHECK(put(&e, peer, WR_RDMA_WRITE_WITH_IMM, SEND_SIGNALED, 0, 0, 0) == 0);
		for (int k = 0; k < 2; k++)
			CHECK(await(e.cq).status == WC_SUCCESS);
		for (uint32_t k = 0; k < bytes; k++)
			CHECK(e.buf[(1 << 17) + k] == (unsigned char)i, "message %d, byte %u", i, k);
		turn++;
		meet();
	}
	free_end(&e);
	CHECK(ibv_close_device(ctx) == 0);
}

static void talking(void)
{
	pid_t pid = other(talk);
	talk();
	ended_well(pid);
}

static void serve_until_told(void)
{
	struct ibv_context *ctx = open_first();
	struct end e = make_end(ctx, plain);
	connect_end(&e, swap(address_of(&e)));
	meet();
	meet();
	exit(0); /* with everything open */
}

/* A peer that ends, by itself or not, is noticed by who sends. */
static void ending(bool kill_it)
{
	pid_t pid = other(serve_until_told);
	struct ibv_context *ctx = open_first();
	struct end e = make_end(ctx, plain);
	struct address peer = swap(address_of(&e));
	connect_end(&e, peer);
	meet();
	CHECK(put(&e, peer, WR_RDMA_WRITE, SEND_SIGNALED, 0, 0, 60000) == 0 && await(e.cq).status == WC_SUCCESS);
	if (kill_it)
		CHECK(kill(pid, SIGKILL) == 0);
	else
		meet();
	CHECK(waitpid(pid, NULL, 0) == pid);
	for (int i = 0; i < 50; i++) /* more than fits on the wire */
		CHECK(put(&e, peer, WR_RDMA_WRITE, 0, 0, 0, 60000) == 0);
	CHECK(await(e.cq).status == WC_RETRY_EXC_ERR);
	for (int i = 1; i < 50; i++)
		CHECK(await(e.cq).status == WC_WR_FLUSH_ERR);
	free_end(&e);
	CHECK(ibv_close_device(ctx) == 0);
}

static void exiting(void) { ending(false); }
static void killing(void) { ending(true); }

/* A stopped peer is not a dead one. */
static void stopping(void)
{
	pid_t pid = other(serve_until_told);
	struct ibv_context *ctx = open_first();
	struct end e = make_end(ctx, plain);
	struct address peer = swap(address_of(&e));
	connect_end(&e, peer);
	meet();
	CHECK(kill(pid, SIGSTOP) == 0 && waitpid(pid, NULL, WUNTRACED) == pid);
	for (int i = 0; i < 60; i++) /* 3.6 MB, of which the wire takes one */
		CHECK(put(&e, peer, WR_RDMA_WRITE, SEND_SIGNALED, 0, 0, 60000) == 0);
	CHECK(quiet(e.cq, 300));
	CHECK(kill(pid, SIGCONT) == 0);
	for (int i = 0; i < 60; i++)
		CHECK(await(e.cq).status == WC_SUCCESS);
	meet();
	ended_well(pid);
	free_end(&e);
	CHECK(ibv_close_device(ctx) == 0);
}

/* Ports: down for long enough it is an error, and before that it is not, and
 * nothing is done twice. */
static void serve_counting(void)
{
	struct ibv_context *ctx = open_first();
	struct end e = make_end(ctx, plain);
	connect_end(&e, swap(address_of(&e)));
	for (uint64_t i = 0; i < 60; i++)
		CHECK(receive(&e, i, 0, 0) == 0);
	meet();
	for (uint64_t i = 0; i < 3000; i++) {
		struct ibv_wc wc = await(e.cq);
		CHECK(wc.status == WC_SUCCESS && wc.imm_data == i, "receive %d: status %d, number %u", (int)i, wc.status, wc.imm_data);
		CHECK(receive(&e, 0, 0, 0) == 0);
	}
	meet();
	CHECK(*(uint64_t *)(e.buf + 4096) == 3000);
	free_end(&e);
	CHECK(ibv_close_device(ctx) == 0);
}

static void flapping(void)
{
	pid_t pid = other(serve_counting);
	struct ibv_context *ctx = open_first();
	struct end e = make_end(ctx, (struct options){.timeout = 19, .rnr_retry = 7, .depth = 32});
	struct address peer = swap(address_of(&e));
	connect_end(&e, peer);
	meet();
	struct ibv_sge sge;
	for (uint32_t i = 0; i < 3000; i++) {
		/* One of two fails: the own port, or the peer's. */
		if (i % 300 == 100)
			ask("flap %d", i % 600 == 100);
		struct ibv_send_wr add = send_wr(&e, &sge, WR_FETCH_ADD, SEND_SIGNALED, 64, 8);
		add.wr.atomic.remote_addr = peer.addr + 4096;
		add.wr.atomic.rkey = peer.rkey;
		add.wr.atomic.compare_add = 1;
		CHECK(post(&e, &add) == 0);
		struct ibv_sge sge2;
		struct ibv_send_wr w = send_wr(&e, &sge2, WR_RDMA_WRITE_WITH_IMM, SEND_SIGNALED, 0, i * 37 % 3000);
		w.wr.rdma.remote_addr = peer.addr + 8192;
		w.wr.rdma.rkey = peer.rkey;
		w.imm_data = i;
		CHECK(post(&e, &w) == 0);
		for (int k = 0; k < 2; k++) {
			struct ibv_wc wc = await(e.cq);
			CHECK(wc.status == WC_SUCCESS, "message %u: status %d", i, wc.status);
		}
		CHECK(*(uint64_t *)(e.buf + 64) == i, "message %u: %d", i, (int)*(uint64_t *)(e.buf + 64));
	}
	meet();
	ended_well(pid);
	while (event_waits(ctx)) {
		int type = await_event(ctx);
		CHECK(type == EV_PORT_ERR || type == EV_PORT_ACTIVE);
	}
	free_end(&e);
	CHECK(ibv_close_device(ctx) == 0);
}

static void port_down(void)
{
	pid_t pid = other(serve_until_told);
	struct ibv_context *ctx = open_first();
	struct end e = make_end(ctx, plain);
	struct address peer = swap(address_of(&e));
	connect_end(&e, peer);
	meet();
	ask("port 1");
	CHECK(await_event(ctx) == EV_PORT_ERR);
	struct ibv_port_attr p;
	CHECK(ibv_query_port(ctx, 1, &p) == 0 && p.state == PORT_DOWN);
	CHECK(put(&e, peer, WR_RDMA_WRITE, 0, 0, 0, 8) == 0);
	CHECK(await(e.cq).status == WC_RETRY_EXC_ERR);
	ask("port 4");
	CHECK(await_event(ctx) == EV_PORT_ACTIVE);
	meet();
	ended_well(pid);
	free_end(&e);
	CHECK(ibv_close_device(ctx) == 0);
}

/* Processes that pretend to be in two machines have other addresses, and
 * reach each other by them and not by one's own. */
static void serve_elsewhere(void)
{
	CHECK(setenv("TUTTI_FAKE_VERBS_HOST", "1", 1) == 0);
	serve_until_told();
}

static void hosts(void)
{
	pid_t pid = other(serve_elsewhere);
	struct ibv_context *ctx = open_first();
	struct end e = make_end(ctx, plain), wrong = make_end(ctx, plain);
	struct address peer = swap(address_of(&e)), mine = address_of(&e);
	CHECK(memcmp(&peer.gid, &mine.gid, sizeof peer.gid) != 0);
	connect_end(&e, peer);
	meet();
	CHECK(put(&e, peer, WR_RDMA_WRITE, SEND_SIGNALED, 0, 0, 60000) == 0 && await(e.cq).status == WC_SUCCESS);
	struct address confused = peer;
	confused.gid = mine.gid;
	connect_end(&wrong, confused);
	CHECK(put(&wrong, peer, WR_RDMA_WRITE, SEND_SIGNALED, 0, 0, 8) == 0 && await(wrong.cq).status == WC_RETRY_EXC_ERR);
	meet();
	ended_well(pid);
	free_end(&e);
	free_end(&wrong);
	CHECK(ibv_close_device(ctx) == 0);
}

/* What variables make of the device. */
static void without_devices(void)
{
	int n = 7;
	struct ibv_device **list = ibv_get_device_list(&n);
	CHECK(list && n == 0 && !list[0]);
	ibv_free_device_list(list);
}

static void without_kernel(void)
{
	int n = 7;
	CHECK(!ibv_get_device_list(&n) && n == 0 && errno == ENOSYS);
}

static void without_permission(void)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	CHECK(list && n == 1 && !ibv_open_device(list[0]) && errno == EACCES);
	ibv_free_device_list(list);
}

static void little_memory(void)
{
	struct ibv_context *ctx = open_first();
	struct end e = make_end(ctx, plain);
	void *more = aligned_alloc(4096, 65536);
	CHECK(!ibv_reg_mr(e.pd, more, 65536, ACC_LOCAL_WRITE) && errno == ENOMEM);
	struct ibv_mr *mr = ibv_reg_mr(e.pd, more, 4096, ACC_LOCAL_WRITE);
	CHECK(mr && ibv_dereg_mr(mr) == 0);
	free(more);
	free_end(&e);
	CHECK(ibv_close_device(ctx) == 0);
}

static void two_devices(void)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	CHECK(list && n == 2);
	struct ibv_context *one = ibv_open_device(list[0]), *two = ibv_open_device(list[1]);
	struct ibv_device_attr d;
	CHECK(one && two && ibv_query_device(two, &d) == 0 && d.phys_port_cnt == 2);
	struct end a = make_end(one, plain), b = make_end(two, plain);
	connect_end(&a, address_of(&b));
	connect_end(&b, address_of(&a));
	CHECK(put(&a, address_of(&b), WR_RDMA_WRITE, SEND_SIGNALED, 0, 0, 9000) == 0 && await(a.cq).status == WC_SUCCESS);
	/* A key of one device is nothing to the other. */
	CHECK(put(&a, (struct address){.addr = (uintptr_t)a.buf, .rkey = a.mr->rkey}, WR_RDMA_WRITE, 0, 0, 0, 8) == 0);
	CHECK(await(a.cq).status == WC_REM_ACCESS_ERR && await_event(two) == EV_QP_ACCESS_ERR && !event_waits(one));
	free_end(&a);
	free_end(&b);
	CHECK(ibv_close_device(one) == 0 && ibv_close_device(two) == 0);
	ibv_free_device_list(list);
}

const struct test processes[] = {
	{"hosts", hosts}, {"without-devices", without_devices}, {"without-kernel", without_kernel}, {"without-permission", without_permission},
	{"little-memory", little_memory}, {"two-devices", two_devices},
	{"talking", talking}, {"exiting", exiting}, {"killing", killing}, {"stopping", stopping}, {"flapping", flapping}, {"port-down", port_down},
	{NULL, NULL},
};
