/*
 * The wire: a file of shared memory in which each process has a mailbox. A
 * packet is put into the mailbox of the process that owns the queue pair it
 * goes to, and processed by that process. Nothing is lost or reordered here;
 * what a wire does to packets, the two ends decide.
 */
#ifndef FAKEVERBS_FABRIC_H
#define FAKEVERBS_FABRIC_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	FABRIC_NODES = 64,        /* processes at a time */
	FABRIC_RING = 1 << 20,    /* bytes in a mailbox */
	FABRIC_PAYLOAD = 1 << 14, /* bytes of payload in a packet */
};

/* Where a port is: the machine it pretends to be in, the device, the port, and
 * under which entry of its GID table it was addressed. */
struct fabric_addr {
	uint8_t host, device, port, gid_index;
};

enum {
	/* From the requester. */
	PKT_DATA = 1, /* a piece of a message */
	PKT_READ,     /* asks for bytes */
	PKT_ATOMIC,
	PKT_DATAGRAM,
	/* To the requester. */
	PKT_ACK,       /* everything up to seq has been done */
	PKT_READ_DATA, /* a piece of the answer to seq */
	PKT_ATOMIC_VALUE,
	PKT_NAK,  /* seq failed, status says how */
	PKT_RNR,  /* seq found no receive posted */
	PKT_LOST, /* a packet of this attempt was not accepted. No wire carries
	           * this: it lets the requester time out only when it has reason
	           * to, however slow the machine is. */
};

enum {
	PKT_LAST = 1,      /* ends its message */
	PKT_IMM = 2,       /* carries immediate data */
	PKT_SOLICITED = 4, /* asks for an event */
	PKT_AGAIN = 8,     /* repeats a piece that was sent before */
	PKT_SEND = 16,     /* goes to a posted receive, and not to an address */
};

struct packet {
	uint32_t bytes; /* of payload */
	uint8_t type;
	uint8_t flags;
	uint8_t opcode;
	uint8_t mtu;
	uint32_t from, to; /* queue pair numbers */
	struct fabric_addr source, target;
	uint32_t psn; /* of the requester's first message */
	uint32_t attempt;
	uint64_t seq; /* of the message, from 0 */
	uint64_t address;
	uint32_t rkey;
	uint32_t imm;
	uint32_t offset; /* of the payload in the message */
	uint32_t total;  /* bytes in the message */
	uint64_t operand, swap;
	uint32_t qkey;
	uint32_t status;
	uint32_t unused[2];
};
_Static_assert(sizeof(struct packet) % 16 == 0, "packets are aligned to 16");

/* fabric_join gives this process a mailbox; 0, or an errno. */
int fabric_join(const char *dir, unsigned host);
void fabric_leave(void);
int fabric_self(void);

/* fabric_alive looks at what a process says of itself, fabric_probe whether it
 * still runs. */
bool fabric_alive(int node);
bool fabric_probe(int node);

enum { FABRIC_OK, FABRIC_FULL, FABRIC_GONE };

/* fabric_begin takes room for a packet with so much payload, where the caller
 * writes it, and fabric_commit sends it. In between the mailbox is locked. */
int fabric_begin(int node, const struct packet *p, void **payload);
void fabric_commit(int node);

/* fabric_next shows the oldest packet for this process, or NULL; fabric_done
 * drops it. One thread at a time. */
const struct packet *fabric_next(void **payload);
void fabric_done(void);

/* fabric_ring wakes the thread that sleeps in fabric_sleep of that process.
 * fabric_sleep returns after so long, or when rung; nothing that idle looks at
 * is missed. */
void fabric_ring(int node);
void fabric_sleep(int64_t nanoseconds, bool (*idle)(void));

#endif
