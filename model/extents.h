/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers that a family's tensors are measured with, from a checkpoint's config.json; each within its bound. */
#ifndef CNRE_MODEL_EXTENTS_H
#define CNRE_MODEL_EXTENTS_H

#include "model/config.h"
#include "model/family.h"

#include <stdint.h>

#define MODEL_LAYERS_MAX 1024u            /* rows after the last layer too */
#define MODEL_EXPERTS_MAX 4096u           /* of a layer */
#define MODEL_OBJECTS_MAX (1u << 20)
#define MODEL_EXTENT_MAX (1u << 20)       /* hidden, intermediate */
#define MODEL_GROUP_MAX 32768u            /* columns that one scale covers */

struct family_extents {                   /* of one checkpoint */
	uint32_t layers, experts, top_k, hidden, intermediate;
	uint32_t mtp_experts, mtp_top_k;  /* of the rows after the last layer */
	uint32_t dense_layers;            /* so many from the first on, and none after them; UINT32_MAX: unknown */
	uint32_t group;                   /* what ENCODING_GROUP stands for; 0: the whole row */
	uint32_t last_group;              /* the same for the last matrix of a tensor */
	const char *layers_key, *experts_key; /* those that were there, for messages */
};

/* Rows of experts that there may be: layers, and what may come after them. */
static inline uint32_t extents_rows(const struct family *family, const struct family_extents *extents)
{
	return extents->layers + family->mtp_rows;
}

/* The most experts in any row. */
static inline uint32_t extents_experts_max(const struct family_extents *extents)
{
	return extents->experts > extents->mtp_experts ? extents->experts : extents->mtp_experts;
}

/*
 * extents_read - from config.json, and the file that the family keeps its group in
 *
 * @directory_fd  the checkpoint's; a group file that is not there means group 0
 *
 * Returns:  0, -EBADMSG (a key is missing or out of range) or -E2BIG (too many objects) with one line in message, or what
 *           model_config_open gives. *ret_extents is set on success only; keys in it live as long as the family.
 */
int extents_read(const struct model_config *config, int directory_fd, const struct family *family,
		 struct family_extents *ret_extents, char message[MODEL_CONFIG_MESSAGE_BYTES]);

#endif
