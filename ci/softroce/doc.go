// Package softroce boots small virtual machines that are joined by a network
// with soft-RoCE on it: the kernel's rdma_rxe, real libibverbs, real queue
// pairs and real packets. Tests run programs in them, disturb the network and
// read the device's counters.
//
// QEMU runs the machines, with KVM where the processor virtualises and by
// emulation elsewhere. Nothing is installed into a disk image: kernel and
// programs are the host's distribution's, put together at each boot.
package softroce
