/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making prepared objects (model/view.h) out of what was read, on worker threads, before READY. A slab has room for the
 * object as it was read or as it will be, not for both beside each other, so a worker makes it in a buffer of its own and
 * copies it back: as many buffers as workers, each as large as the largest prepared object that is served, beside the budget.
 *
 * Why that is safe in the slab where the bytes were read (R23): a load comes here only when the last of its reads has ended,
 * so nothing of this incarnation is under way into the slab; and one where something of a dead incarnation may be is in
 * quarantine and given to no load (fence.h). A read that came too late ends in load.c and is never prepared.
 * Crash note: killed anywhere in here, the entry is LOADING; whatever the slab holds by then, nobody reads it, and the
 * successor reads the object again, into another slab.
 */
#ifndef CNRE_MANAGER_PREPARE_H
#define CNRE_MANAGER_PREPARE_H

#include "manager/manager.h"

#include <stdint.h>

/* Buffers for the views of manager->model[]; without one manager->prepare stays NULL. 0 or -ENOMEM. */
int prepare_open(struct manager *manager);
struct prepare *prepare_close(struct prepare *prepare); /* after the workers have ended; NULL is fine */

/*
 * Turns a slab that was read by `plan` into the prepared object. Called by workers only, of whom there are no more than
 * buffers; nothing is waited for, and nothing held while it works.
 */
void prepare_object(struct prepare *prepare, const struct model_catalog *catalog, uint32_t object,
		    const struct model_plan *plan, char *slab);

#endif
