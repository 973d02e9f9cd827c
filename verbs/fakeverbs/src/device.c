/* Devices, ports, GIDs: what a program can ask before it makes anything. */
#define _GNU_SOURCE
#include "fv.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "config.h"
#include "calls.h"

struct fv_global fv = {.lock = PTHREAD_MUTEX_INITIALIZER};

static pthread_once_t configured = PTHREAD_ONCE_INIT;
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static bool started;

static void configure(void)
{
	fv_config_read(&fv.config);
	fv.random[0] = fv.config.seed ^ (uint64_t)fv.config.host * 0x9e3779b97f4a7c15ull;
	fv.random[1] = fv.config.seed * 0xbf58476d1ce4e5b9ull + 1;
	for (int i = 0; i < fv.config.devices; i++) {
		struct fv_device *d = &fv.device[i];
		d->index = i;
		d->ibv.node_type = 1;
		snprintf(d->ibv.name, sizeof d->ibv.name, "fake%d", i);
		snprintf(d->ibv.dev_name, sizeof d->ibv.dev_name, "uverbs%d", i);
		snprintf(d->ibv.dev_path, sizeof d->ibv.dev_path, "/sys/class/infiniband_verbs/uverbs%d", i);
		snprintf(d->ibv.ibdev_path, sizeof d->ibv.ibdev_path, "/sys/class/infiniband/fake%d", i);
		for (int p = 1; p <= fv.config.ports; p++)
			d->port_state[p] = PORT_ACTIVE;
	}
}

/* The mailbox and the threads are there from the first open on: a program
 * that only lists devices leaves no trace. */
int fv_start(void)
{
	pthread_mutex_lock(&starting);
	int err = 0;
	if (!started) {
		err = fv_config_directory(fv.config.dir);
		if (err == 0)
			err = fabric_join(fv.config.dir, fv.config.host);
		if (err == 0) {
			fv_lock();
			/* One of the engine's processes never begins where another
			 * does, so that their choices differ under one seed. */
			fv.random[1] += (uint64_t)fabric_self() * 0x94d049bb133111ebull;
			fv.next_qpn = (uint32_t)fv_below(FV_QPS / 2) + 16;
			fv_unlock();
			err = fv_engine_start();
		}
		if (err == 0)
			err = fv_control_start();
		started = err == 0;
		if (err)
			fv_say("cannot join in %s: %s%s", fv.config.dir, strerror(err),
			       err == EPERM    ? "; it must be this user's, and nobody else may write there"
			       : err == ENOSPC ? "; there are as many processes as it takes, or the disk is full"
			       : err == EPROTO ? "; what is there is of another version: remove it"
					       : "");
	}
	pthread_mutex_unlock(&starting);
	return err;
}

/* The engine is stopped where it is, for good: another process may have the
 * mailbox next. */
__attribute__((destructor)) static void leave(void)
{
	if (!started)
		return;
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_sec += 1;
	if (pthread_mutex_timedlock(&fv.lock, &t) != 0)
		return; /* held by whoever called exit: it dies as if killed */
	fv_control_stop();
	fabric_leave();
}

fv_export struct ibv_device **ibv_get_device_list(int *count)
{
	pthread_once(&configured, configure);
	if (count)
		*count = 0;
	if (fv.config.devices < 0) {
		errno = ENOSYS; /* as where no kernel module is loaded */
		return NULL;
	}
	struct ibv_device **list = calloc((size_t)fv.config.devices + 1, sizeof *list);
	if (!list)
		return NULL;
	for (int i = 0; i < fv.config.devices; i++)
		list[i] = &fv.device[i].ibv;
	if (count)
		*count = fv.config.devices;
	return list;
}

fv_export void ibv_free_device_list(struct ibv_device **list) { free(list); }

fv_export const char *ibv_get_device_name(struct ibv_device *d) { return d->name; }

fv_export int ibv_get_device_index(struct ibv_device *d) { return ((struct fv_device *)d)->index; }

static uint64_t guid(const struct fv_device *d)
{
	return htobe64(0x02fa4e00fffe0000ull | (uint64_t)fv.config.host << 8 | (uint64_t)d->index);
}

fv_export uint64_t ibv_get_device_guid(struct ibv_device *d) { return guid((struct fv_device *)d); }

fv_export struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct fv_device *d = (struct fv_device *)device;
	if (fv.config.open_errno) {
		errno = fv.config.open_errno;
		return NULL;
	}
	int err = fv_start();
	if (err) {
		errno = err;
		return NULL;
	}
	struct fv_context *c = calloc(1, sizeof *c);
	if (!c)
		return NULL;
	if ((err = fv_events_open(&c->async)) != 0) {
		free(c);
		errno = err;
		return NULL;
	}
	c->device = d;
	c->v.query_port = fv_query_port;
	c->v.create_qp_ex = fv_create_qp_ex;
	c->v.sz = sizeof c->v;
	struct ibv_context *x = &c->v.context;
	x->device = device;
	x->ops.poll_cq = fv_poll_cq;
	x->ops.req_notify_cq = fv_req_notify_cq;
	x->ops.post_srq_recv = fv_post_srq_recv;
	x->ops.post_send = fv_post_send;
	x->ops.post_recv = fv_post_recv;
	x->cmd_fd = -1;
	x->async_fd = c->async.fd;
	x->num_comp_vectors = 2;
	x->abi_compat = (void *)UINTPTR_MAX;
	pthread_mutex_init(&x->mutex, NULL);
	fv_lock();
	c->next = fv.contexts;
	fv.contexts = c;
	d->contexts++;
	fv_unlock();
	fv.contexts_live++;
	return x;
}

/* A kernel takes away what is left of a program's objects. To leave any is an
 * error of the program all the same, and said. */
fv_export int ibv_close_device(struct ibv_context *x)
{
	struct fv_context *c = fv_ctx(x);
	fv_lock();
	for (struct fv_context **p = &fv.contexts; *p; p = &(*p)->next)
		if (*p == c) {
			*p = c->next;
			break;
		}
	c->device->contexts--;
	fv_unlock();
	fv.contexts_live--;
	if (c->objects != 0) {
		fv.leaked += c->objects;
		fv_say("%s closed with %d objects left; there are %d PDs, %d MRs, %d CQs, %d QPs, %d SRQs, %d AHs, %d channels", x->device->name,
		       c->objects, fv.pds, fv.mr_count, fv.cqs, fv.qp_live, fv.srqs, fv.ahs, fv.channels);
		return 0; /* they still point here */
	}
	fv_events_close(&c->async);
	pthread_mutex_destroy(&x->mutex);
	free(c);
	return 0;
}

fv_export int ibv_query_device(struct ibv_context *x, struct ibv_device_attr *a)
{
	struct fv_device *d = fv_dev(x);
	if (d->fatal)
		return EIO;
	memset(a, 0, sizeof *a);
	snprintf(a->fw_ver, sizeof a->fw_ver, "1.0.0");
	a->node_guid = a->sys_image_guid = guid(d);
	a->max_mr_size = UINT64_MAX;
	a->page_size_cap = 4096;
	a->vendor_id = 0xfa4e;
	a->vendor_part_id = 1;
	a->max_qp = (int)fv.config.max_qp;
	a->max_qp_wr = (int)fv.config.max_qp_wr;
	a->device_cap_flags = 1 << 10 | 1 << 12; /* port-active events, RNR NAKs */
	a->max_sge = a->max_sge_rd = (int)fv.config.max_sge;
	a->max_cq = 4096;
	a->max_cqe = (int)fv.config.max_cqe;
	a->max_mr = (int)fv.config.max_mr;
	a->max_pd = 4096;
	a->max_qp_rd_atom = a->max_qp_init_rd_atom = (int)fv.config.max_rd_atomic;
	a->max_res_rd_atom = a->max_qp_rd_atom * a->max_qp;
	a->atomic_cap = ATOMIC_HCA;
	a->max_ah = 4096;
	a->max_srq = 1024;
	a->max_srq_wr = (int)fv.config.max_qp_wr;
	a->max_srq_sge = (int)fv.config.max_sge;
	a->max_pkeys = 1;
	a->local_ca_ack_delay = 15;
	a->phys_port_cnt = (uint8_t)fv.config.ports;
	return 0;
}

int fv_query_port(struct ibv_context *x, uint8_t port, struct ibv_port_attr *out, size_t room)
{
	struct fv_device *d = fv_dev(x);
	if (port < 1 || port > fv.config.ports)
		return EINVAL;
	if (d->fatal)
		return EIO;
	struct ibv_port_attr a = {
		.max_mtu = MTU_4096,
		.active_mtu = fv.config.mtu,
		.gid_tbl_len = FV_GIDS,
		.port_cap_flags = 1 << 16 | 1 << 26, /* connections by CM, GIDs from IP addresses */
		.max_msg_sz = fv.config.max_msg,
		.pkey_tbl_len = 1,
		.max_vl_num = 1,
		.active_width = 2,  /* 4 lanes */
		.active_speed = 32, /* of 25 Gb/s */
		.link_layer = LINK_LAYER_ETHERNET,
		.flags = 1, /* every address needs a GRH */
	};
	fv_lock();
	a.state = d->port_state[port];
	fv_unlock();
	a.phys_state = a.state == PORT_ACTIVE ? 5 : 3; /* link up, disabled */
	memset(out, 0, room);
	memcpy(out, &a, room < sizeof a ? room : sizeof a);
	return 0;
}

/* What is exported knows the structure as it was of old. */
fv_export int ibv_query_port(struct ibv_context *x, uint8_t port, struct ibv_port_attr *out)
{
	return fv_query_port(x, port, out, offsetof(struct ibv_port_attr, port_cap_flags2));
}

fv_export int ibv_query_pkey(struct ibv_context *x, uint8_t port, int index, uint16_t *pkey)
{
	(void)x;
	if (port < 1 || port > fv.config.ports || index != 0) {
		errno = EINVAL;
		return -1;
	}
	*pkey = htobe16(0xffff);
	return 0;
}

fv_export int ibv_get_pkey_index(struct ibv_context *x, uint8_t port, uint16_t pkey)
{
	(void)x;
	return port >= 1 && port <= fv.config.ports && pkey == htobe16(0xffff) ? 0 : -1;
}

/* A port's GID table as large adapters lay it out: the link-local address as
 * RoCE v1 and v2, then IPv4, then a routable IPv6 address; the rest is empty. */
enum { KIND_LINK_LOCAL, KIND_IPV4, KIND_IPV6, KINDS };

static int kind_of(int gid_index) { return gid_index / 2; }

/* Two GIDs reach each other if they are of one family and one RoCE version. */
bool fv_same_kind(int a, int b) { return a == b; }

bool fv_gid(unsigned host, int device, int port, int index, struct ibv_gid_entry *e)
{
	if (index < 0 || index >= 2 * KINDS)
		return false;
	bool v2 = index % 2 == 1;
	if ((v2 && fv.config.no_v2) || (kind_of(index) == KIND_IPV4 && fv.config.no_ipv4))
		return false;
	uint8_t h = (uint8_t)host, d = (uint8_t)device, p = (uint8_t)port;
	static const uint8_t ula[16] = {0xfd, 0xfa, 0x4e};
	memset(e, 0, sizeof *e);
	uint8_t *g = e->gid.raw;
	switch (kind_of(index)) {
	case KIND_LINK_LOCAL:
		memcpy(g, (uint8_t[]){0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0xfa, 0x4e, 0xff, 0xfe, h, d, p}, 16);
		break;
	case KIND_IPV4: /* 198.18.0.0/15 is for such things */
		memcpy(g, (uint8_t[]){0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 198, 18, (uint8_t)(d * 16 + p), (uint8_t)(h + 1)}, 16);
		break;
	case KIND_IPV6:
		memcpy(g, ula, 16);
		g[13] = h;
		g[14] = d;
		g[15] = p;
	}
	e->gid_index = (uint32_t)index;
	e->port_num = (uint32_t)port;
	e->gid_type = v2 ? GID_TYPE_ROCE_V2 : GID_TYPE_ROCE_V1;
	return true;
}

/* fv_target finds whose GID that is; the version it cannot know. */
bool fv_target(const union ibv_gid *gid, struct fabric_addr *a)
{
	struct ibv_gid_entry e;
	const uint8_t *g = gid->raw;
	struct {
		int host, device, port;
	} guess[KINDS] = {{g[13], g[14], g[15]}, {g[15] - 1, g[14] / 16, g[14] % 16}, {g[13], g[14], g[15]}};
	for (int k = 0; k < KINDS; k++) {
		if (guess[k].host < 0 || guess[k].host >= FV_MAX_HOSTS)
			continue;
		for (int i = 2 * k; i < 2 * k + 2; i++)
			if (fv_gid((unsigned)guess[k].host, guess[k].device, guess[k].port, i, &e) && memcmp(&e.gid, gid, sizeof *gid) == 0) {
				*a = (struct fabric_addr){(uint8_t)guess[k].host, (uint8_t)guess[k].device, (uint8_t)guess[k].port, (uint8_t)(2 * k)};
				return true;
			}
	}
	return false;
}

/* fv_check_av is what the kernel does with an address on RoCE. */
int fv_check_av(struct fv_device *d, const struct ibv_ah_attr *a, struct fabric_addr *source, struct fabric_addr *target)
{
	struct ibv_gid_entry e;
	union ibv_gid zero = {.half = {0, 0}};
	if (a->port_num < 1 || a->port_num > fv.config.ports || !a->is_global || a->sl > 15)
		return EINVAL;
	if (!fv_gid(fv.config.host, d->index, a->port_num, a->grh.sgid_index, &e))
		return EINVAL;
	if (memcmp(&a->grh.dgid, &zero, sizeof zero) == 0)
		return EINVAL;
	if (!fv_target(&a->grh.dgid, target))
		return ETIMEDOUT; /* nobody answers for that address */
	if (kind_of(target->gid_index) != kind_of(a->grh.sgid_index))
		return EINVAL;
	target->gid_index = a->grh.sgid_index; /* the version is the sender's */
	*source = (struct fabric_addr){(uint8_t)fv.config.host, (uint8_t)d->index, a->port_num, a->grh.sgid_index};
	return 0;
}

bool fv_port_up(const struct fabric_addr *a)
{
	const struct fv_device *d = &fv.device[a->device];
	return !d->fatal && d->port_state[a->port] == PORT_ACTIVE;
}

fv_export int _ibv_query_gid_ex(struct ibv_context *x, uint32_t port, uint32_t index, struct ibv_gid_entry *out, uint32_t flags, size_t room)
{
	struct ibv_gid_entry e;
	if (flags || port < 1 || port > (uint32_t)fv.config.ports || index >= FV_GIDS)
		return EINVAL;
	if (!fv_gid(fv.config.host, fv_dev(x)->index, (int)port, (int)index, &e))
		return ENODATA;
	memset(out, 0, room);
	memcpy(out, &e, room < sizeof e ? room : sizeof e);
	return 0;
}

fv_export ssize_t _ibv_query_gid_table(struct ibv_context *x, struct ibv_gid_entry *out, size_t entries, uint32_t flags, size_t room)
{
	if (flags)
		return -EINVAL;
	ssize_t n = 0;
	for (int port = 1; port <= fv.config.ports; port++)
		for (int i = 0; i < FV_GIDS; i++) {
			struct ibv_gid_entry e;
			if (!fv_gid(fv.config.host, fv_dev(x)->index, port, i, &e))
				continue;
			if ((size_t)n == entries)
				return -EINVAL;
			char *to = (char *)out + (size_t)n++ * room;
			memset(to, 0, room);
			memcpy(to, &e, room < sizeof e ? room : sizeof e);
		}
	return n;
}

fv_export int ibv_query_gid(struct ibv_context *x, uint8_t port, int index, union ibv_gid *gid)
{
	struct ibv_gid_entry e;
	int err = index < 0 ? EINVAL : _ibv_query_gid_ex(x, port, (uint32_t)index, &e, 0, sizeof e);
	if (err == ENODATA)
		memset(&e, 0, sizeof e); /* an empty entry reads as zeros */
	else if (err) {
		errno = err;
		return -1;
	}
	*gid = e.gid;
	return 0;
}

fv_export int ibv_query_gid_type(struct ibv_context *x, uint8_t port, unsigned index, int *type)
{
	struct ibv_gid_entry e;
	int err = _ibv_query_gid_ex(x, port, index, &e, 0, sizeof e);
	if (err) {
		errno = err;
		return -1;
	}
	*type = e.gid_type == GID_TYPE_ROCE_V2; /* here 0 is InfiniBand and RoCE v1, 1 is RoCE v2 */
	return 0;
}

fv_export int ibv_resolve_eth_l2_from_gid(struct ibv_context *x, struct ibv_ah_attr *a, uint8_t mac[6], uint16_t *vlan)
{
	struct fabric_addr source, target;
	int err = fv_check_av(fv_dev(x), a, &source, &target);
	if (err)
		return err;
	memcpy(mac, (uint8_t[]){0x02, 0xfa, 0x4e, target.host, target.device, target.port}, 6);
	if (vlan)
		*vlan = 0xffff;
	return 0;
}
