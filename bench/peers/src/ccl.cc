// ccl.cc - the peer program for oneCCL on host memory. Intel MPI launches it
// and carries the address of the key-value store, as in oneCCL's own examples.

#include <memory>
#include <vector>

#include "bench.h"

#include <mpi.h>
#include <oneapi/ccl.hpp>

namespace {

struct Peer {
  std::unique_ptr<ccl::communicator> comm;
  std::vector<size_t> counts;  // of the v forms: equal counts
  int rank, ranks;
};

const char* const ops = "no such op in oneCCL's host collectives";

bool known(bench_op op) {
  switch (op) {
    case OP_GATHER: case OP_GATHERV: case OP_SCATTER: case OP_SCATTERV: case OP_REDUCE_SCATTERV:
    case OP_SENDRECV:  // wants a GPU
      return false;
    default:
      return true;
  }
}

void barrier(void*) { MPI_Barrier(MPI_COMM_WORLD); }

void max(void*, double* v, size_t n) {
  MPI_Allreduce(MPI_IN_PLACE, v, static_cast<int>(n), MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

void prepare(void* self, const bench_opt*, const void*, void*, size_t count) {
  Peer& p = *static_cast<Peer*>(self);
  p.counts.assign(static_cast<size_t>(p.ranks), count);
}

void call(void* self, const bench_opt* o, const void* send, void* recv, size_t count) {
  const Peer& p = *static_cast<Peer*>(self);
  const ccl::communicator& comm = *p.comm;
  const auto type = o->is_int ? ccl::datatype::int32 : ccl::datatype::float32;
  const auto sum = ccl::reduction::sum;
  switch (o->op) {
    case OP_ALLREDUCE: ccl::allreduce(send, recv, count, type, sum, comm).wait(); break;
    case OP_BROADCAST: ccl::broadcast(recv, count, type, BENCH_ROOT, comm).wait(); break;
    case OP_REDUCE: ccl::reduce(send, recv, count, type, sum, BENCH_ROOT, comm).wait(); break;
    case OP_ALLGATHER: ccl::allgather(send, recv, count, type, comm).wait(); break;
    case OP_ALLGATHERV: ccl::allgatherv(send, count, recv, p.counts, type, comm).wait(); break;
    case OP_REDUCE_SCATTER: {
      // In place a rank's part of the result is where its part of the input was.
      char* to = static_cast<char*>(recv) + (o->in_place ? static_cast<size_t>(p.rank) * count * 4 : 0);
      ccl::reduce_scatter(send, to, count, type, sum, comm).wait();
      break;
    }
    case OP_ALLTOALL: ccl::alltoall(send, recv, count, type, comm).wait(); break;
    case OP_ALLTOALLV: ccl::alltoallv(send, p.counts, recv, p.counts, type, comm).wait(); break;
    case OP_BARRIER: ccl::barrier(comm).wait(); break;
    default: bench_die(ops, "");
  }
}

}  // namespace

int main(int argc, char** argv) {
  bench_opt o = bench_args(argc, argv);
  if (!known(o.op))
    bench_die(ops, bench_op_names[o.op]);
  bench_start(&o);
  // oneCCL calls MPI from its worker thread as well.
  int provided;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  bench_lib l = {};
  l.part_stays = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &l.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &l.ranks);
  try {
    ccl::init();
    ccl::shared_ptr_class<ccl::kvs> kvs;
    ccl::kvs::address_type address;
    if (l.rank == 0) {
      kvs = ccl::create_main_kvs();
      address = kvs->get_address();
    }
    MPI_Bcast(address.data(), static_cast<int>(address.size()), MPI_BYTE, 0, MPI_COMM_WORLD);
    if (l.rank != 0)
      kvs = ccl::create_kvs(address);
    Peer p;
    p.rank = l.rank;
    p.ranks = l.ranks;
    p.comm.reset(new ccl::communicator(ccl::create_communicator(l.ranks, l.rank, kvs)));
    l.self = &p;
    l.barrier = barrier;
    l.max = max;
    l.prepare = prepare;
    l.call = call;
    bench_main(&o, &l);
  } catch (const std::exception& e) {
    bench_die("oneCCL", e.what());
  }
  MPI_Finalize();
  return 0;
}
