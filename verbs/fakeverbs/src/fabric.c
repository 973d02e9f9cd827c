#define _GNU_SOURCE
#include "fabric.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { ALIGN = 16, SKIP = 0xff };

/* The mailbox of a process. Senders write under the lock, which survives their
 * death: until tail moves, nothing has been sent. The owner alone moves head. */
struct node {
	_Atomic uint32_t alive;
	uint32_t pid;
	uint32_t host;
	_Atomic uint32_t asleep; /* somebody sleeps on bell */
	_Atomic uint32_t bell;
	uint32_t unused;
	_Atomic uint64_t waiters; /* which processes found it full */
	_Alignas(64) _Atomic uint64_t tail;
	_Alignas(64) _Atomic uint64_t head;
	_Alignas(64) pthread_mutex_t lock;
	_Alignas(4096) unsigned char ring[FABRIC_RING];
};

struct wire {
	uint64_t magic;
	uint64_t bytes;
	_Alignas(4096) struct node node[FABRIC_NODES];
};

/* Changes with the layout, as does the name of the file. */
#define MAGIC 0x7475747469667632ull
#define FILENAME "wire-2"

static struct wire *wire;
static int wire_fd = -1, self = -1;
static char wire_path[PATH_MAX];
static uint64_t begun; /* where tail goes at fabric_commit, for the node that is locked */

int fabric_self(void) { return self; }

static int initialise(struct wire *w)
{
	pthread_mutexattr_t a;
	pthread_mutexattr_init(&a);
	pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	for (int i = 0; i < FABRIC_NODES; i++)
		pthread_mutex_init(&w->node[i].lock, &a);
	pthread_mutexattr_destroy(&a);
	w->bytes = sizeof *w;
	w->magic = MAGIC;
	return 0;
}

static void lock(struct node *n)
{
	if (pthread_mutex_lock(&n->lock) == EOWNERDEAD)
		pthread_mutex_consistent(&n->lock);
}

/* A process holds a lock on the byte of its number for as long as it lives. */
static int byte_lock(int cmd, int node, short type)
{
	struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = node, .l_len = 1};
	int r = fcntl(wire_fd, cmd, &l);
	return r < 0 ? -1 : l.l_type;
}

static int claim(unsigned host)
{
	for (int i = 0; i < FABRIC_NODES; i++) {
		if (byte_lock(F_OFD_SETLK, i, F_WRLCK) < 0)
			continue;
		struct node *n = &wire->node[i];
		lock(n);
		atomic_store(&n->head, atomic_load(&n->tail));
		atomic_store(&n->waiters, 0);
		atomic_store(&n->asleep, 0);
		n->pid = (uint32_t)getpid();
		n->host = host;
		atomic_store(&n->alive, 1);
		pthread_mutex_unlock(&n->lock);
		return i;
	}
	return -1;
}

int fabric_join(const char *dir, unsigned host)
{
	if (self >= 0)
		return 0;
	int length = snprintf(wire_path, sizeof wire_path, "%s/" FILENAME, dir);
	if (length < 0 || (size_t)length >= sizeof wire_path)
		return ENAMETOOLONG;
	for (;;) {
		wire_fd = open(wire_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (wire_fd < 0)
			return errno;
		struct stat s;
		if (flock(wire_fd, LOCK_EX) < 0 || fstat(wire_fd, &s) < 0) {
			int e = errno;
			close(wire_fd);
			return e;
		}
		if (s.st_nlink > 0)
			break;
		close(wire_fd); /* the last user has just removed it */
	}
	int err = 0;
	if (ftruncate(wire_fd, sizeof *wire) < 0) {
		err = errno;
		goto fail;
	}
	wire = mmap(NULL, sizeof *wire, PROT_READ | PROT_WRITE, MAP_SHARED, wire_fd, 0);
	if (wire == MAP_FAILED) {
		err = errno;
		goto fail;
	}
	if (wire->magic == 0)
		initialise(wire);
	if (wire->magic != MAGIC || wire->bytes != sizeof *wire)
		err = EPROTO;
	else if ((self = claim(host)) < 0)
		err = ENOSPC;
	if (err == 0) {
		flock(wire_fd, LOCK_UN);
		return 0;
	}
	munmap(wire, sizeof *wire);
fail:
	close(wire_fd);
	wire_fd = -1;
	return err;
}

/* The mapping stays, since other threads may still look at it; the last to
 * leave removes the file. */
void fabric_leave(void)
{
	if (self < 0 || wire_fd < 0)
		return;
	flock(wire_fd, LOCK_EX);
	lock(&wire->node[self]);
	atomic_store(&wire->node[self].alive, 0);
	pthread_mutex_unlock(&wire->node[self].lock);
	byte_lock(F_OFD_SETLK, self, F_UNLCK);
	bool others = false;
	for (int i = 0; i < FABRIC_NODES && !others; i++)
		others = byte_lock(F_OFD_GETLK, i, F_WRLCK) != F_UNLCK;
	if (!others)
		unlink(wire_path);
	flock(wire_fd, LOCK_UN);
	close(wire_fd);
	wire_fd = -1;
}

bool fabric_alive(int node) { return node >= 0 && node < FABRIC_NODES && atomic_load(&wire->node[node].alive); }

bool fabric_probe(int node)
{
	if (node == self)
		return true;
	if (!fabric_alive(node))
		return false;
	if (byte_lock(F_OFD_GETLK, node, F_WRLCK) != F_UNLCK)
		return true;
	atomic_store(&wire->node[node].alive, 0);
	return false;
}

static uint64_t round_up(uint64_t n) { return (n + ALIGN - 1) & ~(uint64_t)(ALIGN - 1); }

int fabric_begin(int node, const struct packet *p, void **payload)
{
	if (!fabric_alive(node))
		return FABRIC_GONE;
	struct node *n = &wire->node[node];
	uint64_t need = sizeof *p + round_up(p->bytes);
	lock(n);
	uint64_t tail = atomic_load_explicit(&n->tail, memory_order_relaxed);
	uint64_t head = atomic_load_explicit(&n->head, memory_order_acquire);
	uint64_t at = tail % FABRIC_RING, skip = 0;
	if (at + need > FABRIC_RING)
		skip = FABRIC_RING - at;
	if (tail + skip + need - head > FABRIC_RING) {
		atomic_fetch_or(&n->waiters, 1ull << self);
		/* It may have been emptied meanwhile, and nobody rings any more. */
		head = atomic_load(&n->head);
		if (tail + skip + need - head > FABRIC_RING) {
			pthread_mutex_unlock(&n->lock);
			return FABRIC_FULL;
		}
	}
	if (skip > 0) {
		((struct packet *)(n->ring + at))->type = SKIP;
		at = 0;
	}
	memcpy(n->ring + at, p, sizeof *p);
	*payload = n->ring + at + sizeof *p;
	begun = tail + skip + need;
	return FABRIC_OK;
}

void fabric_commit(int node)
{
	struct node *n = &wire->node[node];
	atomic_store_explicit(&n->tail, begun, memory_order_release);
	pthread_mutex_unlock(&n->lock);
	fabric_ring(node);
}

const struct packet *fabric_next(void **payload)
{
	struct node *n = &wire->node[self];
	for (;;) {
		uint64_t head = atomic_load_explicit(&n->head, memory_order_relaxed);
		if (head == atomic_load_explicit(&n->tail, memory_order_acquire))
			return NULL;
		struct packet *p = (struct packet *)(n->ring + head % FABRIC_RING);
		if (p->type != SKIP) {
			*payload = p + 1;
			return p;
		}
		atomic_store_explicit(&n->head, head + FABRIC_RING - head % FABRIC_RING, memory_order_release);
	}
}

void fabric_done(void)
{
	struct node *n = &wire->node[self];
	uint64_t head = atomic_load_explicit(&n->head, memory_order_relaxed);
	struct packet *p = (struct packet *)(n->ring + head % FABRIC_RING);
	head += sizeof *p + round_up(p->bytes);
	atomic_store(&n->head, head);
	/* Those who wait for room wait for half of it, or they would come for
	 * every packet. */
	if (atomic_load(&n->waiters) == 0 || atomic_load(&n->tail) - head > FABRIC_RING / 2)
		return;
	uint64_t waiters = atomic_exchange(&n->waiters, 0);
	for (int i = 0; i < FABRIC_NODES; i++)
		if (waiters >> i & 1)
			fabric_ring(i);
}

void fabric_ring(int node)
{
	struct node *n = &wire->node[node];
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load(&n->asleep) == 0)
		return;
	atomic_store(&n->asleep, 0);
	atomic_fetch_add(&n->bell, 1);
	syscall(SYS_futex, &n->bell, FUTEX_WAKE, 1, NULL, NULL, 0);
}

void fabric_sleep(int64_t nanoseconds, bool (*idle)(void))
{
	struct node *n = &wire->node[self];
	uint32_t bell = atomic_load(&n->bell);
	atomic_store(&n->asleep, 1);
	atomic_thread_fence(memory_order_seq_cst);
	if (idle() && atomic_load(&n->head) == atomic_load(&n->tail)) {
		struct timespec t = {.tv_sec = nanoseconds / 1000000000, .tv_nsec = nanoseconds % 1000000000};
		syscall(SYS_futex, &n->bell, FUTEX_WAIT, bell, &t, NULL, 0);
	}
	atomic_store(&n->asleep, 0);
}
