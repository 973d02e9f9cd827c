/* What the cases share: two ends of a connection, and how to fail. */
#ifndef HARNESS_H
#define HARNESS_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../src/abi.h"

struct ibv_device **ibv_get_device_list(int *);
void ibv_free_device_list(struct ibv_device **);
struct ibv_context *ibv_open_device(struct ibv_device *);
int ibv_close_device(struct ibv_context *);
int ibv_query_device(struct ibv_context *, struct ibv_device_attr *);
int ibv_query_port(struct ibv_context *, uint8_t, struct ibv_port_attr *);
int ibv_query_gid(struct ibv_context *, uint8_t, int, union ibv_gid *);
ssize_t _ibv_query_gid_table(struct ibv_context *, struct ibv_gid_entry *, size_t, uint32_t, size_t);
int _ibv_query_gid_ex(struct ibv_context *, uint32_t, uint32_t, struct ibv_gid_entry *, uint32_t, size_t);
struct ibv_pd *ibv_alloc_pd(struct ibv_context *);
int ibv_dealloc_pd(struct ibv_pd *);
struct ibv_mr *ibv_reg_mr(struct ibv_pd *, void *, size_t, int);
struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *, void *, size_t, uint64_t, unsigned);
int ibv_dereg_mr(struct ibv_mr *);
struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *);
int ibv_destroy_comp_channel(struct ibv_comp_channel *);
struct ibv_cq *ibv_create_cq(struct ibv_context *, int, void *, struct ibv_comp_channel *, int);
int ibv_destroy_cq(struct ibv_cq *);
int ibv_get_cq_event(struct ibv_comp_channel *, struct ibv_cq **, void **);
void ibv_ack_cq_events(struct ibv_cq *, unsigned);
struct ibv_qp *ibv_create_qp(struct ibv_pd *, struct ibv_qp_init_attr *);
int ibv_modify_qp(struct ibv_qp *, struct ibv_qp_attr *, int);
int ibv_query_qp(struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *);
int ibv_query_qp_data_in_order(struct ibv_qp *, int, uint32_t);
int ibv_destroy_qp(struct ibv_qp *);
struct ibv_srq *ibv_create_srq(struct ibv_pd *, struct ibv_srq_init_attr *);
int ibv_modify_srq(struct ibv_srq *, struct ibv_srq_attr *, int);
int ibv_destroy_srq(struct ibv_srq *);
struct ibv_ah *ibv_create_ah(struct ibv_pd *, struct ibv_ah_attr *);
int ibv_destroy_ah(struct ibv_ah *);
int ibv_get_async_event(struct ibv_context *, struct ibv_async_event *);
void ibv_ack_async_event(struct ibv_async_event *);

#define CHECK(condition, ...)                                                                \
	do {                                                                                 \
		if (!(condition)) {                                                          \
			printf("FAIL %s:%d: %s: ", __func__, __LINE__, #condition);          \
			printf(" " __VA_ARGS__);                                             \
			printf("\n");                                                        \
			fflush(stdout);                                                      \
			exit(1);                                                             \
		}                                                                            \
	} while (0)

/* What an end is made with. Zero fields stand for what suits most. */
struct options {
	int type, depth, cqe, inline_data, qp_access, mr_access, srq, rnr_retry, timeout, sges;
	bool channel, separate_pd, no_connect;
	size_t bytes;
};

struct end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq; /* of receives too */
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	unsigned char *buf;
	struct options o;
};

enum { GID = 3, QKEY = 0x1234, PSN = 77 };

struct ibv_context *open_first(void);
struct end make_end(struct ibv_context *ctx, struct options o);
void free_end(struct end *e);
/* The numbers by which another process finds an end. */
struct address {
	uint32_t qpn, rkey;
	union ibv_gid gid;
	uint64_t addr;
};
struct address address_of(struct end *e);
void connect_end(struct end *e, struct address peer);
void pair(struct ibv_context *ctx, struct end *a, struct end *b, struct options oa, struct options ob);

struct ibv_qp_attr init_attr(struct end *e);
struct ibv_qp_attr rtr_attr(struct end *e, struct address peer);
struct ibv_qp_attr rts_attr(struct end *e);
enum {
	RC_INIT = QP_STATE | QP_PKEY_INDEX | QP_PORT | QP_ACCESS_FLAGS,
	RC_RTR = QP_STATE | QP_AV | QP_PATH_MTU | QP_DEST_QPN | QP_RQ_PSN | QP_MAX_DEST_RD_ATOMIC | QP_MIN_RNR_TIMER,
	RC_RTS = QP_STATE | QP_SQ_PSN | QP_TIMEOUT | QP_RETRY_CNT | QP_RNR_RETRY | QP_MAX_QP_RD_ATOMIC,
};

/* One work request of one piece: from offset of e's buffer. */
struct ibv_send_wr send_wr(struct end *e, struct ibv_sge *sge, int opcode, int flags, size_t offset, uint32_t bytes);
int post(struct end *e, struct ibv_send_wr *wr);
int put(struct end *e, struct address to, int opcode, int flags, size_t from, size_t at, uint32_t bytes);
int receive(struct end *e, uint64_t id, size_t offset, uint32_t bytes);
int poll_cq(struct ibv_cq *cq, int room, struct ibv_wc *wc);
struct ibv_wc await(struct ibv_cq *cq); /* a completion, or failure after a while */
int poll_fds(int fd, int ms);
bool quiet(struct ibv_cq *cq, int ms);  /* none comes */
int state_of(struct end *e);
int await_event(struct ibv_context *ctx); /* which is acknowledged */
bool event_waits(struct ibv_context *ctx);
double seconds(void);

/* ask has the test do something, and returns when it has. */
void ask(const char *format, ...) __attribute__((format(printf, 1, 2)));

struct test {
	const char *name;
	void (*run)(void);
};
extern const struct test rules[], transfers[], failures[], processes[];

#endif
