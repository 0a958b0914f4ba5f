/* SPDX-License-Identifier: Apache-2.0 */
/* The binary trace: clients between one another, tokens, and bytes that are damaged. */
#include "policy/record.h"
#include "tests/support/traces.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX 4096u

TestSuite(sim_read_binary, .timeout = 60);

struct made {
	unsigned char bytes[BYTES_MAX];
	size_t size;
	uint64_t records;
};

/* Layers 3 (4 experts) and 1 (3 experts), in this order; residents 5 and 0: (1, 1) and (3, 0). */
static void make_header(struct made *made)
{
	struct record_layer layer[2] = {{3, 4, 100, 90}, {1, 3, 50, 40}};
	uint32_t resident[2] = {5, 0};
	struct record_header header = {.layer_count = 2,
				       .top_k = 2,
				       .resident_count = 2,
				       .budget_bytes = 12345,
				       .policy = "lru",
				       .layer = layer,
				       .resident = resident};
	unsigned char *bytes = NULL;

	memset(made, 0, sizeof *made);
	cr_assert_eq(record_put_header(&header, &bytes, &made->size), 0);
	memcpy(made->bytes, bytes, made->size);
	free(bytes);
}

static void put(struct made *made, enum record_kind kind, uint32_t client, uint64_t a, uint64_t b)
{
	struct record record = {.kind = kind, .client = client, .a = a, .b = b};

	made->size += record_put(made->bytes + made->size, &record);
	made->records++;
}

static void put_end(struct made *made)
{
	put(made, RECORD_END, 0, made->records, 0);
}

static void load(struct traces *traces, const struct made *made, int expected)
{
	int result;

	traces_make(traces);
	traces_add(traces, "t", made->bytes, made->size);
	result = traces_load(traces);
	cr_assert_eq(result, expected, "%d: %s", result, traces->message);
}

static void expect_rows(const struct made *made, const char *expected)
{
	struct traces traces;
	char text[1024];

	load(&traces, made, 0);
	traces_describe(&traces, 0, text, sizeof text);
	cr_expect_str_eq(text, expected);
	traces_remove(&traces);
}

Test(sim_read_binary, layers_of_any_order_become_ascending_and_the_managers_knowledge_is_kept)
{
	struct traces traces;
	struct made made;

	make_header(&made);
	put(&made, RECORD_VISIT, 7, 1, 3);
	put(&made, RECORD_ACCESS, 7, 4, 1);
	put(&made, RECORD_LOST, 7, 9, 0);
	put(&made, RECORD_WAIT, 7, 1, 5);
	put(&made, RECORD_ACCESS, 7, 6, 0);
	put_end(&made);
	expect_rows(&made, "0 1/0[3]:0,2;");
	load(&traces, &made, 0);
	cr_expect_eq(traces.trace->format, SIM_FORMAT_BINARY);
	cr_expect_eq(traces.trace->lost, 9);
	cr_expect_eq(traces.trace->budget_bytes, 12345);
	cr_expect_eq(traces.trace->row->client, 7);
	cr_expect_eq(traces.trace->token_count, 3);
	cr_expect_eq(traces.geometry->layer_count, 2);
	cr_expect_eq(traces.geometry->number[0], 1);
	cr_expect_eq(traces.geometry->experts[0], 3);
	cr_expect_eq(traces.geometry->number[1], 3);
	cr_assert_eq(traces.trace->resident_count, 2);
	cr_expect_eq(traces.trace->resident[0], 1);
	cr_expect_eq(traces.trace->resident[1], 3);
	traces_remove(&traces);
}

Test(sim_read_binary, a_client_that_comes_between_ends_the_row)
{
	struct made made;

	make_header(&made);
	put(&made, RECORD_VISIT, 0, 0, 1);
	put(&made, RECORD_VISIT, 1, 0, 1);
	put(&made, RECORD_ACCESS, 0, 0, 0);
	put(&made, RECORD_ACCESS, 1, 1, 0);
	put(&made, RECORD_ACCESS, 1, 2, 0);
	put(&made, RECORD_ACCESS, 0, 3, 0);
	put_end(&made);
	expect_rows(&made, "2 3/0[1]:0;3 3/1[1]:1,2;4 3/0[1]:3;");
}

Test(sim_read_binary, a_sweep_ends_where_layers_do_not_go_up_or_a_token_is_told)
{
	struct made made;

	make_header(&made);
	put(&made, RECORD_VISIT, 0, 1, 1); /* layer 1 */
	put(&made, RECORD_ACCESS, 0, 4, 0);
	put(&made, RECORD_VISIT, 0, 0, 1); /* layer 3 */
	put(&made, RECORD_ACCESS, 0, 0, 0);
	put(&made, RECORD_VISIT, 0, 1, 1);
	put(&made, RECORD_ACCESS, 0, 5, 0);
	put(&made, RECORD_TOKEN, 0, 1, 0);
	put(&made, RECORD_VISIT, 0, 0, 1);
	put(&made, RECORD_ACCESS, 0, 1, 0);
	put_end(&made);
	expect_rows(&made, "0 1/0[1]:0;1 3/0[1]:0;2 1/1[1]:1;3 3/2[1]:1;");
}

Test(sim_read_binary, visits_of_0_tokens_are_further_rows_of_the_same_visit)
{
	struct made made;

	make_header(&made);
	put(&made, RECORD_VISIT, 0, 1, 1);
	put(&made, RECORD_ACCESS, 0, 4, 0);
	put(&made, RECORD_VISIT, 0, 1, 0);
	put(&made, RECORD_ACCESS, 0, 4, 0);
	put(&made, RECORD_VISIT, 0, 0, 1);
	put(&made, RECORD_ACCESS, 0, 0, 0);
	put(&made, RECORD_VISIT, 0, 1, 1);
	put(&made, RECORD_ACCESS, 0, 6, 0);
	put_end(&made);
	expect_rows(&made, "0 1/0[1]:0;0 1/1[1]:0;1 3/0[1]:0;2 1/2[1]:2;");
}

Test(sim_read_binary, lookups_outside_a_visit_are_visits_of_their_layer)
{
	struct made made;

	make_header(&made);
	put(&made, RECORD_ACCESS, 0, 4, 0);
	put(&made, RECORD_ACCESS, 0, 5, 0);
	put(&made, RECORD_ACCESS, 0, 0, 0);
	put(&made, RECORD_ACCESS, 0, 0, 0);
	put_end(&made);
	expect_rows(&made, "0 1/0[1]:0,1;1 3/0[1]:0;1 3/0[1]:0;");
}

static void expect_refused(const struct made *made, const char *expected)
{
	struct traces traces;

	load(&traces, made, -EINVAL);
	cr_expect_not_null(strstr(traces.message, expected), "%s", traces.message);
	cr_expect_null(traces.trace);
	cr_expect_null(traces.geometry);
	traces_remove(&traces);
}

Test(sim_read_binary, what_is_cut_or_damaged_is_refused)
{
	struct made made, cut;

	make_header(&made);
	cut = made;
	cut.size -= 1;
	expect_refused(&cut, "ends within its header: cut");
	put(&made, RECORD_VISIT, 0, 1, 1);
	put(&made, RECORD_ACCESS, 0, 4, 0);
	expect_refused(&made, "ends after 2 records without its end: cut");
	cut = made;
	put(&cut, RECORD_END, 0, 3, 0);
	expect_refused(&cut, "2 records where its end counts 3");
	cut = made;
	put(&cut, RECORD_ACCESS, 0, 7, 0);
	expect_refused(&cut, "object 7 of 7");
	cut = made;
	put(&cut, RECORD_VISIT, 0, 2, 1);
	expect_refused(&cut, "a visit of layer 2 of 2");
	cut = made;
	put(&cut, RECORD_VISIT, 65536, 0, 1);
	expect_refused(&cut, "client 65536");
	cut = made;
	cut.bytes[cut.size++] = 6; /* no such tag */
	expect_refused(&cut, "no record");
	put_end(&made);
	cut = made;
	put(&cut, RECORD_VISIT, 0, 0, 1);
	expect_refused(&cut, "bytes after its end");
	cut = made;
	cut.bytes[cut.size++] = 0x80; /* less than a record */
	expect_refused(&cut, "bytes after its end");
}
