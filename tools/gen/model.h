/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is to be generated: everything that the bytes of a checkpoint depend on. Two runs with equal models write equal
 * files. Bounds are those of the catalog that will read the result.
 */
#ifndef CNRE_TOOLS_GEN_MODEL_H
#define CNRE_TOOLS_GEN_MODEL_H

#include "tools/gen/format.h"

#include <stddef.h>
#include <stdint.h>

#define GEN_LAYERS_MAX 1024u              /* with MTP rows */
#define GEN_EXPERTS_MAX 4096u
#define GEN_OBJECTS_MAX (1u << 18)        /* layers x experts */
#define GEN_EXTENT_MAX (1u << 16)         /* hidden, intermediate */
#define GEN_VOCAB_MAX (1u << 20)
#define GEN_MTP_MAX 8u
#define GEN_MESSAGE_BYTES 512

enum gen_popularity { GEN_UNIFORM, GEN_GLM, GEN_OLMOE };
enum gen_shard_names { GEN_NAMES_HF, GEN_NAMES_CONVERTER }; /* model-NNNNN-of-NNNNN; out-NNNNN and out-mtp-NNNNN */
enum gen_config { GEN_CONFIG_NESTED, GEN_CONFIG_FLAT };     /* values of the text model in text_config, or at the top */

struct gen_family;

struct gen_model {
	const struct gen_family *family;
	uint32_t layers, experts, top_k, hidden, intermediate, vocab, heads;
	uint32_t dense_layers;            /* the first ones, without experts */
	uint32_t mtp, mtp_experts;        /* rows of experts after the last layer, and how many each has */
	uint32_t latent;                  /* width that experts work in; 0: hidden */
	uint64_t seed;
	uint64_t shard_bytes;             /* a shard is closed before it grows beyond this; one tensor may be larger */
	enum gen_format dense_format;     /* bf16, f16 or f32 */
	enum gen_popularity popularity;
	enum gen_shard_names shard_names;
	enum gen_config config;
	const char *prefix;               /* of tensor names; static, one of the family's */
	int unaligned;                    /* pack tensors in the usual order, experts anywhere */
	int scattered;                    /* the tensors of an expert lie anywhere, in any shard */
	uint8_t matrix_format[GEN_MATRICES]; /* enum gen_format for that matrix of every expert; GEN_FORMATS: as the layer */
	uint8_t expert_format[GEN_LAYERS_MAX]; /* enum gen_format, by layer, MTP rows after the last */
};

/* A whole number of the model that is an option, and a key of the stamp with '_' for '-'. */
struct gen_number {
	const char *name;
	size_t field_off;
	uint32_t min, max;
	uint32_t needs;                   /* GEN_TAKES_* of the family; 0: every family has it */
	int required;
};
#define GEN_NUMBERS 11u
extern const struct gen_number gen_numbers[GEN_NUMBERS];

static inline uint32_t *gen_number_field(struct gen_model *model, const struct gen_number *number)
{
	return (uint32_t *)((char *)model + number->field_off);
}

/* A choice among names; NULL past the end. */
const char *gen_popularity_name(enum gen_popularity popularity);
const char *gen_shard_names_name(enum gen_shard_names names);
const char *gen_config_name(enum gen_config config);
/* 0, or -EINVAL: no such name. */
int gen_popularity_parse(const char *text, enum gen_popularity *ret_popularity);
int gen_shard_names_parse(const char *text, enum gen_shard_names *ret_names);
int gen_config_parse(const char *text, enum gen_config *ret_config);

/* Layers and MTP rows; the experts of one of them (0: dense). */
uint32_t gen_model_rows(const struct gen_model *model);
uint32_t gen_model_experts(const struct gen_model *model, uint32_t layer);
/* The format of one matrix of a layer's experts, its rows and its columns in weights. */
enum gen_format gen_model_format(const struct gen_model *model, uint32_t layer, enum gen_matrix matrix);
uint32_t gen_model_matrix_rows(const struct gen_model *model, enum gen_matrix matrix);
uint32_t gen_model_matrix_columns(const struct gen_model *model, enum gen_matrix matrix);

/* 0, or -EINVAL and one line that says which value does not go with which. */
int gen_model_check(const struct gen_model *model, char message[GEN_MESSAGE_BYTES]);

/* The head count for a hidden size when none was asked for. */
uint32_t gen_model_default_heads(uint32_t hidden);

#endif
