/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What distinguishes the container of one model family from another's, as tables: which tensors there are, how they are
 * named and cut, and which keys config.json has. A new family is a new file with one table and a line in family.c.
 *
 * Patterns of tensor names: %P stands for the prefix, %B for the block of the layer (itself a pattern), %L for the layer,
 * %M for the number of an MTP row, %E for the expert.
 */
#ifndef CNRE_TOOLS_GEN_FAMILY_H
#define CNRE_TOOLS_GEN_FAMILY_H

#include "tools/gen/config.h"
#include "tools/gen/format.h"
#include "tools/gen/model.h"

#include <stdint.h>

/* Options that a family knows what to do with. */
enum {
	GEN_TAKES_DENSE_LAYERS = 1u << 0,
	GEN_TAKES_MTP = 1u << 1,
	GEN_TAKES_MTP_EXPERTS = 1u << 2,
	GEN_TAKES_LATENT = 1u << 3,
	GEN_TAKES_POPULARITY = 1u << 4,
	GEN_TAKES_CONFIG = 1u << 5,
	GEN_TAKES_MATRIX_FORMAT = 1u << 6,
};

struct gen_piece {                        /* one tensor with bytes of experts */
	const char *pattern;              /* without %E: all experts of the layer one after the other */
	uint8_t is_scale;
	uint8_t matrices;                 /* GEN_HAS_* or'ed: one after the other, gate first */
	uint8_t kind;                     /* enum gen_kind */
};
#define GEN_HAS_GATE (1u << GEN_GATE)
#define GEN_HAS_UP (1u << GEN_UP)
#define GEN_HAS_DOWN (1u << GEN_DOWN)

struct gen_arrangement {                  /* the tensors of an expert, in file order */
	uint32_t formats;                 /* in which it is used */
	uint32_t piece_count;
	const struct gen_piece *pieces;
};

enum gen_where { GEN_OUTER, GEN_EACH, GEN_SPARSE, GEN_DENSE_ONLY }; /* once; in layers: all, with experts, without */
enum gen_extent { GEN_ONE, GEN_VOCAB, GEN_HIDDEN, GEN_INTERMEDIATE, GEN_DENSE_INTERMEDIATE, GEN_EXPERTS, GEN_LATENT };

struct gen_dense {                        /* a tensor beside the experts */
	const char *pattern;
	uint8_t where, rows, columns;     /* enum gen_where, enum gen_extent */
	uint8_t kind;                     /* enum gen_kind */
};

struct gen_extra {                        /* another small file */
	const char *name;
	const struct gen_key *keys;
};

struct gen_family {
	const char *name;
	const char *const *aliases;       /* lower case without - . and _; NULL-terminated */
	const char *const *prefixes;      /* NULL-terminated, the usual one first */
	const char *layer_block;
	const char *mtp_block;            /* NULL: an MTP row is named as a layer after the last */
	uint32_t formats, takes;
	uint8_t default_format, dense_format;
	uint8_t mtp_format;               /* GEN_FORMATS: as the layers */
	uint8_t shard_names, config;      /* usual ones */
	uint8_t is_flat;                  /* tensors of quantised weights have one dimension */
	uint8_t is_merged;                /* the rows of all matrices are packed together */
	uint8_t is_u8;                    /* quantised weights are U8 whatever they mean */
	uint32_t arrangement_count, dense_count;
	const struct gen_arrangement *arrangements;
	const struct gen_dense *dense;
	const struct gen_key *keys;       /* of config.json */
	const struct gen_extra *extra;    /* or NULL */
};

extern const struct gen_family gen_family_deepseek_v4, gen_family_deepseek_v41, gen_family_glm, gen_family_glm53,
	gen_family_inkling, gen_family_kimi_k3, gen_family_mimo, gen_family_olmoe, gen_family_qwen36, gen_family_qwen38;

/* By any of its spellings; NULL: none. */
const struct gen_family *gen_family_find(const char *name);
/* All names, for messages. */
const char *gen_family_list(char *text, uint32_t text_bytes);

const struct gen_arrangement *gen_family_arrangement(const struct gen_family *family, enum gen_format format);

/* The family's own copy of a prefix, or NULL. */
const char *gen_family_prefix(const struct gen_family *family, const char *prefix);

#endif
