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
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { BENCH_MAX_SIZES = 64 };

enum bench_op {
	OP_ALLREDUCE,
	OP_BROADCAST,
	OP_REDUCE,
	OP_ALLGATHER,
	OP_REDUCE_SCATTER,
	OP_ALLTOALL,
	OP_COUNT
};

static const char *const bench_op_names[OP_COUNT] = {
	"allreduce", "broadcast", "reduce", "allgather", "reduce_scatter", "alltoall",
};

struct bench_opt {
	enum bench_op op;
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
	if (end == s || *end || v == 0)
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

static void *bench_alloc(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		bench_die("no memory for a buffer", strerror(errno));
	return p;
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

// bench_shape says how many elements a rank passes to the call (count) and
// how long its buffers are. The bytes of allgather, reduce_scatter and
// alltoall are those of the whole, of which each rank holds one part.
static void bench_shape(const struct bench_opt *o, int ranks, size_t bytes, size_t *count, size_t *nsend, size_t *nrecv)
{
	size_t whole = bytes / 4 ? bytes / 4 : 1;
	size_t part = whole / (size_t)ranks ? whole / (size_t)ranks : 1;
	switch (o->op) {
	case OP_ALLGATHER: *count = part; *nsend = part; *nrecv = part * (size_t)ranks; break;
	case OP_REDUCE_SCATTER: *count = part; *nsend = part * (size_t)ranks; *nrecv = part; break;
	case OP_ALLTOALL: *count = part; *nsend = *nrecv = part * (size_t)ranks; break;
	default: *count = *nsend = *nrecv = whole;
	}
}

// In place there is one buffer; it must hold both.
static void bench_reset(const struct bench_opt *o, const struct bench_lib *l, void *send, size_t nsend, void *recv, size_t nrecv, size_t count)
{
	size_t r = (size_t)l->rank;
	if (!o->in_place) {
		memset(recv, 0, nrecv * 4);
		bench_fill(o, send, nsend, o->op == OP_ALLGATHER ? r * count : 0, l->rank);
	} else if (o->op == OP_ALLGATHER) {
		memset(recv, 0, nrecv * 4);
		bench_fill(o, (char *)recv + r * count * 4, count, r * count, l->rank);
	} else {
		bench_fill(o, recv, nsend, 0, l->rank);
	}
	// MPI broadcasts from the one buffer it is given.
	if (o->op == OP_BROADCAST)
		bench_fill(o, recv, nrecv, 0, l->rank);
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

static double bench_wrong(const struct bench_opt *o, const struct bench_lib *l, const void *recv, size_t count)
{
	size_t wrong = 0, r = (size_t)l->rank;
	switch (o->op) {
	case OP_ALLREDUCE:
		return (double)bench_differ(o, recv, 0, count, 0, 0, l->ranks);
	case OP_REDUCE:
		return l->rank ? 0 : (double)bench_differ(o, recv, 0, count, 0, 0, l->ranks);
	case OP_BROADCAST:
		return (double)bench_differ(o, recv, 0, count, 0, 0, 1);
	case OP_REDUCE_SCATTER:
		return (double)bench_differ(o, recv, 0, count, r * count, 0, l->ranks);
	case OP_ALLGATHER:
		for (int q = 0; q < l->ranks; q++)
			wrong += bench_differ(o, recv, (size_t)q * count, count, (size_t)q * count, q, 1);
		return (double)wrong;
	default: // alltoall: from rank q its part r
		for (int q = 0; q < l->ranks; q++)
			wrong += bench_differ(o, recv, (size_t)q * count, count, r * count, q, 1);
		return (double)wrong;
	}
}

static int bench_less(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

// bench_busbw is the factor from algorithm to bus bandwidth, as NCCL's tests
// define it.
static double bench_busbw(enum bench_op op, int ranks)
{
	double n = ranks;
	switch (op) {
	case OP_ALLREDUCE: return 2 * (n - 1) / n;
	case OP_BROADCAST: case OP_REDUCE: return 1;
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
	int reduces = o->op == OP_ALLREDUCE || o->op == OP_REDUCE || o->op == OP_REDUCE_SCATTER;
	int root = o->op == OP_BROADCAST || o->op == OP_REDUCE ? 0 : -1;
	printf("{\"op\":\"%s\",\"path\":\"%s\",\"algo\":\"\",\"ranks\":%d,\"bytes\":%zu,\"count\":%zu,"
	       "\"dtype\":\"%s\",\"redop\":\"%s\",\"root\":%d,\"in_place\":%s,\"memory\":\"user\",\"iters\":%d,"
	       "\"time_us\":{\"min\":%.3f,\"p50\":%.3f,\"p99\":%.3f,\"max\":%.3f,\"avg\":%.3f},"
	       "\"algbw_gbs\":%.3f,\"busbw_gbs\":%.3f,\"wrong\":%.0f}\n",
	       bench_op_names[o->op], o->path, l->ranks, bytes, count,
	       o->is_int ? "i32" : "f32", reduces ? "sum" : "", root, o->in_place ? "true" : "false", n,
	       s[0] * 1e6, p50 * 1e6, p99 * 1e6, s[n - 1] * 1e6, sum / n * 1e6,
	       algbw, algbw * bench_busbw(o->op, l->ranks), wrong);
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

static void bench_size(const struct bench_opt *o, const struct bench_lib *l, size_t bytes)
{
	size_t count, nsend, nrecv;
	bench_shape(o, l->ranks, bytes, &count, &nsend, &nrecv);
	int batch = o->batch ? o->batch : bytes <= 4096 ? 100 : bytes <= 65536 ? 10 : 1;

	size_t nbuf = o->in_place && nsend > nrecv ? nsend : nrecv;
	void *recv = bench_alloc(nbuf * 4);
	void *send = o->in_place ? recv : bench_alloc(nsend * 4);
	bench_reset(o, l, send, nsend, recv, nrecv, count);
	if (l->prepare)
		l->prepare(l->self, o, send, recv, count);

	double wrong = 0;
	if (o->check) {
		l->call(l->self, o, send, recv, count);
		wrong = bench_wrong(o, l, recv, count);
		l->barrier(l->self);
		bench_reset(o, l, send, nsend, recv, nrecv, count);
	}

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
	if (o->check && (o->cap <= 0 || second < o->cap)) {
		l->barrier(l->self);
		bench_reset(o, l, send, nsend, recv, nrecv, count);
		l->barrier(l->self);
		l->call(l->self, o, send, recv, count);
		double w = bench_wrong(o, l, recv, count);
		wrong = w > wrong ? w : wrong;
	}
	l->max(l->self, &wrong, 1);
	if (l->rank == 0)
		bench_print(o, l, bytes, count, s, iters, wrong);
	free(s);
	l->barrier(l->self);
	munmap(recv, nbuf * 4);
	if (!o->in_place)
		munmap(send, nsend * 4);
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
