/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random numbers that are a function of (seed, name, index), so that any range of any tensor can be made or checked on its
 * own. Normal deviates come from a table of 4096 quantiles: four of them cost one 64-bit mix.
 */
#ifndef CNRE_TOOLS_GEN_RANDOM_H
#define CNRE_TOOLS_GEN_RANDOM_H

#include <stdint.h>

#define GEN_QUANTILES 4096u

/* splitmix64's finaliser (Steele, Lea, Flood 2014): a counter becomes a random word. */
static inline uint64_t gen_mix(uint64_t word)
{
	word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9ull;
	word = (word ^ word >> 27) * 0x94d049bb133111ebull;
	return word ^ word >> 31;
}

/* Word number index of the stream of a key. */
static inline uint64_t gen_word(uint64_t key, uint64_t index)
{
	return gen_mix(key + (index + 1) * 0x9e3779b97f4a7c15ull);
}

/* The key of a named stream. */
uint64_t gen_key(uint64_t seed, const char *name);

/* The middle of each of 4096 equal parts of the standard normal distribution. Call gen_random_open once before. */
extern float gen_quantile[GEN_QUANTILES];
void gen_random_open(void);

/* Quantile number of deviate `index` of a key's stream. */
static inline uint32_t gen_quantile_index(uint64_t key, uint64_t index)
{
	return (uint32_t)(gen_word(key, index / 4) >> 16 * (index % 4)) & (GEN_QUANTILES - 1);
}

/* count standard normal deviates from `first` on, times scale. */
void gen_normal(uint64_t key, uint64_t first, uint32_t count, float scale, float *to);

#endif
