// mpi.c - the peer program for every MPI: Open MPI, MPICH, Intel MPI.

#include "bench.h"
#include <limits.h>
#include <mpi.h>

struct peer {
	int rank, ranks;
	int *counts, *places; // of the v forms: equal counts, one after the other
};

static MPI_Datatype type_of(const struct bench_opt *o)
{
	return o->is_int ? MPI_INT : MPI_FLOAT;
}

static void barrier(void *self)
{
	(void)self;
	MPI_Barrier(MPI_COMM_WORLD);
}

static void max(void *self, double *v, size_t n)
{
	(void)self;
	MPI_Allreduce(MPI_IN_PLACE, v, (int)n, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

static void prepare(void *self, const struct bench_opt *o, const void *send, void *recv, size_t count)
{
	struct peer *p = self;
	(void)send;
	(void)recv;
	// The last element of an array of parts must have an int for its index as well.
	if (count > INT_MAX || (o->kind != o->op && count * (size_t)p->ranks > INT_MAX))
		bench_die("more elements than MPI's int holds", bench_op_names[o->op]);
	for (int q = 0; q < p->ranks; q++) {
		p->counts[q] = (int)count;
		p->places[q] = (int)(count * (size_t)q);
	}
}

static void call(void *self, const struct bench_opt *o, const void *send, void *recv, size_t count)
{
	const struct peer *p = self;
	int rank = p->rank, n = (int)count, root = BENCH_ROOT;
	int next = (rank + 1) % p->ranks, prev = (rank + p->ranks - 1) % p->ranks;
	const int *counts = p->counts, *places = p->places;
	MPI_Datatype t = type_of(o);
	MPI_Comm all = MPI_COMM_WORLD;
	const void *from = o->in_place ? MPI_IN_PLACE : send;
	void *to = o->in_place ? MPI_IN_PLACE : recv;
	switch (o->op) {
	case OP_ALLREDUCE:
		MPI_Allreduce(from, recv, n, t, MPI_SUM, all);
		break;
	case OP_BROADCAST:
		MPI_Bcast(recv, n, t, root, all);
		break;
	// Only the root may say MPI_IN_PLACE where there is one; the others' one
	// buffer is what they send or receive.
	case OP_REDUCE:
		if (rank == root)
			MPI_Reduce(from, recv, n, t, MPI_SUM, root, all);
		else
			MPI_Reduce(send, NULL, n, t, MPI_SUM, root, all);
		break;
	case OP_GATHER:
		if (rank == root)
			MPI_Gather(from, n, t, recv, n, t, root, all);
		else
			MPI_Gather(send, n, t, NULL, 0, t, root, all);
		break;
	case OP_GATHERV:
		if (rank == root)
			MPI_Gatherv(from, n, t, recv, counts, places, t, root, all);
		else
			MPI_Gatherv(send, n, t, NULL, NULL, NULL, t, root, all);
		break;
	case OP_SCATTER:
		if (rank == root)
			MPI_Scatter(send, n, t, to, n, t, root, all);
		else
			MPI_Scatter(NULL, 0, t, recv, n, t, root, all);
		break;
	case OP_SCATTERV:
		if (rank == root)
			MPI_Scatterv(send, counts, places, t, to, n, t, root, all);
		else
			MPI_Scatterv(NULL, NULL, NULL, t, recv, n, t, root, all);
		break;
	case OP_ALLGATHER:
		MPI_Allgather(from, n, t, recv, n, t, all);
		break;
	case OP_ALLGATHERV:
		MPI_Allgatherv(from, n, t, recv, counts, places, t, all);
		break;
	case OP_REDUCE_SCATTER:
		MPI_Reduce_scatter_block(from, recv, n, t, MPI_SUM, all);
		break;
	case OP_REDUCE_SCATTERV:
		MPI_Reduce_scatter(from, recv, counts, t, MPI_SUM, all);
		break;
	case OP_ALLTOALL:
		MPI_Alltoall(send, n, t, recv, n, t, all);
		break;
	case OP_ALLTOALLV:
		MPI_Alltoallv(send, counts, places, t, recv, counts, places, t, all);
		break;
	case OP_SENDRECV:
		MPI_Sendrecv(send, n, t, next, 0, recv, n, t, prev, 0, all, MPI_STATUS_IGNORE);
		break;
	case OP_BARRIER:
		MPI_Barrier(all);
		break;
	default:
		bench_die("no such op here", "");
	}
}

int main(int argc, char **argv)
{
	struct bench_opt o = bench_args(argc, argv);
	bench_start(&o);
	MPI_Init(&argc, &argv);
	struct peer p;
	MPI_Comm_rank(MPI_COMM_WORLD, &p.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &p.ranks);
	p.counts = calloc((size_t)p.ranks, sizeof *p.counts);
	p.places = calloc((size_t)p.ranks, sizeof *p.places);
	if (!p.counts || !p.places)
		bench_die("no memory", "for the ranks' counts");
	struct bench_lib l = {
		.rank = p.rank, .ranks = p.ranks, .self = &p,
		.barrier = barrier, .max = max, .prepare = prepare, .call = call,
	};
	bench_main(&o, &l);
	MPI_Finalize();
	return 0;
}
