/* Protection domains, memory regions, address handles. */
#define _GNU_SOURCE
#include "fv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

fv_export struct ibv_pd *ibv_alloc_pd(struct ibv_context *x)
{
	if (fv_dev(x)->fatal) {
		errno = EIO;
		return NULL;
	}
	struct fv_pd *pd = calloc(1, sizeof *pd);
	if (!pd)
		return NULL;
	pd->ibv.context = x;
	fv_ctx(x)->objects++;
	pd->ibv.handle = (uint32_t)++fv.pds;
	return &pd->ibv;
}

fv_export int ibv_dealloc_pd(struct ibv_pd *p)
{
	struct fv_pd *pd = (struct fv_pd *)p;
	if (pd->refs != 0)
		return EBUSY;
	fv_ctx(p->context)->objects--;
	fv.pds--;
	free(pd);
	return 0;
}

/*
 * A key names the process in its upper 6 bits, so that one of another process
 * is never taken for one's own; then 17 bits for the region, one that tells
 * remote keys from local ones, and 8 that change when a region's number is
 * used again.
 */
static uint32_t key(uint32_t slot, bool remote) { return (uint32_t)fabric_self() << 26 | slot << 9 | (uint32_t)remote << 8 | (fv.mr_tags[slot] & 0xff); }

struct fv_mr *fv_find(struct fv_device *d, struct fv_pd *pd, uint32_t k, bool remote, uint64_t address, uint64_t bytes, unsigned access, unsigned char **at)
{
	uint32_t slot = k >> 9 & 0x1ffff;
	if (slot >= fv.mr_room || !fv.mrs[slot] || key(slot, remote) != k)
		return NULL;
	struct fv_mr *mr = fv.mrs[slot];
	if (mr->device != d || mr->ibv.pd != &pd->ibv || (mr->access & access) != access)
		return NULL;
	if (address < mr->iova || bytes > mr->ibv.length || address - mr->iova > mr->ibv.length - bytes)
		return NULL;
	*at = (unsigned char *)mr->ibv.addr + (address - mr->iova);
	return mr;
}

uint64_t fv_sge_bytes(const struct ibv_sge *sge, int n)
{
	uint64_t bytes = 0;
	for (int i = 0; i < n; i++)
		bytes += sge[i].length;
	return bytes;
}

bool fv_check_sges(struct fv_qp *qp, const struct ibv_sge *sge, int n, unsigned access)
{
	unsigned char *at;
	for (int i = 0; i < n; i++)
		if (sge[i].length > 0 && !fv_find(qp->device, qp->pd, sge[i].lkey, false, sge[i].addr, sge[i].length, access, &at))
			return false;
	return true;
}

/* Copies between a range of what sges describe and memory of the fake's. */
static bool each(struct fv_qp *qp, const struct ibv_sge *sge, int n, uint32_t offset, unsigned char *mine, uint32_t bytes, bool out)
{
	for (int i = 0; i < n && bytes > 0; i++) {
		if (offset >= sge[i].length) {
			offset -= sge[i].length;
			continue;
		}
		uint32_t part = sge[i].length - offset;
		if (part > bytes)
			part = bytes;
		unsigned char *at;
		if (!fv_find(qp->device, qp->pd, sge[i].lkey, false, sge[i].addr + offset, part, out ? ACC_LOCAL_WRITE : 0, &at))
			return false;
		if (out)
			fv_place(at, mine, part);
		else
			memcpy(mine, at, part);
		mine += part;
		bytes -= part;
		offset = 0;
	}
	return bytes == 0;
}

bool fv_gather(struct fv_qp *qp, const struct ibv_sge *sge, int n, uint32_t offset, unsigned char *to, uint32_t bytes)
{
	return each(qp, sge, n, offset, to, bytes, false);
}

bool fv_scatter(struct fv_qp *qp, const struct ibv_sge *sge, int n, uint32_t offset, const unsigned char *from, uint32_t bytes)
{
	return each(qp, sge, n, offset, (unsigned char *)from, bytes, true);
}

/* What the kernel finds out when it pins pages: the memory must be there, and
 * writable if the device is to write into it. */
static bool usable(void *addr, size_t length, bool writable)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uintptr_t from = (uintptr_t)addr & ~(page - 1), end = (uintptr_t)addr + length;
	unsigned char resident[1024];
	for (uintptr_t at = from; at < end; at += sizeof resident * page) {
		size_t n = end - at;
		if (n > sizeof resident * page)
			n = sizeof resident * page;
		if (mincore((void *)at, n, resident) < 0)
			return false;
	}
	if (!writable)
		return true;
	/* The first byte and the last are read and written back, by the kernel,
	 * which reports what it may not touch. */
	unsigned char *ends[2] = {addr, (unsigned char *)addr + length - 1};
	for (int i = 0; i < 2; i++) {
		unsigned char byte;
		struct iovec mine = {&byte, 1}, theirs = {ends[i], 1};
		if (process_vm_readv(getpid(), &mine, 1, &theirs, 1, 0) == 1 && process_vm_writev(getpid(), &mine, 1, &theirs, 1, 0) != 1 && errno == EFAULT)
			return false;
	}
	return true;
}

static int enter(struct fv_mr *mr)
{
	if (fv.config.memlock - fv.pinned < mr->ibv.length || fv.mr_count >= (int)fv.config.max_mr)
		return ENOMEM;
	for (uint32_t tries = 0; tries < fv.mr_room; tries++) {
		uint32_t slot = fv.mr_next++ % fv.mr_room;
		if (fv.mrs[slot])
			continue;
		mr->slot = slot;
		goto found;
	}
	uint32_t room = fv.mr_room ? 2 * fv.mr_room : 64;
	struct fv_mr **mrs = realloc(fv.mrs, room * sizeof *mrs);
	if (!mrs)
		return ENOMEM;
	fv.mrs = mrs;
	uint32_t *tags = realloc(fv.mr_tags, room * sizeof *tags);
	if (!tags)
		return ENOMEM;
	fv.mr_tags = tags;
	for (uint32_t i = fv.mr_room; i < room; i++) {
		mrs[i] = NULL;
		tags[i] = (uint32_t)fv_random();
	}
	mr->slot = fv.mr_room;
	fv.mr_next = fv.mr_room + 1;
	fv.mr_room = room;
found:
	fv.mrs[mr->slot] = mr;
	fv.mr_tags[mr->slot]++;
	fv.mr_count++;
	fv.pinned += mr->ibv.length;
	mr->ibv.handle = mr->slot;
	mr->ibv.lkey = key(mr->slot, false);
	mr->ibv.rkey = key(mr->slot, true);
	return 0;
}

static struct ibv_mr *reg(struct ibv_pd *p, void *addr, size_t length, uint64_t iova, unsigned access)
{
	const unsigned known = ACC_LOCAL_WRITE | ACC_REMOTE_WRITE | ACC_REMOTE_READ | ACC_REMOTE_ATOMIC | ACC_HUGETLB | ACC_OPTIONAL;
	int err = 0;
	if (length == 0 || (access & ~known) || iova + length < iova || (uintptr_t)addr + length < (uintptr_t)addr ||
	    ((access & (ACC_REMOTE_WRITE | ACC_REMOTE_ATOMIC)) && !(access & ACC_LOCAL_WRITE)))
		err = EINVAL;
	else if (fv_dev(p->context)->fatal)
		err = EIO;
	else if (!usable(addr, length, (access & ACC_LOCAL_WRITE) != 0))
		err = EFAULT;
	struct fv_mr *mr = err ? NULL : calloc(1, sizeof *mr);
	if (!mr) {
		errno = err ? err : ENOMEM;
		return NULL;
	}
	mr->ibv.context = p->context;
	mr->ibv.pd = p;
	mr->ibv.addr = addr;
	mr->ibv.length = length;
	mr->device = fv_dev(p->context);
	mr->iova = iova;
	mr->access = access;
	fv_lock();
	err = enter(mr);
	fv_unlock();
	if (err) {
		free(mr);
		errno = err;
		return NULL;
	}
	((struct fv_pd *)p)->refs++;
	fv_ctx(p->context)->objects++;
	return &mr->ibv;
}

fv_export struct ibv_mr *ibv_reg_mr(struct ibv_pd *p, void *addr, size_t length, int access)
{
	return reg(p, addr, length, (uintptr_t)addr, (unsigned)access);
}

fv_export struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *p, void *addr, size_t length, uint64_t iova, int access)
{
	return reg(p, addr, length, iova, (unsigned)access);
}

fv_export struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *p, void *addr, size_t length, uint64_t iova, unsigned access)
{
	return reg(p, addr, length, iova, access);
}

/* There is no dma-buf here; a bad descriptor says that there could be. */
fv_export struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *p, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	(void)p, (void)offset, (void)length, (void)iova, (void)fd, (void)access;
	errno = EOPNOTSUPP;
	return NULL;
}

fv_export int ibv_dereg_mr(struct ibv_mr *m)
{
	struct fv_mr *mr = (struct fv_mr *)m;
	fv_lock();
	fv_settle_mr(mr);
	fv.mrs[mr->slot] = NULL;
	fv.mr_count--;
	fv.pinned -= m->length;
	fv_unlock();
	((struct fv_pd *)m->pd)->refs--;
	fv_ctx(m->context)->objects--;
	memset(mr, 0xdb, sizeof *mr); /* whoever looks again shall notice */
	free(mr);
	return 0;
}

fv_export struct ibv_ah *ibv_create_ah(struct ibv_pd *p, struct ibv_ah_attr *a)
{
	struct fv_ah *ah = calloc(1, sizeof *ah);
	if (!ah)
		return NULL;
	int err = fv_check_av(fv_dev(p->context), a, &ah->source, &ah->target);
	if (err) {
		free(ah);
		errno = err;
		return NULL;
	}
	ah->ibv.context = p->context;
	ah->ibv.pd = p;
	ah->attr = *a;
	((struct fv_pd *)p)->refs++;
	fv_ctx(p->context)->objects++;
	fv.ahs++;
	return &ah->ibv;
}

fv_export int ibv_destroy_ah(struct ibv_ah *a)
{
	((struct fv_pd *)a->pd)->refs--;
	fv_ctx(a->context)->objects--;
	fv.ahs--;
	free(a);
	return 0;
}

/* The answer to a datagram goes where its GRH says that it came from. */
fv_export int ibv_init_ah_from_wc(struct ibv_context *x, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh, struct ibv_ah_attr *a)
{
	if (!(wc->wc_flags & WC_GRH))
		return EINVAL;
	memset(a, 0, sizeof *a);
	a->is_global = 1;
	a->port_num = port;
	a->sl = wc->sl;
	a->grh.dgid = grh->sgid;
	a->grh.hop_limit = 255;
	for (int i = 0; i < FV_GIDS; i++) {
		struct ibv_gid_entry e;
		/* The version does not stand in the header: it is what both ends use. */
		if (fv_gid(fv.config.host, fv_dev(x)->index, port, i, &e) && memcmp(&e.gid, &grh->dgid, sizeof e.gid) == 0) {
			a->grh.sgid_index = (uint8_t)i;
			if (e.gid_type == GID_TYPE_ROCE_V2)
				return 0;
		}
	}
	return a->grh.sgid_index ? 0 : EINVAL;
}

fv_export struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *p, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port)
{
	struct ibv_ah_attr a;
	int err = ibv_init_ah_from_wc(p->context, port, wc, grh, &a);
	if (err) {
		errno = err;
		return NULL;
	}
	return ibv_create_ah(p, &a);
}
