/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index of KV blocks and the leases on them under threads, for ThreadSanitizer: a writer publishes and evicts blocks
 * of more names than there are entries, readers walk, lease, compare and read. Names and payloads are plain memory on
 * purpose: a reader that came to them without the protocol would be a race to the sanitizer, and a payload of another
 * name to the check here.
 */
#include "base/check.h"
#include "shm/kv_index.h"
#include "shm/ledger.h"
#include "shm/word.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENTRIES 8u
#define BUCKETS 2u
#define NAMES 24u
#define READERS 3u
#define READS 150000u /* of each reader */
#define PAYLOAD_WORDS 32u

static int passed, failed;
static struct cnre_kv_directory *directory;
static _Atomic uint64_t ledger[READERS][ENTRIES];
static uint64_t payload[ENTRIES][PAYLOAD_WORDS];
static _Atomic uint32_t readers_left, mixed, hits, refused, evictions;

static void expect(int condition, const char *what)
{
	if (condition)
		passed++;
	else
		failed++;
	if (!condition)
		(void)printf("failed: %s\n", what);
}

static void make_name(unsigned char name[CNRE_KV_KEY_BYTES], uint32_t number)
{
	memset(name, 0, CNRE_KV_KEY_BYTES);
	memcpy(name, &number, sizeof number);
	memcpy(name + 16, &number, sizeof number);
}

static uint64_t pattern(uint32_t number, uint32_t k)
{
	return (uint64_t)number * 0x9e3779b97f4a7c15ull + k;
}

/* ---- the manager's side ---- */

static int is_leased(uint32_t index)
{
	for (uint32_t r = 0; r < READERS; r++)
		if (CNRE_LEDGER_LEASES(cnre_ledger_scan(&ledger[r][index])) != 0)
			return 1;
	return 0;
}

/* 1: it is FREE now. */
static int forget(uint32_t index)
{
	struct cnre_kv_entry *entry = &cnre_kv_entries(directory)[index];
	uint32_t word = atomic_load(&entry->load.state), generation = cnre_word_generation(word);

	if (cnre_word_state(word) != CNRE_STATE_READY)
		return 1;
	cnre_ledger_store_evicting(&entry->load, cnre_word_pack(generation, CNRE_LOAD_OK, CNRE_STATE_EVICTING));
	if (is_leased(index)) {
		atomic_fetch_add(&refused, 1);
		atomic_store(&entry->load.state, word);
		return 0;
	}
	cnre_kv_index_remove(directory, index);
	atomic_store(&entry->load.state, (generation + 1) << CNRE_GENERATION_SHIFT | CNRE_KV_STATE_FREE);
	atomic_fetch_add(&evictions, 1);
	return 1;
}

static void publish(uint32_t index, uint32_t number)
{
	struct cnre_kv_entry *entry = &cnre_kv_entries(directory)[index];
	uint32_t generation = cnre_word_generation(atomic_load(&entry->load.state));

	make_name(entry->key, number);
	make_name(entry->parent, number / 4);
	for (uint32_t k = 0; k < PAYLOAD_WORDS; k++)
		payload[index][k] = pattern(number, k);
	atomic_store(&entry->load.state, cnre_word_pack(generation, CNRE_LOAD_OK, CNRE_STATE_READY));
	cnre_kv_index_insert(directory, index);
}

static void change_one(uint32_t turn)
{
	uint32_t index = turn % ENTRIES, number = turn * 5 % NAMES;
	unsigned char key[CNRE_KV_KEY_BYTES];

	make_name(key, number);
	if (cnre_kv_index_lookup(directory, key) == CNRE_KV_NONE && forget(index))
		publish(index, number);
}

/* ---- readers ---- */

static void read_payload(uint32_t index, uint32_t number)
{
	for (uint32_t k = 0; k < PAYLOAD_WORDS; k++)
		if (payload[index][k] != pattern(number, k)) {
			atomic_fetch_add(&mixed, 1);
			return;
		}
	atomic_fetch_add(&hits, 1);
}

/* Under a lease: what a client does with a candidate. */
static void look_at(uint32_t index, enum cnre_kv_chain_kind kind, const unsigned char *name)
{
	const struct cnre_kv_entry *entry = &cnre_kv_entries(directory)[index];
	uint32_t number;

	if (cnre_word_state(cnre_ledger_load_state(&entry->load)) != CNRE_STATE_READY ||
	    memcmp(kind == CNRE_KV_BY_KEY ? entry->key : entry->parent, name, CNRE_KV_KEY_BYTES) != 0)
		return;
	memcpy(&number, entry->key, sizeof number);
	read_payload(index, number);
}

static void *read_blocks(void *argument)
{
	_Atomic uint64_t *mine = ledger[(uintptr_t)argument];

	for (uint32_t i = 0; i < READS; i++) {
		enum cnre_kv_chain_kind kind = i % 2 == 0 ? CNRE_KV_BY_KEY : CNRE_KV_BY_PARENT;
		unsigned char name[CNRE_KV_KEY_BYTES];
		struct cnre_kv_walk walk;
		uint32_t index;

		make_name(name, i * 7 % NAMES);
		cnre_kv_walk_begin(&walk, directory, kind, name);
		while ((index = cnre_kv_walk_next(&walk)) != CNRE_KV_NONE) {
			(void)cnre_ledger_add(&mine[index]);
			look_at(index, kind, name);
			CNRE_CHECK(cnre_ledger_sub(&mine[index]) == 0);
		}
	}
	atomic_fetch_sub(&readers_left, 1);
	return NULL;
}

static void stress_index(void)
{
	pthread_t reader[READERS];
	int leases = 0;

	atomic_store(&readers_left, READERS);
	for (uintptr_t i = 0; i < READERS; i++)
		CNRE_CHECK(pthread_create(&reader[i], NULL, read_blocks, (void *)i) == 0);
	for (uint32_t turn = 0; atomic_load(&readers_left) != 0; turn++)
		change_one(turn);
	for (uint32_t i = 0; i < READERS; i++) {
		CNRE_CHECK(pthread_join(reader[i], NULL) == 0);
		for (uint32_t k = 0; k < ENTRIES; k++)
			leases += CNRE_LEDGER_LEASES(cnre_ledger_scan(&ledger[i][k])) != 0;
	}
	expect(mixed == 0, "a leased block was overwritten");
	expect(leases == 0, "a lease stayed behind");
	expect(hits > 0 && evictions > 0, "both sides made progress");
	expect(cnre_kv_index_rebuild(directory) <= ENTRIES, "no entry is in twice");
}

int main(void)
{
	uint64_t bytes = CNRE_KV_DIRECTORY_BYTES(ENTRIES, BUCKETS);

	directory = aligned_alloc(CNRE_PAGE_BYTES, bytes);
	CNRE_CHECK(directory != NULL);
	memset((void *)directory, 0, bytes);
	directory->entry_count = ENTRIES;
	directory->bucket_count = BUCKETS;
	cnre_kv_index_init(directory);
	stress_index();
	(void)printf("%d passed, %d failed\n", passed, failed);
	free(directory);
	return failed == 0 ? 0 : 1;
}
