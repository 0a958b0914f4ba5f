/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which prepared objects are served: --view and --try-view. A checkpoint in a view is one more served model, with a
 * directory, owners and policy layers of its own; of its checkpoint it shares the shards and nothing else.
 */
#ifndef CNRE_MANAGER_VIEWS_H
#define CNRE_MANAGER_VIEWS_H

#include "manager/manager.h"

#include <stddef.h>

/*
 * Adds what the settings ask for behind the models, which are all there. "NAME" is for every model that has such a view,
 * "MODEL=NAME" for the model that is served under that name. 0, or -ENOENT (no such view, or no model to have it), -ENOTSUP
 * (that model has it not), -E2BIG, -ENOMEM, and one line in message. What --try-view asks for and no model has is logged.
 */
int views_add(struct manager *manager, char *message, size_t message_bytes);

#endif
