/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpoint directory as a catalog: which objects (layer, expert) it holds, in which shard and at which offset each
 * of their parts lies, what shape it has, and the content identity of the whole. It is built once from the safetensors
 * headers and config.json; the payload is not read. The catalog knows no process, no memory pool and no policy.
 */
#ifndef CNRE_MODEL_CATALOG_H
#define CNRE_MODEL_CATALOG_H

#include "base/fingerprint.h"
#include "base/places.h"

#include <stddef.h>
#include <stdint.h>

#define MODEL_ROLES 8u                    /* roles of a part, numbered as enum cnre_role of cnre.h */
#define MODEL_RUNS_MAX MODEL_ROLES        /* reads that one object needs, at most one a part */
#define MODEL_MESSAGE_BYTES 512
#define MODEL_FORMAT_BYTES 48u
#define MODEL_READ_ALIGNMENT 4096u        /* of file offsets, lengths and memory of every read */
#define MODEL_PART_ALIGNMENT 64u          /* of every part in its slab */
#define MODEL_TAIL_BYTES 64u              /* readable bytes after every part */

struct model_shard {
	char *path;
	char *name;                       /* last component */
	uint64_t bytes;                   /* of the file when the catalog was made */
	uint64_t data_off;                /* where tensor data begins: 8 + header length */
};

struct model_part_shape {
	uint64_t bytes;                   /* 0: no such part */
	uint32_t rows, columns;           /* as stored, in elements of dtype */
	uint16_t dtype;                   /* numbered as enum cnre_dtype of cnre.h */
	uint16_t block_rows, block_columns; /* scale parts: weights one scale covers; 0: the whole extent */
};

struct model_shape {
	uint64_t payload_bytes;           /* sum of the parts */
	uint64_t slab_bytes;              /* room that any object of this shape needs (model_plan); a multiple of 4096 */
	char format[MODEL_FORMAT_BYTES];  /* "int4-row", see encoding.h; "a+b+c" where matrices differ */
	struct model_part_shape part[MODEL_ROLES];
};

struct model_piece {                      /* where the bytes of one part lie */
	uint64_t file_off;                /* from the start of the shard */
	uint32_t shard;
};

struct model_object {
	uint32_t layer, expert;
	uint32_t shape;
	struct model_piece piece[MODEL_ROLES];
};

struct model_layer {
	uint32_t first_object;
	uint32_t expert_count;            /* 0: dense */
	uint32_t top_k;
};

struct model_view;

struct model_catalog {
	char family[32];                  /* "olmoe" */
	int is_described;                 /* the family comes from model_source.family_file */
	char name[64];                    /* last component of the directory; of a view ":" and its name follow */
	char *directory;                  /* real path: of config.json and, unless there are further ones, of all shards */
	struct cnre_places *places;       /* all directories, and what of each is used; of a view its checkpoint's */
	struct cnre_fingerprint fingerprint;
	uint32_t layer_count;             /* as the checkpoint numbers them, MTP rows after the last */
	uint32_t main_layer_count;        /* without those rows */
	uint32_t expert_count;            /* the most in any layer */
	uint32_t top_k;                   /* of the main layers */
	uint32_t capabilities;            /* CNRE_CAP_* of cnre.h */
	uint32_t state;                   /* where a conversation's state can be cut: enum family_state */
	uint32_t object_count, shape_count, shard_count;
	uint64_t payload_bytes_min, payload_bytes_max, payload_bytes_total;
	uint64_t slab_bytes_max, slab_bytes_total;
	struct model_layer *layer;        /* [layer_count] */
	struct model_object *object;      /* [object_count], by layer, then expert */
	struct model_shape *shape;        /* [shape_count] */
	struct model_shard *shard;        /* [shard_count], by name */
	const struct model_view *const *views; /* prepared layouts that the family declares, then NULL; NULL: none */
	const struct model_view *view;    /* shapes and places are of this layout (view.h); NULL: as in the checkpoint */
	const struct model_catalog *source; /* of a view: the checkpoint's own catalog */
};

/* Where a checkpoint lies. */
struct model_source {
	const char *directory;            /* config.json, and shards */
	const char *const *further;       /* directories with other shards; of one name the first that was named wins */
	uint32_t further_count;
	const char *family_file;          /* a family described by its user, see family_file.h; NULL: those that are built in */
};

/*
 * model_catalog_open - read a checkpoint directory
 *
 * @message   on failure one line: what is wrong with which shard, tensor and bytes, and what to do
 *
 * Returns:  0, or -ENOENT (no such directory, config or shard), -ENOTSUP (family or format unknown),
 *           -EBADMSG (a header or a tensor is malformed, truncated, overlapping, missing or of the wrong shape),
 *           -E2BIG (beyond a named bound), -ENOMEM, errors of open and read.
 *           *ret_catalog is set on success only; close it with model_catalog_close.
 */
int model_catalog_open(struct model_catalog **ret_catalog, const char *directory, char message[MODEL_MESSAGE_BYTES]);
/* The same for a checkpoint that lies in several directories or is of a family described in a file. */
int model_catalog_open_source(struct model_catalog **ret_catalog, const struct model_source *source,
			      char message[MODEL_MESSAGE_BYTES]);
struct model_catalog *model_catalog_close(struct model_catalog *catalog);

/* Index of (layer, expert), or -ENOENT. */
int64_t model_catalog_find(const struct model_catalog *catalog, uint32_t layer, uint32_t expert);

/*
 * How one object gets into its slab. The runs are the same with and without a view; the rest of this is about objects as
 * in the checkpoint, and what a view does instead is in view.h. Parts that are adjacent in a file (and whose roles need not be in file order) are
 * one run. A run is read from file_off (rounded down to 4096) into the slab at slab_off, so each part lands at an
 * address with the file's own alignment; a part that does not land on a multiple of 64 is moved up after the read.
 * Moves are listed so that doing them in order, each by memmove, is right.
 */
struct model_run {
	uint32_t shard;
	uint64_t file_off;                /* multiple of 4096 */
	uint64_t bytes;                   /* multiple of 4096; may reach past the end of the file */
	uint64_t needed_bytes;            /* the read is complete when this many have arrived */
	uint64_t slab_off;                /* multiple of 4096 */
};

struct model_move {
	uint64_t from_off, to_off, bytes; /* in the slab */
};

struct model_plan {
	uint32_t run_count, move_count;
	struct model_run run[MODEL_RUNS_MAX];
	struct model_move move[MODEL_ROLES];
	uint32_t part_off[MODEL_ROLES];   /* final place of each part in the slab; multiples of 64; 0 for absent parts */
	uint32_t raw_off[MODEL_ROLES];    /* of a view: where the checkpoint's part lands, at any alignment */
	uint64_t slab_bytes;              /* at most the shape's */
};

/* Fills the plan of one object. Pure, deterministic, allocates nothing. */
void model_plan(const struct model_catalog *catalog, uint32_t object, struct model_plan *ret_plan);

#endif
