/* SPDX-License-Identifier: Apache-2.0 */
/* The two segments of a served model: its catalog for clients, written once, and the directory of its objects. */
#ifndef CNRE_MANAGER_DIRECTORY_H
#define CNRE_MANAGER_DIRECTORY_H

#include "manager/manager.h"

/* Makes both segments from model->catalog. 0 or -errno; nothing is left behind on failure. */
int directory_build(struct served_model *model);
void directory_close(struct served_model *model);

#endif
