/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor bytes; see payload.h. */
#include "tools/gen/payload.h"

#include "base/check.h"
#include "tools/gen/family.h"
#include "tools/gen/fill.h"

#include <math.h>
#include <string.h>

#define INT8_DEVIATION 32.0f /* of the stored int8 values: the table's 3.7 deviations reach 118 of 127 */

_Static_assert(4ull * GEN_EXTENT_MAX <= GEN_CHUNK_BYTES && 12ull * GEN_EXTENT_MAX <= GEN_CHUNK_BYTES,
	       "units fit a chunk");

uint16_t gen_payload_to_bf16(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof bits);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16); /* finite values: round to nearest even */
}

/* IEEE binary16, round to nearest even; values here are finite and far below 65504. */
static uint16_t to_f16(float value)
{
	uint32_t bits, sign, mantissa, half;
	int exponent, shift;

	memcpy(&bits, &value, sizeof bits);
	sign = bits >> 16 & 0x8000;
	exponent = (int)(bits >> 23 & 0xff) - 127 + 15;
	mantissa = (bits & 0x7fffff) | 0x800000;
	if (exponent >= 31)
		return (uint16_t)(sign | 0x7bff);
	if (exponent < -10)
		return (uint16_t)sign;
	shift = exponent <= 0 ? 14 - exponent : 13; /* a subnormal has no hidden bit */
	half = mantissa >> shift;
	mantissa &= (1u << shift) - 1;
	if (mantissa > 1u << (shift - 1) || (mantissa == 1u << (shift - 1) && (half & 1)))
		half++;
	if (exponent > 0)
		half += (uint32_t)(exponent - 1) << 10; /* the hidden bit adds the last one */
	return (uint16_t)(sign | half);
}

/* Only a model that an engine runs has structure; weights of others just keep sums near one. */
static void set_deviations(struct gen_payload *payload, const struct gen_model *model)
{
	if ((model->family->takes & GEN_TAKES_POPULARITY) == 0) {
		memset(&payload->structure, 0, sizeof payload->structure);
		payload->structure.model = model;
		payload->deviation[GEN_CLASS_INTO] = 1 / sqrtf((float)model->hidden);
		payload->deviation[GEN_CLASS_NOISE] = payload->deviation[GEN_CLASS_QUIET] = 0;
		return;
	}
	gen_structure_open(&payload->structure, model);
	payload->deviation[GEN_CLASS_INTO] = gen_structure_into(&payload->structure);
	payload->deviation[GEN_CLASS_NOISE] = gen_structure_out_of(&payload->structure, model->hidden - 1);
	payload->deviation[GEN_CLASS_QUIET] = gen_structure_out_of(&payload->structure, 0);
}

void gen_payload_open(struct gen_payload *payload, const struct gen_model *model)
{
	uint32_t class, i;
	float value;

	gen_random_open();
	set_deviations(payload, model);
	for (i = 0; i < GEN_QUANTILES; i++)
		payload->as_int8[i] = (int8_t)lrintf(gen_quantile[i] * INT8_DEVIATION);
	for (class = 0; class < GEN_CLASSES; class ++)
		for (i = 0; i < GEN_QUANTILES; i++) {
			value = payload->deviation[class] * gen_quantile[i];
			payload->as_f32[class][i] = value;
			payload->as_bf16[class][i] = gen_payload_to_bf16(value);
			payload->as_f16[class][i] = to_f16(value);
		}
}

uint64_t gen_payload_unit(const struct gen_tensor *tensor)
{
	if (tensor->fill != GEN_FILL_STRUCTURE || tensor->kind == GEN_MERGED)
		return GEN_FILL_UNIT;
	if (tensor->kind == GEN_SCALES)
		return tensor->bytes;
	return (uint64_t)tensor->columns * tensor->element_bytes;
}

static uint64_t key_of(const struct gen_payload *payload, const struct gen_tensor *tensor)
{
	char name[GEN_NAME_BYTES];

	return gen_key(payload->structure.model->seed, gen_tensor_name(payload->structure.model, tensor, name));
}

/* One look-up a value, four to a word; first is a multiple of 4. Defined per element type so that the loop is plain. */
#define DEFINE_LOOK_UP(name, type)                                                           \
	void name(const type *table, uint64_t key, uint64_t first, uint64_t count, type *to) \
	{                                                                                    \
		uint64_t i, word;                                                            \
                                                                                             \
		for (i = 0; i + 4 <= count; i += 4) {                                        \
			word = gen_word(key, (first + i) / 4);                               \
			to[i] = table[word & (GEN_QUANTILES - 1)];                           \
			to[i + 1] = table[word >> 16 & (GEN_QUANTILES - 1)];                 \
			to[i + 2] = table[word >> 32 & (GEN_QUANTILES - 1)];                 \
			to[i + 3] = table[word >> 48 & (GEN_QUANTILES - 1)];                 \
		}                                                                            \
		for (; i < count; i++)                                                       \
			to[i] = table[gen_quantile_index(key, first + i)];                   \
	}
DEFINE_LOOK_UP(gen_payload_look_up_int8, int8_t)
DEFINE_LOOK_UP(gen_payload_look_up_16, uint16_t)
DEFINE_LOOK_UP(gen_payload_look_up_f32, float)

static enum gen_class class_of(const struct gen_payload *payload, const struct gen_tensor *tensor, uint32_t row)
{
	if (tensor->kind != GEN_EXPERT_DOWN)
		return GEN_CLASS_INTO;
	return gen_structure_out_of(&payload->structure, row) == payload->deviation[GEN_CLASS_NOISE] ? GEN_CLASS_NOISE
												     : GEN_CLASS_QUIET;
}

/* Each row starts its own stream at a multiple of 4. */
static void fill_expert_row(const struct gen_payload *payload, const struct gen_tensor *tensor, uint64_t key,
			    uint32_t row, void *to)
{
	enum gen_class class = class_of(payload, tensor, row);
	uint64_t first = (uint64_t)row * (((uint64_t)tensor->columns + 3) & ~3ull);

	if (tensor->element_bytes == 4)
		gen_payload_look_up_f32(payload->as_f32[class], key, first, tensor->columns, to);
	else if (strcmp(tensor->dtype, "BF16") == 0)
		gen_payload_look_up_16(payload->as_bf16[class], key, first, tensor->columns, to);
	else
		gen_payload_look_up_16(payload->as_f16[class], key, first, tensor->columns, to);
}

/* Scales of gate, up and down rows: the deviation wanted, spread by 10 % so that no two rows agree by chance. */
static void fill_scales(const struct gen_payload *payload, const struct gen_tensor *tensor, uint64_t key, float *to)
{
	const struct gen_model *model = payload->structure.model;
	uint32_t i;
	float deviation;

	for (i = 0; i < tensor->columns; i++) {
		deviation = i < 2 * model->intermediate
				    ? payload->deviation[GEN_CLASS_INTO]
				    : gen_structure_out_of(&payload->structure, i - 2 * model->intermediate);
		to[i] = deviation / INT8_DEVIATION * (1 + 0.03f * gen_quantile[gen_quantile_index(key, i)]);
	}
}

static void convert(const struct gen_tensor *tensor, const float *row, unsigned char *to)
{
	uint16_t half;
	uint32_t i;

	if (tensor->element_bytes == 4) {
		memcpy(to, row, tensor->columns * sizeof *row);
		return;
	}
	for (i = 0; i < tensor->columns; i++) {
		half = strcmp(tensor->dtype, "BF16") == 0 ? gen_payload_to_bf16(row[i]) : to_f16(row[i]);
		memcpy(to + 2 * i, &half, sizeof half);
	}
}

void gen_payload_fill(struct gen_payload *payload, const struct gen_tensor *tensor, uint64_t offset, uint64_t bytes,
		      void *to)
{
	uint64_t key = key_of(payload, tensor), unit = gen_payload_unit(tensor), done;
	uint32_t row;

	CNRE_CHECK(offset % unit == 0 && bytes <= GEN_CHUNK_BYTES && offset + bytes <= tensor->bytes);
	if (tensor->fill != GEN_FILL_STRUCTURE) {
		gen_fill(payload, tensor, key, offset, bytes, to);
		return;
	}
	if (tensor->kind == GEN_MERGED) {
		gen_payload_look_up_int8(payload->as_int8, key, offset, bytes, to);
		return;
	}
	if (tensor->kind == GEN_SCALES) {
		fill_scales(payload, tensor, key, to);
		return;
	}
	for (done = 0; done < bytes; done += unit) {
		row = (uint32_t)((offset + done) / unit);
		if (gen_tensor_is_expert(tensor)) {
			fill_expert_row(payload, tensor, key, row, (unsigned char *)to + done);
			continue;
		}
		gen_structure_row(&payload->structure, tensor, key, row, payload->row);
		convert(tensor, payload->row, (unsigned char *)to + done);
	}
}
