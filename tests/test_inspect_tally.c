/* SPDX-License-Identifier: Apache-2.0 */
/* tools/inspect/tally.c, load_table.c: whose bytes, and which load reads them. */
#include "tools/inspect/load_table.h"
#include "tools/inspect/tally.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#define AHEAD (256u << 10)

static struct tally_chain chain;

static enum tally_class judge(uint64_t off, uint64_t bytes, enum range_kind kind, int is_cached, int is_before_dense)
{
	const struct tally_piece piece = {
		.file = 1, .file_off = off, .bytes = bytes, .kind = kind, .is_cached = is_cached, .is_before_dense = is_before_dense};

	return tally_judge(&chain, &piece, AHEAD);
}

static void forget(void)
{
	chain = (struct tally_chain){.file = TALLY_NO_FILE};
}

TestSuite(inspect_judge, .init = forget);

Test(inspect_judge, experts_that_a_process_reads_itself_are_its_own)
{
	cr_expect_eq(judge(1 << 20, 4096, RANGE_EXPERT, 0, 0), TALLY_SELF);
	cr_expect_eq(judge(2 << 20, 4096, RANGE_EXPERT, 1, 0), TALLY_SELF);
	cr_expect_eq(judge(0, 100, RANGE_HEADER, 1, 0), TALLY_HEADER);
	cr_expect_eq(judge(4 << 20, 100, RANGE_DENSE, 0, 0), TALLY_DENSE);
}

Test(inspect_judge, what_the_kernel_reads_ahead_of_dense_weights_is_nobodys_wish)
{
	cr_expect_eq(judge(0, 65536, RANGE_DENSE, 1, 0), TALLY_DENSE);
	cr_expect_eq(judge(65536, 131072, RANGE_EXPERT, 1, 0), TALLY_AHEAD);
	cr_expect_eq(judge(196608, 131072, RANGE_EXPERT, 1, 0), TALLY_AHEAD);
	cr_expect_eq(judge(327680, 4096, RANGE_EXPERT, 1, 0), TALLY_SELF, "further than the kernel does");
	cr_expect_eq(judge(331776, 4096, RANGE_EXPERT, 1, 0), TALLY_SELF, "and never again after that");
}

Test(inspect_judge, past_the_page_cache_only_the_rest_of_a_page_is)
{
	cr_expect_eq(judge(0, 5000, RANGE_DENSE, 0, 0), TALLY_DENSE);
	cr_expect_eq(judge(5000, 3192, RANGE_EXPERT, 0, 0), TALLY_AHEAD);
	cr_expect_eq(judge(0, 5000, RANGE_DENSE, 0, 0), TALLY_DENSE);
	cr_expect_eq(judge(5000, 8192, RANGE_EXPERT, 0, 0), TALLY_SELF);
	cr_expect_eq(judge(20480, 1000, RANGE_EXPERT, 0, 1), TALLY_AHEAD, "the page where dense weights begin");
	cr_expect_eq(judge(20480, 8000, RANGE_EXPERT, 0, 1), TALLY_SELF);
}

Test(inspect_judge, in_another_file_nothing_goes_on)
{
	const struct tally_piece other = {.file = 2, .file_off = 65536, .bytes = 4096, .kind = RANGE_EXPERT, .is_cached = 1};

	cr_expect_eq(judge(0, 65536, RANGE_DENSE, 1, 0), TALLY_DENSE);
	cr_expect_eq(tally_judge(&chain, &other, AHEAD), TALLY_SELF);
}

Test(inspect_tally, what_is_unexplained_is_kept_by_process_and_file)
{
	struct tally tally;
	struct tally_process *a, *b;

	cr_assert_eq(tally_open(&tally), 0);
	a = tally_process(&tally, 10, "engine");
	b = tally_process(&tally, 11, "a name that is longer than fits");
	cr_expect_eq(tally_process(&tally, 10, ""), a);
	tally_add(&tally, a, TALLY_LOAD, 1, 0, 100);
	tally_add(&tally, a, TALLY_FILE, 1, 77, 10);
	tally_add(&tally, a, TALLY_FILE, 1, 77, 10);
	tally_add(&tally, a, TALLY_UNKNOWN, 2, 0, 5);
	tally_add(&tally, b, TALLY_SELF, 2, 0, 9);
	cr_expect_eq(a->bytes[TALLY_FILE], 20);
	cr_expect_eq(tally.unexplained_count, 2, "neither loads nor what is exposed");
	cr_expect_eq(tally.unexplained[0].bytes, 20);
	cr_expect_eq(tally.drive_count, 2);
	cr_expect_eq(tally.drive[1].bytes[TALLY_SELF], 9);
	tally_close(&tally);
}

Test(inspect_tally, a_name_is_plain_text_whatever_a_process_calls_itself)
{
	struct tally tally;

	cr_assert_eq(tally_open(&tally), 0);
	cr_expect_str_eq(tally_process(&tally, 1, "a\033[2J\377\n")->name, "a?[2J??");
	tally_close(&tally);
}

Test(inspect_tally, full_tables_lose_nothing_of_the_totals)
{
	struct tally tally;
	struct tally_process *process;

	cr_assert_eq(tally_open(&tally), 0);
	process = tally_process(&tally, 1, "x");
	for (uint64_t i = 0; i < TALLY_UNEXPLAINED_MAX + 10; i++)
		tally_add(&tally, process, TALLY_FILE, 1, i, 1);
	cr_expect_eq(process->bytes[TALLY_FILE], TALLY_UNEXPLAINED_MAX + 10);
	cr_expect_eq(tally.beyond, 10);
	for (uint32_t i = 1; i < TALLY_PROCESSES_MAX; i++)
		cr_assert_not_null(tally_process(&tally, i + 1, "x"));
	cr_expect_null(tally_process(&tally, UINT32_MAX, "one more"));
	tally_close(&tally);
}

/* ---- loads ---- */

static struct load_table loads;

static void open_loads(void)
{
	cr_assert_eq(load_table_open(&loads), 0);
}

static void close_loads(void)
{
	load_table_close(&loads);
}

TestSuite(inspect_load_table, .init = open_loads, .fini = close_loads);

static void start(uint32_t number, uint32_t expert, uint64_t at_ns)
{
	(void)load_table_start(&loads, number, &(struct load_entry){.name = {0, 3, expert}, .start_ns = at_ns});
}

static void chunk(uint32_t number, uint64_t off, uint64_t bytes)
{
	load_table_chunk(&loads, number, &(struct load_chunk){.device = 5, .inode = 6, .file_off = off, .bytes = bytes});
}

Test(inspect_load_table, a_read_is_of_the_load_whose_chunk_it_lies_in)
{
	uint64_t bytes = 0;

	start(1, 10, 100);
	chunk(1, 4096, 8192);
	start(2, 11, 110);
	chunk(2, 12288, 4096);
	cr_assert_not_null(load_table_reader(&loads, 5, 6, 4096, &bytes));
	cr_expect_eq(load_table_reader(&loads, 5, 6, 8192, &bytes)->name.expert, 10);
	cr_expect_eq(bytes, 4096, "up to where the chunk ends");
	cr_expect_eq(load_table_reader(&loads, 5, 6, 12288, &bytes)->name.expert, 11);
	cr_expect_null(load_table_reader(&loads, 5, 6, 4095, &bytes));
	cr_expect_null(load_table_reader(&loads, 5, 6, 16384, &bytes));
	cr_expect_null(load_table_reader(&loads, 5, 7, 4096, &bytes), "another file");
	cr_expect_null(load_table_reader(&loads, 4, 6, 4096, &bytes), "another drive");
	(void)load_table_done(&loads, 1, &(struct load_entry){.done_ns = 200});
	cr_expect_null(load_table_reader(&loads, 5, 6, 4096, &bytes), "its reads are over");
	chunk(1, 4096, 8192);
	cr_expect_not_null(load_table_reader(&loads, 5, 6, 4096, &bytes), "again, from another replica");
}

Test(inspect_load_table, of_an_expert_the_last_load_counts)
{
	const struct load_name name = {0, 3, 10}, other = {1, 3, 10};

	cr_expect_null(load_table_stages(&loads, &name, UINT64_MAX));
	start(1, 10, 100);
	(void)load_table_done(&loads, 1, &(struct load_entry){.done_ns = 150});
	cr_expect_eq(load_table_publish(&loads, 1, 160)->done_ns, 150);
	cr_expect_eq(load_table_stages(&loads, &name, UINT64_MAX)->publish_ns, 160);
	start(9, 10, 500);
	cr_expect_eq(load_table_stages(&loads, &name, 500)->start_ns, 500);
	cr_expect_eq(load_table_stages(&loads, &name, 500)->publish_ns, 0, "of the new one, not of the old one");
	cr_expect_eq(load_table_stages(&loads, &name, 499)->publish_ns, 160, "at a time when the new one had not begun");
	cr_expect_null(load_table_stages(&loads, &name, 99));
	cr_expect_eq(load_table_last(&loads, &name)->number, 9);
	cr_expect_null(load_table_stages(&loads, &other, UINT64_MAX));
	cr_expect_null(load_table_publish(&loads, 77, 1), "its start was not seen");
}

Test(inspect_load_table, more_loads_and_experts_than_fit_at_first)
{
	uint64_t bytes;

	for (uint32_t i = 0; i < 3 * LOAD_TABLE_ROOM; i++) {
		start(i, i, i + 1);
		chunk(i, (uint64_t)i * 4096, 4096);
	}
	cr_expect_eq(loads.reading_count, LOAD_TABLE_ROOM);
	cr_expect_eq(loads.forgotten, 2 * LOAD_TABLE_ROOM);
	cr_expect_null(load_table_reader(&loads, 5, 6, 0, &bytes));
	for (uint32_t i = 0; i < 3 * LOAD_TABLE_ROOM; i++)
		cr_assert_eq(load_table_stages(&loads, &(struct load_name){0, 3, i}, UINT64_MAX)->start_ns, i + 1);
}
