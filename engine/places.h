/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which shards a checkpoint has: those beside its config.json, and those in further directories on other drives, found as
 * cnre_attach finds them (cnre_attach(3), CNRE_DIRS). Names only; shard.h reads them.
 */
#ifndef ENGINE_PLACES_H
#define ENGINE_PLACES_H

#include "engine/message.h"

#include <stdint.h>

#define PLACES_SHARDS_MAX 512u
#define PLACES_FURTHER_MAX 16u
#define PLACES_VARIABLE "CNRE_DIRS"

struct place {                            /* of a shard */
	char *name;
	char *path;
};

struct places {
	struct place *shard;              /* [count], by name; of one name the first directory's */
	uint32_t count;
};

/*
 * further: a list with colons, or NULL. Returns 0, -E2BIG (more than PLACES_SHARDS_MAX or PLACES_FURTHER_MAX), -EINVAL (an
 * empty name in the list), -ENOMEM, errors of listing; message names the directory. *ret_places is set on success only.
 */
int places_list(struct places *ret_places, const char *directory, const char *further, char message[ENGINE_MESSAGE_BYTES]);
void places_free(struct places *places);

#endif
