/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From tensors to objects: collects the expert tensors of all shards, then cuts each (layer, expert) out of them, and so
 * gives it its shape and the place of its parts. The middle step of model_catalog_open; it reads no file.
 */
#ifndef CNRE_MODEL_OBJECTS_H
#define CNRE_MODEL_OBJECTS_H

#include "model/catalog.h"
#include "model/extents.h"
#include "model/family.h"
#include "model/safetensors.h"

#include <stdint.h>

#define MODEL_SHAPES_MAX 256u
#define MODEL_OBJECT_BYTES_MAX (1ull << 30) /* slabs never cross a pool segment */

struct model_objects;

/* All return 0 or -errno with one line in message, as model_catalog_open. The extents are as extents_read leaves them. */
int model_objects_open(struct model_objects **ret_objects, const struct family *family,
		       const struct family_extents *extents, char message[MODEL_MESSAGE_BYTES]);
struct model_objects *model_objects_close(struct model_objects *objects);

/* Takes note of the expert tensors of catalog->shard[shard]; the names of all shards so far are used in messages. */
int model_objects_add(struct model_objects *objects, const struct model_catalog *catalog, uint32_t shard,
		      const struct safetensors *file);

/* Makes layer, object, shape and their counts and byte sums. On failure too model_catalog_close frees what is there. */
int model_objects_finish(const struct model_objects *objects, struct model_catalog *catalog);

/* Slab sizes, which depend on where each object lies in its file (model_plan), and the sums of bytes; all are 0 before. */
void model_objects_size(struct model_catalog *catalog);

#endif
