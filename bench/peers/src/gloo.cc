// gloo.cc - the peer program for Gloo over its TCP transport, on the loopback
// interface or at the address PEERS_ADDR, ranks meeting in a directory (file
// store).
//
//   PEERS_RANK=i PEERS_RANKS=n PEERS_DIR=/shared/dir ./gloo --variant ring ...
//
// Variants of allreduce, all from Gloo itself: ring and bcube (the function API,
// which PyTorch uses), ring_chunked and halving_doubling (the older classes,
// bound to their buffers ahead of the call). After one of the latter,
// +block and +poll have the rank's own thread read its sockets, waiting in the
// kernel or in a loop. Gloo's only reduce_scatter is of
// the older kind, and in place. The other ops have one way each.
//
// Gloo moves bytes on a thread of its own. It is started before the rank's
// thread is pinned, so the system places it; pinning both to one core made
// every message wait for a switch between them.

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench.h"

#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/alltoall.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

namespace {

struct Peer {
  std::shared_ptr<gloo::rendezvous::Context> context;
  std::shared_ptr<gloo::rendezvous::Context> own;  // of +block and +poll: only the bound classes can use it
  std::unique_ptr<gloo::BarrierOptions> barrier;
  std::unique_ptr<gloo::Algorithm> bound;
  int rank, ranks;
  std::function<void()> run;
};

// The kind of function reductions take.
using Reduction = void (*)(void*, const void*, const void*, size_t);

Peer& peer(void* self) { return *static_cast<Peer*>(self); }

void barrier(void* self) { gloo::barrier(*peer(self).barrier); }

void max(void* self, double* v, size_t n) {
  gloo::AllreduceOptions opts(peer(self).context);
  opts.setOutput(v, n);
  opts.setReduceFunction(static_cast<Reduction>(&gloo::max<double>));
  gloo::allreduce(opts);
}

template <typename T>
void prepareAllreduce(Peer& p, const bench_opt* o, T* in, T* out, size_t count) {
  std::string variant = o->variant;
  auto context = p.own ? p.own : p.context;
  variant.resize(std::min(variant.size(), variant.find('+')));
  if (variant == "ring_chunked" || variant == "halving_doubling") {
    if (!o->in_place)
      bench_die("this variant of Gloo works in place only", o->variant);
    if (variant == "ring_chunked")
      p.bound.reset(new gloo::AllreduceRingChunked<T>(context, {out}, static_cast<int>(count)));
    else
      p.bound.reset(new gloo::AllreduceHalvingDoubling<T>(context, {out}, static_cast<int>(count)));
    p.run = [&p] { p.bound->run(); };
    return;
  }
  auto algorithm = gloo::AllreduceOptions::Algorithm::UNSPECIFIED;
  if (variant == "ring")
    algorithm = gloo::AllreduceOptions::Algorithm::RING;
  else if (variant == "bcube")
    algorithm = gloo::AllreduceOptions::Algorithm::BCUBE;
  else if (!variant.empty())
    bench_die("unknown variant", o->variant);
  auto opts = std::make_shared<gloo::AllreduceOptions>(p.context);
  opts->setAlgorithm(algorithm);
  if (!o->in_place)
    opts->setInput(in, count);
  opts->setOutput(out, count);
  opts->setReduceFunction(static_cast<Reduction>(&gloo::sum<T>));
  p.run = [opts] { gloo::allreduce(*opts); };
}

// The options own the buffers' registration with the transport: made once for
// a size, outside the timing.
template <typename T>
void prepareAs(Peer& p, const bench_opt* o, const void* send, void* recv, size_t count) {
  T* in = static_cast<T*>(const_cast<void*>(send));
  T* out = static_cast<T*>(recv);
  const size_t ranks = static_cast<size_t>(p.ranks);
  const bool root = p.rank == BENCH_ROOT;
  p.run = nullptr;
  p.bound.reset();
  switch (o->op) {
    case OP_ALLREDUCE:
      return prepareAllreduce(p, o, in, out, count);
    case OP_BROADCAST: {
      auto opts = std::make_shared<gloo::BroadcastOptions>(p.context);
      opts->setRoot(BENCH_ROOT);
      if (root && !o->in_place)
        opts->setInput(in, count);
      opts->setOutput(out, count);
      p.run = [opts] { gloo::broadcast(*opts); };
      return;
    }
    case OP_REDUCE: {
      auto opts = std::make_shared<gloo::ReduceOptions>(p.context);
      opts->setRoot(BENCH_ROOT);
      if (!o->in_place)
        opts->setInput(in, count);
      opts->setOutput(out, count);
      opts->setReduceFunction(static_cast<Reduction>(&gloo::sum<T>));
      p.run = [opts] { gloo::reduce(*opts); };
      return;
    }
    case OP_GATHER: {
      auto opts = std::make_shared<gloo::GatherOptions>(p.context);
      opts->setRoot(BENCH_ROOT);
      opts->setInput(in, count);
      if (root)
        opts->setOutput(out, count * ranks);
      p.run = [opts] { gloo::gather(*opts); };
      return;
    }
    case OP_SCATTER: {
      auto opts = std::make_shared<gloo::ScatterOptions>(p.context);
      opts->setRoot(BENCH_ROOT);
      if (root) {
        std::vector<T*> parts;
        for (size_t q = 0; q < ranks; q++)
          parts.push_back(in + q * count);
        opts->setInputs(parts, count);
      }
      // In place the root's own part is where it is to be.
      opts->setOutput(root && o->in_place ? in + count * BENCH_ROOT : out, count);
      p.run = [opts] { gloo::scatter(*opts); };
      return;
    }
    case OP_ALLGATHER: {
      auto opts = std::make_shared<gloo::AllgatherOptions>(p.context);
      if (!o->in_place)
        opts->setInput(in, count);
      opts->setOutput(out, count * ranks);
      p.run = [opts] { gloo::allgather(*opts); };
      return;
    }
    case OP_ALLGATHERV: {
      auto opts = std::make_shared<gloo::AllgathervOptions>(p.context);
      if (!o->in_place)
        opts->setInput(in, count);
      opts->setOutput(out, std::vector<size_t>(ranks, count));
      p.run = [opts] { gloo::allgatherv(*opts); };
      return;
    }
    case OP_REDUCE_SCATTER: case OP_REDUCE_SCATTERV:
      if (!o->in_place)
        bench_die("Gloo has this in place only", bench_op_names[o->op]);
      p.bound.reset(new gloo::ReduceScatterHalvingDoubling<T>(
          p.context, {out}, static_cast<int>(count * ranks), std::vector<int>(ranks, static_cast<int>(count))));
      p.run = [&p] { p.bound->run(); };
      return;
    case OP_ALLTOALL: {
      auto opts = std::make_shared<gloo::AlltoallOptions>(p.context);
      opts->setInput(in, count * ranks);
      opts->setOutput(out, count * ranks);
      p.run = [opts] { gloo::alltoall(*opts); };
      return;
    }
    case OP_ALLTOALLV: {
      auto opts = std::make_shared<gloo::AlltoallvOptions>(p.context);
      opts->setInput(in, std::vector<int64_t>(ranks, static_cast<int64_t>(count)));
      opts->setOutput(out, std::vector<int64_t>(ranks, static_cast<int64_t>(count)));
      p.run = [opts] { gloo::alltoallv(*opts); };
      return;
    }
    case OP_SENDRECV: {
      std::shared_ptr<gloo::transport::UnboundBuffer> from = p.context->createUnboundBuffer(in, count * sizeof(T));
      std::shared_ptr<gloo::transport::UnboundBuffer> to = p.context->createUnboundBuffer(out, count * sizeof(T));
      const int next = (p.rank + 1) % p.ranks, prev = (p.rank + p.ranks - 1) % p.ranks;
      p.run = [from, to, next, prev] {
        const uint64_t slot = uint64_t(1) << 40;  // away from the collectives' own
        to->recv(prev, slot);
        from->send(next, slot);
        from->waitSend();
        to->waitRecv();
      };
      return;
    }
    case OP_BARRIER:
      p.run = [&p] { gloo::barrier(*p.barrier); };
      return;
    default:
      bench_die("no such op in Gloo", bench_op_names[o->op]);
  }
}

void prepare(void* self, const bench_opt* o, const void* send, void* recv, size_t count) {
  if (o->is_int)
    prepareAs<int32_t>(peer(self), o, send, recv, count);
  else
    prepareAs<float>(peer(self), o, send, recv, count);
}

void call(void* self, const bench_opt*, const void*, void*, size_t) { peer(self).run(); }

const char* need(const char* name) {
  const char* v = getenv(name);
  if (!v || !*v)
    bench_die("missing in the environment", name);
  return v;
}

}  // namespace

int main(int argc, char** argv) {
  bench_opt o = bench_args(argc, argv);
  prctl(PR_SET_PDEATHSIG, SIGKILL);

  bench_lib l = {};
  l.rank = atoi(need("PEERS_RANK"));
  l.ranks = atoi(need("PEERS_RANKS"));
  try {
    gloo::transport::tcp::attr attr;
    const char* addr = getenv("PEERS_ADDR");
    if (addr && *addr)
      attr.hostname = addr;
    else
      attr.iface = "lo";
    auto device = gloo::transport::tcp::CreateDevice(attr);
    gloo::rendezvous::FileStore store(need("PEERS_DIR"));
    Peer p;
    p.rank = l.rank;
    p.ranks = l.ranks;
    p.context = std::make_shared<gloo::rendezvous::Context>(l.rank, l.ranks);
    p.context->setTimeout(std::chrono::milliseconds(60000));
    p.context->connectFullMesh(store, device);
    const char* how = strchr(o.variant, '+');
    if (how) {
      const bool poll = !strcmp(how, "+poll");
      if (!poll && strcmp(how, "+block"))
        bench_die("unknown variant", o.variant);
      gloo::rendezvous::PrefixStore second("own", store);
      p.own = std::make_shared<gloo::rendezvous::Context>(l.rank, l.ranks);
      p.own->setTimeout(std::chrono::milliseconds(60000));
      p.own->connectFullMesh(second, device);
      for (int q = 0; q < l.ranks; q++)
        if (q != l.rank)
          p.own->getPair(q)->setSync(true, poll);
    }
    p.barrier.reset(new gloo::BarrierOptions(p.context));
    l.self = &p;
    l.barrier = barrier;
    l.max = max;
    l.prepare = prepare;
    l.call = call;
    bench_main(&o, &l);
    barrier(&p);
  } catch (const std::exception& e) {
    bench_die("Gloo", e.what());
  }
  return 0;
}
