/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeping on state words: a short spin, then a futex, never longer than a slice (R9). */
#ifndef CNRE_CLIENT_WAIT_H
#define CNRE_CLIENT_WAIT_H

#include "client/client.h"

#define CNRE_WAIT_WORDS_MAX 128u          /* of one futex_waitv; more words are looked at every CNRE_WAIT_MANY_NS */
#define CNRE_WAIT_MANY_NS 2000000LL

struct cnre_wait_word {
	const _Atomic uint32_t *word;
	uint32_t expected;
};

/* Spins while every word is as expected, for as long as spinning has paid lately. 1: one changed. */
int cnre_wait_spin(struct cnre *client, const struct cnre_wait_word *words, uint32_t count);

/* Sleeps while every word is as expected. 0 (woken, or one differed), or -ETIMEDOUT. */
int cnre_wait_any(const struct cnre_wait_word *words, uint32_t count, int64_t timeout_ns);

#endif
