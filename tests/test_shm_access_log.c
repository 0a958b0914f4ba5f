/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/access_log.h"

#include "shm/word.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(shm_access_log, .timeout = 20);

static _Atomic uint64_t words[CNRE_LOG_ENTRIES];

static void put(uint64_t from, uint64_t to)
{
	for (uint64_t i = from; i < to; i++)
		cnre_access_log_put(words, i, CNRE_LOG_ACCESS, 1, (uint32_t)i);
}

/* Reads all there is; each value must follow the one before. Returns how many. */
static uint64_t drain(struct cnre_access_log_reader *reader, uint64_t *ret_last)
{
	uint64_t entry, count = 0;

	while (cnre_access_log_next(words, reader, &entry) == 1) {
		if (count > 0)
			cr_assert_eq(cnre_log_value(entry), (uint32_t)(*ret_last + 1));
		*ret_last = cnre_log_value(entry);
		count++;
		cr_assert_leq(count, CNRE_LOG_ENTRIES);
	}
	return count;
}

Test(shm_access_log, fresh_log_has_nothing)
{
	struct cnre_access_log_reader reader = {0};
	uint64_t entry = 42;

	cr_expect_eq(cnre_access_log_next(words, &reader, &entry), 0);
	cr_expect_eq(entry, 42, "output is untouched");
	cr_expect_eq(reader.lost_count, 0);
}

Test(shm_access_log, kind_argument_and_value_arrive)
{
	struct cnre_access_log_reader reader = {0};
	uint64_t entry = 0;

	cnre_access_log_put(words, 0, CNRE_LOG_VISIT, 5000, 77);
	cr_assert_eq(cnre_access_log_next(words, &reader, &entry), 1);
	cr_expect_eq(cnre_log_kind_of(entry), CNRE_LOG_VISIT);
	cr_expect_eq(cnre_log_argument(entry), 0xfff, "saturates at 12 bits");
	cr_expect_eq(cnre_log_value(entry), 77);
}

Test(shm_access_log, words_are_read_in_order_over_many_laps_without_loss)
{
	struct cnre_access_log_reader reader = {0};
	uint64_t at = 0, last = 0, read = 0;

	for (int i = 0; i < 100; i++) {
		put(at, at + 1000);
		at += 1000;
		read += drain(&reader, &last);
	}
	cr_expect_eq(read, at);
	cr_expect_eq(last, at - 1);
	cr_expect_eq(reader.lost_count, 0);
}

/* The 16-bit lap wraps after 65536 laps; the word before it does not look newer or older than it is. */
Test(shm_access_log, lap_number_wraps)
{
	struct cnre_access_log_reader reader = {.position = 65533ull * CNRE_LOG_ENTRIES};
	uint64_t at = reader.position, last = 0, read = 0;

	put(at - CNRE_LOG_ENTRIES, at);
	for (int i = 0; i < 60; i++) {
		put(at, at + 1000);
		at += 1000;
		read += drain(&reader, &last);
	}
	cr_expect_eq(read, 60000);
	cr_expect_eq(reader.lost_count, 0);
}

struct overrun {
	uint64_t before, written;
};

Test(shm_access_log, everything_lost_is_counted_exactly_and_the_rest_is_read_at_once)
{
	static const struct overrun cases[] = {
		{0, CNRE_LOG_ENTRIES},
		{0, CNRE_LOG_ENTRIES + 1},
		{5, CNRE_LOG_ENTRIES + 1},
		{0, 2 * CNRE_LOG_ENTRIES},
		{0, 3 * CNRE_LOG_ENTRIES + 5},
		{100, 3 * CNRE_LOG_ENTRIES - 1},
		{8191, 2 * CNRE_LOG_ENTRIES + 1},
		{7777, 100 * CNRE_LOG_ENTRIES + 4096},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct cnre_access_log_reader reader = {0};
		uint64_t last = 0, end = cases[i].before + cases[i].written, read, kept;

		memset((void *)words, 0, sizeof words);
		put(0, cases[i].before);
		cr_assert_eq(drain(&reader, &last), cases[i].before);
		put(cases[i].before, end);
		read = drain(&reader, &last);
		kept = cases[i].written < CNRE_LOG_ENTRIES ? cases[i].written : CNRE_LOG_ENTRIES;
		cr_expect_eq(read, kept, "case %zu: %lu read", i, (unsigned long)read);
		cr_expect_eq(reader.lost_count, cases[i].written - kept, "case %zu", i);
		cr_expect_eq(last, end - 1, "case %zu", i);
	}
}

Test(shm_access_log, hostile_words_end_every_call_and_the_reader_recovers)
{
	struct cnre_access_log_reader reader = {0};
	uint64_t entry, last = 0;
	uint32_t random = 7;

	for (int round = 0; round < 50; round++) {
		for (size_t i = 0; i < CNRE_LOG_ENTRIES; i++) {
			random = random * 1664525u + 1013904223u;
			atomic_store(&words[i], (uint64_t)random << 32 | random);
		}
		for (int i = 0; i < 100; i++)
			(void)cnre_access_log_next(words, &reader, &entry);
	}
	/* An honest writer at the reader's own lap is heard again. */
	put(reader.position, reader.position + 10);
	cr_expect_eq(drain(&reader, &last) > 0, 1);
}

Test(shm_access_log, log_of_a_channel_lies_where_the_layout_says)
{
	char *channel = calloc(1, CNRE_CHANNEL_BYTES(1));

	cr_expect_eq((char *)cnre_access_log_of((struct cnre_channel *)channel) - channel, CNRE_CHANNEL_LOG_OFF);
	free(channel);
}
