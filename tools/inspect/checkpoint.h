/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files that a manager serves experts from, with all their copies, and what lies where on which device: from a sector to a
 * file, and from there to an expert. Read with the code that the manager has, from headers alone.
 */
#ifndef CNRE_TOOLS_INSPECT_CHECKPOINT_H
#define CNRE_TOOLS_INSPECT_CHECKPOINT_H

#include "model/catalog.h"
#include "tools/inspect/extent_map.h"
#include "tools/inspect/file_extents.h"
#include "tools/inspect/range_map.h"

#include <jansson.h>
#include <stdint.h>

#define CHECKPOINT_MODELS_MAX 32u
#define CHECKPOINT_FILES_MAX 65536u
#define CHECKPOINT_MESSAGE_BYTES 1024

struct checkpoint_model {
	struct model_catalog *catalog;    /* NULL: could not be read, or another model has the same files */
	uint32_t files_of;                /* the model whose files these are: itself, or an earlier one, of which it is a view */
	struct range_map *ranges;         /* [shard_count] */
};

struct checkpoint_file {
	char *path;
	uint32_t model, shard;
	int is_mirror;
	int status;                       /* 0, or why its places are not known */
	struct file_extents place;
};

struct checkpoint {
	uint32_t model_count, file_count;
	struct checkpoint_model model[CHECKPOINT_MODELS_MAX];
	struct checkpoint_file *file;     /* [file_count] */
	struct extent_map map;
};

struct checkpoint_piece {                 /* of a read */
	uint32_t file;                    /* EXTENT_NO_FILE: of none of these */
	uint64_t file_off, bytes;
	enum range_kind kind;
	uint32_t object;                  /* of RANGE_EXPERT, in the catalog of the file's model */
};

/*
 * status: the manager's own. 0, or -errno with a message. A file whose places cannot be known has its status set, and a note says
 * so; reads of it stay unexplained.
 */
int checkpoint_open(struct checkpoint *checkpoint, const json_t *status, char message[CHECKPOINT_MESSAGE_BYTES]);
void checkpoint_close(struct checkpoint *checkpoint);

struct checkpoint_piece checkpoint_cut(const struct checkpoint *checkpoint, uint64_t device, uint64_t begin, uint64_t bytes);

/* The file with this inode; EXTENT_NO_FILE. */
uint32_t checkpoint_file_of(const struct checkpoint *checkpoint, uint64_t device, uint64_t inode);

#endif
