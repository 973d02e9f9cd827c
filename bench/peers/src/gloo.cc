// gloo.cc - the peer program for Gloo over its TCP transport on the loopback
// interface, ranks meeting in a directory (file store).
//
//   PEERS_RANK=i PEERS_RANKS=n PEERS_DIR=/shared/dir ./gloo --variant ring ...
//
// Variants, all from Gloo itself: ring and bcube (the function API, which
// PyTorch uses), ring_chunked and halving_doubling (the older classes, bound to
// their buffers ahead of the call).
//
// Gloo moves bytes on a thread of its own. It is started before the rank's
// thread is pinned, so the system places it; pinning both to one core made
// every message wait for a switch between them.

#include <functional>
#include <memory>
#include <string>

#include "bench.h"

#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

namespace {

struct Peer {
  std::shared_ptr<gloo::rendezvous::Context> context;
  std::unique_ptr<gloo::BarrierOptions> barrier;
  std::unique_ptr<gloo::Algorithm> bound;
  std::function<void()> run;
};

Peer& peer(void* self) { return *static_cast<Peer*>(self); }

void barrier(void* self) { gloo::barrier(*peer(self).barrier); }

void max(void* self, double* v, size_t n) {
  gloo::AllreduceOptions opts(peer(self).context);
  opts.setOutput(v, n);
  opts.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::max<double>));
  gloo::allreduce(opts);
}

template <typename T>
void prepareAs(Peer& p, const bench_opt* o, const void* send, void* recv, size_t count) {
  T* out = static_cast<T*>(recv);
  T* in = static_cast<T*>(const_cast<void*>(send));
  std::string variant = o->variant;
  p.bound.reset();
  if (variant == "ring_chunked" || variant == "halving_doubling") {
    if (!o->in_place)
      bench_die("this variant of Gloo works in place only", o->variant);
    if (variant == "ring_chunked")
      p.bound.reset(new gloo::AllreduceRingChunked<T>(p.context, {out}, static_cast<int>(count)));
    else
      p.bound.reset(new gloo::AllreduceHalvingDoubling<T>(p.context, {out}, static_cast<int>(count)));
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
  // The options own the buffers' registration with the transport: made once,
  // outside the timing.
  auto opts = std::make_shared<gloo::AllreduceOptions>(p.context);
  opts->setAlgorithm(algorithm);
  if (!o->in_place)
    opts->setInput(in, count);
  opts->setOutput(out, count);
  opts->setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<T>));
  p.run = [opts] { gloo::allreduce(*opts); };
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
  if (o.op != OP_ALLREDUCE)
    bench_die("Gloo's program has allreduce only, not", bench_op_names[o.op]);
  prctl(PR_SET_PDEATHSIG, SIGKILL);

  bench_lib l = {};
  l.rank = atoi(need("PEERS_RANK"));
  l.ranks = atoi(need("PEERS_RANKS"));
  try {
    gloo::transport::tcp::attr attr;
    attr.iface = "lo";
    auto device = gloo::transport::tcp::CreateDevice(attr);
    gloo::rendezvous::FileStore store(need("PEERS_DIR"));
    Peer p;
    p.context = std::make_shared<gloo::rendezvous::Context>(l.rank, l.ranks);
    p.context->setTimeout(std::chrono::milliseconds(60000));
    p.context->connectFullMesh(store, device);
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
