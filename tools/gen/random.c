/* SPDX-License-Identifier: Apache-2.0 */
/* Streams and normal quantiles; see random.h. */
#include "tools/gen/random.h"

#include <math.h>

float gen_quantile[GEN_QUANTILES];

uint64_t gen_key(uint64_t seed, const char *name)
{
	uint64_t hash = 0xcbf29ce484222325ull ^ gen_mix(seed + 0x9e3779b97f4a7c15ull);

	for (; *name != '\0'; name++)
		hash = (hash ^ (unsigned char)*name) * 0x100000001b3ull;
	return gen_mix(hash);
}

static double normal_cdf(double x)
{
	return 0.5 * erfc(-x / sqrt(2.0));
}

/* By bisection: slow, exact enough, and done 2048 times in all. */
static double inverse_cdf(double p)
{
	double low = -8.0, high = 8.0, middle;
	int i;

	for (i = 0; i < 60; i++) {
		middle = (low + high) / 2;
		if (normal_cdf(middle) < p)
			low = middle;
		else
			high = middle;
	}
	return (low + high) / 2;
}

void gen_random_open(void)
{
	uint32_t i;

	for (i = 0; i < GEN_QUANTILES / 2; i++) {
		gen_quantile[i] = (float)inverse_cdf((i + 0.5) / GEN_QUANTILES);
		gen_quantile[GEN_QUANTILES - 1 - i] = -gen_quantile[i];
	}
}

void gen_normal(uint64_t key, uint64_t first, uint32_t count, float scale, float *to)
{
	uint32_t i = 0, j;
	uint64_t word;

	for (; i < count && (first + i) % 4 != 0; i++)
		to[i] = scale * gen_quantile[gen_quantile_index(key, first + i)];
	for (; i + 4 <= count; i += 4) {
		word = gen_word(key, (first + i) / 4);
		for (j = 0; j < 4; j++)
			to[i + j] = scale * gen_quantile[word >> 16 * j & (GEN_QUANTILES - 1)];
	}
	for (; i < count; i++)
		to[i] = scale * gen_quantile[gen_quantile_index(key, first + i)];
}
