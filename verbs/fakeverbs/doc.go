// Package fakeverbs builds a simulated RDMA device for tests: a
// libibverbs.so.1 that moves bytes through shared memory between the processes
// of one machine and needs neither hardware nor a kernel module.
//
// It keeps the rules that real adapters enforce and soft-RoCE forgives. A slot
// of the send queue is free once the completion of that request or a later one
// has been polled. Bytes of a message become visible in any order, in pieces,
// until something completes that orders them. Every outstanding request is
// flushed when a queue pair fails, also unsignalled ones, and of a failed
// completion only identifier, status, queue pair number and vendor's error are
// valid. Limits are modest and enforced; queues overrun; events must be
// acknowledged. What happens by chance follows a seed.
//
// Programs find the library by LD_LIBRARY_PATH, or open the file that [Build]
// returns. The processes of a job share a directory, a [Fabric], through which
// a test also sets ports down, raises events, and makes work requests fail.
//
// # Variables
//
// All begin with TUTTI_FAKE_VERBS_.
//
//	DIR          directory of the job; default $XDG_RUNTIME_DIR/tutti-fake-verbs or /tmp/tutti-fake-verbs-UID
//	HOST         which of 64 machines the process pretends to be in; 0
//	DEVICES      number of devices, fake0 on; 1. 0: none, -1: no RDMA in the kernel
//	PORTS        ports of a device; 1
//	SEED         of everything random; otherwise chosen, and printed
//	QUIET        1: does not print the seed
//	VERBOSE      1: says why calls are refused
//	PLACEMENT    messages: bytes in any order, messages in order, except in regions
//	             of relaxed order (default); inorder: all in order; relaxed: none
//	TEAR         1: also divides aligned words of 8 bytes
//	TIME_SCALE   of timeouts and RNR timers; 0.1
//	MAX_MSG      bytes in a message; 1048576
//	MAX_INLINE   bytes of inline data that can be asked for; 220
//	MAX_QP_WR    work requests in a queue; 1024
//	MAX_SGE      gather entries; 4
//	MAX_CQE      entries of a completion queue; 32768
//	MAX_QP, MAX_MR, MAX_RD_ATOMIC   4096, 16384, 4
//	MTU          256 to 4096; 4096
//	MEMLOCK      bytes that can be registered, as RLIMIT_MEMLOCK would limit it
//	OPEN_ERRNO   with which opening a device fails
//	NO_ROCE_V2, NO_IPV4   1: leaves such entries out of the GID table
package fakeverbs
