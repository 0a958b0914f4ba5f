/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What distinguishes one model family from another, as tables: which model_type, which keys of config.json, which
 * tensor names, and how a tensor's bytes are cut into an expert's parts. A new family is a new file with one table and
 * a line in family.c; nothing else in the tree knows a tensor name.
 *
 * A family lists the names that its expert tensors may have. A format lists which of those an expert stored in that
 * format consists of, and how each is cut. An expert has the first format whose tensors it has all of, none besides, with
 * the right dtypes and byte counts: so formats may share names (int4 rows and int8 rows differ in bytes only), and
 * experts of one checkpoint may differ.
 */
#ifndef CNRE_MODEL_FAMILY_H
#define CNRE_MODEL_FAMILY_H

#include "model/safetensors.h"

#include <stdint.h>

#define FAMILY_NAMES_MAX 8u
#define FAMILY_SLICES_MAX 3u

/* Numbered as enum cnre_role of cnre.h. */
enum model_role { MODEL_GATE, MODEL_UP, MODEL_DOWN, MODEL_GATE_SCALE, MODEL_UP_SCALE, MODEL_DOWN_SCALE };

/* Numbered as CNRE_CAP_* of cnre.h. */
enum { MODEL_CAP_EXPERT_CACHE = 1u << 0, MODEL_CAP_DIRECT_IO = 1u << 1, MODEL_CAP_KV_PREFIX = 1u << 5, MODEL_CAP_KV_PERSISTENCE = 1u << 6 };

enum family_extent { FAMILY_ONE, FAMILY_HIDDEN, FAMILY_INTERMEDIATE };

struct family_slice {                     /* consecutive bytes of a tensor that become one part */
	uint8_t role;                     /* enum model_role */
	uint8_t rows, columns;            /* enum family_extent, in weights */
	uint8_t columns_per_element;      /* weights that one stored element covers in a row; 0 means 1 */
	uint16_t block_rows, block_columns; /* scales: see struct model_part_shape */
};

struct family_tensor {
	uint8_t name;                     /* index in the family's names */
	uint8_t dtype;                    /* what its parts are given as; MODEL_DTYPE_OTHER: as stored */
	uint8_t slice_count;
	uint32_t stored;                  /* dtypes it may have in the file, FAMILY_STORED(…) or'ed */
	struct family_slice slice[FAMILY_SLICES_MAX]; /* in file order */
};
#define FAMILY_STORED(dtype) (1u << (dtype))

struct family_format {
	const char *name;
	uint32_t tensor_count;
	struct family_tensor tensor[FAMILY_NAMES_MAX];
};

struct model_view;

struct family {
	const char *name;
	const char *model_type;           /* of config.json */
	uint32_t capabilities;
	/* Keys of config.json. */
	const char *layers_key, *experts_key, *top_k_key, *hidden_key, *intermediate_key;
	/*
	 * Patterns of tensor names: %L stands for the layer, %E for the expert, both decimal. A name without %E is a tensor
	 * that holds all experts of a layer one after the other.
	 */
	uint32_t name_count, format_count;
	const char *const *names;
	const struct family_format *formats;
	const struct model_view *const *views; /* prepared layouts that clients may ask for (view.h), then NULL; NULL: none */
};

struct family_extents {                   /* of one checkpoint, from its config.json */
	uint32_t layers, experts, top_k, hidden, intermediate;
};

extern const struct family family_olmoe;

/* The family of a model_type, or NULL. */
const struct family *family_find(const char *model_type);

/* Comma-separated model_types, for messages. */
const char *family_list(char *text, size_t text_bytes);

/*
 * The index of the pattern that a tensor name matches and the numbers in it, or -1. expert is UINT32_MAX when the
 * pattern has no %E. Numbers have no leading zeros and at most 6 digits: one expert has one name.
 */
int family_match(const struct family *family, const char *name, uint32_t *ret_layer, uint32_t *ret_expert);

/* The name that a pattern makes for a layer and an expert. */
const char *family_make_name(const struct family *family, uint32_t pattern, uint32_t layer, uint32_t expert, char *text,
			     size_t text_bytes);

#endif
