/* SPDX-License-Identifier: Apache-2.0 */
/* Byte sizes as people write them ("120G", "64M", "4096"): binary suffixes K M G T, no fractions. Pure. */
#ifndef CNRE_BASE_SIZE_H
#define CNRE_BASE_SIZE_H

#include <stddef.h>
#include <stdint.h>

/*
 * cnre_size_parse - read a byte size
 *
 * Accepts decimal digits and at most one suffix of K M G T (either case, an optional "iB" or "B" after it).
 * Returns:  0, or -EINVAL (not a size, or more than UINT64_MAX); *ret_bytes is set on success only.
 */
int cnre_size_parse(const char *text, uint64_t *ret_bytes);

/* Writes bytes with a binary unit and at most one decimal ("1.5 GiB", "512 B"); returns text. 16 bytes suffice. */
const char *cnre_size_format(uint64_t bytes, char *text, size_t text_bytes);

/* Rounds up to a power-of-two multiple; the caller makes sure that it does not overflow. */
static inline uint64_t cnre_size_align_up(uint64_t bytes, uint64_t alignment)
{
	return (bytes + alignment - 1) & ~(alignment - 1);
}

static inline uint64_t cnre_size_align_down(uint64_t bytes, uint64_t alignment)
{
	return bytes & ~(alignment - 1);
}

#endif
