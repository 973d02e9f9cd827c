//go:build linux && cgo && (amd64 || arm64 || loong64 || ppc64le || riscv64 || s390x)

#include "shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

// The library, once loaded. Written by tv_load, which its caller calls once
// and before anything else; never unloaded, because its drivers stay mapped.
static struct {
	int features;
	struct tv_device **(*get_device_list)(int *);
	void (*free_device_list)(struct tv_device **);
	uint64_t (*get_device_guid)(struct tv_device *);
	struct tv_context *(*open_device)(struct tv_device *);
	int (*close_device)(struct tv_context *);
	int (*query_device)(struct tv_context *, struct tv_device_attr *);
	int (*query_port)(struct tv_context *, uint8_t, struct tv_port_attr *);
	int (*query_gid)(struct tv_context *, uint8_t, int, struct tv_gid *);
	int (*query_pkey)(struct tv_context *, uint8_t, int, uint16_t *);
	int (*get_async_event)(struct tv_context *, struct tv_async_event *);
	void (*ack_async_event)(struct tv_async_event *);
	void *(*alloc_pd)(struct tv_context *);
	int (*dealloc_pd)(void *);
	struct tv_mr *(*reg_mr)(void *, void *, size_t, int);
	int (*dereg_mr)(struct tv_mr *);
	struct tv_comp_channel *(*create_comp_channel)(struct tv_context *);
	int (*destroy_comp_channel)(struct tv_comp_channel *);
	struct tv_cq *(*create_cq)(struct tv_context *, int, void *, struct tv_comp_channel *, int);
	int (*destroy_cq)(struct tv_cq *);
	int (*get_cq_event)(struct tv_comp_channel *, struct tv_cq **, void **);
	void (*ack_cq_events)(struct tv_cq *, unsigned int);
	struct tv_qp *(*create_qp)(void *, struct tv_qp_init_attr *);
	int (*modify_qp)(struct tv_qp *, struct tv_qp_attr *, int);
	int (*query_qp)(struct tv_qp *, struct tv_qp_attr *, int, struct tv_qp_init_attr *);
	int (*destroy_qp)(struct tv_qp *);
	void *(*create_ah)(void *, struct tv_ah_attr *);
	int (*destroy_ah)(void *);
	struct tv_srq *(*create_srq)(void *, struct tv_srq_init_attr *);
	int (*modify_srq)(struct tv_srq *, struct tv_srq_attr *, int);
	int (*query_srq)(struct tv_srq *, struct tv_srq_attr *);
	int (*destroy_srq)(struct tv_srq *);
	// NULL in older releases.
	struct tv_mr *(*reg_mr_iova2)(void *, void *, size_t, uint64_t, unsigned int);
	struct tv_mr *(*reg_dmabuf_mr)(void *, uint64_t, size_t, uint64_t, int, int);
	ssize_t (*query_gid_table)(struct tv_context *, struct tv_gid_entry *, size_t, uint32_t, size_t);
	int (*query_qp_data_in_order)(struct tv_qp *, uint32_t, uint32_t);
	int (*query_port_speed)(struct tv_context *, uint32_t, uint64_t *);
} lib;

// dlsym without a version takes each symbol's newest, which is what the
// structures here describe.
int tv_load(const char *path, char *why, size_t room)
{
	void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!h) {
		const char *e = dlerror();
		snprintf(why, room, "%s", e ? e : "dlopen failed");
		return -1;
	}
#define NEED(field)                                                           \
	do {                                                                  \
		*(void **)&lib.field = dlsym(h, "ibv_" #field);               \
		if (!lib.field) {                                             \
			snprintf(why, room, "it has no symbol ibv_" #field);  \
			dlclose(h);                                           \
			return -1;                                            \
		}                                                             \
	} while (0)
#define WANT(field, symbol, bit)                                              \
	do {                                                                  \
		*(void **)&lib.field = dlsym(h, symbol);                      \
		if (lib.field)                                                \
			lib.features |= bit;                                  \
	} while (0)
	NEED(get_device_list);
	NEED(free_device_list);
	NEED(get_device_guid);
	NEED(open_device);
	NEED(close_device);
	NEED(query_device);
	NEED(query_port);
	NEED(query_gid);
	NEED(query_pkey);
	NEED(get_async_event);
	NEED(ack_async_event);
	NEED(alloc_pd);
	NEED(dealloc_pd);
	NEED(reg_mr);
	NEED(dereg_mr);
	NEED(create_comp_channel);
	NEED(destroy_comp_channel);
	NEED(create_cq);
	NEED(destroy_cq);
	NEED(get_cq_event);
	NEED(ack_cq_events);
	NEED(create_qp);
	NEED(modify_qp);
	NEED(query_qp);
	NEED(destroy_qp);
	NEED(create_ah);
	NEED(destroy_ah);
	NEED(create_srq);
	NEED(modify_srq);
	NEED(query_srq);
	NEED(destroy_srq);
	WANT(reg_mr_iova2, "ibv_reg_mr_iova2", TV_HAS_REG_IOVA2);
	WANT(reg_dmabuf_mr, "ibv_reg_dmabuf_mr", TV_HAS_DMABUF);
	WANT(query_gid_table, "_ibv_query_gid_table", TV_HAS_GID_TABLE);
	WANT(query_qp_data_in_order, "ibv_query_qp_data_in_order", TV_HAS_DATA_IN_ORDER);
	WANT(query_port_speed, "ibv_query_port_speed", TV_HAS_PORT_SPEED);
	return 0;
}

int tv_features(void) { return lib.features; }

// failed is errno, or EIO from a call that failed without setting it.
static int failed(void) { return errno ? errno : EIO; }

// POINTER evaluates a call that returns a pointer and keeps errno; STATUS one
// that returns an errno, or -1 and sets it, which some drivers do.
#define POINTER(call)                         \
	do {                                  \
		errno = 0;                    \
		void *p = (call);             \
		*err = p ? 0 : failed();      \
		return p;                     \
	} while (0)
#define STATUS(call)                          \
	do {                                  \
		errno = 0;                    \
		int rc = (call);              \
		if (rc > 0)                   \
			return rc;            \
		return rc < 0 ? failed() : 0; \
	} while (0)

struct tv_device **tv_get_device_list(int *n, int *err)
{
	*n = 0;
	POINTER(lib.get_device_list(n));
}

void tv_free_device_list(struct tv_device **list) { lib.free_device_list(list); }
uint64_t tv_device_guid(struct tv_device *d) { return lib.get_device_guid(d); }
struct tv_context *tv_open_device(struct tv_device *d, int *err) { POINTER(lib.open_device(d)); }
int tv_close_device(struct tv_context *c) { STATUS(lib.close_device(c)); }

int tv_query_device(struct tv_context *c, struct tv_device_attr *a)
{
	memset(a, 0, sizeof *a);
	STATUS(lib.query_device(c, a));
}

// The exported function fills in the structure as it was before it grew, and
// leaves the rest alone.
int tv_query_port(struct tv_context *c, uint8_t port, struct tv_port_attr *a)
{
	union {
		struct tv_port_attr a;
		char room[256];
	} u;
	memset(&u, 0, sizeof u);
	errno = 0;
	int rc = lib.query_port(c, port, &u.a);
	*a = u.a;
	if (rc > 0)
		return rc;
	return rc < 0 ? failed() : 0;
}

int tv_query_port_speed(struct tv_context *c, uint32_t port, uint64_t *speed)
{
	if (!lib.query_port_speed)
		return EOPNOTSUPP;
	STATUS(lib.query_port_speed(c, port, speed));
}

int tv_query_gid(struct tv_context *c, uint8_t port, int index, struct tv_gid *g)
{
	STATUS(lib.query_gid(c, port, index, g));
}

ssize_t tv_query_gid_table(struct tv_context *c, struct tv_gid_entry *e, size_t max, int *err)
{
	*err = 0;
	if (!lib.query_gid_table) {
		*err = EOPNOTSUPP;
		return -1;
	}
	ssize_t n = lib.query_gid_table(c, e, max, 0, sizeof *e);
	if (n < 0)
		*err = (int)-n;
	return n;
}

int tv_query_pkey(struct tv_context *c, uint8_t port, int index, uint16_t *pkey)
{
	STATUS(lib.query_pkey(c, port, index, pkey));
}

int tv_get_async_event(struct tv_context *c, struct tv_async_event *e)
{
	memset(e, 0, sizeof *e);
	STATUS(lib.get_async_event(c, e));
}

void tv_ack_async_event(struct tv_async_event *e) { lib.ack_async_event(e); }

void *tv_alloc_pd(struct tv_context *c, int *err) { POINTER(lib.alloc_pd(c)); }
int tv_dealloc_pd(void *pd) { STATUS(lib.dealloc_pd(pd)); }

// A release without reg_mr_iova2 refuses optional accesses (bits 20 to 29)
// instead of ignoring them.
struct tv_mr *tv_reg_mr(void *pd, uint64_t addr, size_t length, uint64_t iova, uint32_t access, int *err)
{
	if (lib.reg_mr_iova2)
		POINTER(lib.reg_mr_iova2(pd, (void *)(uintptr_t)addr, length, iova, access));
	POINTER(lib.reg_mr(pd, (void *)(uintptr_t)addr, length, (int)(access & 0xfffff)));
}

struct tv_mr *tv_reg_dmabuf_mr(void *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access, int *err)
{
	if (!lib.reg_dmabuf_mr) {
		*err = EOPNOTSUPP;
		return NULL;
	}
	POINTER(lib.reg_dmabuf_mr(pd, offset, length, iova, fd, access));
}

int tv_dereg_mr(struct tv_mr *mr) { STATUS(lib.dereg_mr(mr)); }

struct tv_comp_channel *tv_create_channel(struct tv_context *c, int *err) { POINTER(lib.create_comp_channel(c)); }
int tv_destroy_channel(struct tv_comp_channel *ch) { STATUS(lib.destroy_comp_channel(ch)); }

struct tv_cq *tv_create_cq(struct tv_context *c, int cqe, struct tv_comp_channel *ch, int vector, int *err)
{
	POINTER(lib.create_cq(c, cqe, NULL, ch, vector));
}

int tv_destroy_cq(struct tv_cq *cq) { STATUS(lib.destroy_cq(cq)); }

int tv_get_cq_event(struct tv_comp_channel *ch, struct tv_cq **cq)
{
	void *context;
	STATUS(lib.get_cq_event(ch, cq, &context));
}

void tv_ack_cq_events(struct tv_cq *cq, unsigned int n) { lib.ack_cq_events(cq, n); }
int tv_req_notify_cq(struct tv_cq *cq, int solicited) { STATUS(cq->context->ops.req_notify_cq(cq, solicited)); }

struct tv_qp *tv_create_qp(void *pd, struct tv_qp_init_attr *a, int *err) { POINTER(lib.create_qp(pd, a)); }
int tv_modify_qp(struct tv_qp *qp, struct tv_qp_attr *a, int mask) { STATUS(lib.modify_qp(qp, a, mask)); }

int tv_query_qp(struct tv_qp *qp, struct tv_qp_attr *a, int mask, struct tv_qp_init_attr *init)
{
	memset(a, 0, sizeof *a);
	memset(init, 0, sizeof *init);
	STATUS(lib.query_qp(qp, a, mask, init));
}

int tv_query_qp_data_in_order(struct tv_qp *qp, uint32_t opcode, uint32_t flags)
{
	return lib.query_qp_data_in_order ? lib.query_qp_data_in_order(qp, opcode, flags) : 0;
}

int tv_destroy_qp(struct tv_qp *qp) { STATUS(lib.destroy_qp(qp)); }
void *tv_create_ah(void *pd, struct tv_ah_attr *a, int *err) { POINTER(lib.create_ah(pd, a)); }
int tv_destroy_ah(void *ah) { STATUS(lib.destroy_ah(ah)); }
struct tv_srq *tv_create_srq(void *pd, struct tv_srq_init_attr *a, int *err) { POINTER(lib.create_srq(pd, a)); }
int tv_modify_srq(struct tv_srq *srq, struct tv_srq_attr *a, int mask) { STATUS(lib.modify_srq(srq, a, mask)); }
int tv_query_srq(struct tv_srq *srq, struct tv_srq_attr *a) { STATUS(lib.query_srq(srq, a)); }
int tv_destroy_srq(struct tv_srq *srq) { STATUS(lib.destroy_srq(srq)); }

// post posts one chain. The library writes bad only where it fails.
static int post(struct tv_chain *c)
{
	void *first = (void *)c->first, *bad = first;
	int rc;
	if (!first)
		return 0;
	errno = 0;
	if (c->kind == TV_SRQ_RECV) {
		struct tv_srq *srq = (void *)c->queue;
		rc = srq->context->ops.post_srq_recv(srq, first, (struct tv_recv_wr **)&bad);
	} else if (c->kind == TV_RECV) {
		struct tv_qp *qp = (void *)c->queue;
		rc = qp->context->ops.post_recv(qp, first, (struct tv_recv_wr **)&bad);
	} else {
		struct tv_qp *qp = (void *)c->queue;
		rc = qp->context->ops.post_send(qp, first, (struct tv_send_wr **)&bad);
	}
	c->bad = (uintptr_t)bad;
	return rc < 0 ? failed() : rc;
}

int tv_post_poll(uintptr_t chains, uintptr_t cq_, int room, struct tv_wc *out)
{
	struct tv_cq *cq = (void *)cq_;
	for (struct tv_chain *c = (void *)chains; c; c = (void *)c->next)
		c->rc = post(c);
	return cq ? cq->context->ops.poll_cq(cq, room, out) : 0;
}
