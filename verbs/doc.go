// Package verbs is a binding of libibverbs, the library through which programs
// reach RDMA devices: InfiniBand, RoCE, and soft-RoCE.
//
// The library is loaded at run time, from libibverbs.so.1 or from what the
// variable TUTTI_LIBIBVERBS names. A program that imports this package builds
// with Go and a C compiler and nothing else, and runs where there is no RDMA:
// Devices and Open then return an error that is ErrUnavailable. So they do in
// builds without cgo and on systems other than Linux.
//
// # Objects
//
// Devices lists what there is and Open opens one. From a Device come
// protection domains (AllocPD), completion queues (CreateCQ) and their
// channels (CreateChannel); from a PD come memory regions (RegisterMemory),
// queue pairs (CreateQP), shared receive queues (CreateSRQ) and address
// handles (CreateAH). Each has a Close, to be called in the opposite order: one
// that others still stand on stays open, and its Close returns a *BusyError
// with their names. A second Close does nothing. Live counts what is open.
//
// # Connecting
//
// Each side creates an RC queue pair, calls ToInit, and tells the other its
// number, a packet sequence number, the GID it uses, its LID and its MTU. Then
// both call ToRTR and ToRTS:
//
//	qp, err := pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: cq, RecvCQ: cq,
//		Caps: verbs.QPCaps{SendRequests: 128, RecvRequests: 128, SendSegments: 1, RecvSegments: 1, InlineBytes: 64}})
//	err = qp.ToInit(verbs.InitOptions{Port: 1, Access: verbs.AccessRemoteWrite})
//	rtr := verbs.DefaultRTR()
//	rtr.DestQPN, rtr.PSN, rtr.MTU = peer.QPN, peer.PSN, min(port.ActiveMTU, peer.MTU)
//	rtr.Address = verbs.AddressVector{Port: 1, Global: true, DGID: peer.GID, SGIDIndex: gid.Index, HopLimit: 255}
//	err = qp.ToRTR(rtr)
//	rts := verbs.DefaultRTS()
//	rts.PSN = myPSN
//	err = qp.ToRTS(rts)
//
// # Moving bytes
//
// A Batch gathers work requests for one queue pair, in memory that is not
// Go's. Post hands all of them to the device at once, with one call of C and
// one doorbell; Poll takes completions out of a queue; PostAndPoll posts any
// number of batches and polls in a single call. None of them allocates:
//
//	batch, err := qp.NewBatch(verbs.BatchOptions{Requests: 64})
//	done := make([]verbs.Completion, 64)
//	...
//	err = batch.Add(&verbs.Request{ID: 1, Opcode: verbs.Write, Segments: segs, RemoteAddr: addr, RKey: key})
//	err = batch.Add(&verbs.Request{ID: 2, Opcode: verbs.Write, Inline: counter[:], RemoteAddr: flag, RKey: key,
//		Flags: verbs.Signaled})
//	n, err := cq.PostAndPoll(done, nil, batch)
//	for i := range done[:n] {
//		if err := done[i].Err(); err != nil { ... }
//	}
//
// A send queue has room again only when a completion was polled: that of a
// signalled request frees it and all before it. So every so often a request
// must be signalled, and the owner of a queue pair counts. The completion queue
// must have room for all requests that are outstanding, unsignalled ones too,
// for when a queue pair fails each of them completes.
//
// # Memory
//
// What a device may reach must not be Go's: the garbage collector frees and
// the runtime gives pages back to the kernel without asking the device. Register
// memory from mmap or a shared-memory segment. Addresses in work requests are
// plain numbers; only Request.Inline may be any slice, because it is copied.
//
// # Concurrency
//
// Objects may be used by several goroutines, except that a Batch or RecvBatch
// belongs to one at a time, and that Close must not run while another call on
// the same object does. Device.Event and CompletionChannel.Wait are exceptions
// to that: Close wakes them.
//
// # Errors
//
// Errors name the device and the object, keep the errno (errors.Is(err,
// syscall.EINVAL)), and say what to do where that is known: UnavailableError,
// NoDeviceError, RegisterError, StateError, PostError, CompletionError,
// BusyError, and Error for everything else.
package verbs
