/* SPDX-License-Identifier: Apache-2.0 */
/* Pseudo-random bytes by kind; see fill.h. */
#include "tools/gen/fill.h"

#include "base/check.h"

#include <string.h>

#define SCALE 0.01f
#define IQ3_BLOCK 98u      /* ends with an fp16 scale */
#define IQ3_SCALE 0x1c00u  /* 2^-8 */
#define E8M0_SMALLEST 119u /* 2^-8; up to 2^-5 */
#define TAG 6.0f

static void fill_bytes(uint64_t key, uint64_t offset, uint64_t bytes, unsigned char *to)
{
	uint64_t i, word;

	for (i = 0; i < bytes; i += sizeof word) {
		word = gen_word(key, (offset + i) / sizeof word);
		memcpy(to + i, &word, bytes - i < sizeof word ? bytes - i : sizeof word);
	}
}

/* All but the infinite exponents: below 2. */
static void fill_e4m3(uint64_t key, uint64_t offset, uint64_t bytes, unsigned char *to)
{
	uint64_t i;

	fill_bytes(key, offset, bytes, to);
	for (i = 0; i < bytes; i++)
		to[i] &= 0xbf;
}

static void fill_iq3(uint64_t key, uint64_t offset, uint64_t bytes, unsigned char *to)
{
	uint64_t i, at;

	fill_bytes(key, offset, bytes, to);
	for (i = 0; i < bytes; i++) {
		at = (offset + i) % IQ3_BLOCK;
		if (at == IQ3_BLOCK - 2)
			to[i] = IQ3_SCALE & 0xff;
		else if (at == IQ3_BLOCK - 1)
			to[i] = IQ3_SCALE >> 8;
	}
}

static void fill_e8m0(uint64_t key, uint64_t offset, uint64_t bytes, unsigned char *to)
{
	uint64_t i;

	fill_bytes(key, offset, bytes, to);
	for (i = 0; i < bytes; i++)
		to[i] = (unsigned char)(E8M0_SMALLEST + (to[i] & 3));
}

static float scale_at(uint64_t key, uint64_t index)
{
	return SCALE * (1 + 0.03f * gen_quantile[gen_quantile_index(key, index)]);
}

static void fill_scales(enum gen_fill fill, uint64_t key, uint64_t first, uint64_t count, unsigned char *to)
{
	uint64_t i;
	uint16_t half;
	float value;

	for (i = 0; i < count; i++) {
		value = fill == GEN_FILL_TAG ? TAG : scale_at(key, first + i);
		half = gen_payload_to_bf16(value);
		if (fill == GEN_FILL_SCALE_BF16)
			memcpy(to + 2 * i, &half, sizeof half);
		else
			memcpy(to + 4 * i, &value, sizeof value);
	}
}

void gen_fill(const struct gen_payload *payload, const struct gen_tensor *tensor, uint64_t key, uint64_t offset,
	      uint64_t bytes, void *to)
{
	uint64_t first = offset / tensor->element_bytes, count = bytes / tensor->element_bytes;

	CNRE_CHECK(offset % GEN_FILL_UNIT == 0 && bytes % tensor->element_bytes == 0);
	switch (tensor->fill) {
	case GEN_FILL_INT8:
		gen_payload_look_up_int8(payload->as_int8, key, first, count, to);
		return;
	case GEN_FILL_BF16:
		gen_payload_look_up_16(payload->as_bf16[GEN_CLASS_INTO], key, first, count, to);
		return;
	case GEN_FILL_F16:
		gen_payload_look_up_16(payload->as_f16[GEN_CLASS_INTO], key, first, count, to);
		return;
	case GEN_FILL_F32:
		gen_payload_look_up_f32(payload->as_f32[GEN_CLASS_INTO], key, first, count, to);
		return;
	case GEN_FILL_E4M3:
		fill_e4m3(key, offset, bytes, to);
		return;
	case GEN_FILL_IQ3:
		fill_iq3(key, offset, bytes, to);
		return;
	case GEN_FILL_SCALE_E8M0:
		fill_e8m0(key, offset, bytes, to);
		return;
	case GEN_FILL_BYTES:
		fill_bytes(key, offset, bytes, to);
		return;
	default: /* SCALE_F32, SCALE_BF16, TAG */
		fill_scales((enum gen_fill)tensor->fill, key, first, count, to);
	}
}
