/*
 * What tests ask for. Commands are lines that somebody appends to the file
 * "control" in the job's directory; every process reads them, and those that
 * describe a state again when it starts. Each says in a file of its own,
 * "process-PID", how far it has read and what it has open; it holds a lock on
 * that file while it lives.
 *
 *	port host=0 device=0 port=1 state=1
 *	hold device=0 what=3          1 data, 2 ends of messages, 4 answers; 0 lets go
 *	delay device=0 us=100         before each message
 *	fail qp=0 queue=send nth=1 status=12 after=0
 *	event device=0 type=8 port=1 qp=0
 *	kill qp=0x1234                into the error state, as if by the device
 *	report                        nothing but the answer
 *
 * All take pid=, host= and device= to say whom they concern; left out, all.
 */
#define _GNU_SOURCE
#include "fv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

static int control_fd = -1, notify_fd = -1, status_fd = -1;
static char status_path[320];
static uint64_t applied; /* bytes of the control file */
static unsigned answers;
static char complaint[320];

struct command {
	char name[16];
	char queue[8];
	long long pid, host, device, port, state, what, us, qp, nth, status, after, type;
};

static void complain(const char *what, const char *line)
{
	snprintf(complaint, sizeof complaint, "%s: %s", what, line);
	fv_say("control: %s", complaint);
}

static bool parse(char *line, struct command *c)
{
	*c = (struct command){.pid = -1, .host = -1, .device = -1, .port = -1, .nth = 1, .status = -1, .type = -1, .state = -1};
	struct {
		const char *name;
		long long *to;
	} fields[] = {{"pid", &c->pid},	    {"host", &c->host},	  {"device", &c->device}, {"port", &c->port},
		      {"state", &c->state}, {"what", &c->what},	  {"us", &c->us},	  {"qp", &c->qp},
		      {"nth", &c->nth},	    {"status", &c->status}, {"after", &c->after},   {"type", &c->type}};
	char *rest = line, *word = strsep(&rest, " ");
	snprintf(c->name, sizeof c->name, "%s", word);
	while ((word = strsep(&rest, " ")) != NULL) {
		char *value = word, *name = strsep(&value, "=");
		if (!*name)
			continue;
		if (!value)
			return false;
		if (strcmp(name, "queue") == 0) {
			snprintf(c->queue, sizeof c->queue, "%s", value);
			continue;
		}
		bool known = false;
		for (size_t i = 0; i < sizeof fields / sizeof *fields && !known; i++)
			if (strcmp(fields[i].name, name) == 0) {
				char *end;
				*fields[i].to = strtoll(value, &end, 0);
				known = *value && !*end;
			}
		if (!known)
			return false;
	}
	return true;
}

static void set_port(struct fv_device *d, int port, int state)
{
	int before = d->port_state[port];
	d->port_state[port] = state;
	if ((before == PORT_ACTIVE) != (state == PORT_ACTIVE))
		fv_raise_all(d, state == PORT_ACTIVE ? EV_PORT_ACTIVE : EV_PORT_ERR, port);
}

static void raise_on(struct fv_qp *qp, int type)
{
	switch (type) {
	case EV_CQ_ERR:
		pthread_mutex_lock(&qp->scq->lock);
		qp->scq->overrun = true;
		pthread_mutex_unlock(&qp->scq->lock);
		fv_raise(qp->context, type, qp->scq, 0);
		return;
	case EV_SRQ_ERR:
	case EV_SRQ_LIMIT_REACHED:
		if (qp->srq)
			fv_raise(qp->context, type, qp->srq, 0);
		return;
	case EV_QP_FATAL:
	case EV_QP_REQ_ERR:
	case EV_QP_ACCESS_ERR:
		fv_qp_error(qp);
	}
	fv_qp_event(qp, type);
}

static void each_qp(struct fv_device *d, long long qpn, int type)
{
	for (int i = 0; i < FV_QPS; i++) {
		struct fv_qp *qp = fv.qps[i];
		if (qp && qp->device == d && (qpn == 0 || qp->ibv.qp_num == (uint32_t)qpn))
			raise_on(qp, type);
	}
}

static bool event(struct fv_device *d, const struct command *c)
{
	int type = (int)c->type;
	switch (type) {
	case EV_DEVICE_FATAL:
		d->fatal = true;
		for (int i = 0; i < FV_QPS; i++)
			if (fv.qps[i] && fv.qps[i]->device == d)
				fv_qp_error(fv.qps[i]);
		/* fall through */
	case EV_PORT_ACTIVE:
	case EV_PORT_ERR:
	case EV_LID_CHANGE:
	case EV_PKEY_CHANGE:
	case EV_SM_CHANGE:
	case EV_CLIENT_REREGISTER:
	case EV_GID_CHANGE:
		fv_raise_all(d, type, c->port < 1 ? 1 : (int)c->port);
		return true;
	}
	if (type < 0 || type >= EV_COUNT)
		return false;
	each_qp(d, c->qp, type);
	return true;
}

static bool fail(const struct command *c)
{
	bool receive = strcmp(c->queue, "recv") == 0;
	if ((!receive && strcmp(c->queue, "send") != 0) || c->nth < 1 || c->status < 1 || c->status >= WC_STATUS_COUNT)
		return false;
	struct fv_fault *f = malloc(sizeof *f), **end = &fv.faults;
	if (!f)
		abort();
	*f = (struct fv_fault){
		.device = (int)c->device,
		.qpn = (uint32_t)c->qp,
		.receive = receive,
		.after = c->after != 0,
		.left = (uint64_t)c->nth,
		.status = (int)c->status,
	};
	while (*end)
		end = &(*end)->next;
	*end = f;
	return true;
}

/* fv_fault_for counts a work request, and returns the failure that it is to
 * meet, which is the caller's to free. */
struct fv_fault *fv_fault_for(struct fv_qp *qp, bool receive)
{
	for (struct fv_fault **p = &fv.faults; *p; p = &(*p)->next) {
		struct fv_fault *f = *p;
		if (f->receive != receive || (f->device >= 0 && f->device != qp->device->index) || (f->qpn && f->qpn != qp->ibv.qp_num))
			continue;
		if (--f->left == 0) {
			*p = f->next;
			return f;
		}
	}
	return NULL;
}

static bool obey(const struct command *c, bool past)
{
	if ((c->pid >= 0 && c->pid != getpid()) || (c->host >= 0 && c->host != fv.config.host))
		return true;
	if (c->qp != 0 && c->qp >> 16 != fabric_self())
		return true; /* of another process */
	if (strcmp(c->name, "report") == 0)
		return true;
	if (strcmp(c->name, "fail") == 0)
		return fail(c);
	bool known = false;
	for (int i = 0; i < fv.config.devices; i++) {
		struct fv_device *d = &fv.device[i];
		if (c->device >= 0 && c->device != i) {
			known = true;
			continue;
		}
		if (strcmp(c->name, "port") == 0 && c->state >= PORT_NOP && c->state <= PORT_ACTIVE_DEFER) {
			known = true;
			for (int p = 1; p <= fv.config.ports; p++)
				if (c->port < 0 || c->port == p)
					set_port(d, p, (int)c->state);
		} else if (strcmp(c->name, "hold") == 0 && c->what >= 0 && c->what <= (HOLD_DATA | HOLD_END | HOLD_ACK)) {
			known = true;
			d->hold = (unsigned)c->what;
		} else if (strcmp(c->name, "delay") == 0 && c->us >= 0) {
			known = true;
			d->delay_ns = (uint64_t)c->us * 1000;
		} else if (strcmp(c->name, "event") == 0)
			known = past || event(d, c);
		else if (strcmp(c->name, "kill") == 0) {
			known = true;
			if (!past)
				each_qp(d, c->qp, EV_QP_FATAL);
		} else
			return false;
	}
	return known;
}

/* The first line and the last hold the same number in a file that is whole. */
static void tell(void)
{
	char text[1024];
	answers++;
	int n = snprintf(text, sizeof text,
			 "begin %u\napplied %llu\nhost %u\nseed %llu\ncontexts %d\npds %d\nmrs %d\ncqs %d\nqps %d\nsrqs %d\nahs %d\nchannels %d\nleaked %d\n"
			 "error %s\nend %u\n",
			 answers, (unsigned long long)applied, fv.config.host, (unsigned long long)fv.config.seed, fv.contexts_live, fv.pds, fv.mr_count,
			 fv.cqs, fv.qp_live, fv.srqs, fv.ahs, fv.channels, fv.leaked, complaint, answers);
	if (pwrite(status_fd, text, (size_t)n, 0) == n)
		(void)!ftruncate(status_fd, n);
}

static void read_commands(bool past)
{
	char line[256];
	size_t have = 0;
	uint64_t at = applied;
	fv_lock();
	for (;;) {
		char c;
		if (pread(control_fd, &c, 1, (off_t)at) != 1)
			break;
		at++;
		if (c != '\n') {
			if (have < sizeof line - 1)
				line[have++] = c;
			continue;
		}
		line[have] = 0;
		have = 0;
		applied = at;
		if (!line[0] || line[0] == '#')
			continue;
		char copy[256];
		memcpy(copy, line, sizeof copy);
		struct command cmd;
		if (!parse(copy, &cmd))
			complain("not understood", line);
		else if (!obey(&cmd, past))
			complain("refused", line);
	}
	for (int i = 0; i < FV_QPS; i++) /* what was held may go on */
		if (fv.qps[i])
			fv_busy(fv.qps[i]);
	tell();
	fv_unlock();
	fabric_ring(fabric_self());
}

static void *control(void *arg)
{
	(void)arg;
	for (;;) {
		char events[4096];
		if (read(notify_fd, events, sizeof events) <= 0 && errno != EINTR)
			return NULL;
		read_commands(false);
	}
}

/* sweep removes what processes left that could not say goodbye. */
static void sweep(void)
{
	DIR *dir = opendir(fv.config.dir);
	if (!dir)
		return;
	for (struct dirent *e; (e = readdir(dir)) != NULL;) {
		if (strncmp(e->d_name, "process-", 8) != 0)
			continue;
		int fd = openat(dirfd(dir), e->d_name, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		struct stat s;
		/* An empty one may be about to be locked. */
		if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &s) == 0 && s.st_size > 0)
			unlinkat(dirfd(dir), e->d_name, 0);
		close(fd);
	}
	closedir(dir);
}

int fv_control_start(void)
{
	sweep();
	char path[320];
	snprintf(path, sizeof path, "%s/control", fv.config.dir);
	control_fd = open(path, O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
	if (control_fd < 0)
		return errno;
	notify_fd = inotify_init1(IN_CLOEXEC);
	if (notify_fd < 0 || inotify_add_watch(notify_fd, path, IN_MODIFY) < 0)
		return errno;
	snprintf(status_path, sizeof status_path, "%s/process-%d", fv.config.dir, (int)getpid());
	status_fd = open(status_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (status_fd < 0 || flock(status_fd, LOCK_EX) < 0) /* others hold it to look */
		return errno;
	read_commands(true);
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pthread_t t;
	int err = pthread_create(&t, NULL, control, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err == 0) {
		pthread_setname_np(t, "fakeverbs ctl");
		pthread_detach(t);
	}
	return err;
}

void fv_control_stop(void)
{
	if (status_fd >= 0)
		unlink(status_path);
}
