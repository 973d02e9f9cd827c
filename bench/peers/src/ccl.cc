// ccl.cc - the peer program for oneCCL on host memory. Intel MPI launches it
// and carries the address of the key-value store, as in oneCCL's own examples.

#include <memory>

#include "bench.h"

#include <mpi.h>
#include <oneapi/ccl.hpp>

namespace {

struct Peer {
  std::unique_ptr<ccl::communicator> comm;
};

void barrier(void*) { MPI_Barrier(MPI_COMM_WORLD); }

void max(void*, double* v, size_t n) {
  MPI_Allreduce(MPI_IN_PLACE, v, static_cast<int>(n), MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

void call(void* self, const bench_opt* o, const void* send, void* recv, size_t count) {
  auto type = o->is_int ? ccl::datatype::int32 : ccl::datatype::float32;
  ccl::allreduce(send, recv, count, type, ccl::reduction::sum, *static_cast<Peer*>(self)->comm).wait();
}

}  // namespace

int main(int argc, char** argv) {
  bench_opt o = bench_args(argc, argv);
  if (o.op != OP_ALLREDUCE)
    bench_die("oneCCL's program has allreduce only, not", bench_op_names[o.op]);
  bench_start(&o);
  // oneCCL calls MPI from its worker thread as well.
  int provided;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  bench_lib l = {};
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
    p.comm.reset(new ccl::communicator(ccl::create_communicator(l.ranks, l.rank, kvs)));
    l.self = &p;
    l.barrier = barrier;
    l.max = max;
    l.call = call;
    bench_main(&o, &l);
  } catch (const std::exception& e) {
    bench_die("oneCCL", e.what());
  }
  MPI_Finalize();
  return 0;
}
