/* SPDX-License-Identifier: Apache-2.0 */
/* Counts from whatever file says how often experts were used; and what is malformed is refused with its line. */
#include "model/use_list.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LAYERS = 4, EXPERTS = 16 };

static char message[256];

static int read_bytes(struct use_list *list, const char *text, size_t bytes)
{
	char *exact = malloc(bytes > 0 ? bytes : 1); /* on the heap: the sanitizer guards its end */
	int r;

	memcpy(exact, text, bytes);
	message[0] = '\0';
	cr_assert_eq(use_list_open(list, LAYERS, LAYERS, EXPERTS, 0), 0);
	r = use_list_read(list, exact, bytes, message, sizeof message);
	cr_assert_eq(r < 0, message[0] != '\0', "%s", message);
	free(exact);
	return r;
}

static struct use_list take(const char *text)
{
	struct use_list list;

	cr_assert_eq(read_bytes(&list, text, strlen(text)), 0, "%s: %s", text, message);
	return list;
}

static uint32_t uses(const struct use_list *list, uint32_t layer, uint32_t expert)
{
	return list->usage.count[layer * EXPERTS + expert];
}

static uint32_t place(const struct use_list *list, uint32_t layer, uint32_t expert)
{
	return list->first[layer * EXPERTS + expert];
}

/* ---- each kind ---- */

Test(model_use_list, history_of_an_engine_is_in_the_order_of_layers)
{
	struct use_list list = take("-1 4 16\n-2 1 3841822045\n3 1 7\n0 2 5\n");

	cr_assert_eq(list.kind, USE_LIST_HISTORY);
	cr_assert_eq(uses(&list, 3, 1), 7);
	cr_assert_eq(place(&list, 0, 2), 1);
	cr_assert_eq(place(&list, 3, 1), 2);
	cr_assert_eq(list.places, 2);
	cr_assert_eq(list.usage.writer, 3841822045u);
	use_list_close(&list);
}

Test(model_use_list, history_without_headers_and_an_empty_one_are_histories)
{
	struct use_list list = take("3 1 7\n0 2 5\n");

	cr_assert_eq(list.kind, USE_LIST_HISTORY);
	cr_assert_eq(uses(&list, 0, 2), 5);
	use_list_close(&list);
	list = take("");
	cr_assert_eq(list.kind, USE_LIST_HISTORY);
	cr_assert_eq(list.places, 0);
	use_list_close(&list);
}

Test(model_use_list, binary_history_is_known_by_its_first_bytes)
{
	uint32_t words[3 + LAYERS * EXPERTS] = {0x31554B49u, LAYERS, EXPERTS};
	struct use_list list;

	words[3 + EXPERTS + 2] = 4;
	cr_assert_eq(read_bytes(&list, (const char *)words, sizeof words), 0);
	cr_assert_eq(list.kind, USE_LIST_BINARY);
	cr_assert_eq(uses(&list, 1, 2), 4);
	cr_assert_eq(place(&list, 1, 2), 1);
	use_list_close(&list);
}

Test(model_use_list, trace_counts_each_choice_of_each_row)
{
	struct use_list list = take("0 0 1 3:0.2500 5:0.7500\n0 1 1 3:1.0000 2:0.0000\r\n1 0 2 3:-0.5000");

	cr_assert_eq(list.kind, USE_LIST_TRACE);
	cr_assert_eq(uses(&list, 1, 3), 2);
	cr_assert_eq(uses(&list, 1, 5), 1);
	cr_assert_eq(uses(&list, 1, 2), 1);
	cr_assert_eq(uses(&list, 2, 3), 1);
	cr_assert_eq(place(&list, 1, 3), 1);
	cr_assert_eq(place(&list, 2, 3), 4);
	use_list_close(&list);
}

Test(model_use_list, lines_of_pairs_keep_their_order_and_count_what_comes_again)
{
	struct use_list list = take("3 15\n0 0\n\t2  4 \n0 0\n");

	cr_assert_eq(list.kind, USE_LIST_PAIRS);
	cr_assert_eq(uses(&list, 0, 0), 2);
	cr_assert_eq(uses(&list, 3, 15), 1);
	cr_assert_eq(place(&list, 3, 15), 1);
	cr_assert_eq(place(&list, 0, 0), 2);
	cr_assert_eq(place(&list, 2, 4), 3);
	use_list_close(&list);
}

Test(model_use_list, row_behind_the_last_layer_is_passed_over_in_every_kind)
{
	static const char *const texts[] = {"4 1\n0 1\n", "0 0 4 1:1.0000\n0 0 0 1:1.0000\n", "4 1 9\n0 1 1\n"};

	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		struct use_list list = take(texts[i]);

		cr_assert_eq(list.places, 1, "%s", texts[i]);
		cr_assert_eq(uses(&list, 0, 1), 1);
		use_list_close(&list);
	}
}

/* ---- what engines wrote ---- */

static uint64_t count_file(const char *name, uint32_t layers, uint32_t experts, struct use_list *ret_list)
{
	const char *directory = getenv("CNRE_VECTORS");
	char path[4096], *text = malloc(1 << 20);
	uint64_t sum = 0;
	ssize_t got;
	int fd;

	(void)snprintf(path, sizeof path, "%s/%s", directory != NULL ? directory : "../shared/vectors", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		cr_skip("no reference vectors at %s (set CNRE_VECTORS)", path);
	got = read(fd, text, 1 << 20);
	(void)close(fd);
	cr_assert_gt(got, 0);
	cr_assert_eq(use_list_open(ret_list, layers, layers, experts, 0), 0);
	cr_assert_eq(use_list_read(ret_list, text, (size_t)got, message, sizeof message), 0, "%s: %s", path, message);
	for (uint32_t i = 0; i < layers * experts; i++)
		sum += ret_list->usage.count[i];
	free(text);
	return sum;
}

/* 860 rows of top 4; the 3,241 lookups that the vectors' README counts are fewer, since rows of one call share theirs. */
Test(model_use_list, trace_of_the_glm_engine_counts_four_choices_a_row)
{
	struct use_list list;
	uint64_t sum = count_file("glm-tiny/route.trace", 6, 16, &list);

	cr_assert_eq(list.kind, USE_LIST_TRACE);
	cr_assert_eq(sum, 3440);
	for (uint32_t i = 0; i < 2 * 16; i++)
		cr_assert_eq(list.usage.count[i], 0, "layers 0 and 1 are dense");
	use_list_close(&list);
}

/* The same run, told twice by the engine; the history is of three runs alike, one for each capacity of its cache. */
static void expect_same_counts(const char *vector, uint32_t layers, uint32_t experts)
{
	struct use_list trace, history;
	char name[64];

	(void)snprintf(name, sizeof name, "%s/route.trace", vector);
	(void)count_file(name, layers, experts, &trace);
	(void)snprintf(name, sizeof name, "%s/coli_usage", vector);
	(void)count_file(name, layers, experts, &history);
	for (uint32_t i = 0; i < layers * experts; i++)
		cr_assert_eq(3 * trace.usage.count[i], history.usage.count[i], "%u", i);
	use_list_close(&trace);
	use_list_close(&history);
}

Test(model_use_list, trace_and_history_of_one_olmoe_run_count_alike)
{
	expect_same_counts("olmoe-a", 4, 16);
	expect_same_counts("olmoe-b", 6, 24);
}

/* ---- what is refused ---- */

static void expect_refused(int error, const char *text, size_t bytes, const char *reason)
{
	struct use_list list;

	cr_assert_eq(read_bytes(&list, text, bytes), error, "%.40s", text);
	cr_assert_not_null(strstr(message, reason), "%s", message);
	use_list_close(&list);
}
#define REFUSED(error, text, reason) expect_refused(error, text, sizeof text - 1, reason)

Test(model_use_list, malformed_line_is_refused_with_its_number)
{
	REFUSED(-EINVAL, "0 0\n1\n", "line 2: expected `layer expert`");
	REFUSED(-EINVAL, "0 0\n\n", "line 2: expected `layer expert`");
	REFUSED(-EINVAL, "0 0\n1 2 3\n", "line 2: expected `layer expert`");
	REFUSED(-EINVAL, "0 0\n1 -2\n", "line 2: expected `layer expert`");
	REFUSED(-EINVAL, "0 x\n", "line 1: expected `layer expert`");
	REFUSED(-EINVAL, "0 0\n1 2\0\n", "line 2: expected `layer expert`");
	REFUSED(-EINVAL, "0 0\n1 4294967296\n", "line 2: expected `layer expert`");
	REFUSED(-EINVAL, "0 0\n1 99999999999999999999999999999999\n", "line 2: expected `layer expert`");
	REFUSED(-EINVAL, "0 0\n5 0\n", "line 2: layer 5 of 4");
	REFUSED(-EINVAL, "0 0\n4294967295 0\n", "line 2: layer 4294967295 of 4");
	REFUSED(-EINVAL, "0 0\n1 16\n", "line 2: expert 16 of 16");
	REFUSED(-EINVAL, "0 0\n4 16\n", "line 2: expert 16 of 16");
	REFUSED(-EINVAL, "0 0 1 2:0.5\n0 0 1\n", "line 2: expected `call row layer expert:gate ...`");
	REFUSED(-EINVAL, "0 0 1 2:0.5\n0 0 1 2\n", "line 2: expected `call");
	REFUSED(-EINVAL, "0 0 1 2:\n", "line 1: expected `call");
	REFUSED(-EINVAL, "0 0 1 2:.\n", "line 1: expected `call");
	REFUSED(-EINVAL, "0 0 1 2:-\n", "line 1: expected `call");
	REFUSED(-EINVAL, "0 0 1 2:nan\n", "line 1: expected `call");
	REFUSED(-EINVAL, "0 0 1 2:0.5.5\n", "line 1: expected `call");
	REFUSED(-EINVAL, "0 0 1 2:0.5:3\n", "line 1: expected `call");
	REFUSED(-EINVAL, "0:1 0 1 2:0.5\n", "line 1: expected `call");
	REFUSED(-EINVAL, "0 0 1 16:0.5\n", "line 1: expert 16 of 16");
	REFUSED(-EINVAL, "0 0 5 1:0.5\n", "line 1: layer 5 of 4");
	REFUSED(-EINVAL, ":\n", "line 1: expected `call");
	REFUSED(-EINVAL, "\n", "line 1:");
	REFUSED(-EINVAL, "somebody's notes\n", "line 1:");
	REFUSED(-EINVAL, "# a list for Monday\n", "line 1:");
	REFUSED(-ESTALE, "-1 5 16\n0 0 1\n", "line 1: 5 layers of 16 experts");
}

Test(model_use_list, refused_line_is_shown_without_what_would_move_a_cursor)
{
	REFUSED(-EINVAL, "0 0\n\033[2J\a\n", "line 2: expected `layer expert`, not \"?[2J?\"");
}

Test(model_use_list, too_many_bytes_are_refused_unread)
{
	struct use_list list;

	cr_assert_eq(use_list_open(&list, LAYERS, LAYERS, EXPERTS, 0), 0);
	cr_assert_eq(use_list_read(&list, "", USE_LIST_BYTES_MAX + 1ul, message, sizeof message), -EINVAL);
	cr_assert_str_eq(message, "67108865 bytes, 67108864 at most");
	use_list_close(&list);
}
