/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cnrectl explain, experts and why against a real manager: the limit that was made is the one that is named, and what is told of
 * an expert is what was done to it.
 */
#include "cnre/cnre.h"
#include "tests/support/hung_drive.h"
#include "tests/support/world.h"
#include "tests/support/world_client.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(system_explain, .timeout = 120);

enum { LAYERS = 4, EXPERTS = 32 }; /* each expert some 100 KiB */

static const char *const geometry[] = {"--experts", "32", "--hidden", "128", "--intermediate", "256", NULL};

#define LITTLE_RAM "3300K" /* about a quarter of the experts */
#define ALL_RAM "32M"
#define RESERVE_BYTES 400000
#define SLOW_BYTES 20000000u

static struct world world;

/* ---- one client, in a process of its own, until it is killed ---- */

enum work {
	WORK_SPREAD, /* all experts, each as often as any other */
	WORK_CYCLE,  /* some experts one after another, more than fit and less than twice that */
	WORK_HITS,   /* the first experts, and much to compute */
};

static uint32_t expert_at(enum work work, uint64_t step, uint64_t *random)
{
	*random = *random * 6364136223846793005ull + 1442695040888963407ull;
	if (work == WORK_SPREAD)
		return (uint32_t)(*random >> 33) % EXPERTS;
	return (uint32_t)(step / LAYERS % (work == WORK_CYCLE ? 12 : 4));
}

/* Exits with 1 where anything fails; otherwise never. */
static void work_on(enum work work)
{
	struct cnre_options options = {
		.size = sizeof options, .socket = world.socket, .timeout_ns = 20000000000, .reserve_bytes = RESERVE_BYTES};
	struct cnre *client;
	uint64_t random = 1;
	volatile uint64_t sum = 0;

	if (cnre_attach(&client, world.model, &options) < 0)
		_exit(1);
	for (uint64_t step = 0;; step++) {
		struct cnre_expert expert;

		if (cnre_acquire(client, (uint32_t)(step % LAYERS), expert_at(work, step, &random), -1, &expert) < 0)
			_exit(1);
		if (work == WORK_HITS)
			sum += world_sum(&expert);
		(void)cnre_release(client, &expert);
	}
}

static pid_t start_work(enum work work)
{
	pid_t pid = fork();

	cr_assert_geq(pid, 0);
	if (pid == 0)
		work_on(work);
	return pid;
}

static void end_work(pid_t pid)
{
	int status = 0;

	cr_assert_eq(kill(pid, SIGKILL), 0);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_expect(WIFSIGNALED(status), "the client failed");
}

static int has_looked_up(void *context)
{
	const uint64_t *wanted = context;
	uint64_t accesses = world_stat(&world, "accesses");

	return accesses != UINT64_MAX && accesses >= *wanted;
}

/* ---- questions ---- */

static char output[1 << 20];

static json_t *ask(const char *a, const char *b, const char *c)
{
	const char *arguments[] = {"--socket", world.socket, "--json", a, b, c, NULL};
	json_t *answer;

	cr_assert_eq(world_run("cnrectl", arguments, output, sizeof output), 0, "%s", output);
	answer = json_loads(output, 0, NULL);
	cr_assert_not_null(answer, "%s", output);
	return answer;
}

/* After so many lookups of such work; the whole answer, for who wants to know more. */
static json_t *expect_limit(enum work work, uint64_t lookups, const char *limit)
{
	pid_t pid = start_work(work);
	json_t *answer;

	cr_assert(world_wait_until(has_looked_up, &lookups, 60), "the client looked nothing up");
	answer = ask("explain", "--seconds", "1");
	cr_expect_str_eq(json_string_value(json_object_get(answer, "limit")), limit, "%s", output);
	end_work(pid);
	return answer;
}

Test(system_explain, little_memory_for_what_is_used_again_is_capacity)
{
	world_open(&world);
	world_generate(&world, geometry);
	cr_assert(world_start(&world, (const char *[]){"--ram", LITTLE_RAM, "--hugepages", "4k", NULL}) > 0);
	json_decref(expect_limit(WORK_CYCLE, 4000, "capacity"));
	world_close(&world);
}

Test(system_explain, everything_resident_is_compute)
{
	json_t *answer;

	world_open(&world);
	world_generate(&world, geometry);
	cr_assert(world_start(&world, (const char *[]){"--ram", ALL_RAM, "--hugepages", "4k", NULL}) > 0);
	answer = ask("explain", "--seconds", "0.1");
	cr_expect_str_eq(json_string_value(json_object_get(answer, "limit")), "idle", "nobody is there: %s", output);
	json_decref(answer);
	json_decref(expect_limit(WORK_HITS, 100, "compute"));
	world_close(&world);
}

Test(system_explain, a_throttled_drive_is_the_disk)
{
	struct hung_drives drives;
	const json_t *drive;
	const char *reason;
	json_t *answer;

	world_open(&world);
	reason = hung_drives_open(&drives, world.directory, 1, 64);
	if (reason != NULL) {
		world_close(&world);
		cr_skip("%s", reason);
	}
	(void)snprintf(world.model, sizeof world.model, "%s/model", drives.drive[0].mount);
	world_generate(&world, geometry);
	cr_assert(world_start(&world, (const char *[]){"--ram", LITTLE_RAM, "--hugepages", "4k", NULL}) > 0);
	hung_drives_enter(&drives, world.manager);
	hung_drives_throttle(&drives, 0, SLOW_BYTES);
	answer = expect_limit(WORK_SPREAD, 600, "disk");
	drive = json_array_get(json_object_get(answer, "drives"), 0);
	cr_expect_not_null(strstr(json_string_value(json_object_get(answer, "why")), "loop"), "the drive is named: %s", output);
	cr_expect_lt(json_real_value(json_object_get(drive, "bytes_s")), 1.5 * SLOW_BYTES, "it is slow as it was made: %s", output);
	json_decref(answer);
	(void)world_stop(&world, SIGTERM);
	hung_drives_close(&drives);
	world_close(&world);
}

/* ---- one expert ---- */

static const char *text_at(const json_t *answer, const char *key)
{
	return json_string_value(json_object_get(answer, key));
}

static json_int_t number_at(const json_t *answer, const char *key)
{
	return json_integer_value(json_object_get(answer, key));
}

/* The sentence for people. */
static const char *why_text(const char *layer, const char *expert)
{
	const char *arguments[] = {"--socket", world.socket, "why", layer, expert, NULL};

	cr_assert_eq(world_run("cnrectl", arguments, output, sizeof output), 0, "%s", output);
	return output;
}

Test(system_explain, why_tells_who_holds_an_expert_how_it_was_read_and_that_it_went)
{
	struct cnre_expert expert;
	struct cnre *client;
	json_t *answer;

	world_open(&world);
	world_generate(&world, geometry);
	cr_assert(world_start(&world, (const char *[]){"--ram", ALL_RAM, "--hugepages", "4k", NULL}) > 0);
	cr_expect_not_null(strstr(why_text("2", "5"), "nobody has used it"), "%s", output);
	client = world_attach(&world, RESERVE_BYTES);
	cr_assert_eq(cnre_acquire(client, 2, 5, -1, &expert), 0);
	answer = ask("why", "2", "5");
	cr_expect_str_eq(text_at(answer, "state"), "ready");
	cr_expect_eq(number_at(answer, "loads"), 1);
	cr_expect_eq(number_at(answer, "holder_count"), 1);
	cr_expect_eq(number_at(json_array_get(json_object_get(answer, "holders"), 0), "pid"), (json_int_t)getpid());
	cr_expect_gt(json_real_value(json_object_get(json_object_get(answer, "last_load"), "service_s")), 0);
	cr_expect_eq(number_at(json_object_get(answer, "last_load"), "failed_attempts"), 0);
	cr_expect_eq(number_at(json_object_get(answer, "policy"), "goes_after"), 0);
	json_decref(answer);
	cr_expect_not_null(strstr(why_text("2", "5"), "held by 1 clients"), "%s", output);
	cr_assert_eq(cnre_release(client, &expert), 0);
	cr_expect_not_null(strstr(why_text("2", "5"), "there is room"), "%s", output);
	json_decref(ask("reset", NULL, NULL));
	answer = ask("why", "2", "5");
	cr_expect_str_eq(text_at(answer, "state"), "absent");
	cr_expect_eq(number_at(answer, "holder_count"), 0);
	cr_expect_eq(number_at(answer, "lost"), 1);
	json_decref(answer);
	cnre_detach(client);
	world_close(&world);
}

Test(system_explain, why_tells_how_many_go_before_an_expert_and_who_would_go_for_one)
{
	struct cnre *client;
	json_t *answer, *policy;

	world_open(&world);
	world_generate(&world, geometry);
	cr_assert(world_start(&world, (const char *[]){"--ram", ALL_RAM, "--hugepages", "4k", "--policy", "lru", NULL}) > 0);
	client = world_attach(&world, RESERVE_BYTES);
	for (uint32_t i = 0; i < 3; i++) {
		struct cnre_expert expert;

		cr_assert_eq(cnre_acquire(client, 1, i, -1, &expert), 0);
		cr_assert_eq(cnre_release(client, &expert), 0);
	}
	answer = ask("why", "1", "2");
	policy = json_object_get(answer, "policy");
	cr_expect_str_eq(text_at(policy, "name"), "lru");
	cr_expect_eq(number_at(policy, "goes_after"), 2, "%s", output);
	cr_expect(json_is_null(json_object_get(policy, "rival")));
	json_decref(answer);
	answer = ask("why", "3", "9");
	policy = json_object_get(answer, "policy");
	cr_expect(json_is_null(json_object_get(policy, "goes_after")));
	cr_expect_eq(number_at(json_object_get(policy, "rival"), "layer"), 1, "%s", output);
	cr_expect_eq(number_at(json_object_get(policy, "rival"), "expert"), 0, "%s", output);
	json_decref(answer);
	cnre_detach(client);
	world_close(&world);
}

Test(system_explain, experts_show_what_is_resident_and_how_often_it_was_used)
{
	static char expected[] = "................................";
	const char *const none[] = {"--socket", world.socket, "experts", "4", NULL};
	const char *const nobody[] = {"--socket", world.socket, "why", "0", "32", NULL};
	const json_t *layer, *one;
	struct cnre *client;
	json_t *answer;

	world_open(&world);
	world_generate(&world, geometry);
	cr_assert(world_start(&world, (const char *[]){"--ram", ALL_RAM, "--hugepages", "4k", NULL}) > 0);
	client = world_attach(&world, RESERVE_BYTES);
	for (uint32_t i = 0; i < 5; i++) {
		struct cnre_expert expert;

		cr_assert_eq(cnre_acquire(client, 1, i == 4 ? 7 : 30, -1, &expert), 0);
		cr_assert_eq(cnre_release(client, &expert), 0);
	}
	cnre_detach(client); /* with it goes all that it logged */
	expected[7] = expected[30] = 'r';
	answer = ask("experts", NULL, NULL);
	layer = json_array_get(json_object_get(answer, "layers"), 1);
	cr_expect_str_eq(text_at(layer, "state"), expected);
	cr_expect_eq(text_at(layer, "heat")[30], '3', "4 uses: %s", text_at(layer, "heat"));
	cr_expect_eq(text_at(layer, "heat")[7], '1');
	cr_expect_eq(text_at(layer, "heat")[0], '0');
	json_decref(answer);
	answer = ask("experts", "1", NULL);
	one = json_array_get(json_object_get(answer, "experts"), 30);
	cr_expect_eq(number_at(one, "uses"), 4);
	cr_expect_str_eq(text_at(one, "state"), "r");
	cr_expect(json_is_false(json_object_get(one, "leased")));
	json_decref(answer);
	cr_expect_eq(world_run("cnrectl", none, output, sizeof output), 1, "there is no such layer");
	cr_expect_eq(world_run("cnrectl", nobody, output, sizeof output), 1, "there is no such expert");
	world_close(&world);
}
