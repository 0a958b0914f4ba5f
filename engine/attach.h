/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine's one attachment to the manager, which experts and prefixes share. The advice for everything that can go
 * wrong with it stands here.
 */
#ifndef ENGINE_ATTACH_H
#define ENGINE_ATTACH_H

#include "cnre/cnre.h"
#include "engine/config.h"
#include "engine/message.h"

#include <stdbool.h>

struct attach_options {
	const char *model, *socket, *name; /* socket, name: NULL is libcnre's choice */
	uint64_t reserve_bytes;            /* 0: libcnre's choice */
	uint64_t private_bytes;            /* what this process uses besides */
	bool is_without_experts;           /* for prefixes only */
	const char *view;                  /* NULL: as in the checkpoint; else MATRIX_ROWS16_VIEW */
};

/*
 * Returns 0, -ESTALE if the manager's model is another one than config, -ENOTSUP if its view is of another version than
 * the kernels read, or an error of cnre_attach. Ends with cnre_detach.
 */
int attach_open(struct cnre **ret_client, const struct config *config, const struct attach_options *options,
		char message[ENGINE_MESSAGE_BYTES]);

#endif
