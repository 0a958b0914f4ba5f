/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as an operator reads them. Pure; each returns its text argument. */
#ifndef CNRE_TOOLS_CTL_FORMAT_H
#define CNRE_TOOLS_CTL_FORMAT_H

#include <jansson.h>
#include <stdint.h>

#define FORMAT_BYTES 32 /* suffices for every function here */

const char *format_bytes(uint64_t bytes, char text[FORMAT_BYTES]);        /* "1.5 GiB" */
const char *format_count(uint64_t count, char text[FORMAT_BYTES]);        /* "1,234,567" */
const char *format_share(uint64_t part, uint64_t whole, char text[FORMAT_BYTES]); /* "97.2 %", "-" of nothing */
const char *format_seconds(double seconds, char text[FORMAT_BYTES]);      /* "830.0 us", "12.3 s", "3 h 12 min" */
/* seconds / count, "-" of nothing */
const char *format_average(double seconds, uint64_t count, char text[FORMAT_BYTES]);

/* The number that stands under a key: seconds, or a part of 1 as a percentage; "-" where it is null, or not there. */
const char *format_seconds_of(const json_t *object, const char *key, char text[FORMAT_BYTES]);
const char *format_share_of(const json_t *object, const char *key, char text[FORMAT_BYTES]);

#endif
