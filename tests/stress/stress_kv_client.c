/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KV prefixes through the library, for ThreadSanitizer: threads of one client store, match, copy, unpin and invalidate a
 * few conversations, while the manager's side publishes, evicts, reads back and forgets their blocks without rest. Every
 * word of a payload is a sum of all tokens up to the block's end, so bytes of another block are seen.
 */
#include "base/check.h"
#include "tests/support/kv_attached.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#define THREADS 4u
#define ROUNDS 3000u /* of each */
#define BLOCKS 5u
#define TOKENS (BLOCKS * KV_TOKENS)
#define ENTRIES 24u
#define WORDS (KV_BYTES / sizeof(uint64_t))
#define POLL_NS 200000
#define CALM 8u /* turns of the manager's side from one disturbance to the next */

static struct kv_attached attached;
static _Atomic uint32_t left, matched, stored, wrong, unexpected;

/* A few conversations that part from each other after some blocks. */
static void make_conversation(uint32_t number, int32_t *tokens)
{
	for (uint32_t i = 0; i < TOKENS; i++)
		tokens[i] = (int32_t)(i + (i / KV_TOKENS >= number % BLOCKS ? 1000 * number : 0));
}

static uint64_t sum_of(const int32_t *tokens, size_t count)
{
	uint64_t sum = 1;

	for (size_t i = 0; i < count; i++)
		sum = sum * 0x9e3779b97f4a7c15ull + (uint64_t)tokens[i];
	return sum;
}

/* A block of which all tokens are usable. */
static void check_block(const uint64_t *word, uint64_t sum)
{
	for (size_t i = 0; i < WORDS; i++)
		if (word[i] != sum + i) {
			atomic_fetch_add(&wrong, 1);
			return;
		}
	atomic_fetch_add(&matched, 1);
}

static void copy_blocks(struct cnre_kv_chain *chain, const int32_t *tokens)
{
	const void *data;
	uint64_t bytes;
	int r = 1;

	for (size_t i = 0; r > 0; i++) {
		r = cnre_kv_block(chain, i, POLL_NS, &data, &bytes);
		if (r == (int)KV_TOKENS)
			check_block(data, sum_of(tokens, (i + 1) * KV_TOKENS));
	}
	if (r < 0 && r != -ETIMEDOUT && r != -EIO)
		atomic_fetch_add(&unexpected, 1);
}

static void store_blocks(struct cnre_kv_chain *chain, const int32_t *tokens, size_t from)
{
	for (size_t i = from; i < TOKENS; i += KV_TOKENS) {
		void *buffer;
		int r = cnre_kv_stage(chain, tokens + i, KV_TOKENS, NULL, 0, KV_BYTES, &buffer);

		for (size_t k = 0; r == 0 && k < WORDS; k++)
			((uint64_t *)buffer)[k] = sum_of(tokens, i + KV_TOKENS) + k;
		if (r == 0) {
			r = cnre_kv_commit(chain, 1, 0);
			atomic_fetch_add(&stored, r == 0);
		}
		if (r < 0 && r != -EAGAIN && r != -ESTALE)
			atomic_fetch_add(&unexpected, 1);
		if (r < 0) {
			(void)sched_yield(); /* so that the other side has its turn */
			return;
		}
	}
}

static void *converse(void *argument)
{
	uint32_t first = (uint32_t)(uintptr_t)argument;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		int32_t tokens[TOKENS];
		struct cnre_kv_chain *chain;
		int covered;

		make_conversation((first * 3 + i) % 11, tokens);
		covered = cnre_kv_match(attached.kv, tokens, TOKENS, NULL, 0, &chain);
		CNRE_CHECK(covered >= 0);
		copy_blocks(chain, tokens);
		CNRE_CHECK(cnre_kv_unpin(chain) == 0);
		store_blocks(chain, tokens, (size_t)covered / KV_TOKENS * KV_TOKENS);
		cnre_kv_release(chain);
		CNRE_CHECK(cnre_kv_route(attached.kv, tokens, TOKENS, NULL, 0, NULL, 0) >= 0);
	}
	atomic_fetch_sub(&left, 1);
	return NULL;
}

/* The manager's side: one step with one entry. */
static void disturb(uint32_t turn)
{
	uint32_t index = turn % ENTRIES;

	switch (fake_kv_entry(attached.fake, index)->load.state % 8) {
	case CNRE_STATE_READY:
		(void)(turn / ENTRIES % 3 == 0 ? fake_kv_forget(attached.fake, index)
					       : fake_kv_evict(attached.fake, index));
		break;
	case CNRE_STATE_LOADING:
		fake_kv_finish(attached.fake, index, turn % 7 == 0 ? CNRE_LOAD_EIO : CNRE_LOAD_OK);
		break;
	case CNRE_STATE_ABSENT:
		if (turn / ENTRIES % 5 == 0)
			(void)fake_kv_forget(attached.fake, index);
		break;
	default:
		break;
	}
}

static int report(void)
{
	int bad = 0;

	bad += wrong != 0 ? puts("failed: bytes of another block") > 0 : 0;
	bad += unexpected != 0 ? puts("failed: an error that none should be") > 0 : 0;
	bad += matched == 0 || stored == 0 ? puts("failed: nobody made progress") > 0 : 0;
	bad += kv_attached_leases(&attached) != 0 ? puts("failed: a lease stayed behind") > 0 : 0;
	(void)printf("%d passed, %d failed\n", 4 - bad, bad);
	return bad == 0 ? 0 : 1;
}

int main(void)
{
	const struct fake_kv_setup setup = {
		.entry_count = ENTRIES, .bucket_count = 4, .staging_bytes = 16 * 4096, .pin_bytes_max = 12 * KV_BYTES};
	pthread_t thread[THREADS];
	int r;

	attached = kv_attached_start(&setup, 0);
	atomic_store(&left, THREADS);
	for (uintptr_t i = 0; i < THREADS; i++)
		CNRE_CHECK(pthread_create(&thread[i], NULL, converse, (void *)i) == 0);
	for (uint32_t turn = 0; atomic_load(&left) != 0; turn++) {
		if (fake_kv_serve(attached.fake, turn % 64 == 0 ? -ENOSPC : 0) == 0)
			(void)sched_yield();
		if (turn % CALM == 0)
			disturb(turn / CALM);
	}
	for (uint32_t i = 0; i < THREADS; i++)
		CNRE_CHECK(pthread_join(thread[i], NULL) == 0);
	r = report();
	kv_attached_stop(&attached);
	return r;
}
