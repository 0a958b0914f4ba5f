/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.json and its like from a table of keys. Where a family nests the text model's values in an object, a flat one has
 * the contents of that object only, as exports of the text model alone have.
 */
#ifndef CNRE_TOOLS_GEN_CONFIG_H
#define CNRE_TOOLS_GEN_CONFIG_H

#include "tools/gen/model.h"

#include <stddef.h>
#include <stdint.h>

enum gen_key_kind {
	GEN_KEY_LAST,                     /* ends a table */
	GEN_KEY_LITERAL,                  /* text as it stands */
	GEN_KEY_FIELD,                    /* a number of the model; left out: FIELD_IF it is 0 */
	GEN_KEY_FIELD_IF,
	GEN_KEY_FIELD_TWICE,              /* twice the number */
	GEN_KEY_WIDTH,                    /* that experts work in */
	GEN_KEY_SPARSE_LAYERS,            /* a list, 0 for each dense layer, 1 for others */
	GEN_KEY_GROUP,                    /* weights of one scale of gate and up, 0: of a row */
	GEN_KEY_DOWN_BITS, GEN_KEY_DOWN_GROUP, /* of down; left out where it is as gate and up */
	GEN_KEY_OBJECT, GEN_KEY_END,      /* what lies between is the value */
};

enum gen_only { GEN_ALWAYS, GEN_ONLY_NESTED, GEN_ONLY_FLAT };

struct gen_key {
	uint8_t kind, only;
	const char *name, *text;
	size_t field_off;
};
#define GEN_LITERAL(name_, text_) {.kind = GEN_KEY_LITERAL, .name = (name_), .text = (text_)}
#define GEN_FIELD_AS(kind_, only_, name_, field_) \
	{.kind = (kind_), .only = (only_), .name = (name_), .field_off = offsetof(struct gen_model, field_)}
#define GEN_FIELD(name_, field_) GEN_FIELD_AS(GEN_KEY_FIELD, GEN_ALWAYS, name_, field_)
#define GEN_FIELD_IF(name_, field_) GEN_FIELD_AS(GEN_KEY_FIELD_IF, GEN_ALWAYS, name_, field_)
#define GEN_FIELD_TWICE(name_, field_) GEN_FIELD_AS(GEN_KEY_FIELD_TWICE, GEN_ALWAYS, name_, field_)
#define GEN_KEY_OF(kind_, name_) {.kind = (kind_), .name = (name_)}

/* 0 or -ENOMEM; free *ret_text. */
int gen_config_print(const struct gen_model *model, const struct gen_key *keys, char **ret_text, size_t *ret_bytes);

#endif
