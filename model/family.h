/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What distinguishes one model family from another, as tables: which model_type, which keys of config.json, which
 * tensor names, and what an expert's tensors hold. A new family is a new file with one table and a line in family.c, or
 * a file that its user writes (family_file.h); nothing else in the tree knows a tensor name.
 *
 * A family lists where its expert tensors begin (stems) and how they go on (names), and layouts. A layout says which
 * names hold which matrices, and in which encodings a matrix may be. An expert has the first layout whose weights it has
 * all of, and no tensors besides; each tensor of it the first encoding of the layout's list that has its dtype and its
 * number of bytes, scales included. So int4 rows and int8 rows differ in bytes only, and experts of one checkpoint, and
 * matrices of one expert, may differ. Lists are in the order in which the family's engine decides.
 */
#ifndef CNRE_MODEL_FAMILY_H
#define CNRE_MODEL_FAMILY_H

#include "model/encoding.h"
#include "model/safetensors.h"

#include <stdint.h>

#define FAMILY_NAMES_MAX 12u
#define FAMILY_STEMS_MAX 8u
#define FAMILY_LAYOUTS_MAX 2u
#define FAMILY_BLOCKS_MAX 3u              /* matrices in one tensor, and tensors of weights in an expert */
#define FAMILY_KEYS_MAX 3u
#define FAMILY_MTP_MAX 8u                 /* rows of experts after the last layer */
#define FAMILY_NO_NAME UINT8_MAX
#define FAMILY_UNITS_MAX 4u

/* Numbered as enum cnre_role of cnre.h. The scales of a role are MODEL_GATE_SCALE further on. */
enum model_role { MODEL_GATE, MODEL_UP, MODEL_DOWN, MODEL_GATE_SCALE, MODEL_UP_SCALE, MODEL_DOWN_SCALE };

/* Numbered as CNRE_CAP_* of cnre.h. */
enum { MODEL_CAP_EXPERT_CACHE = 1u << 0, MODEL_CAP_DIRECT_IO = 1u << 1, MODEL_CAP_KV_PREFIX = 1u << 5, MODEL_CAP_KV_PERSISTENCE = 1u << 6 };

enum family_extent { FAMILY_HIDDEN, FAMILY_INTERMEDIATE };

struct family_block {                     /* a matrix */
	uint8_t role;                     /* of its weights: MODEL_GATE, MODEL_UP or MODEL_DOWN */
	uint8_t rows, columns;            /* enum family_extent, in weights */
};

struct family_tensor {                    /* one or more matrices, one after the other, and their scales in the same order */
	uint8_t name, scale_name;         /* indices in the family's names; scale_name may be FAMILY_NO_NAME */
	uint8_t block_count;
	struct family_block block[FAMILY_BLOCKS_MAX];
};

/* Blocks as they nearly always are. */
#define FAMILY_GATE {MODEL_GATE, FAMILY_INTERMEDIATE, FAMILY_HIDDEN}
#define FAMILY_UP {MODEL_UP, FAMILY_INTERMEDIATE, FAMILY_HIDDEN}
#define FAMILY_DOWN {MODEL_DOWN, FAMILY_HIDDEN, FAMILY_INTERMEDIATE}

struct family_layout {
	uint32_t tensor_count;
	struct family_tensor tensor[FAMILY_BLOCKS_MAX];
	const struct encoding *const *encodings; /* ends with NULL */
};

struct model_view;

struct family_key {
	const char *name;                 /* of config.json */
	const char *if_given;             /* counts only where this key is there too; NULL: always */
};

/* Parts that the family's engine takes as one stretch of memory, in this order. */
struct family_unit {
	uint32_t count;
	uint8_t role[6];
};

/* Where a conversation's state can be cut, for whoever stores KV prefixes. */
enum family_state { FAMILY_STATE_UNKNOWN, FAMILY_STATE_ANY_TOKEN, FAMILY_STATE_POINTS };

struct family {
	const char *name;
	const char *const *model_types;   /* of config.json; ends with NULL */
	uint32_t capabilities;
	uint8_t state;                    /* enum family_state */
	uint8_t every_layer_is_sparse;    /* none is dense */
	uint8_t mtp_rows;                 /* at most so many rows of experts after the last layer, FAMILY_MTP_MAX at most */
	/* Keys in the order in which they are asked for; the first that is there counts. */
	struct family_key layers[FAMILY_KEYS_MAX], experts[FAMILY_KEYS_MAX], top_k[FAMILY_KEYS_MAX],
		hidden[FAMILY_KEYS_MAX], intermediate[FAMILY_KEYS_MAX];
	struct family_key mtp_experts[FAMILY_KEYS_MAX], mtp_top_k[FAMILY_KEYS_MAX]; /* not there: as in the layers */
	const char *dense_key;            /* so many layers from the first on are dense, and none after them; NULL: unknown */
	const char *group_file, *group_key; /* where ENCODING_GROUP stands; NULL: the family has none */
	/* Encodings that the last of several matrices in a tensor may have beside those of its layout; NULL, or ends with NULL. */
	const struct encoding *const *last_encodings;
	const char *last_group_key;       /* ENCODING_GROUP of those, in the same file */
	/*
	 * A tensor's name is a stem and a name. %L stands for the layer and %E for the expert, both decimal; %M for a row after
	 * the last layer, counted from 0. A name without %E is a tensor that holds all experts of a layer one after the other.
	 */
	const char *const *stems;         /* ends with NULL; at most FAMILY_STEMS_MAX */
	/* Tensors with a row for each expert of a layer, where that is fewer than config.json says; NULL, or ends with NULL. */
	const char *const *routers;
	uint32_t name_count, layout_count, unit_count;
	const char *const *names;
	const struct family_layout *layouts;
	struct family_unit unit[FAMILY_UNITS_MAX];
	const char *note;                 /* for people who write an engine: what it does to these bytes; NULL: uses them as they are */
	const struct model_view *const *views; /* prepared layouts that clients may ask for (view.h), then NULL; NULL: none */
};

extern const struct family family_glm, family_glm53, family_kimi_k3, family_inkling, family_olmoe, family_qwen36, family_qwen38,
	family_deepseek_v4, family_deepseek_v41, family_mimo;

/* Those that are built in, in the order of messages; ends with NULL. */
extern const struct family *const family_table[];

/* The family of a model_type, or NULL. */
const struct family *family_find(const char *model_type);
/* One of those by its own name, or NULL. */
const struct family *family_by_name(const char *name);
int family_has_type(const struct family *family, const char *model_type);

/* Comma-separated model_types, for messages. */
const char *family_list(char *text, size_t text_bytes);

struct family_place {                     /* what a tensor's name says */
	uint32_t stem, name;
	uint32_t number;                  /* of the layer, or of the row after the last */
	uint32_t expert;                  /* UINT32_MAX: the name has no %E */
	int is_mtp;                       /* the stem has %M */
};

/* 1 and the place, or 0: no expert tensor. Numbers have no leading zeros and at most 6 digits: one expert has one name. */
int family_match(const struct family *family, const char *name, struct family_place *ret_place);

/* The same for routers; only stem (the index of the pattern), number and is_mtp are set. */
int family_match_router(const struct family *family, const char *name, struct family_place *ret_place);

/* The name that a place has. */
const char *family_make_name(const struct family *family, const struct family_place *place, char *text, size_t text_bytes);

#endif
