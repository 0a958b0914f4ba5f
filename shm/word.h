/* SPDX-License-Identifier: Apache-2.0 */
/* Packing of the words of layout.h: state word, place, access-log entry. Pure arithmetic. */
#ifndef CNRE_SHM_WORD_H
#define CNRE_SHM_WORD_H

#include "shm/layout.h"

#include <errno.h>

static inline uint32_t cnre_word_pack(uint32_t generation, enum cnre_load_error error, enum cnre_state state)
{
	return generation << CNRE_GENERATION_SHIFT | (uint32_t)error << CNRE_STATE_BITS | (uint32_t)state;
}

static inline enum cnre_state cnre_word_state(uint32_t word)
{
	return (enum cnre_state)(word & ((1u << CNRE_STATE_BITS) - 1));
}

static inline enum cnre_load_error cnre_word_error(uint32_t word)
{
	return (enum cnre_load_error)(word >> CNRE_STATE_BITS & ((1u << CNRE_ERROR_BITS) - 1));
}

/* 24 bits; compared for equality only. A waiter sleeps through 2^24 failures of one object only if it is stopped. */
static inline uint32_t cnre_word_generation(uint32_t word)
{
	return word >> CNRE_GENERATION_SHIFT;
}

/* The errno of an error class, negative. */
static inline int cnre_word_errno(uint32_t word)
{
	static const int codes[] = {-EIO, -EIO, -EBADMSG, -ENOSPC, -ETIMEDOUT};
	enum cnre_load_error error = cnre_word_error(word);

	return error < sizeof codes / sizeof codes[0] ? codes[error] : -EIO;
}

#define CNRE_PLACE_OFFSET_BITS 48u

static inline uint64_t cnre_place_pack(uint32_t segment, uint64_t offset)
{
	return (uint64_t)segment << CNRE_PLACE_OFFSET_BITS | offset;
}

static inline uint32_t cnre_place_segment(uint64_t place)
{
	return (uint32_t)(place >> CNRE_PLACE_OFFSET_BITS);
}

static inline uint64_t cnre_place_offset(uint64_t place)
{
	return place & ((1ull << CNRE_PLACE_OFFSET_BITS) - 1);
}

static inline uint64_t cnre_log_pack(uint64_t position, enum cnre_log_kind kind, uint32_t argument, uint32_t value)
{
	uint64_t lap = position / CNRE_LOG_ENTRIES + 1;

	return (lap & 0xffff) << 48 | (uint64_t)kind << 44 | (uint64_t)(argument > 0xfff ? 0xfff : argument) << 32 | value;
}

static inline uint32_t cnre_log_lap(uint64_t entry)
{
	return (uint32_t)(entry >> 48);
}

static inline enum cnre_log_kind cnre_log_kind_of(uint64_t entry)
{
	return (enum cnre_log_kind)(entry >> 44 & 0xf);
}

static inline uint32_t cnre_log_argument(uint64_t entry)
{
	return (uint32_t)(entry >> 32) & 0xfff;
}

static inline uint32_t cnre_log_value(uint64_t entry)
{
	return (uint32_t)entry;
}

#endif
