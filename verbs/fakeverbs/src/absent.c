/*
 * What the fake does not do. Provider libraries, which programs such as
 * perftest are linked with, need the names of functions by which they talk to
 * the kernel; nothing here calls a provider, so nobody calls these.
 */
#include "fv.h"

#include <errno.h>

int fv_absent(void);
int fv_absent(void)
{
	errno = EOPNOTSUPP;
	return EOPNOTSUPP;
}

#define ABSENT(name) fv_export int name(void) __attribute__((alias("fv_absent")));

ABSENT(ibv_attach_mcast)
ABSENT(ibv_detach_mcast)
ABSENT(ibv_rereg_mr)
ABSENT(ibv_register_driver)
ABSENT(ibv_copy_ah_attr_from_kern)
ABSENT(ibv_copy_path_rec_from_kern)
ABSENT(ibv_copy_path_rec_to_kern)
ABSENT(ibv_copy_qp_attr_from_kern)

ABSENT(__ioctl_final_num_attrs)
ABSENT(__verbs_log)
ABSENT(execute_ioctl)
ABSENT(ibv_cmd_advise_mr)
ABSENT(ibv_cmd_alloc_dm)
ABSENT(ibv_cmd_alloc_mw)
ABSENT(ibv_cmd_alloc_pd)
ABSENT(ibv_cmd_attach_mcast)
ABSENT(ibv_cmd_close_xrcd)
ABSENT(ibv_cmd_create_ah)
ABSENT(ibv_cmd_create_counters)
ABSENT(ibv_cmd_create_cq)
ABSENT(ibv_cmd_create_cq_ex)
ABSENT(ibv_cmd_create_flow)
ABSENT(ibv_cmd_create_flow_action_esp)
ABSENT(ibv_cmd_create_qp)
ABSENT(ibv_cmd_create_qp_ex)
ABSENT(ibv_cmd_create_qp_ex2)
ABSENT(ibv_cmd_create_rwq_ind_table)
ABSENT(ibv_cmd_create_srq)
ABSENT(ibv_cmd_create_srq_ex)
ABSENT(ibv_cmd_create_wq)
ABSENT(ibv_cmd_dealloc_mw)
ABSENT(ibv_cmd_dealloc_pd)
ABSENT(ibv_cmd_dereg_mr)
ABSENT(ibv_cmd_destroy_ah)
ABSENT(ibv_cmd_destroy_counters)
ABSENT(ibv_cmd_destroy_cq)
ABSENT(ibv_cmd_destroy_flow)
ABSENT(ibv_cmd_destroy_flow_action)
ABSENT(ibv_cmd_destroy_qp)
ABSENT(ibv_cmd_destroy_rwq_ind_table)
ABSENT(ibv_cmd_destroy_srq)
ABSENT(ibv_cmd_destroy_wq)
ABSENT(ibv_cmd_detach_mcast)
ABSENT(ibv_cmd_free_dm)
ABSENT(ibv_cmd_get_context)
ABSENT(ibv_cmd_modify_cq)
ABSENT(ibv_cmd_modify_flow_action_esp)
ABSENT(ibv_cmd_modify_qp)
ABSENT(ibv_cmd_modify_qp_ex)
ABSENT(ibv_cmd_modify_srq)
ABSENT(ibv_cmd_modify_wq)
ABSENT(ibv_cmd_open_qp)
ABSENT(ibv_cmd_open_xrcd)
ABSENT(ibv_cmd_poll_cq)
ABSENT(ibv_cmd_post_recv)
ABSENT(ibv_cmd_post_send)
ABSENT(ibv_cmd_post_srq_recv)
ABSENT(ibv_cmd_query_context)
ABSENT(ibv_cmd_query_device_any)
ABSENT(ibv_cmd_query_mr)
ABSENT(ibv_cmd_query_port)
ABSENT(ibv_cmd_query_qp)
ABSENT(ibv_cmd_query_srq)
ABSENT(ibv_cmd_read_counters)
ABSENT(ibv_cmd_reg_dm_mr)
ABSENT(ibv_cmd_reg_dmabuf_mr)
ABSENT(ibv_cmd_reg_mr)
ABSENT(ibv_cmd_req_notify_cq)
ABSENT(ibv_cmd_rereg_mr)
ABSENT(ibv_cmd_resize_cq)
ABSENT(ibv_read_ibdev_sysfs_file)
ABSENT(verbs_init_cq)
ABSENT(verbs_register_driver_34)
ABSENT(verbs_set_ops)
ABSENT(verbs_uninit_context)

#define NO_POINTER(name)          \
	fv_export void *name(void); \
	void *name(void)            \
	{                           \
		fv_absent();        \
		return NULL;        \
	}

NO_POINTER(_verbs_init_and_alloc_context)
NO_POINTER(verbs_open_device)
NO_POINTER(ibv_import_device)
NO_POINTER(ibv_import_pd)
NO_POINTER(ibv_import_mr)
NO_POINTER(ibv_import_dm)
ABSENT(ibv_unimport_pd)
ABSENT(ibv_unimport_mr)
ABSENT(ibv_unimport_dm)

fv_export _Bool verbs_allow_disassociate_destroy;
