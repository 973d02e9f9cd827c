// mpi.c - the peer program for every MPI: Open MPI, MPICH, Intel MPI.

#include "bench.h"
#include <mpi.h>

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

static void call(void *self, const struct bench_opt *o, const void *send, void *recv, size_t count)
{
	int rank = *(int *)self, n = (int)count;
	MPI_Datatype t = type_of(o);
	const void *from = o->in_place ? MPI_IN_PLACE : send;
	switch (o->op) {
	case OP_ALLREDUCE:
		MPI_Allreduce(from, recv, n, t, MPI_SUM, MPI_COMM_WORLD);
		break;
	case OP_BROADCAST:
		MPI_Bcast(recv, n, t, 0, MPI_COMM_WORLD);
		break;
	case OP_REDUCE:
		// Only the root may say MPI_IN_PLACE; the others' buffer is then the send one.
		if (rank == 0)
			MPI_Reduce(from, recv, n, t, MPI_SUM, 0, MPI_COMM_WORLD);
		else
			MPI_Reduce(send, NULL, n, t, MPI_SUM, 0, MPI_COMM_WORLD);
		break;
	case OP_ALLGATHER:
		MPI_Allgather(from, n, t, recv, n, t, MPI_COMM_WORLD);
		break;
	case OP_REDUCE_SCATTER:
		MPI_Reduce_scatter_block(from, recv, n, t, MPI_SUM, MPI_COMM_WORLD);
		break;
	case OP_ALLTOALL:
		MPI_Alltoall(from, n, t, recv, n, t, MPI_COMM_WORLD);
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
	int rank, ranks;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	struct bench_lib l = {
		.rank = rank, .ranks = ranks, .self = &rank,
		.barrier = barrier, .max = max, .call = call,
	};
	bench_main(&o, &l);
	MPI_Finalize();
	return 0;
}
