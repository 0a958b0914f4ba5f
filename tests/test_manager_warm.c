/* SPDX-License-Identifier: Apache-2.0 */
/* A warm list: its order, its limits, and that it asks before each load and takes no for an answer. Loads are the test's. */
#include "manager/warm.h"

#include "manager/residency_inner.h"
#include "manager/settings.h"
#include "manager/worker.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(manager_warm, .timeout = 60);

enum { LAYERS = 2, EXPERTS = 4, OBJECTS = LAYERS * EXPERTS, SMALL = 4096, LARGE = 16384 };

static struct manager manager;
static struct model_catalog catalog;
static struct model_object object[OBJECTS];
static struct model_layer layer[LAYERS] = {{.expert_count = EXPERTS}, {.first_object = EXPERTS, .expert_count = EXPERTS}};
static struct model_shape shape[2] = {{.slab_bytes = SMALL}, {.slab_bytes = LARGE}};
static struct settings settings;

/* What pump_idle says next, and what it was asked for and began. */
static int answer;
static uint32_t begun[OBJECTS], begun_count, asked, most_own;

static struct cnre_entry *entry(uint32_t owner)
{
	return &manager.model[0].directory->entry[owner];
}

static void set_state(uint32_t owner, enum cnre_state state)
{
	atomic_store(&entry(owner)->state, cnre_word_pack(0, CNRE_LOAD_OK, state));
}

int pump_idle(struct manager *of, uint32_t owner, uint32_t own)
{
	(void)of;
	asked++;
	most_own = own > most_own ? own : most_own;
	if (answer == 1) {
		set_state(owner, CNRE_STATE_LOADING);
		begun[begun_count++] = owner;
	}
	return answer;
}

static void begin(void)
{
	for (uint32_t i = 0; i < OBJECTS; i++)
		object[i] = (struct model_object){.layer = i / EXPERTS, .expert = i % EXPERTS, .shape = i / EXPERTS};
	catalog = (struct model_catalog){.family = "olmoe",
					 .name = "tiny",
					 .layer_count = LAYERS,
					 .main_layer_count = LAYERS,
					 .expert_count = EXPERTS,
					 .object_count = OBJECTS,
					 .layer = layer,
					 .object = object,
					 .shape = shape};
	memset(&manager, 0, sizeof manager);
	manager.model[0].catalog = &catalog;
	manager.model[0].directory = calloc(1, sizeof(struct cnre_directory) + OBJECTS * sizeof(struct cnre_entry));
	manager.counters = calloc(1, sizeof *manager.counters);
	manager.settings = &settings;
	manager.model_count = 1;
	manager.owner_count = OBJECTS;
	cr_assert_eq(layer_counts_open(&manager), 0);
	answer = 1;
	cr_assert_eq(worker_open(&manager.writer, 1), 0);
}

static void end(void)
{
	manager.writer = worker_close(manager.writer);
	warm_close(&manager);
	layer_counts_close(&manager);
	free(manager.model[0].directory);
	free(manager.counters);
}

static int file_with(const char *text)
{
	char path[] = "/tmp/cnre-test-XXXXXX";
	int fd = mkstemp(path);

	cr_assert_geq(fd, 0);
	(void)unlink(path);
	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	return fd;
}

static struct warm_status status(void)
{
	struct warm_status now;

	warm_get_status(&manager, &now);
	return now;
}

static void await_file(void)
{
	struct pollfd ready = {.fd = worker_event_fd(manager.writer), .events = POLLIN};

	cr_assert_gt(poll(&ready, 1, 30000), 0);
	(void)worker_reap(manager.writer);
}

static void start(const char *text, uint64_t bytes, uint64_t time_ns)
{
	begin();
	cr_assert_eq(warm_open(&manager), 0);
	cr_assert_eq(warm_start(&manager, &manager.model[0], "a list", file_with(text),
				&(struct warm_limits){.bytes = bytes, .time_ns = time_ns}),
		     0);
	cr_assert_eq(status().state, WARM_READING);
	await_file();
}

/* Each load arrives before the next turn. */
static void run_to_the_end(void)
{
	for (int turns = 0; turns < 100 && status().state == WARM_LOADING; turns++) {
		warm_pump(&manager);
		for (uint32_t i = 0; i < begun_count; i++)
			set_state(begun[i], CNRE_STATE_READY);
	}
	warm_pump(&manager);
	cr_assert_eq(status().state, WARM_OVER);
	cr_assert_eq(status().on_their_way, 0);
}

static void expect_begun(const uint32_t *owners, uint32_t count)
{
	cr_assert_eq(begun_count, count);
	for (uint32_t i = 0; i < count; i++)
		cr_assert_eq(begun[i], owners[i], "load %u is of %u", i, begun[i]);
}
#define EXPECT_BEGUN(...) \
	expect_begun((const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

/* ---- order ---- */

/* Layer 1 has slabs of four times the size: 21 uses there are worth more than 5 in layer 0, and 11 less than 3. */
Test(manager_warm, most_used_a_byte_come_first_and_what_nobody_used_never)
{
	start("-1 2 4\n0 0 2\n0 1 3\n0 3 5\n1 2 11\n1 3 21\n", 0, 0);
	run_to_the_end();
	EXPECT_BEGUN(1 * EXPERTS + 3, 3, 1, 1 * EXPERTS + 2, 0);
	cr_assert_eq(status().end, WARM_END_ALL);
	cr_assert_eq(status().listed, 5);
	cr_assert_eq(status().loaded, 5);
	cr_assert_eq(status().bytes_loaded, 3 * SMALL + 2 * LARGE);
	cr_assert_eq(cnre_counter_get(&manager.counters->warm_loads), 5);
	end();
}

Test(manager_warm, lines_of_equals_are_loaded_in_their_order)
{
	start("0 2\n0 0\n0 3\n", 0, 0);
	run_to_the_end();
	EXPECT_BEGUN(2, 0, 3);
	end();
}

Test(manager_warm, what_is_there_already_is_passed_over)
{
	start("0 2\n0 0\n0 3\n", 0, 0);
	set_state(0, CNRE_STATE_READY);
	run_to_the_end();
	EXPECT_BEGUN(2, 3);
	cr_assert_eq(status().present, 1);
	end();
}

/* ---- no means no ---- */

Test(manager_warm, nothing_begins_while_others_come_first_and_the_place_in_the_list_is_kept)
{
	start("0 2\n0 0\n0 3\n", 0, 0);
	answer = 0;
	for (int turn = 0; turn < 5; turn++)
		warm_pump(&manager);
	cr_assert_eq(begun_count, 0);
	cr_assert_eq(asked, 5, "one question a turn");
	cr_assert_eq(status().state, WARM_LOADING);
	cr_assert_lt(warm_deadline_ns(&manager), INT64_MAX, "it looks again by itself");
	answer = 1;
	run_to_the_end();
	EXPECT_BEGUN(2, 0, 3);
	end();
}

Test(manager_warm, no_room_ends_it_at_once_and_a_full_layer_costs_its_own_only)
{
	start("0 2\n0 0\n0 3\n", 0, 0);
	answer = -EBUSY;
	warm_pump(&manager);
	cr_assert_eq(status().refused, 3);
	cr_assert_eq(status().end, WARM_END_ALL);
	end();
	asked = 0;
	start("0 2\n0 0\n0 3\n", 0, 0);
	answer = -ENOSPC;
	warm_pump(&manager);
	cr_assert_eq(status().state, WARM_OVER);
	cr_assert_eq(status().end, WARM_END_FULL);
	cr_assert_eq(asked, 1, "it does not churn");
	warm_pump(&manager);
	cr_assert_eq(asked, 1);
	cr_assert_eq(warm_deadline_ns(&manager), INT64_MAX);
	end();
}

Test(manager_warm, load_that_fails_is_counted_and_not_tried_again)
{
	start("0 2\n0 0\n", 0, 0);
	warm_pump(&manager);
	set_state(2, CNRE_STATE_ABSENT);
	set_state(0, CNRE_STATE_READY);
	warm_pump(&manager);
	cr_assert_eq(status().failed, 1);
	cr_assert_eq(status().loaded, 1);
	EXPECT_BEGUN(2, 0);
	end();
}

Test(manager_warm, what_is_on_its_way_is_told_to_who_says_how_much_may_be)
{
	start("0 2\n0 0\n0 3\n", 0, 0);
	warm_pump(&manager);
	cr_assert_eq(most_own, 2, "the third was asked for with two on their way");
	cr_assert_eq(status().on_their_way, 3);
	end();
}

/* ---- limits, and being told to end ---- */

Test(manager_warm, bytes_end_it_before_the_load_that_would_exceed_them)
{
	start("0 2\n0 0\n0 3\n0 1\n", 2 * SMALL + SMALL - 1, 0);
	run_to_the_end();
	EXPECT_BEGUN(2, 0);
	cr_assert_eq(status().end, WARM_END_BYTES);
	cr_assert_eq(status().bytes_loaded, 2 * SMALL);
	end();
}

Test(manager_warm, time_ends_it)
{
	start("0 2\n0 0\n", 0, 1);
	warm_pump(&manager);
	cr_assert_eq(status().end, WARM_END_TIME);
	cr_assert_eq(begun_count, 0);
	end();
}

Test(manager_warm, stop_is_at_once_and_what_is_on_its_way_arrives)
{
	start("0 2\n0 0\n", 0, 0);
	answer = 1;
	warm_pump(&manager);
	cr_assert_eq(begun_count, 2);
	end();
	begun_count = 0;
	start("0 2\n0 0\n0 3\n", 0, 0);
	answer = 0;
	warm_pump(&manager);
	cr_assert_eq(warm_stop(&manager), 0);
	cr_assert_eq(status().end, WARM_END_STOPPED);
	answer = 1;
	warm_pump(&manager);
	cr_assert_eq(begun_count, 0);
	cr_assert_eq(warm_stop(&manager), -ENOENT);
	end();
}

Test(manager_warm, one_at_a_time_and_another_after_it)
{
	start("0 2\n", 0, 0);
	cr_assert_eq(warm_start(&manager, &manager.model[0], "another", -1, &(struct warm_limits){0}), -EALREADY);
	cr_assert_eq(warm_stop(&manager), 0);
	cr_assert_eq(warm_start(&manager, &manager.model[0], "another", file_with("0 3\n"), &(struct warm_limits){0}), 0);
	await_file();
	run_to_the_end();
	EXPECT_BEGUN(3);
	cr_assert_str_eq(status().name, "another");
	end();
}

/* ---- files ---- */

Test(manager_warm, file_that_is_no_list_loads_nothing_and_names_the_line)
{
	start("0 2\n0 9\n", 0, 0);
	warm_pump(&manager);
	cr_assert_eq(status().state, WARM_OVER);
	cr_assert_eq(status().end, WARM_END_FILE);
	cr_assert_str_eq(status().error, "line 2: expert 9 of 4");
	cr_assert_eq(begun_count, 0);
	end();
}

Test(manager_warm, history_of_another_engine_is_taken_since_it_was_named_and_said)
{
	start("-1 2 4\n-2 1 3815245270\n0 2 1\n", 0, 0);
	cr_assert_str_eq(status().writer, "glm_moe_dsa");
	run_to_the_end();
	EXPECT_BEGUN(2);
	end();
}

Test(manager_warm, history_of_other_dimensions_is_not)
{
	start("-1 3 4\n-2 1 3815245270\n0 2 1\n", 0, 0);
	cr_assert_eq(status().end, WARM_END_FILE);
	end();
}

Test(manager_warm, list_of_the_settings_begins_by_itself_but_not_in_a_successor)
{
	begin();
	settings.warm = "/dev/null";
	cr_assert_eq(warm_open(&manager), 0);
	await_file();
	cr_assert_eq(status().end, WARM_END_FILE);
	cr_assert_str_eq(status().error, "not a regular file");
	end();
	begin();
	manager.adopted = 1;
	cr_assert_eq(warm_open(&manager), 0);
	cr_assert_eq(status().state, WARM_NONE);
	end();
}

Test(manager_warm, stop_while_the_file_is_read_drops_what_comes_of_it)
{
	begin();
	cr_assert_eq(warm_open(&manager), 0);
	cr_assert_eq(warm_start(&manager, &manager.model[0], "a list", file_with("0 2\n"), &(struct warm_limits){0}), 0);
	cr_assert_eq(warm_stop(&manager), 0);
	cr_assert_eq(status().state, WARM_OVER);
	cr_assert_eq(warm_start(&manager, &manager.model[0], "another", -1, &(struct warm_limits){0}), -EAGAIN);
	await_file();
	warm_pump(&manager);
	cr_assert_eq(begun_count, 0);
	cr_assert_eq(status().end, WARM_END_STOPPED);
	end();
}
