// bench.h - what every peer program shares: arguments, pinning, the clock, the
// timing method, the check and the JSON line. A peer program only supplies the
// calls into its library (struct bench_lib), so no peer can be measured in its
// own way.
//
// The timing method, the same as commbench's:
//
//   for each iteration:  barrier (not timed) | t0 | call x batch | t1
//   sample(rank, iteration) = (t1 - t0) / batch
//   sample(iteration)       = max over ranks
//   min, p50, p99, max, avg = over iterations
//
// batch is 100 up to 4 KiB, 10 up to 64 KiB, 1 above: one call of a
// microsecond is not worth two clock readings and a barrier's echo.

#ifndef TUTTI_BENCH_PEERS_H
#define TUTTI_BENCH_PEERS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { BENCH_MAX_SIZES = 64 };

enum bench_op {
	OP_ALLREDUCE,
	OP_BROADCAST,
	OP_REDUCE,
	OP_GATHER,
	OP_ALLGATHER,
	OP_SCATTER,
	OP_REDUCE_SCATTER,
	OP_ALLTOALL,
	OP_SENDRECV,
	OP_BARRIER,
	OP_GATHERV,
	OP_ALLGATHERV,
	OP_SCATTERV,
	OP_REDUCE_SCATTERV,
	OP_ALLTOALLV,
	OP_COUNT
};

static const char *const bench_op_names[OP_COUNT] = {
	"allreduce", "broadcast", "reduce", "gather", "allgather", "scatter",
	"reduce_scatter", "alltoall", "sendrecv", "barrier",
	"gatherv", "allgatherv", "scatterv", "reduce_scatterv", "alltoallv",
};

// bench_kind is what an op moves: a v form, measured with equal counts, moves
// the same as the form without.
static enum bench_op bench_kind(enum bench_op op)
{
	switch (op) {
	case OP_GATHERV: return OP_GATHER;
	case OP_ALLGATHERV: return OP_ALLGATHER;
	case OP_SCATTERV: return OP_SCATTER;
	case OP_REDUCE_SCATTERV: return OP_REDUCE_SCATTER;
	case OP_ALLTOALLV: return OP_ALLTOALL;
	default: return op;
	}
}

// The root of every op that has one.
enum { BENCH_ROOT = 0 };

struct bench_opt {
	enum bench_op op;
	enum bench_op kind; // op, or what it is a v form of
	size_t sizes[BENCH_MAX_SIZES];
	int nsizes;
	int iters;    // at most this many timed iterations
	int warmup;   // untimed iterations before them
	int batch;    // calls per iteration; 0: by size
	double cap;   // seconds a size may take to measure; 0: no cap
	int least;    // iterations even where one breaks the cap
	int in_place;
	int check;
	int is_int;   // int32 instead of float32
	int pin;
	const char *path;    // the peer's name, printed as "path"
	const char *variant; // the library's own way of doing it, where it has several
};

// bench_lib is a peer library. max combines n doubles over all ranks and
// leaves the result on all of them.
struct bench_lib {
	int rank, ranks;
	int part_stays; // in place, reduce_scatter leaves each rank's part where it was, not first
	void *self;
	void (*barrier)(void *self);
	void (*max)(void *self, double *v, size_t n);
	// prepare is told the buffers of the next size, so that a library that
	// binds buffers ahead of the call may do so untimed; it may be NULL.
	void (*prepare)(void *self, const struct bench_opt *, const void *send, void *recv, size_t count);
	void (*call)(void *self, const struct bench_opt *, const void *send, void *recv, size_t count);
};

static void bench_die(const char *what, const char *which)
{
	fprintf(stderr, "peer bench: %s: %s\n", what, which);
	exit(2);
}

static size_t bench_bytes(const char *s)
{
	char *end;
	unsigned long long v = strtoull(s, &end, 10);
	switch (*end) {
	case 'K': case 'k': v <<= 10; end++; break;
	case 'M': case 'm': v <<= 20; end++; break;
	case 'G': case 'g': v <<= 30; end++; break;
	}
	if (end == s || *end)
		bench_die("not a size", s);
	return (size_t)v;
}

static struct bench_opt bench_args(int argc, char **argv)
{
	struct bench_opt o;
	memset(&o, 0, sizeof o);
	o.iters = 100;
	o.warmup = 5;
	o.least = 3;
	o.pin = 1;
	o.path = "peer";
	o.variant = "";
	for (int i = 1; i < argc; i++) {
		const char *a = argv[i];
		if (!strcmp(a, "--in-place")) { o.in_place = 1; continue; }
		if (!strcmp(a, "-c")) { o.check = 1; continue; }
		if (!strcmp(a, "--no-pin")) { o.pin = 0; continue; }
		if (i + 1 == argc)
			bench_die("unknown option, or one without its value", a);
		char *v = argv[++i];
		if (!strcmp(a, "--op")) {
			int k = 0;
			while (k < OP_COUNT && strcmp(v, bench_op_names[k]))
				k++;
			if (k == OP_COUNT)
				bench_die("unknown op", v);
			o.op = (enum bench_op)k;
		} else if (!strcmp(a, "-b")) {
			for (char *s = strtok(v, ","); s; s = strtok(NULL, ",")) {
				if (o.nsizes == BENCH_MAX_SIZES)
					bench_die("too many sizes", s);
				o.sizes[o.nsizes++] = bench_bytes(s);
			}
		} else if (!strcmp(a, "-n")) o.iters = atoi(v);
		else if (!strcmp(a, "-w")) o.warmup = atoi(v);
		else if (!strcmp(a, "--batch")) o.batch = atoi(v);
		else if (!strcmp(a, "--least")) o.least = atoi(v);
		else if (!strcmp(a, "--cap-ms")) o.cap = atof(v) / 1e3;
		else if (!strcmp(a, "-d")) {
			if (strcmp(v, "f32") && strcmp(v, "i32"))
				bench_die("unknown element type", v);
			o.is_int = v[0] == 'i';
		} else if (!strcmp(a, "--path")) o.path = v;
		else if (!strcmp(a, "--variant")) o.variant = v;
		else bench_die("unknown option", a);
	}
	o.kind = bench_kind(o.op);
	// These have no form in place.
	if (o.kind == OP_ALLTOALL || o.op == OP_SENDRECV || o.op == OP_BARRIER)
		o.in_place = 0;
	if (o.op == OP_BARRIER) {
		o.nsizes = 1;
		o.sizes[0] = 0;
	}
	if (o.nsizes == 0)
		bench_die("no sizes", "give -b BYTES[,BYTES...]");
	if (o.iters < 1 || o.warmup < 0 || o.batch < 0 || o.least < 1)
		bench_die("bad count", "-n, -w, --batch or --least");
	return o;
}

// bench_pin ties the calling thread to core rank mod cores of the mask the
// program was started with; threads it creates later inherit that.
static void bench_pin(int rank)
{
	static cpu_set_t start;
	static int cores;
	if (cores == 0) {
		if (sched_getaffinity(0, sizeof start, &start))
			bench_die("sched_getaffinity", strerror(errno));
		cores = CPU_COUNT(&start);
	}
	int want = rank % cores;
	for (int c = 0; c < CPU_SETSIZE; c++) {
		if (!CPU_ISSET(c, &start) || want-- > 0)
			continue;
		cpu_set_t one;
		CPU_ZERO(&one);
		CPU_SET(c, &one);
		if (sched_setaffinity(0, sizeof one, &one))
			bench_die("sched_setaffinity", strerror(errno));
		return;
	}
}

// bench_env_rank reads the rank from the launcher's environment, so that the
// pin holds before the library allocates and starts threads; -1 if unknown.
static int bench_env_rank(void)
{
	static const char *const names[] = {
		"PEERS_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MPI_RANKID",
	};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		const char *v = getenv(names[i]);
		if (v && *v)
			return atoi(v);
	}
	return -1;
}

// bench_start is a peer program's first act: die with the launcher, pin.
static inline void bench_start(const struct bench_opt *o)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	int r = bench_env_rank();
	if (o->pin && r >= 0)
		bench_pin(r);
}

static double bench_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// A bench_buf is a buffer of n elements with a guard before it and one right
// after its last element. From 2 MiB on it begins on such a boundary, as the
// kernel has it for a mapping without guards, for the sake of huge pages.
struct bench_buf {
	char *at;
	size_t n;
	char *map;
	size_t mapped;
};

enum { BENCH_GUARD = 4096, BENCH_HUGE = 2 << 20, BENCH_MARK = 0xA5 };

static struct bench_buf bench_alloc(size_t n)
{
	struct bench_buf b;
	size_t align = n * 4 >= BENCH_HUGE ? BENCH_HUGE : BENCH_GUARD;
	b.n = n;
	b.mapped = n * 4 + 2 * BENCH_GUARD + align;
	b.map = (char *)mmap(NULL, b.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b.map == MAP_FAILED)
		bench_die("no memory for a buffer", strerror(errno));
	b.at = (char *)(((uintptr_t)b.map + BENCH_GUARD + align - 1) / align * align);
	memset(b.at - BENCH_GUARD, BENCH_MARK, BENCH_GUARD);
	memset(b.at + n * 4, BENCH_MARK, BENCH_GUARD);
	return b;
}

static void bench_free(struct bench_buf *b)
{
	munmap(b->map, b->mapped);
}

// bench_touched counts the guards' bytes that were written over.
static size_t bench_touched(const struct bench_buf *b)
{
	size_t n = 0;
	for (size_t i = 0; i < BENCH_GUARD; i++) {
		n += (unsigned char)b->at[(ptrdiff_t)i - BENCH_GUARD] != BENCH_MARK;
		n += (unsigned char)b->at[b->n * 4 + i] != BENCH_MARK;
	}
	return n;
}

// bench_value is element i of rank's contribution: a small integer, so that
// sums are exact in both types whatever order they are taken in. It depends on
// i mod 11 only, which keeps filling and checking a gigabyte short.
enum { BENCH_PERIOD = 11 };

static inline int bench_value(int rank, size_t i)
{
	return (int)((i % BENCH_PERIOD * 7 + (size_t)rank * 3) % BENCH_PERIOD);
}

// bench_fill writes rank's elements base, base+1, ... to buf.
static void bench_fill(const struct bench_opt *o, void *buf, size_t n, size_t base, int rank)
{
	int v[BENCH_PERIOD];
	for (size_t k = 0; k < BENCH_PERIOD; k++)
		v[k] = bench_value(rank, base + k);
	for (size_t i = 0, k = 0; i < n; i++, k = k + 1 == BENCH_PERIOD ? 0 : k + 1) {
		if (o->is_int)
			((int32_t *)buf)[i] = v[k];
		else
			((float *)buf)[i] = (float)v[k];
	}
}

static inline int bench_get(const struct bench_opt *o, const void *buf, size_t i)
{
	return o->is_int ? ((const int32_t *)buf)[i] : (int)((const float *)buf)[i];
}

// A bench_shape is what an op of so many bytes means on one rank. The bytes of
// the ops between one buffer and a part of it a rank (gather, allgather,
// scatter, reduce_scatter, alltoall) are those of the whole: a part has whole
// elements, rounded down, and at least one.
struct bench_shape {
	size_t count;       // elements a call is given: of a part, or of the buffer
	size_t nsend, nrecv; // elements of this rank's buffers
	size_t send_base;   // index, in the contribution, of the first element sent
	size_t own;         // where, in the one buffer of a call in place, that is
};

static struct bench_shape bench_shape_of(const struct bench_opt *o, int rank, int ranks, size_t bytes)
{
	struct bench_shape s;
	memset(&s, 0, sizeof s);
	size_t whole = bytes / 4 ? bytes / 4 : 1;
	size_t part = whole / (size_t)ranks ? whole / (size_t)ranks : 1;
	size_t all = part * (size_t)ranks, r = (size_t)rank;
	int root = rank == BENCH_ROOT;
	s.count = s.nsend = s.nrecv = part;
	switch (o->kind) {
	case OP_GATHER: s.nrecv = root ? all : 0; s.send_base = r * part; s.own = root ? r * part : 0; break;
	case OP_ALLGATHER: s.nrecv = all; s.send_base = s.own = r * part; break;
	case OP_SCATTER: s.nsend = root ? all : 0; break;
	case OP_REDUCE_SCATTER: s.nsend = all; break;
	case OP_ALLTOALL: s.nsend = s.nrecv = all; break;
	case OP_BARRIER: s.count = s.nsend = s.nrecv = 0; break;
	default: s.count = s.nsend = s.nrecv = whole;
	}
	return s;
}

// In place there is one buffer, which holds both; out of place the receive
// buffer starts with what no answer has.
static void bench_reset(const struct bench_opt *o, const struct bench_lib *l, const struct bench_shape *s, struct bench_buf *send, struct bench_buf *recv)
{
	memset(recv->at, 0x7F, recv->n * 4);
	if (o->in_place)
		bench_fill(o, recv->at + s->own * 4, s->nsend, s->send_base, l->rank);
	else
		bench_fill(o, send->at, s->nsend, s->send_base, l->rank);
	// MPI broadcasts from the one buffer it is given.
	if (o->op == OP_BROADCAST && l->rank == BENCH_ROOT)
		bench_fill(o, recv->at, s->nrecv, 0, l->rank);
}

// bench_differ counts the elements of recv[at..at+n) that are not what the
// given ranks' elements base, base+1, ... add up to.
static size_t bench_differ(const struct bench_opt *o, const void *recv, size_t at, size_t n, size_t base, int rank0, int ranks)
{
	int want[BENCH_PERIOD];
	for (size_t k = 0; k < BENCH_PERIOD; k++) {
		want[k] = 0;
		for (int q = rank0; q < rank0 + ranks; q++)
			want[k] += bench_value(q, base + k);
	}
	size_t wrong = 0;
	for (size_t i = 0, k = 0; i < n; i++, k = k + 1 == BENCH_PERIOD ? 0 : k + 1)
		wrong += bench_get(o, recv, at + i) != want[k];
	return wrong;
}

// bench_wrong counts what is not as it should be: elements of the answer, of a
// send buffer that was not to be written, and bytes beyond the buffers' ends.
static double bench_wrong(const struct bench_opt *o, const struct bench_lib *l, const struct bench_shape *s, const struct bench_buf *send, const struct bench_buf *recv)
{
	size_t n = s->count, r = (size_t)l->rank, ranks = (size_t)l->ranks;
	int root = l->rank == BENCH_ROOT;
	size_t wrong = bench_touched(recv);
	if (!o->in_place)
		wrong += bench_touched(send) + bench_differ(o, send->at, 0, s->nsend, s->send_base, l->rank, 1);
	switch (o->kind) {
	case OP_REDUCE:
		if (!root)
			break;
		// fall through
	case OP_ALLREDUCE:
		wrong += bench_differ(o, recv->at, 0, n, 0, 0, l->ranks);
		break;
	case OP_BROADCAST:
		wrong += bench_differ(o, recv->at, 0, n, 0, BENCH_ROOT, 1);
		break;
	case OP_REDUCE_SCATTER:
		wrong += bench_differ(o, recv->at, o->in_place && l->part_stays ? r * n : 0, n, r * n, 0, l->ranks);
		break;
	case OP_GATHER:
		if (!root)
			break;
		// fall through
	case OP_ALLGATHER:
		for (size_t q = 0; q < ranks; q++)
			wrong += bench_differ(o, recv->at, q * n, n, q * n, (int)q, 1);
		break;
	case OP_SCATTER:
		// In place the root's part stays where it is, and so do the others'.
		if (o->in_place && root)
			wrong += bench_differ(o, recv->at, 0, s->nsend, 0, BENCH_ROOT, 1);
		else
			wrong += bench_differ(o, recv->at, 0, n, r * n, BENCH_ROOT, 1);
		break;
	case OP_ALLTOALL: // from rank q its part r
		for (size_t q = 0; q < ranks; q++)
			wrong += bench_differ(o, recv->at, q * n, n, r * n, (int)q, 1);
		break;
	case OP_SENDRECV:
		wrong += bench_differ(o, recv->at, 0, n, 0, (l->rank + l->ranks - 1) % l->ranks, 1);
		break;
	default:
		bench_die("no check of", bench_op_names[o->op]);
	}
	return (double)wrong;
}

static int bench_less(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

// bench_busbw is the factor from algorithm to bus bandwidth, as NCCL's tests
// define it.
static double bench_busbw(enum bench_op kind, int ranks)
{
	double n = ranks;
	switch (kind) {
	case OP_ALLREDUCE: return 2 * (n - 1) / n;
	case OP_BROADCAST: case OP_REDUCE: case OP_SENDRECV: return 1;
	default: return (n - 1) / n;
	}
}

static void bench_print(const struct bench_opt *o, const struct bench_lib *l, size_t bytes, size_t count, double *s, int n, double wrong)
{
	double sum = 0;
	for (int i = 0; i < n; i++)
		sum += s[i];
	qsort(s, (size_t)n, sizeof *s, bench_less);
	double p50 = s[(n - 1) / 2], p99 = s[(int)ceil(0.99 * n) - 1];
	double algbw = (double)bytes / p50 / 1e9;
	int reduces = o->kind == OP_ALLREDUCE || o->kind == OP_REDUCE || o->kind == OP_REDUCE_SCATTER;
	int rooted = o->kind == OP_BROADCAST || o->kind == OP_REDUCE || o->kind == OP_GATHER || o->kind == OP_SCATTER;
	int root = rooted ? BENCH_ROOT : -1;
	printf("{\"op\":\"%s\",\"path\":\"%s\",\"algo\":\"\",\"ranks\":%d,\"bytes\":%zu,\"count\":%zu,"
	       "\"dtype\":\"%s\",\"redop\":\"%s\",\"root\":%d,\"in_place\":%s,\"memory\":\"user\",\"iters\":%d,"
	       "\"time_us\":{\"min\":%.3f,\"p50\":%.3f,\"p99\":%.3f,\"max\":%.3f,\"avg\":%.3f},"
	       "\"algbw_gbs\":%.3f,\"busbw_gbs\":%.3f,\"wrong\":%.0f}\n",
	       bench_op_names[o->op], o->path, l->ranks, bytes, count,
	       o->is_int ? "i32" : "f32", reduces ? "sum" : "", root, o->in_place ? "true" : "false", n,
	       s[0] * 1e6, p50 * 1e6, p99 * 1e6, s[n - 1] * 1e6, sum / n * 1e6,
	       algbw, algbw * bench_busbw(o->kind, l->ranks), wrong);
	fflush(stdout);
}

static double bench_sample(const struct bench_opt *o, const struct bench_lib *l, const void *send, void *recv, size_t count, int batch)
{
	l->barrier(l->self);
	double t0 = bench_now();
	for (int b = 0; b < batch; b++)
		l->call(l->self, o, send, recv, count);
	return (bench_now() - t0) / batch;
}

// bench_plan cuts the iterations down to what the cap allows, down to 5, or to
// the least (3) where one takes longer than a sixth of it. Only then, where even
// three batches break the cap (ranks starving each other on too few cores), is the
// batch cut: a call that long needs no averaging.
static void bench_plan(const struct bench_opt *o, double call, int *iters, int *batch)
{
	*iters = o->iters;
	if (o->cap <= 0)
		return;
	double fit = o->cap / (call * *batch);
	int least = fit < 6 ? o->least : 5;
	if (fit < *iters)
		*iters = (int)fit < least ? least : (int)fit;
	if (*iters > o->iters)
		*iters = o->iters;
	if (fit < 3 && *batch > 1)
		*batch = (int)(o->cap / 3 / call) > 0 ? (int)(o->cap / 3 / call) : 1;
}

// In place a sender of a part finds it where it is to be in the whole.
static const void *bench_send_at(const struct bench_opt *o, const struct bench_shape *s, const struct bench_buf *send)
{
	return o->in_place ? send->at + s->own * 4 : send->at;
}

// bench_check_call makes one call and counts what is wrong after it.
static double bench_check_call(const struct bench_opt *o, const struct bench_lib *l, const struct bench_shape *s, struct bench_buf *send, struct bench_buf *recv)
{
	if (o->op == OP_BARRIER) {
		// Nobody leaves before the last has come. All ranks read one clock.
		usleep((useconds_t)(l->ranks - l->rank) * 300);
		double v[2];
		v[0] = bench_now();
		l->call(l->self, o, send->at, recv->at, 0);
		v[1] = -bench_now();
		l->max(l->self, v, 2);
		return v[0] > -v[1];
	}
	l->barrier(l->self);
	bench_reset(o, l, s, send, recv);
	l->barrier(l->self);
	l->call(l->self, o, bench_send_at(o, s, send), recv->at, s->count);
	// Nobody goes on while somebody may still be reading or writing.
	l->barrier(l->self);
	return bench_wrong(o, l, s, send, recv);
}

static void bench_size(const struct bench_opt *o, const struct bench_lib *l, size_t bytes)
{
	struct bench_shape shape = bench_shape_of(o, l->rank, l->ranks, bytes);
	size_t count = shape.count;
	int batch = o->batch ? o->batch : bytes <= 4096 ? 100 : bytes <= 65536 ? 10 : 1;

	size_t need = o->in_place && shape.nsend > shape.nrecv ? shape.nsend : shape.nrecv;
	struct bench_buf rbuf = bench_alloc(need);
	struct bench_buf sbuf = o->in_place ? rbuf : bench_alloc(shape.nsend);
	const void *send = bench_send_at(o, &shape, &sbuf);
	void *recv = rbuf.at;
	bench_reset(o, l, &shape, &sbuf, &rbuf);
	if (l->prepare)
		l->prepare(l->self, o, send, recv, count);

	double wrong = 0;
	if (o->check)
		wrong = bench_check_call(o, l, &shape, &sbuf, &rbuf);

	// Two single calls, the second of them believed, tell how many fit.
	double first = bench_sample(o, l, send, recv, count, 1);
	double second = bench_sample(o, l, send, recv, count, 1);
	if (second > first)
		second = first;
	l->max(l->self, &second, 1);
	int iters;
	bench_plan(o, second, &iters, &batch);
	// The two calls above are warm-up enough where calls are long.
	for (int i = 0; i < o->warmup && (o->cap <= 0 || (second < o->cap && i * second * batch < o->cap / 2)); i++)
		bench_sample(o, l, send, recv, count, batch);

	double *s = (double *)calloc((size_t)iters, sizeof *s);
	if (!s)
		bench_die("no memory for samples", strerror(errno));
	for (int i = 0; i < iters; i++)
		s[i] = bench_sample(o, l, send, recv, count, batch);
	l->max(l->self, s, (size_t)iters);

	// Once more after many calls, where there were many.
	if (o->check && (o->cap <= 0 || second * 5 < o->cap)) {
		double w = bench_check_call(o, l, &shape, &sbuf, &rbuf);
		wrong = w > wrong ? w : wrong;
	}
	l->max(l->self, &wrong, 1);
	if (l->rank == 0)
		bench_print(o, l, bytes, count, s, iters, wrong);
	free(s);
	l->barrier(l->self);
	bench_free(&rbuf);
	if (!o->in_place)
		bench_free(&sbuf);
}

static void bench_main(const struct bench_opt *o, const struct bench_lib *l)
{
	if (o->pin)
		bench_pin(l->rank); // again: a library may have moved the thread while starting
	for (int i = 0; i < o->nsizes; i++)
		bench_size(o, l, o->sizes[i]);
}

#ifdef __cplusplus
}
#endif
#endif
