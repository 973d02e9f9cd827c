/* The variables that say what the fake pretends to be. */
#define _GNU_SOURCE
#include "fv.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"

#define PREFIX "TUTTI_FAKE_VERBS_"

void fv_say(const char *format, ...)
{
	char line[512];
	int at = snprintf(line, sizeof line, "fakeverbs[%d]: ", (int)getpid());
	va_list ap;
	va_start(ap, format);
	int n = vsnprintf(line + at, sizeof line - (size_t)at - 1, format, ap);
	va_end(ap);
	at = n < 0 || at + n > (int)sizeof line - 2 ? (int)sizeof line - 2 : at + n;
	line[at++] = '\n';
	(void)!write(STDERR_FILENO, line, (size_t)at);
}

static const char *variable(const char *name)
{
	char full[64];
	snprintf(full, sizeof full, PREFIX "%s", name);
	const char *v = getenv(full);
	return v && *v ? v : NULL;
}

/* What cannot be right is said and not used: a test that misspells a value
 * must not pass for the wrong reason. */
static long long number(const char *name, long long def, long long min, long long max)
{
	const char *v = variable(name);
	if (!v)
		return def;
	char *end;
	errno = 0;
	long long n = strtoll(v, &end, 0);
	if (errno || *end || n < min || n > max) {
		fv_say(PREFIX "%s=%s is not a number from %lld to %lld", name, v, min, max);
		abort();
	}
	return n;
}

static void directory(char *dir, size_t room)
{
	const char *v = variable("DIR"), *run = getenv("XDG_RUNTIME_DIR");
	int n;
	if (v)
		n = snprintf(dir, room, "%s", v);
	else if (run && *run)
		n = snprintf(dir, room, "%s/tutti-fake-verbs", run);
	else
		n = snprintf(dir, room, "/tmp/tutti-fake-verbs-%u", (unsigned)geteuid());
	if (n < 0 || (size_t)n >= room) {
		fv_say(PREFIX "DIR is too long");
		abort();
	}
}

int fv_config_directory(const char *dir)
{
	if (mkdir(dir, 0700) < 0 && errno != EEXIST)
		return errno;
	struct stat s;
	if (stat(dir, &s) < 0)
		return errno;
	/* Others could read what we send, or write it. */
	return s.st_uid != geteuid() || (s.st_mode & 022) != 0 ? EPERM : 0;
}

void fv_config_read(struct fv_config *c)
{
	directory(c->dir, sizeof c->dir);
	c->host = (unsigned)number("HOST", 0, 0, FV_MAX_HOSTS - 1);
	c->devices = (int)number("DEVICES", 1, -1, FV_MAX_DEVICES);
	c->ports = (int)number("PORTS", 1, 1, FV_MAX_PORTS);
	c->quiet = number("QUIET", 0, 0, 1) != 0;
	c->verbose = number("VERBOSE", 0, 0, 1) != 0;
	c->max_msg = (uint32_t)number("MAX_MSG", 1 << 20, 1, 1ll << 31);
	c->max_inline = (uint32_t)number("MAX_INLINE", 220, 0, FV_MAX_INLINE);
	c->max_qp_wr = (uint32_t)number("MAX_QP_WR", 1024, 1, 1 << 16);
	c->max_sge = (uint32_t)number("MAX_SGE", FV_MAX_SGE, 1, FV_MAX_SGE);
	c->max_cqe = (uint32_t)number("MAX_CQE", 1 << 15, 1, 1 << 22);
	c->max_rd_atomic = (uint32_t)number("MAX_RD_ATOMIC", 4, 1, FV_MAX_RD_ATOMIC);
	c->max_qp = (uint32_t)number("MAX_QP", 4096, 1, FV_QPS / 2);
	c->max_mr = (uint32_t)number("MAX_MR", 1 << 14, 1, 1 << 16);
	c->memlock = (uint64_t)number("MEMLOCK", -1, -1, INT64_MAX);
	c->open_errno = (int)number("OPEN_ERRNO", 0, 0, 4095);
	c->tear = number("TEAR", 0, 0, 1) != 0;
	c->no_v2 = number("NO_ROCE_V2", 0, 0, 1) != 0;
	c->no_ipv4 = number("NO_IPV4", 0, 0, 1) != 0;

	long long mtu = number("MTU", 4096, 256, 4096);
	c->mtu = MTU_256;
	while (c->mtu < MTU_4096 && fv_mtu_bytes(c->mtu + 1) <= mtu)
		c->mtu++;

	c->time_scale = 0.1;
	const char *v = variable("TIME_SCALE");
	char *end;
	if (v && ((c->time_scale = strtod(v, &end)) <= 0 || *end)) {
		fv_say(PREFIX "TIME_SCALE=%s is not a positive number", v);
		abort();
	}

	v = variable("PLACEMENT");
	if (!v || strcmp(v, "messages") == 0)
		c->placement = PLACE_MESSAGES;
	else if (strcmp(v, "inorder") == 0)
		c->placement = PLACE_IN_ORDER;
	else if (strcmp(v, "relaxed") == 0)
		c->placement = PLACE_RELAXED;
	else {
		fv_say(PREFIX "PLACEMENT=%s is none of inorder, messages, relaxed", v);
		abort();
	}

	v = variable("SEED");
	if (v) {
		c->seed = strtoull(v, &end, 0);
		if (*end) {
			fv_say(PREFIX "SEED=%s is not a number", v);
			abort();
		}
	} else if (getrandom(&c->seed, sizeof c->seed, 0) != sizeof c->seed)
		c->seed = (uint64_t)getpid() << 32 ^ fv_now();
	if (!c->quiet)
		fv_say("a simulated device: host %u, " PREFIX "SEED=0x%llx, " PREFIX "DIR=%s", c->host, (unsigned long long)c->seed, c->dir);
}
