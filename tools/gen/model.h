/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is to be generated: everything that the bytes of a checkpoint depend on. Two runs with equal models write equal
 * files. Bounds are those of the catalog that will read the result.
 */
#ifndef CNRE_TOOLS_GEN_MODEL_H
#define CNRE_TOOLS_GEN_MODEL_H

#include <stdint.h>

#define GEN_LAYERS_MAX 1024u
#define GEN_EXPERTS_MAX 4096u
#define GEN_OBJECTS_MAX (1u << 18)        /* layers x experts */
#define GEN_EXTENT_MAX (1u << 16)         /* hidden, intermediate */
#define GEN_VOCAB_MAX (1u << 20)
#define GEN_MESSAGE_BYTES 512

enum gen_format { GEN_INT8_ROW, GEN_BF16, GEN_F16, GEN_F32 };
enum gen_popularity { GEN_UNIFORM, GEN_GLM, GEN_OLMOE };

struct gen_model {
	const char *family;               /* static: "olmoe" */
	uint32_t layers, experts, top_k, hidden, intermediate, vocab, heads;
	uint64_t seed;
	uint64_t shard_bytes;             /* a shard is closed before it grows beyond this; one tensor may be larger */
	enum gen_format dense_format;     /* not GEN_INT8_ROW */
	enum gen_popularity popularity;
	int unaligned;                    /* pack tensors in the usual order, experts anywhere */
	uint8_t expert_format[GEN_LAYERS_MAX]; /* enum gen_format, by layer */
};

/* "int8-row", …; NULL past the end. */
const char *gen_format_name(enum gen_format format);
const char *gen_popularity_name(enum gen_popularity popularity);
/* 0, or -EINVAL: no such name. */
int gen_format_parse(const char *text, enum gen_format *ret_format);
int gen_popularity_parse(const char *text, enum gen_popularity *ret_popularity);

/* 0, or -EINVAL and one line that says which value does not go with which. */
int gen_model_check(const struct gen_model *model, char message[GEN_MESSAGE_BYTES]);

/* The head count for a hidden size when none was asked for. */
uint32_t gen_model_default_heads(uint32_t hidden);

#endif
