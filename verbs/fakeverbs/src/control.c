#include "fv.h"
struct fv_fault *fv_fault_for(struct fv_qp *qp, bool receive) { (void)qp; (void)receive; return NULL; }
int fv_control_start(void) { return 0; }
void fv_control_stop(void) {}
