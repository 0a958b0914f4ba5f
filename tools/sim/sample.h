/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random numbers and the few functions that shape them, of integers and + - * / alone: the same bits on every machine
 * whose floating point is IEEE 754. No libm, whose results differ between versions; built without contraction.
 */
#ifndef CNRE_SIM_SAMPLE_H
#define CNRE_SIM_SAMPLE_H

#include <stdint.h>

struct sim_stream {
	uint64_t key, at;
};

/* splitmix64's finaliser (Steele, Lea, Flood 2014): a counter becomes a random word. */
static inline uint64_t sim_mix(uint64_t word)
{
	word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9ull;
	word = (word ^ word >> 27) * 0x94d049bb133111ebull;
	return word ^ word >> 31;
}

static inline uint64_t sim_key(uint64_t key, uint64_t part)
{
	return sim_mix(key + (part + 1) * 0x9e3779b97f4a7c15ull);
}

static inline uint64_t sim_stream_next(struct sim_stream *stream)
{
	return sim_key(stream->key, stream->at++);
}

/* Below bound, which is below 2^32. */
static inline uint32_t sim_below(uint64_t word, uint32_t bound)
{
	return (uint32_t)((word >> 32) * bound >> 32);
}

/* Above 0 and below 1. */
static inline double sim_unit(uint64_t word)
{
	return ((double)(word >> 12) + 0.5) * (1.0 / 4503599627370496.0);
}

double sim_log(double x);            /* x normal and above 0 */
double sim_exp(double x);            /* |x| below 700 */
double sim_sqrt(double x);           /* x normal and above 0, or 0 */
double sim_normal_quantile(double p); /* above 0 and below 1 */

#endif
