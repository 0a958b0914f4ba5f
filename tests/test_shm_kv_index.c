/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/kv_index.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define ENTRIES 200u
#define LOOKS 20000u /* of the reader beside a writer */
#define PATIENCE 1000u

TestSuite(shm_kv_index, .timeout = 60);

static struct cnre_kv_directory *make_directory(uint32_t bucket_count)
{
	uint64_t bytes = CNRE_KV_DIRECTORY_BYTES(ENTRIES, bucket_count);
	struct cnre_kv_directory *directory = aligned_alloc(CNRE_PAGE_BYTES, bytes);

	cr_assert_not_null(directory);
	memset((void *)directory, 0, bytes);
	directory->entry_count = ENTRIES;
	directory->bucket_count = bucket_count;
	cnre_kv_index_init(directory);
	return directory;
}

/* A name whose first byte picks the bucket and whose last ones say who it is. */
static void make_name(unsigned char name[CNRE_KV_KEY_BYTES], unsigned char bucket, uint32_t number)
{
	memset(name, 0, CNRE_KV_KEY_BYTES);
	name[0] = bucket;
	memcpy(name + 1, &number, sizeof number);
	memcpy(name + 24, &number, sizeof number);
}

static void insert(struct cnre_kv_directory *directory, uint32_t index, uint32_t key, uint32_t parent)
{
	struct cnre_kv_entry *entry = &cnre_kv_entries(directory)[index];

	make_name(entry->key, (unsigned char)key, key);
	make_name(entry->parent, (unsigned char)parent, parent);
	cnre_kv_index_insert(directory, index);
}

static int has_name(const struct cnre_kv_directory *directory, uint32_t index, enum cnre_kv_chain_kind kind,
		    const unsigned char *name)
{
	const struct cnre_kv_entry *entry = &cnre_kv_entries(directory)[index];

	return memcmp(kind == CNRE_KV_BY_KEY ? entry->key : entry->parent, name, CNRE_KV_KEY_BYTES) == 0;
}

/* How many candidates of a walk have the name, and the last of them. */
static uint32_t walk(const struct cnre_kv_directory *directory, enum cnre_kv_chain_kind kind, uint32_t number,
		     uint32_t *ret_index)
{
	unsigned char name[CNRE_KV_KEY_BYTES];
	struct cnre_kv_walk walk;
	uint32_t count = 0, index;

	make_name(name, (unsigned char)number, number);
	cnre_kv_walk_begin(&walk, directory, kind, name);
	while ((index = cnre_kv_walk_next(&walk)) != CNRE_KV_NONE) {
		cr_assert_lt(index, ENTRIES);
		if (has_name(directory, index, kind, name)) {
			count++;
			*ret_index = index;
		}
	}
	return count;
}

static uint32_t lookup(const struct cnre_kv_directory *directory, uint32_t number)
{
	unsigned char name[CNRE_KV_KEY_BYTES];

	make_name(name, (unsigned char)number, number);
	return cnre_kv_index_lookup(directory, name);
}

static uint32_t child(const struct cnre_kv_directory *directory, uint32_t number, uint32_t after)
{
	unsigned char name[CNRE_KV_KEY_BYTES];

	make_name(name, (unsigned char)number, number);
	return cnre_kv_index_child(directory, name, after);
}

Test(shm_kv_index, empty_index_has_free_entries_and_leads_nowhere)
{
	struct cnre_kv_directory *directory = make_directory(4);
	uint32_t index = 7;

	cr_expect_eq(walk(directory, CNRE_KV_BY_KEY, 0, &index), 0);
	cr_expect_eq(walk(directory, CNRE_KV_BY_PARENT, 0, &index), 0);
	cr_expect_eq(lookup(directory, 0), CNRE_KV_NONE);
	cr_expect_eq(index, 7);
	for (uint32_t i = 0; i < ENTRIES; i++)
		cr_assert_eq(cnre_kv_entries(directory)[i].load.state, CNRE_KV_STATE_FREE);
	free(directory);
}

Test(shm_kv_index, inserted_entry_is_found_by_its_key_and_by_its_parent)
{
	struct cnre_kv_directory *directory = make_directory(4);
	uint32_t index = 0;

	insert(directory, 5, 10, 20);
	cr_expect_eq(walk(directory, CNRE_KV_BY_KEY, 10, &index), 1);
	cr_expect_eq(index, 5);
	index = 0;
	cr_expect_eq(walk(directory, CNRE_KV_BY_PARENT, 20, &index), 1);
	cr_expect_eq(index, 5);
	cr_expect_eq(walk(directory, CNRE_KV_BY_KEY, 20, &index), 0);
	cr_expect_eq(walk(directory, CNRE_KV_BY_PARENT, 10, &index), 0);
	cr_expect_eq(lookup(directory, 10), 5);
	cr_expect_eq(cnre_kv_entries(directory)[5].is_indexed, 1);
	cr_expect_eq(directory->sequence % 2, 0);
	free(directory);
}

Test(shm_kv_index, inserting_and_removing_twice_is_once)
{
	struct cnre_kv_directory *directory = make_directory(1);
	uint32_t index;

	insert(directory, 1, 10, 20);
	insert(directory, 2, 11, 20);
	cnre_kv_index_insert(directory, 1);
	cr_expect_eq(walk(directory, CNRE_KV_BY_KEY, 10, &index), 1);
	cr_expect_eq(walk(directory, CNRE_KV_BY_PARENT, 20, &index), 2);
	cnre_kv_index_remove(directory, 1);
	cnre_kv_index_remove(directory, 1);
	cr_expect_eq(walk(directory, CNRE_KV_BY_KEY, 10, &index), 0);
	cr_expect_eq(walk(directory, CNRE_KV_BY_PARENT, 20, &index), 1);
	cr_expect_eq(index, 2);
	free(directory);
}

Test(shm_kv_index, removal_anywhere_in_a_chain_leaves_the_others)
{
	for (uint32_t removed = 0; removed < 5; removed++) {
		struct cnre_kv_directory *directory = make_directory(1);
		uint32_t index;

		for (uint32_t i = 0; i < 5; i++)
			insert(directory, i, 100 + i, 7);
		cnre_kv_index_remove(directory, removed);
		for (uint32_t i = 0; i < 5; i++) {
			cr_expect_eq(walk(directory, CNRE_KV_BY_KEY, 100 + i, &index), i != removed);
			cr_expect_eq(lookup(directory, 100 + i), i != removed ? i : CNRE_KV_NONE);
		}
		cr_expect_eq(walk(directory, CNRE_KV_BY_PARENT, 7, &index), 4);
		free(directory);
	}
}

Test(shm_kv_index, children_are_gone_through_while_each_is_removed)
{
	struct cnre_kv_directory *directory = make_directory(1);
	uint32_t index, count = 0;

	for (uint32_t i = 0; i < ENTRIES; i++)
		insert(directory, i, 1000 + i, i % 2 == 0 ? 256 : 512);
	for (index = child(directory, 256, CNRE_KV_NONE); index != CNRE_KV_NONE; index = child(directory, 256, index)) {
		cr_assert_eq(index % 2, 0);
		cnre_kv_index_remove(directory, index);
		count++;
	}
	cr_expect_eq(count, ENTRIES / 2);
	cr_expect_eq(child(directory, 256, CNRE_KV_NONE), CNRE_KV_NONE);
	cr_expect_neq(child(directory, 512, CNRE_KV_NONE), CNRE_KV_NONE);
	free(directory);
}

Test(shm_kv_index, rebuild_makes_whole_what_a_dead_writer_left)
{
	struct cnre_kv_directory *directory = make_directory(2);
	struct cnre_kv_entry *entry = cnre_kv_entries(directory);
	uint32_t index;

	for (uint32_t i = 0; i < 10; i++)
		insert(directory, i, 100 + i, 7);
	cnre_kv_index_remove(directory, 3);
	/* Killed in the middle: the sequence odd, one entry said to be in but in no chain, a chain that runs in a circle. */
	directory->sequence++;
	make_name(entry[20].key, 120, 120);
	make_name(entry[20].parent, 7, 7);
	entry[20].is_indexed = 1;
	entry[0].next_of_key = 4;
	entry[5].next_of_parent = 12345678;
	cr_expect_eq(cnre_kv_index_rebuild(directory), 10);
	cr_expect_eq(directory->sequence % 2, 0);
	for (uint32_t i = 0; i < 10; i++)
		cr_expect_eq(walk(directory, CNRE_KV_BY_KEY, 100 + i, &index), i != 3);
	cr_expect_eq(walk(directory, CNRE_KV_BY_KEY, 120, &index), 1);
	cr_expect_eq(walk(directory, CNRE_KV_BY_PARENT, 7, &index), 10);
	free(directory);
}

/* ---- links that lie ---- */

Test(shm_kv_index, walk_in_a_circle_ends)
{
	struct cnre_kv_directory *directory = make_directory(1);
	struct cnre_kv_walk circle;
	uint32_t steps = 0;

	insert(directory, 3, 10, 20);
	insert(directory, 4, 10, 20);
	cnre_kv_entries(directory)[3].next_of_key = 4;
	directory->sequence = 1; /* and for ever at work */
	cnre_kv_walk_begin(&circle, directory, CNRE_KV_BY_KEY, cnre_kv_entries(directory)[3].key);
	while (cnre_kv_walk_next(&circle) != CNRE_KV_NONE)
		steps++;
	cr_expect_leq(steps, CNRE_KV_WALK_MAX * CNRE_KV_WALK_TRIES);
	cr_expect_gt(steps, 0);
	cr_expect_eq(cnre_kv_walk_next(&circle), CNRE_KV_NONE, "and stays at its end");
	free(directory);
}

Test(shm_kv_index, link_out_of_range_is_the_end)
{
	static const uint32_t links[] = {ENTRIES, ENTRIES + 1, 1u << 31, CNRE_KV_NONE - 1};
	struct cnre_kv_directory *directory = make_directory(1);
	uint32_t index;

	insert(directory, 3, 10, 20);
	for (unsigned i = 0; i < sizeof links / sizeof links[0]; i++) {
		cnre_kv_entries(directory)[3].next_of_key = links[i];
		cr_expect_eq(walk(directory, CNRE_KV_BY_KEY, 10, &index), 1);
		directory->bucket[0].of_parent = links[i];
		cr_expect_eq(walk(directory, CNRE_KV_BY_PARENT, 20, &index), 0);
	}
	free(directory);
}

Test(shm_kv_index, walk_looks_at_a_bounded_part_of_a_long_chain)
{
	struct cnre_kv_directory *directory = make_directory(1);
	uint32_t index;

	for (uint32_t i = 0; i < ENTRIES; i++)
		insert(directory, i, 1000 + i, 7);
	cr_expect_eq(walk(directory, CNRE_KV_BY_PARENT, 7, &index), CNRE_KV_WALK_MAX);
	cr_expect_eq(walk(directory, CNRE_KV_BY_KEY, 1000, &index), 0,
		     "the first one inserted is the last one looked at");
	cr_expect_eq(walk(directory, CNRE_KV_BY_KEY, 1000 + ENTRIES - 1, &index), 1);
	free(directory);
}

/* ---- a writer at work ---- */

/*
 * Goal: who is led into another chain comes back. Method: a reader stands on an entry that gets another name and another
 * bucket under its feet.
 */
Test(shm_kv_index, reader_that_was_led_astray_looks_again)
{
	struct cnre_kv_directory *directory = make_directory(2);
	unsigned char wanted[CNRE_KV_KEY_BYTES];
	struct cnre_kv_walk astray;
	uint32_t index;

	insert(directory, 1, 10, 20);  /* wanted: the end of bucket 0 */
	insert(directory, 2, 266, 20); /* before it, with another tag */
	make_name(wanted, 10, 10);
	cnre_kv_walk_begin(&astray, directory, CNRE_KV_BY_KEY, wanted); /* stands on 2 */
	cnre_kv_index_remove(directory, 2);
	insert(directory, 2, 11, 20); /* of bucket 1 now */
	index = cnre_kv_walk_next(&astray);
	cr_expect_eq(index, 1);
	cr_expect_eq(astray.tries, 2);
	cr_expect_eq(cnre_kv_walk_next(&astray), CNRE_KV_NONE);
	free(directory);
}

Test(shm_kv_index, undisturbed_walk_that_finds_nothing_looks_once)
{
	struct cnre_kv_directory *directory = make_directory(2);
	unsigned char wanted[CNRE_KV_KEY_BYTES];
	struct cnre_kv_walk nothing;

	insert(directory, 2, 266, 20);
	make_name(wanted, 10, 10);
	cnre_kv_walk_begin(&nothing, directory, CNRE_KV_BY_KEY, wanted);
	cr_expect_eq(cnre_kv_walk_next(&nothing), CNRE_KV_NONE);
	cr_expect_eq(nothing.tries, 1);
	free(directory);
}

static _Atomic int is_over;

static void *change_without_pause(void *argument)
{
	struct cnre_kv_directory *directory = argument;

	for (uint32_t i = 0; !atomic_load_explicit(&is_over, memory_order_relaxed); i++) {
		uint32_t index = 1 + i % 8;

		cnre_kv_index_remove(directory, index);
		insert(directory, index, 256 + i % 64, 7);
	}
	return NULL;
}

Test(shm_kv_index, present_entry_is_found_beside_a_writer_that_never_rests)
{
	struct cnre_kv_directory *directory = make_directory(2);
	pthread_t writer;
	uint32_t index = 0;

	insert(directory, 100, 2, 8); /* stays */
	cr_assert_eq(pthread_create(&writer, NULL, change_without_pause, directory), 0);
	for (uint32_t i = 0; i < LOOKS; i++) {
		uint32_t tries = 0;

		while (walk(directory, CNRE_KV_BY_KEY, 2, &index) == 0 && tries < PATIENCE)
			tries++;
		cr_assert_lt(tries, PATIENCE);
		cr_assert_eq(index, 100);
	}
	atomic_store_explicit(&is_over, 1, memory_order_relaxed);
	cr_assert_eq(pthread_join(writer, NULL), 0);
	free(directory);
}

static int is_odd(void *context, uint32_t index)
{
	(*(uint32_t *)context)++;
	return index % 2 == 1;
}

/* One bucket: every chain has kept and removed ones, side by side and at both ends. */
Test(shm_kv_index, many_are_removed_at_once_and_the_others_stay_findable)
{
	struct cnre_kv_directory *directory = make_directory(1);
	uint32_t asked = 0, index = 0;

	for (uint32_t i = 0; i < ENTRIES; i++)
		insert(directory, i, 1000 + i, i / 3 % 2 == 0 ? 5 : 6);
	cr_expect_eq(cnre_kv_index_remove_if(directory, is_odd, &asked), ENTRIES / 2);
	cr_expect_eq(asked, ENTRIES);
	for (uint32_t i = 0; i < ENTRIES; i++)
		cr_assert_eq(lookup(directory, 1000 + i), i % 2 == 1 ? CNRE_KV_NONE : i);
	for (index = child(directory, 5, CNRE_KV_NONE); index != CNRE_KV_NONE; index = child(directory, 5, index))
		cr_assert_eq(index % 2, 0);
	cr_expect_eq(directory->sequence % 2, 0, "the change is over");
	cr_expect_eq(cnre_kv_index_remove_if(directory, is_odd, &asked), 0, "none is left");
	cr_expect_eq(asked, ENTRIES + ENTRIES / 2, "only of those that are there");
	insert(directory, 1, 7, 5);
	cr_expect_eq(lookup(directory, 7), 1);
	free(directory);
}
