/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that others need: a real manager gives way to signs of pressure, and after an OOM kill of its predecessor. */
#include "tests/support/truth.h"
#include "tests/support/world.h"
#include "tests/support/world_client.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(system_pressure, .timeout = 120);

enum { LAYERS = 4, EXPERTS = 16 };
#define MIB (1ull << 20)
#define BUDGET (8 * MIB)
#define RESERVE (MIB / 2) /* so that what is reserved does not decide */

/* 64 experts of 200 KiB, 12.5 MiB in all: more than the budget, which is filled. */
static const char *const middling[] = {"--hidden", "256", "--intermediate", "256", NULL};
static const char *const options[] = {"--ram", "8M", "--hugepages", "4k", "--keeper", "auto", NULL};

static char events_path[128], fifo_path[128];

static void write_kills(int kills)
{
	FILE *file = fopen(events_path, "w");

	cr_assert_not_null(file);
	cr_assert_gt(fprintf(file, "oom %d\noom_kill %d\noom_group_kill 0\n", kills, kills), 0);
	cr_assert_eq(fclose(file), 0);
}

static void name_files(void)
{
	(void)setenv("CNRE_TEST_MEMORY_EVENTS", events_path, 1);
	(void)setenv("MEMORY_PRESSURE_WATCH", fifo_path, 1);
}

static void start(struct world *world)
{
	world_open(world);
	world_generate(world, middling);
	(void)snprintf(events_path, sizeof events_path, "%s/events", world->directory);
	(void)snprintf(fifo_path, sizeof fifo_path, "%s/pressure", world->directory);
	write_kills(3);
	cr_assert_eq(mkfifo(fifo_path, 0600), 0);
	cr_assert_gt(world_start_with(world, options, name_files), 0);
}

static void finish(struct world *world)
{
	(void)unlink(events_path);
	(void)unlink(fifo_path);
	world_close(world);
}

static void read_everything(const struct truth *truth, struct cnre *client)
{
	for (uint32_t i = 0; i < LAYERS * EXPERTS; i++)
		cr_assert_eq(truth_check_one(truth, client, i / EXPERTS, i % EXPERTS), 0);
}

/* What is promised to clients and loads, whatever memory is short of. */
static uint64_t promised_bytes(struct world *world)
{
	return world_status(world, "pool.guaranteed") * world_status(world, "pool.window_bytes");
}

/* Goal: a restart after an OOM kill shrinks before it serves (R32). Method: the count of kills grows while nobody lives. */
Test(system_pressure, successors_of_managers_that_the_kernel_killed_hold_less_each_time)
{
	struct world world;
	struct truth *truth;
	struct cnre *client;

	start(&world);
	cr_assert_eq(truth_open(&truth, world.model), 0);
	client = world_attach(&world, RESERVE);
	read_everything(truth, client);
	cr_assert_gt(world_stat(&world, "resident_bytes"), BUDGET / 8 * 7, "otherwise there is nothing to give up");

	world_kill_manager(&world);
	cr_assert_gt(world_stat(&world, "resident_bytes"), BUDGET / 8 * 7, "any other death costs nothing");
	cr_assert_null(strstr(world_status_text(&world), "killed for memory"));

	write_kills(4);
	world_kill_manager(&world);
	cr_assert_leq(world_stat(&world, "resident_bytes"), BUDGET / 8 * 7);
	cr_assert_gt(world_stat(&world, "resident_bytes"), BUDGET / 2, "what fits is kept");
	cr_assert_not_null(strstr(world_status_text(&world),
				  "killed for memory in this control group: experts are held "
				  "within 14/16 of the budget"),
			   "%s", world_status_text(&world));
	cr_assert(world_log_has(&world, "the kernel killed for memory"));
	cr_assert_eq(world_stat(&world, "pressure_shrinks"), 1);
	cr_assert_eq(world_stat(&world, "budget_bytes"), BUDGET, "the budget itself is as it was set");
	read_everything(truth, client);
	cr_assert_leq(world_stat(&world, "resident_bytes"), BUDGET / 8 * 7, "and what is read again stays within");

	world_kill_manager(&world);
	cr_assert_not_null(strstr(world_status_text(&world), "within 14/16"),
			   "a kill is judged once, and not forgotten: %s", world_status_text(&world));
	cr_assert_eq(world_stat(&world, "pressure_shrinks"), 1);

	write_kills(5);
	world_kill_manager(&world);
	cr_assert_not_null(strstr(world_status_text(&world), "within 12/16"), "the next one goes below: %s",
			   world_status_text(&world));
	cr_assert_leq(world_stat(&world, "resident_bytes"), BUDGET / 16 * 12);
	cr_assert_eq(world_stat(&world, "pressure_shrinks"), 2);
	read_everything(truth, client);

	for (int kills = 6; kills < 12; kills++) {
		write_kills(kills);
		world_kill_manager(&world);
	}
	cr_assert_not_null(strstr(world_status_text(&world), "within 1/16"), "%s", world_status_text(&world));
	read_everything(truth, client);
	cr_assert_leq(world_stat(&world, "resident_bytes"), promised_bytes(&world));
	cr_assert_gt(promised_bytes(&world), BUDGET / 16, "and never below what is promised");
	cnre_detach(client);
	truth_close(truth);
	finish(&world);
}

static int has_shrunk(void *context)
{
	return world_stat(context, "pressure_shrinks") > 0;
}

Test(system_pressure, a_sign_of_pressure_is_a_sixteenth_of_the_budget_and_one_line)
{
	struct world world;
	struct truth *truth;
	struct cnre *client;
	int fd;

	start(&world);
	cr_assert_eq(truth_open(&truth, world.model), 0);
	client = world_attach(&world, RESERVE);
	read_everything(truth, client);
	cr_assert_gt(world_stat(&world, "resident_bytes"), BUDGET / 16 * 15, "otherwise there is nothing to give up");
	cr_assert_not_null(strstr(world_status_text(&world), fifo_path), "status says what is watched");

	fd = open(fifo_path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
	cr_assert_geq(fd, 0, "the manager reads it");
	cr_assert_eq(write(fd, "x", 1), 1);
	cr_assert(world_wait_until(has_shrunk, &world, 20));
	(void)close(fd);
	cr_assert_leq(world_stat(&world, "resident_bytes"), BUDGET / 16 * 15);
	cr_assert_gt(world_stat(&world, "resident_bytes"), BUDGET / 16 * 13);
	cr_assert_not_null(strstr(world_status_text(&world), "within 15/16 of the budget"), "%s",
			   world_status_text(&world));
	cr_assert(world_log_has(&world, "processes wait for memory"));
	read_everything(truth, client);
	cr_assert_leq(world_stat(&world, "resident_bytes"), BUDGET / 16 * 15);
	cnre_detach(client);
	truth_close(truth);
	finish(&world);
}

Test(system_pressure, without_a_watch_it_serves_and_status_says_why_and_what_to_do)
{
	struct world world;
	char shown[4096];

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, (const char *const[]){"--log-level", "info", NULL}), 0);
	cr_assert(world_log_has(&world, "pressure is not watched: turned off by MEMORY_PRESSURE_WATCH"));
	cr_assert_not_null(strstr(world_status_text(&world), "turned off by MEMORY_PRESSURE_WATCH"));
	cr_assert_eq(world_run("cnrectl", (const char *const[]){"--socket", world.socket, "status", NULL}, shown,
			       sizeof shown),
		     0);
	cr_assert_not_null(strstr(shown, "pressure   not watched: turned off by MEMORY_PRESSURE_WATCH\n"
					 "       do  start the manager without MEMORY_PRESSURE_WATCH=/dev/null\n"),
			   "%s", shown);
	world_close(&world);
}
