/*
 * What the parts of the fake share. One lock, fv.lock, holds for everything
 * that the engine touches; beneath it, in this order, are the locks of a work
 * queue, of a completion queue, of an event queue. Programs post under the
 * work queue's lock alone, and poll under the completion queue's.
 */
#ifndef FAKEVERBS_FV_H
#define FAKEVERBS_FV_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "abi.h"
#include "fabric.h"

enum {
	FV_MAX_DEVICES = 8,
	FV_MAX_PORTS = 2,
	FV_MAX_HOSTS = 64,
	FV_MAX_SGE = 4,
	FV_MAX_INLINE = 1024, /* of what a variable may ask for */
	FV_MAX_RD_ATOMIC = 16,
	FV_GIDS = 16, /* entries of a GID table */
	FV_QPS = 1 << 16,
};

/* How far the order in which bytes appear may differ from the order in which
 * they were sent. */
enum placement {
	PLACE_IN_ORDER, /* not at all */
	PLACE_MESSAGES, /* within a message */
	PLACE_RELAXED,  /* also from message to message */
};

struct fv_config {
	char dir[256];
	unsigned host;
	int devices, ports;
	uint64_t seed;
	bool quiet, verbose;
	enum placement placement;
	bool tear;        /* split aligned words of 8 bytes */
	bool no_v2, no_ipv4; /* leave such GIDs out */
	uint32_t max_msg, max_inline, max_qp_wr, max_sge, max_cqe, max_rd_atomic, max_qp, max_mr;
	uint64_t memlock; /* bytes that may be registered */
	int open_errno;
	double time_scale;
	int mtu;
};

struct fv_context;
struct fv_pd;
struct fv_cq;
struct fv_qp;
struct fv_srq;

/* What the control interface may stall. */
enum { HOLD_DATA = 1, HOLD_END = 2, HOLD_ACK = 4 };

struct fv_device {
	struct ibv_device ibv; /* first */
	int index;
	bool fatal;
	int port_state[FV_MAX_PORTS + 1]; /* from 1 */
	unsigned hold;                    /* bits of HOLD_ */
	uint64_t delay_ns;
	int contexts;
};

/* events.c: a queue with a descriptor that is readable while it has entries. */
struct fv_event {
	struct fv_event *next;
	void *object; /* that the event belongs to; NULL for ports and devices */
	struct ibv_async_event async;
};
struct fv_event_queue {
	pthread_mutex_t lock;
	int fd;
	struct fv_event *head, **tail;
};
int fv_events_open(struct fv_event_queue *q);
void fv_events_close(struct fv_event_queue *q);
void fv_events_push(struct fv_event_queue *q, void *object, const struct ibv_async_event *async);
void fv_events_forget(struct fv_event_queue *q, void *object);

struct fv_channel {
	struct ibv_comp_channel ibv; /* first */
	struct fv_event_queue events;
};

struct fv_context {
	struct verbs_context v; /* ends with what programs see */
	struct fv_device *device;
	struct fv_event_queue async;
	struct fv_context *next;
	_Atomic int objects; /* that live in it */
};
_Static_assert(offsetof(struct fv_context, v) == 0, "found by what it begins with");

struct fv_pd {
	struct ibv_pd ibv; /* first */
	_Atomic int refs;
};

struct fv_mr {
	struct ibv_mr ibv; /* first */
	struct fv_device *device;
	uint64_t iova; /* the address by which sge and peers name its first byte */
	unsigned access;
	uint32_t slot;
};

struct fv_ah {
	struct ibv_ah ibv; /* first */
	struct ibv_ah_attr attr;
	struct fabric_addr source, target;
};

/* A receive work request, and the queue of them of a queue pair or an SRQ. */
struct fv_receive {
	uint64_t wr_id;
	int sges;
	struct ibv_sge sge[FV_MAX_SGE];
};
struct fv_rq {
	pthread_mutex_t lock;
	struct fv_receive *ring;
	uint32_t max_wr, max_sge;
	uint64_t posted, taken;
	uint64_t freed; /* of which a completion has been polled, in any order */
};

struct fv_srq {
	struct ibv_srq ibv; /* first */
	struct fv_rq rq;
	uint32_t limit; /* 0: not armed */
	_Atomic int refs;
	uint32_t reported; /* events handed out */
};

struct fv_completion {
	struct ibv_wc wc;
	struct fv_qp *qp;
	struct fv_rq *rq;    /* whose slot polling frees; NULL for sends */
	uint64_t freed_upto; /* slots of the send queue that polling frees */
};

struct fv_cq {
	struct ibv_cq ibv; /* first */
	pthread_mutex_t lock;
	struct fv_completion *ring;
	uint32_t head, count;
	int armed; /* 0, 1 for solicited ones, 2 for any */
	bool overrun;
	_Atomic int refs;
	uint32_t comp_reported, async_reported; /* events handed out */
};

struct fv_send {
	uint64_t wr_id;
	uint8_t opcode;
	uint8_t status; /* WC_SUCCESS until something is wrong */
	bool signaled, fence, solicited, is_inline, tried, begun, done;
	bool fail_after; /* status is injected, and comes after the work is done */
	uint32_t imm;
	uint64_t address;
	uint32_t rkey;
	uint64_t operand, swap;
	uint32_t length;
	int sges;
	struct ibv_sge sge[FV_MAX_SGE];
	unsigned char *data; /* what was inline */
	/* Datagrams. */
	struct fabric_addr source, target;
	uint32_t remote_qpn, remote_qkey;
};

/* place.c: the pieces in which a message travels. */
struct fv_pieces {
	struct fv_piece {
		uint32_t offset, bytes;
		bool again;
	} *piece;
	uint32_t count, room, sent;
};

/* What a responder owes its requester, in order. */
struct fv_response {
	struct fv_response *next;
	uint8_t type; /* PKT_ACK, PKT_NAK, PKT_RNR, PKT_READ_DATA, PKT_ATOMIC_VALUE */
	uint8_t status;
	uint64_t seq;
	uint32_t attempt;
	uint64_t value;
	uint64_t address;
	uint32_t rkey, length;
	bool begun;
};

/* Bytes of a write that have arrived and are not visible yet. */
struct fv_late {
	struct fv_late *next;
	struct fv_mr *mr;
	unsigned char *to;
	uint32_t bytes;
	uint64_t due;
	unsigned char data[];
};

struct fv_qp {
	struct ibv_qp ibv; /* first */
	struct fv_context *context;
	struct fv_device *device;
	struct fv_pd *pd;
	struct fv_cq *scq, *rcq;
	struct fv_srq *srq;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	_Atomic int state;
	struct fabric_addr self, peer;
	int peer_node;
	uint32_t reported; /* events handed out */

	/* Sending. Indices count work requests since RESET:
	 * freed <= acked <= next <= posted. */
	pthread_mutex_t send_lock;
	struct fv_send *sends;
	_Atomic uint64_t posted, freed;
	uint64_t next, acked;
	uint32_t attempt;
	int retries, rnr_retries;
	bool lost;           /* something of this attempt was */
	uint64_t timeout_at; /* when lost is noticed; 0: never */
	uint64_t not_before; /* RNR and delays */
	uint64_t heard_at;   /* of the peer, or since something is owed by it */
	unsigned reads;      /* outstanding reads and atomics */
	struct fv_pieces sending;
	bool drained;

	/* Receiving. */
	struct fv_rq rq;
	uint64_t expected; /* message */
	uint32_t min_attempt, cur_attempt, newest_attempt, lost_attempt;
	bool lost_told;
	uint32_t got; /* bytes of the current attempt at the current message */
	bool have_receive;
	struct fv_receive receive;
	struct fv_response *owed, **owed_tail;
	unsigned owed_reads;
	struct fv_pieces answering;
	struct {
		uint64_t seq, value;
	} atomics[FV_MAX_RD_ATOMIC];
	unsigned atomic_count;
	struct fv_late *late;
	bool established;

	/* Engine. */
	_Atomic bool rung;
	struct fv_qp *_Atomic rung_next;
	bool busy;
	struct fv_qp *busy_next, **busy_prev;
	bool flushed, last_wqe_told;
};

/* An injected failure: after so many work requests, one ends with status. */
struct fv_fault {
	struct fv_fault *next;
	int device; /* -1: any */
	uint32_t qpn;  /* 0: any */
	bool receive, after;
	uint64_t left;
	int status;
};

struct fv_global {
	pthread_mutex_t lock;
	_Atomic int wanting; /* threads that want the lock of the engine's thread */
	struct fv_config config;
	struct fv_device device[FV_MAX_DEVICES];
	struct fv_context *contexts;
	struct fv_qp *qps[FV_QPS]; /* by the low bits of their numbers */
	uint32_t next_qpn;
	int qp_count;
	struct fv_mr **mrs;
	uint32_t *mr_tags;
	uint32_t mr_room, mr_next;
	uint64_t pinned;
	struct fv_fault *faults;
	uint64_t random[2];
	_Atomic int pds, mr_count, cqs, qp_live, srqs, ahs, channels, contexts_live;
	_Atomic int leaked; /* objects that contexts were closed with */
};
extern struct fv_global fv;

static inline struct fv_device *fv_dev(struct ibv_context *c) { return (struct fv_device *)c->device; }
static inline struct fv_context *fv_ctx(struct ibv_context *c)
{
	return (struct fv_context *)((char *)c - offsetof(struct verbs_context, context));
}

/* device.c */
int fv_start(void); /* once for a process, when a device is opened */
bool fv_target(const union ibv_gid *gid, struct fabric_addr *addr);
bool fv_gid(unsigned host, int device, int port, int index, struct ibv_gid_entry *e);
bool fv_same_kind(int gid_index_a, int gid_index_b);
int fv_check_av(struct fv_device *d, const struct ibv_ah_attr *a, struct fabric_addr *source, struct fabric_addr *target);
bool fv_port_up(const struct fabric_addr *a);

/* config.c: one line on standard error. */
void fv_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* events.c */
void fv_raise(struct fv_context *c, int type, void *object, int port);
void fv_raise_all(struct fv_device *d, int type, int port);
void fv_await_acks(pthread_mutex_t *m, pthread_cond_t *c, const uint32_t *completed, const uint32_t *reported, const char *what);

/* memory.c: bytes by key. fv_find checks everything and returns where they
 * are, or NULL. */
struct fv_mr *fv_find(struct fv_device *d, struct fv_pd *pd, uint32_t key, bool remote, uint64_t address, uint64_t bytes, unsigned access, unsigned char **at);
bool fv_check_sges(struct fv_qp *qp, const struct ibv_sge *sge, int n, unsigned access);
uint64_t fv_sge_bytes(const struct ibv_sge *sge, int n);
bool fv_gather(struct fv_qp *qp, const struct ibv_sge *sge, int n, uint32_t offset, unsigned char *to, uint32_t bytes);
bool fv_scatter(struct fv_qp *qp, const struct ibv_sge *sge, int n, uint32_t offset, const unsigned char *from, uint32_t bytes);

/* place.c */
uint64_t fv_random(void);
uint64_t fv_below(uint64_t n);
void fv_cut(struct fv_pieces *p, uint32_t bytes, uint64_t address, bool may_repeat);
void fv_place(unsigned char *to, const unsigned char *from, size_t bytes);
void fv_write(struct fv_qp *qp, struct fv_mr *mr, unsigned char *to, const unsigned char *from, uint32_t bytes);
void fv_settle(struct fv_qp *qp);                 /* all that is late */
void fv_settle_due(struct fv_qp *qp, uint64_t now); /* some of it */
void fv_settle_mr(struct fv_mr *mr);

/* cq.c: false when the queue was full, which breaks it. */
bool fv_complete(struct fv_cq *cq, const struct fv_completion *c, bool solicited);
void fv_forget(struct fv_cq *cq, struct fv_qp *qp);

/* qp.c */
struct fv_qp *fv_qp_by_number(uint32_t qpn);
void fv_qp_error(struct fv_qp *qp);
void fv_qp_event(struct fv_qp *qp, int type);
static inline unsigned fv_mtu_bytes(int mtu) { return 128u << mtu; }

/* requester.c */
bool fv_send_step(struct fv_qp *qp, uint64_t now);
void fv_response(struct fv_qp *qp, const struct packet *p, const void *payload);
void fv_send_complete(struct fv_qp *qp, int status);

/* responder.c */
void fv_request(struct fv_qp *qp, const struct packet *p, const void *payload);
bool fv_respond_step(struct fv_qp *qp);
void fv_receive_complete(struct fv_qp *qp, int status, const struct packet *p);
bool fv_take_receive(struct fv_qp *qp, struct fv_receive *r);
void fv_drop_owed(struct fv_qp *qp);
struct fv_fault *fv_fault_for(struct fv_qp *qp, bool receive);

/* engine.c */
uint64_t fv_now(void);
void fv_lock(void);
void fv_unlock(void);
int fv_engine_start(void);
void fv_busy(struct fv_qp *qp);   /* has work; under fv.lock */
void fv_idle(struct fv_qp *qp);   /* has not, or goes away */
void fv_kick(struct fv_qp *qp);   /* has work; without it */
void fv_poll_progress(void);      /* lends a thread that has nothing to do */
void fv_wake_at(uint64_t when);
/* fv_notice sends a packet without payload as soon as there is room, and
 * fv_notice_lost says of a request that it was not accepted. */
void fv_notice(int node, const struct packet *p);
void fv_notice_lost(const struct packet *p);

/* control.c */
int fv_control_start(void);
void fv_control_stop(void);

#define fv_export __attribute__((visibility("default")))

#endif
