/* SPDX-License-Identifier: Apache-2.0 */
/* Cases from the field that need the real programs: the page cache, settings nobody reads, and loads that several want. */
#include "tests/support/child.h"
#include "tests/support/truth.h"
#include "tests/support/world.h"
#include "tests/support/world_client.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(system_cases, .timeout = 120);

enum { LAYERS = 4, EXPERTS = 16 };
#define TIMEOUT_NS 60000000000

static void check_all(const struct truth *truth, struct cnre *client)
{
	for (uint32_t i = 0; i < LAYERS * EXPERTS; i++)
		cr_assert_eq(truth_check_one(truth, client, i / EXPERTS, i % EXPERTS), 0);
}

/* ---- the page cache (D7) ---- */

static void load_all(struct cnre *client)
{
	for (uint32_t i = 0; i < LAYERS * EXPERTS; i++) {
		struct cnre_expert leased;

		cr_assert_eq(cnre_acquire(client, i / EXPERTS, i % EXPERTS, TIMEOUT_NS, &leased), 0);
		cr_assert_eq(cnre_release(client, &leased), 0);
	}
}

/* Only "did not grow" can be asked for: the kernel takes cold pages back whenever it likes. */
Test(system_cases, direct_reads_do_not_fill_the_page_cache_or_status_says_buffered)
{
	struct world world;
	struct truth *truth;
	struct cnre *client;
	size_t before, after;

	world_open(&world);
	world_generate(&world, (const char *const[]){"--hidden", "256", "--intermediate", "256", NULL});
	cr_assert_eq(truth_open(&truth, world.model), 0);
	cr_assert_gt(world_start(&world, NULL), 0);
	client = world_attach(&world, 1 << 20);
	truth_drop_cache(truth);
	before = truth_cached_pages(truth);
	load_all(client);
	after = truth_cached_pages(truth);
	cr_assert_eq(world_stat(&world, "loads"), LAYERS * EXPERTS);
	if (world_status(&world, "loader.files_buffered") == 0)
		cr_assert_leq(after, before, "%zu pages became %zu", before, after);
	else
		cr_assert_not_null(strstr(world_status_text(&world), "read through the page cache"));
	check_all(truth, client);
	cnre_detach(client);
	truth_close(truth);
	world_close(&world);
}

Test(system_cases, buffered_reads_are_chosen_with_direct_no_and_shown_as_degraded)
{
	struct world world;
	struct truth *truth;
	struct cnre *client;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_eq(truth_open(&truth, world.model), 0);
	cr_assert_gt(world_start(&world, (const char *const[]){"--direct", "no", NULL}), 0);
	client = world_attach(&world, 1 << 18);
	check_all(truth, client);
	cr_assert_eq(world_status(&world, "loader.files_direct"), 0);
	cr_assert_gt(world_status(&world, "loader.files_buffered"), 0);
	cr_assert_not_null(strstr(world_status_text(&world), "read through the page cache"));
	cr_assert_not_null(strstr(world_status_text(&world), "leave out --direct no"), "%s", world_status_text(&world));
	cnre_detach(client);
	truth_close(truth);
	world_close(&world);
}

/* ---- settings (A8) ---- */

static int run_manager(const struct world *world, const char *first, const char *second, char *output, size_t bytes)
{
	return world_run("cnre-managerd",
			 (const char *const[]){"--model", world->model, "--socket", world->socket, first, second, NULL},
			 output, bytes);
}

Test(system_cases, a_setting_that_nobody_reads_is_an_error_of_usage_that_names_the_nearest)
{
	static const struct {
		const char *option, *value, *said;
	} cases[] = {
		{"--rma", "1G", "did you mean --ram"},     {"--hugepage", "2M", "did you mean --hugepages"},
		{"--modle", "/x", "did you mean --model"},
		{"--kv-rma", "1G", "did you mean --kv-ram"},
		{"--vram", "lots", "is not a size"},       {"--vram-devices", "0", "is not the UUID of a GPU"},
		{"--ram", "lots", "is not a size"},        {"--ram", NULL, "--ram"},
		{"--zzzzzzzzzz", "1", "no such setting"},
	};
	struct world world;

	world_open(&world);
	world_generate(&world, NULL);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char output[2048];
		int status = run_manager(&world, cases[i].option, cases[i].value, output, sizeof output);

		cr_assert_eq(status, 2, "%s: exit status %d: %s", cases[i].option, status, output);
		cr_assert_not_null(strstr(output, cases[i].said), "%s: %s", cases[i].option, output);
		cr_assert_null(strstr(output, "ready:"));
	}
	world_close(&world);
}

Test(system_cases, a_misspelt_key_of_the_config_file_stops_the_start_with_its_line)
{
	static const char *const cases[][2] = {{"rma = 1G\n", "did you mean ram"},
					       {"# fine\n[manager]\nhugepags = 2M\n", "did you mean hugepages"},
					       {"vram = much\n", "is not a size"}};
	char path[128], output[2048];
	struct world world;

	world_open(&world);
	world_generate(&world, NULL);
	(void)snprintf(path, sizeof path, "%s/config", world.directory);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		FILE *file = fopen(path, "we");
		int status;

		cr_assert_not_null(file);
		(void)fputs(cases[i][0], file);
		cr_assert_eq(fclose(file), 0);
		status = run_manager(&world, "--config", path, output, sizeof output);
		cr_assert_eq(status, 2, "exit status %d: %s", status, output);
		cr_assert_not_null(strstr(output, cases[i][1]), "%s", output);
		cr_assert_not_null(strstr(output, i == 1 ? "config:3:" : "config:1:"), "%s", output);
	}
	world_close(&world);
}

Test(system_cases, status_shows_each_value_with_where_it_comes_from)
{
	struct world world;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, (const char *const[]){"--ram", "600K", NULL}), 0);
	cr_assert_not_null(
		strstr(world_status_text(&world), "\"name\":\"ram\",\"source\":\"command line\",\"value\":\"600K\""),
		"%s", world_status_text(&world));
	cr_assert_not_null(strstr(world_status_text(&world), "\"name\":\"policy\",\"source\":\"default\""), "%s",
			   world_status_text(&world));
	world_close(&world);
}

/* ---- loads that several want (B4) ---- */

/* 24 MiB an expert and one read at a time: long enough that what comes next finds it on its way. */
static const char *const large[] = {"--layers", "1",    "--experts",      "4",    "--top-k", "2",
				    "--hidden", "1024", "--intermediate", "8192", NULL};
static const char *const one_at_a_time[] = {"--reads-in-flight", "1", NULL};
enum { LARGE_EXPERTS = 4 };
#define LARGE_RESERVE (4ull * (25 << 20))

Test(system_cases, a_demand_joins_the_prefetch_that_is_under_way)
{
	struct world world;
	struct truth *truth;
	struct cnre *client;
	uint32_t joined = 0;

	world_open(&world);
	world_generate(&world, large);
	cr_assert_eq(truth_open(&truth, world.model), 0);
	cr_assert_gt(world_start(&world, one_at_a_time), 0);
	client = world_attach(&world, LARGE_RESERVE);
	for (uint32_t i = 0; i < LARGE_EXPERTS; i++) {
		struct cnre_expert leased;
		uint8_t tier = CNRE_ABSENT;

		cr_assert_eq(cnre_prefetch(client, 0, &i, 1), 1);
		while (tier == CNRE_ABSENT)
			cr_assert_eq(cnre_resident(client, 0, &i, 1, &tier), 0);
		cr_assert_eq(cnre_acquire(client, 0, i, TIMEOUT_NS, &leased), 0);
		cr_assert_neq(leased.flags & (CNRE_JOINED | CNRE_WAS_RESIDENT), 0, "it began no read of its own");
		joined += (leased.flags & CNRE_JOINED) != 0;
		cr_assert_eq(truth_compare(truth, &leased), 0);
		cr_assert_eq(cnre_release(client, &leased), 0);
	}
	cr_assert_geq(joined, 1, "a read of 24 MiB takes longer than to ask for it");
	cr_assert_eq(world_stat(&world, "loads"), LARGE_EXPERTS, "read once each");
	cr_assert_eq(world_stat(&world, "prefetches_issued"), LARGE_EXPERTS);
	cr_assert_eq(world_stat(&world, "joins"), joined);
	cnre_detach(client);
	truth_close(truth);
	world_close(&world);
}

struct asker {
	const struct world *world;
	int posted;
};

/* Asks for all experts at once, says so, and holds on to them until it is killed. */
static int ask_for_all(void *argument)
{
	const struct asker *asker = argument;
	struct cnre_options options = {.size = sizeof options,
				       .socket = asker->world->socket,
				       .timeout_ns = TIMEOUT_NS,
				       .reserve_bytes = LARGE_RESERVE};
	uint32_t experts[LARGE_EXPERTS] = {0, 1, 2, 3};
	struct cnre_batch *batch;
	struct cnre *client;

	if (cnre_attach(&client, asker->world->model, &options) != 0 ||
	    cnre_batch_begin(client, 0, experts, LARGE_EXPERTS, 1, &batch) != 0)
		return 1;
	(void)!write(asker->posted, "p", 1);
	(void)pause();
	return 0;
}

struct waiter {
	struct cnre *client;
	const struct truth *truth;
	uint32_t expert;
	_Atomic int began;
	int result;
};

static void *wait_for_one(void *argument)
{
	struct waiter *waiter = argument;

	/* [A1] relaxed: only says that the call comes next. */
	atomic_store_explicit(&waiter->began, 1, memory_order_relaxed);
	waiter->result = truth_check_one(waiter->truth, waiter->client, 0, waiter->expert);
	return NULL;
}

static int has_died(void *world)
{
	return world_stat(world, "client_deaths") == 1;
}

/* The first is being read and the last is queued, both for a client that is killed then; two threads of another wait for them. */
Test(system_cases, a_killed_client_does_not_take_its_loads_from_those_who_wait_for_them)
{
	struct waiter waiter[2];
	pthread_t thread[2];
	struct asker asker;
	struct world world;
	struct truth *truth;
	struct cnre *client;
	int posted[2];
	char byte;
	pid_t child;

	world_open(&world);
	world_generate(&world, large);
	cr_assert_eq(truth_open(&truth, world.model), 0);
	cr_assert_gt(world_start(&world, one_at_a_time), 0);
	client = world_attach(&world, LARGE_RESERVE);
	cr_assert_eq(pipe2(posted, O_CLOEXEC), 0);
	asker = (struct asker){.world = &world, .posted = posted[1]};
	child = child_start(ask_for_all, &asker);
	cr_assert_eq(read(posted[0], &byte, 1), 1);
	for (uint32_t i = 0; i < 2; i++) {
		waiter[i] = (struct waiter){.client = client, .truth = truth, .expert = i * (LARGE_EXPERTS - 1)};
		cr_assert_eq(pthread_create(&thread[i], NULL, wait_for_one, &waiter[i]), 0);
		/* [A2] relaxed: as [A1]. */
		while (!atomic_load_explicit(&waiter[i].began, memory_order_relaxed))
			continue;
	}
	(void)kill(child, SIGKILL);
	(void)child_wait(child);
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert_eq(pthread_join(thread[i], NULL), 0);
		cr_assert_eq(waiter[i].result, 0, "waiter %u: %d", i, waiter[i].result);
	}
	cr_assert(world_wait_until(has_died, &world, 10));
	cr_assert_leq(world_stat(&world, "loads"), LARGE_EXPERTS, "nothing is read twice");
	cr_assert_eq(world_stat(&world, "load_errors"), 0);
	cr_assert_eq(world_stat(&world, "leased_objects"), 0);
	cnre_detach(client);
	truth_close(truth);
	world_close(&world);
}

/* ---- a stopped client (F4, F5) ---- */

struct stopped {
	const struct world *world;
	const struct truth *truth;
	int leased, go;
};

/* Leases one expert, is stopped by its parent meanwhile, and compares it again before it gives it back. */
static int hold_one(void *argument)
{
	const struct stopped *stopped = argument;
	struct cnre_options options = {.size = sizeof options,
				       .socket = stopped->world->socket,
				       .timeout_ns = TIMEOUT_NS,
				       .reserve_bytes = 1 << 16};
	struct cnre_expert leased;
	struct cnre *client;
	char byte;

	if (cnre_attach(&client, stopped->world->model, &options) != 0 ||
	    cnre_acquire(client, 0, 0, TIMEOUT_NS, &leased) != 0)
		return 1;
	if (truth_compare(stopped->truth, &leased) != 0)
		return 2;
	(void)!write(stopped->leased, "l", 1);
	if (read(stopped->go, &byte, 1) != 1)
		return 3;
	if (truth_compare(stopped->truth, &leased) != 0)
		return 4;
	if (cnre_release(client, &leased) != 0)
		return 5;
	if (truth_check_one(stopped->truth, client, 3, 3) != 0)
		return 6;
	cnre_detach(client);
	return 0;
}

Test(system_cases, a_stopped_client_keeps_its_lease_under_pressure_and_the_others_go_on)
{
	struct stopped stopped;
	struct world world;
	struct truth *truth;
	struct cnre *client;
	int leased[2], go[2], status;
	uint32_t zero = 0;
	uint8_t tier;
	char byte;
	pid_t child;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_eq(truth_open(&truth, world.model), 0);
	cr_assert_gt(world_start(&world, (const char *const[]){"--ram", "300K", NULL}), 0); /* of 1 MiB */
	cr_assert_eq(pipe2(leased, O_CLOEXEC), 0);
	cr_assert_eq(pipe2(go, O_CLOEXEC), 0);
	stopped = (struct stopped){.world = &world, .truth = truth, .leased = leased[1], .go = go[0]};
	child = child_start(hold_one, &stopped);
	cr_assert_eq(read(leased[0], &byte, 1), 1);
	cr_assert_eq(kill(child, SIGSTOP), 0);
	cr_assert_eq(waitpid(child, &status, WUNTRACED), child);
	cr_assert(WIFSTOPPED(status));

	client = world_attach(&world, 1 << 16);
	for (int round = 0; round < 5; round++) {
		check_all(truth, client);
		cr_assert_eq(cnre_resident(client, 0, &zero, 1, &tier), 0);
		cr_assert_eq(tier, CNRE_RAM, "round %d", round);
	}
	cr_assert_gt(world_stat(&world, "evictions"), 0);
	cr_assert_eq(world_stat(&world, "clients"), 2);
	cr_assert_eq(world_stat(&world, "leased_objects"), 1);
	cr_assert_eq(write(go[1], "g", 1), 1);
	cr_assert_eq(kill(child, SIGCONT), 0);
	cr_assert_eq(child_wait(child), 0);
	check_all(truth, client);
	cr_assert_eq(world_stat(&world, "leased_objects"), 0);
	cnre_detach(client);
	truth_close(truth);
	world_close(&world);
}
