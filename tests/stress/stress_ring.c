/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The request ring and the lease ledger under threads, for ThreadSanitizer (which criterion does not go with). Both sides
 * run as threads of one process. Slab bytes are plain memory on purpose: if the ledger's ordering were wrong, the
 * sanitizer would see a race and the pattern check a mixed slab.
 */
#include "base/check.h"
#include "shm/ledger.h"
#include "shm/ring.h"
#include "shm/word.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define PRODUCERS 4u
#define POSTS 20000u /* of each producer */
#define OBJECTS 4u
#define READERS 3u
#define READS 40000u /* of each reader */
#define SLAB_WORDS 32u

static int passed, failed;

static void expect(int condition, const char *what)
{
	if (condition)
		passed++;
	else
		failed++;
	if (!condition)
		(void)printf("failed: %s\n", what);
}

/* ---- ring: many producers, one consumer, positions that wrap around 32 bits ---- */

static _Alignas(64) struct cnre_channel channel;
static unsigned char seen[PRODUCERS * POSTS];

static void *produce(void *argument)
{
	uint32_t first = (uint32_t)(uintptr_t)argument * POSTS;

	for (uint32_t i = 0; i < POSTS; i++) {
		struct cnre_request request = {
			.kind = CNRE_REQUEST_LOAD, .count = 2, .object = {first + i, ~(first + i)}};

		while (cnre_ring_post(&channel, &request) == -EAGAIN)
			(void)sched_yield();
	}
	return NULL;
}

static void stress_ring(void)
{
	uint32_t head = UINT32_MAX - 1, taken = 0, repeated = 0, torn = 0, leaked = 0;
	pthread_t producer[PRODUCERS];
	struct cnre_request request;

	atomic_store(&channel.ring_tail, head);
	for (uintptr_t i = 0; i < PRODUCERS; i++)
		CNRE_CHECK(pthread_create(&producer[i], NULL, produce, (void *)i) == 0);
	while (taken < PRODUCERS * POSTS) {
		if (!cnre_ring_take(&channel, &head, &request)) {
			(void)sched_yield();
			continue;
		}
		taken++;
		torn += request.count != 2 || request.object[1] != ~request.object[0] ||
			request.object[0] >= sizeof seen;
		repeated += seen[request.object[0] % sizeof seen]++ != 0;
	}
	for (uint32_t i = 0; i < PRODUCERS; i++)
		CNRE_CHECK(pthread_join(producer[i], NULL) == 0);
	for (uint32_t i = 0; i < CNRE_SLOTS; i++)
		leaked += atomic_load(&channel.slot[i].state) != CNRE_SLOT_FREE;
	expect(torn == 0, "a request was taken in pieces");
	expect(repeated == 0, "a request was taken twice");
	expect(leaked == 0, "a slot stayed behind");
	expect(cnre_ring_take(&channel, &head, &request) == 0, "more came out than went in");
}

/* ---- ledger: readers with leases against a manager that evicts and reloads ---- */

static struct cnre_entry entry[OBJECTS];
static _Atomic uint64_t ledger[READERS][OBJECTS]; /* one ledger a client */
static uint64_t slab[OBJECTS][SLAB_WORDS];
static _Atomic uint32_t readers_left, mixed, hits, refused, evictions;

static int is_leased(uint32_t object)
{
	for (uint32_t r = 0; r < READERS; r++)
		if (CNRE_LEDGER_LEASES(cnre_ledger_scan(&ledger[r][object])) != 0)
			return 1;
	return 0;
}

/* Different in each word: a plain fill could become a memset that the sanitizer does not see. */
static uint64_t pattern(uint32_t generation, uint32_t k)
{
	return (uint64_t)generation * 0x9e3779b97f4a7c15ull + k;
}

static void publish(uint32_t object, uint32_t generation)
{
	for (uint32_t k = 0; k < SLAB_WORDS; k++)
		slab[object][k] = pattern(generation, k);
	atomic_store_explicit(&entry[object].state, cnre_word_pack(generation, CNRE_LOAD_OK, CNRE_STATE_READY),
			      memory_order_release);
}

static void evict_and_reload(uint32_t object)
{
	uint32_t word = atomic_load(&entry[object].state), generation = cnre_word_generation(word);

	if (is_leased(object))
		return;
	cnre_ledger_store_evicting(&entry[object], cnre_word_pack(generation, CNRE_LOAD_OK, CNRE_STATE_EVICTING));
	if (is_leased(object)) {
		atomic_fetch_add(&refused, 1);
		atomic_store_explicit(&entry[object].state, word, memory_order_release);
		return;
	}
	atomic_fetch_add(&evictions, 1);
	publish(object, generation + 1);
}

static void *read_slabs(void *argument)
{
	_Atomic uint64_t *mine = ledger[(uintptr_t)argument];

	for (uint32_t i = 0; i < READS; i++) {
		uint32_t object = i * 7 % OBJECTS, word;

		(void)cnre_ledger_add(&mine[object]);
		word = cnre_ledger_load_state(&entry[object]);
		if (cnre_word_state(word) == CNRE_STATE_READY) {
			for (uint32_t k = 0; k < SLAB_WORDS; k++)
				if (slab[object][k] != pattern(cnre_word_generation(word), k)) {
					atomic_fetch_add(&mixed, 1);
					break;
				}
			atomic_fetch_add(&hits, 1);
		}
		CNRE_CHECK(cnre_ledger_sub(&mine[object]) == 0);
	}
	atomic_fetch_sub(&readers_left, 1);
	return NULL;
}

static void stress_ledger(void)
{
	pthread_t reader[READERS];
	uint64_t accesses = 0;
	int leases = 0;

	for (uint32_t i = 0; i < OBJECTS; i++)
		publish(i, 1);
	atomic_store(&readers_left, READERS);
	for (uintptr_t i = 0; i < READERS; i++)
		CNRE_CHECK(pthread_create(&reader[i], NULL, read_slabs, (void *)i) == 0);
	for (uint32_t i = 0; atomic_load(&readers_left) != 0; i++)
		evict_and_reload(i % OBJECTS);
	for (uint32_t r = 0; r < READERS; r++) {
		CNRE_CHECK(pthread_join(reader[r], NULL) == 0);
		for (uint32_t i = 0; i < OBJECTS; i++) {
			accesses += CNRE_LEDGER_ACCESSES(cnre_ledger_scan(&ledger[r][i]));
			leases += CNRE_LEDGER_LEASES(cnre_ledger_scan(&ledger[r][i])) != 0;
		}
	}
	expect(mixed == 0, "a leased slab was overwritten");
	expect(accesses == (uint64_t)READERS * READS, "an access was not counted");
	expect(leases == 0, "a lease stayed behind");
	expect(hits > 0 && evictions > 0, "both sides made progress");
}

int main(void)
{
	stress_ring();
	stress_ledger();
	(void)printf("%d passed, %d failed\n", passed, failed);
	return failed == 0 ? 0 : 1;
}
