/* Names and rates of numbers. */
#define _GNU_SOURCE
#include "fv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

fv_export const char *ibv_node_type_str(int type)
{
	static const char *const names[] = {"unknown", "channel adapter", "switch", "router", "RDMA NIC"};
	return names[type >= 1 && type <= 4 ? type : 0];
}

fv_export const char *ibv_port_state_str(int state)
{
	static const char *const names[] = {"none", "down", "init", "armed", "active", "active, deferred"};
	return state >= 0 && state <= PORT_ACTIVE_DEFER ? names[state] : "no such state";
}

fv_export const char *ibv_event_type_str(int type)
{
	static const char *const names[EV_COUNT] = {
		[EV_CQ_ERR] = "completion queue error",
		[EV_QP_FATAL] = "queue pair: fatal error",
		[EV_QP_REQ_ERR] = "queue pair: invalid request",
		[EV_QP_ACCESS_ERR] = "queue pair: access violation",
		[EV_COMM_EST] = "connection established by a packet",
		[EV_SQ_DRAINED] = "send queue drained",
		[EV_PATH_MIG] = "path migrated",
		[EV_PATH_MIG_ERR] = "path migration failed",
		[EV_DEVICE_FATAL] = "device: fatal error",
		[EV_PORT_ACTIVE] = "port active",
		[EV_PORT_ERR] = "port error",
		[EV_LID_CHANGE] = "LID change",
		[EV_PKEY_CHANGE] = "P_Key change",
		[EV_SM_CHANGE] = "SM change",
		[EV_SRQ_ERR] = "shared receive queue error",
		[EV_SRQ_LIMIT_REACHED] = "shared receive queue below its limit",
		[EV_QP_LAST_WQE_REACHED] = "last receive taken",
		[EV_CLIENT_REREGISTER] = "client reregistration",
		[EV_GID_CHANGE] = "GID table change",
		[EV_WQ_FATAL] = "work queue: fatal error",
	};
	return type >= 0 && type < EV_COUNT ? names[type] : "no such event";
}

fv_export const char *ibv_wc_status_str(int status)
{
	static const char *const names[WC_STATUS_COUNT] = {
		[WC_SUCCESS] = "success",
		[WC_LOC_LEN_ERR] = "local length error",
		[WC_LOC_QP_OP_ERR] = "local QP operation error",
		[WC_LOC_EEC_OP_ERR] = "local EE operation error",
		[WC_LOC_PROT_ERR] = "local protection error",
		[WC_WR_FLUSH_ERR] = "work request flushed",
		[WC_MW_BIND_ERR] = "memory window error",
		[WC_BAD_RESP_ERR] = "bad response error",
		[WC_LOC_ACCESS_ERR] = "local access error",
		[WC_REM_INV_REQ_ERR] = "remote invalid request error",
		[WC_REM_ACCESS_ERR] = "remote access error",
		[WC_REM_OP_ERR] = "remote operation error",
		[WC_RETRY_EXC_ERR] = "no answer after all retries",
		[WC_RNR_RETRY_EXC_ERR] = "receiver not ready after all retries",
		[WC_LOC_RDD_VIOL_ERR] = "local domain violation",
		[WC_REM_INV_RD_REQ_ERR] = "remote invalid datagram request",
		[WC_REM_ABORT_ERR] = "aborted by the remote end",
		[WC_INV_EECN_ERR] = "invalid EE context number",
		[WC_INV_EEC_STATE_ERR] = "invalid EE context state",
		[WC_FATAL_ERR] = "fatal error",
		[WC_RESP_TIMEOUT_ERR] = "response timeout error",
		[WC_GENERAL_ERR] = "general error",
		[WC_TM_ERR] = "tag matching error",
		[WC_TM_RNDV_INCOMPLETE] = "tag rendezvous incomplete",
	};
	return status >= 0 && status < WC_STATUS_COUNT ? names[status] : "unknown";
}

/* Rates by their numbers: Mb/s, and the multiple of 2.5 Gb/s where it is one. */
static const struct {
	int rate, mbps, mult;
} rates[] = {
	{2, 2500, 1},	  {5, 5000, 2},	    {3, 10000, 4},    {6, 20000, 8},	{4, 30000, 12},	  {7, 40000, 16},
	{8, 60000, 24},	  {9, 80000, 32},   {10, 120000, 48}, {11, 14062, 5},	{12, 56250, 22},  {13, 112500, 45},
	{14, 168750, 67}, {15, 25781, 10},  {16, 103125, 41}, {17, 206250, 82}, {18, 309375, 123}, {19, 28125, 11},
	{20, 53125, 21},  {21, 425000, 170}, {22, 637500, 255}, {23, 850000, 340}, {24, 1275000, 510},
};
#define EACH_RATE(i) for (unsigned i = 0; i < sizeof rates / sizeof *rates; i++)

fv_export int ibv_rate_to_mult(int rate)
{
	EACH_RATE(i)
		if (rates[i].rate == rate)
			return rates[i].mult;
	return -1;
}

fv_export int mult_to_ibv_rate(int mult)
{
	EACH_RATE(i)
		if (rates[i].mult == mult)
			return rates[i].rate;
	return 0;
}

fv_export int ibv_rate_to_mbps(int rate)
{
	EACH_RATE(i)
		if (rates[i].rate == rate)
			return rates[i].mbps;
	return -1;
}

fv_export int mbps_to_ibv_rate(int mbps)
{
	EACH_RATE(i)
		if (rates[i].mbps == mbps)
			return rates[i].rate;
	return 0;
}

/* Forking needs no preparation where children get copies of what is pinned. */
fv_export int ibv_fork_init(void) { return 0; }
fv_export int ibv_is_fork_initialized(void) { return 2; /* not needed */ }
fv_export int ibv_dontfork_range(void *base, size_t size) { return (void)base, (void)size, 0; }
fv_export int ibv_dofork_range(void *base, size_t size) { return (void)base, (void)size, 0; }

/* The device has no files. */
fv_export const char *ibv_get_sysfs_path(void) { return "/sys"; }
fv_export int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
	(void)dir, (void)file, (void)buf, (void)size;
	errno = ENOENT;
	return -1;
}
