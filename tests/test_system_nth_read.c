/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mirror that passed every check and fails in the middle: its Nth read ends with an error, early, by half, or not at all.
 * Whoever waits gets the right bytes from the other replica, one object is read again and no more, and the drive is not
 * given up for one error. By the pool of threads, since io_uring is not trusted with FUSE; what io_uring does with errors of
 * loop devices is in test_system_drive_faults.c.
 */
#include "cnre/cnre.h"
#include "tests/support/drives_said.h"
#include "tests/support/fuse_drive.h"
#include "tests/support/truth.h"
#include "tests/support/world.h"
#include "tests/support/world_client.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(system_nth_read, .timeout = 200);

enum { LAYERS = 4, EXPERTS = 16, ALL = LAYERS * EXPERTS };

static struct world world;
static struct fuse_drive mirror;
static struct truth *truth;
static struct cnre *client;
static uint32_t usual; /* reads of the mirror while everything is read once and nothing fails */

/* ---- a checkpoint where it is, and a mirror behind FUSE ---- */

static int is_checked(void *context)
{
	const char *text = world_status_text(&world);

	(void)context;
	return strstr(text, "\"state\":\"checked\"") != NULL && strstr(text, "\"used\":2,") != NULL;
}

static int is_replicated(void *context)
{
	json_t *answer = drives_said(&world);
	int is = json_is_true(json_object_get(answer, "replicated")) && drives_said_of(answer, mirror.mount) != NULL;

	(void)context;
	json_decref(answer);
	return is;
}

/* Every expert, from the drives, one after the other; each has its right bytes, whatever the mirror does. */
static void read_all(void)
{
	cr_assert_eq(world_run("cnrectl", (const char *const[]){"--socket", world.socket, "reset", NULL}, NULL, 0), 0);
	for (uint32_t i = 0; i < ALL; i++) {
		int r = truth_check_one(truth, client, i / EXPERTS, i % EXPERTS);

		cr_assert_eq(r, 0, "expert %u: %d", i, r);
	}
}

static void begin(void)
{
	const char *const options[] = {"--mirror", mirror.mount, "--drive-weights", "1:1", "--ram", "4M", "--io", "pool", NULL};
	char copy[160], mount[160];
	const char *reason;

	world_open(&world);
	world_generate(&world, (const char *const[]){"--shard-bytes", "500K", NULL}); /* two shards with experts */
	(void)snprintf(copy, sizeof copy, "%s/copy", world.directory);
	(void)snprintf(mount, sizeof mount, "%s/mirror", world.directory);
	cr_assert_eq(world_run("/bin/cp", (const char *const[]){"-r", world.model, copy, NULL}, NULL, 0), 0);
	reason = fuse_drive_open(&mirror, copy, mount);
	if (reason != NULL) {
		world_close(&world);
		cr_skip("%s", reason);
	}
	cr_assert_gt(world_start(&world, options), 0);
	cr_assert(world_wait_until(is_checked, NULL, 30), "%s", world_status_text(&world));
	cr_assert(world_wait_until(is_replicated, NULL, 30), "the mirror is not used");
	cr_assert_eq(truth_open(&truth, world.model), 0);
	client = world_attach(&world, 0);
	fuse_drive_trouble(&mirror, (struct fuse_drive_trouble){.fault = FUSE_DRIVE_WELL});
	read_all();
	usual = fuse_drive_reads(&mirror);
}

static void end(void)
{
	fuse_drive_heal(&mirror);
	drives_said_expect_sum(&world);
	cnre_detach(client);
	cr_expect_eq(world_stop(&world, SIGTERM), 0, "the manager did not end well");
	truth_close(truth);
	fuse_drive_close(&mirror);
	world_close(&world);
}

static double of_mirror(const char *key)
{
	return drives_said_number(&world, mirror.mount, key);
}

static int is_ok(void *context)
{
	(void)context;
	return drives_said_state(&world, mirror.mount, "ok");
}

/* ---- errors ---- */

/* One trouble at the `first`th read of the mirror: one failover, one error of the given kind, and nobody notices. */
static void fail_once(struct fuse_drive_trouble trouble, const char *kind)
{
	uint64_t failovers = world_stat(&world, "failovers"), loads = world_stat(&world, "loads");
	double errors = of_mirror(kind);

	trouble.count = 1;
	fuse_drive_trouble(&mirror, trouble);
	read_all();
	cr_assert_geq(fuse_drive_reads(&mirror), trouble.first, "the mirror is hardly read");
	cr_expect_eq(world_stat(&world, "failovers"), failovers + 1, "%s, read %u", strerror(trouble.error), trouble.first);
	cr_expect_eq(world_stat(&world, "loads"), loads + ALL, "each object is one load");
	cr_expect_leq(fuse_drive_reads(&mirror), usual, "what failed there is asked for there again");
	cr_expect_eq(world_stat(&world, "load_errors"), 0, "%s: somebody saw it", strerror(trouble.error));
	cr_expect_eq(of_mirror(kind), errors + 1, "%s", strerror(trouble.error));
}

Test(system_nth_read, one_error_at_any_read_costs_one_object_its_replica_and_nobody_an_error)
{
	static const int errors[] = {EIO, ENODATA, EREMOTEIO, EILSEQ};
	static const uint32_t reads[] = {1, 2, 7, 20};

	begin();
	for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
		for (size_t n = 0; n < sizeof reads / sizeof reads[0]; n++) {
			fail_once((struct fuse_drive_trouble){.fault = FUSE_DRIVE_ERROR, .error = errors[i], .first = reads[n]},
				  "errors.io");
			cr_expect(is_ok(NULL), "a drive is not given up for one %s", strerror(errors[i]));
		}
	end();
}

/* The same number that the drive gave: K errors in a row, and it is left until it was tried and is well. */
Test(system_nth_read, errors_in_a_row_degrade_it_until_a_probe_succeeds)
{
	begin();
	fuse_drive_trouble(&mirror,
			   (struct fuse_drive_trouble){.fault = FUSE_DRIVE_ERROR, .error = ENODATA, .first = 5, .count = UINT32_MAX});
	read_all();
	cr_expect(drives_said_state(&world, mirror.mount, "degraded"));
	cr_expect(world_log_has(&world, strerror(ENODATA)));
	cr_expect_lt(fuse_drive_failed(&mirror), 10, "it goes on being asked");
	read_all();
	cr_expect_eq(world_stat(&world, "load_errors"), 0);
	fuse_drive_heal(&mirror);
	cr_assert(world_wait_until(is_ok, NULL, 60), "it is not taken back");
	cr_expect(world_log_has(&world, "it reads again, after"));
	read_all();
	end();
}

/* A drive that has gone needs no second error. */
Test(system_nth_read, a_device_that_has_gone_is_left_at_its_first_error)
{
	begin();
	fail_once((struct fuse_drive_trouble){.fault = FUSE_DRIVE_ERROR, .error = ENXIO, .first = 3}, "errors.gone");
	cr_expect(drives_said_state(&world, mirror.mount, "degraded"));
	cr_assert(world_wait_until(is_ok, NULL, 60), "it is not taken back");
	read_all();
	end();
}

/* ---- fewer bytes ---- */

Test(system_nth_read, an_early_end_at_any_read_is_another_replica_and_no_fault_of_the_drive)
{
	static const uint32_t reads[] = {1, 2, 11};

	begin();
	for (size_t n = 0; n < sizeof reads / sizeof reads[0]; n++) {
		fail_once((struct fuse_drive_trouble){.fault = FUSE_DRIVE_END, .first = reads[n]}, "errors.short");
		cr_expect(is_ok(NULL));
	}
	end();
}

Test(system_nth_read, half_of_the_bytes_are_continued_where_they_stopped)
{
	begin();
	fuse_drive_trouble(&mirror, (struct fuse_drive_trouble){.fault = FUSE_DRIVE_HALF, .first = 4, .count = 1});
	read_all();
	cr_expect_eq(fuse_drive_failed(&mirror), 1);
	cr_expect_gt(world_stat(&world, "read_retries"), 0);
	cr_expect_eq(world_stat(&world, "failovers"), 0, "nothing failed");
	end();
}

/* ---- silence ---- */

Test(system_nth_read, a_read_that_is_not_answered_is_read_from_the_other_replica_and_may_come_late)
{
	begin();
	fuse_drive_trouble(&mirror, (struct fuse_drive_trouble){.fault = FUSE_DRIVE_SILENT, .first = 6, .count = 1});
	read_all();
	cr_expect_eq(fuse_drive_failed(&mirror), 1);
	cr_expect_gt(world_stat(&world, "failovers"), 0);
	cr_expect_eq(world_stat(&world, "load_errors"), 0);
	cr_expect_eq(world_stat(&world, "loads_timed_out"), 0);
	cr_expect(drives_said_state(&world, mirror.mount, "hangs"));
	drives_said_expect_sum(&world);
	fuse_drive_heal(&mirror);
	cr_assert(world_wait_until(is_ok, NULL, 60), "it is not taken back");
	read_all();
	end();
}

/* ---- who waits together ---- */

enum { WAITERS = 6, MIRRORED = 1 }; /* an expert of layer 0 whose bytes are the mirror's to read, with equal weights */

static void *want_the_same(void *argument)
{
	(void)argument;
	return (void *)(intptr_t)truth_check_one(truth, client, 0, MIRRORED);
}

static void expect_all_served(int round)
{
	pthread_t waiter[WAITERS];

	for (int i = 0; i < WAITERS; i++)
		cr_assert_eq(pthread_create(&waiter[i], NULL, want_the_same, NULL), 0);
	for (int i = 0; i < WAITERS; i++) {
		void *r;

		(void)pthread_join(waiter[i], &r);
		cr_expect_eq((intptr_t)r, 0, "round %d, waiter %d: %d", round, i, (int)(intptr_t)r);
	}
}

Test(system_nth_read, all_who_wait_for_one_object_get_it_when_its_read_fails)
{
	begin();
	for (int i = 0; i < 20; i++) {
		uint64_t failovers = world_stat(&world, "failovers"), loads;

		read_all(); /* so that no trouble is one of several in a row */
		cr_assert_eq(world_run("cnrectl", (const char *const[]){"--socket", world.socket, "reset", NULL}, NULL, 0), 0);
		loads = world_stat(&world, "loads");
		fuse_drive_trouble(&mirror,
				   (struct fuse_drive_trouble){.fault = i % 2 == 0 ? FUSE_DRIVE_ERROR : FUSE_DRIVE_END,
							       .error = EIO,
							       .first = 1,
							       .count = 1});
		expect_all_served(i);
		cr_expect_eq(world_stat(&world, "failovers"), failovers + 1);
		cr_expect_eq(world_stat(&world, "loads"), loads + 1, "one load for all");
	}
	cr_expect_gt(world_stat(&world, "joins"), 0, "nobody waited together");
	end();
}

/* ---- past the page cache, or not ---- */

static unsigned count_in_log(const char *text)
{
	char command[256], output[32] = "";

	(void)snprintf(command, sizeof command, "grep -c '%s' '%s'", text, world.log);
	(void)world_run("/bin/sh", (const char *const[]){"-c", command, NULL}, output, sizeof output);
	return (unsigned)strtoul(output, NULL, 10);
}

/* Opening and the first read went well: what a file system promises of O_DIRECT may turn out wrong later. */
Test(system_nth_read, direct_reads_that_are_refused_later_are_repeated_through_the_page_cache_and_that_is_said_once)
{
	uint64_t before;

	begin();
	before = world_stat(&world, "direct_fallbacks");
	fuse_drive_trouble(&mirror, (struct fuse_drive_trouble){.fault = FUSE_DRIVE_DIRECT, .first = 3, .count = UINT32_MAX});
	read_all();
	read_all();
	cr_expect_gt(fuse_drive_failed(&mirror), 0, "no direct reads here: this shows nothing");
	cr_expect_eq(world_stat(&world, "failovers"), 0, "nothing failed");
	cr_expect_eq(world_stat(&world, "direct_fallbacks"), before + 2, "both shards");
	cr_expect_eq(count_in_log("direct reads are not possible"), 1);
	cr_expect_gt(world_status(&world, "loader.files_buffered"), 0, "%s", world_status_text(&world));
	end();
}

/* ---- io_uring ---- */

static int is_refused(void *context)
{
	(void)context;
	return world_log_has(&world, "it lies on FUSE: start the manager with --io pool");
}

/* It would fill up what comes back short with the wrong bytes, and tell nobody. */
Test(system_nth_read, io_uring_is_not_trusted_with_fuse)
{
	char whole[192];

	begin();
	(void)world_stop(&world, SIGTERM);
	cr_assert_gt(world_start(&world, (const char *const[]){"--mirror", mirror.mount, "--io", "uring", NULL}), 0);
	cr_expect(world_wait_until(is_refused, NULL, 30), "%s", world_status_text(&world));
	(void)world_stop(&world, SIGTERM);
	(void)snprintf(whole, sizeof whole, "%s", world.model);
	(void)snprintf(world.model, sizeof world.model, "%s", mirror.mount);
	cr_expect_eq(world_start(&world, (const char *const[]){"--io", "uring", NULL}), -1);
	cr_expect(world_log_has(&world, "it lies on FUSE: start the manager with --io pool"));
	cr_assert_gt(world_start(&world, NULL), 0, "by itself it takes the pool");
	cnre_detach(client);
	client = world_attach(&world, 0);
	fuse_drive_trouble(&mirror, (struct fuse_drive_trouble){.fault = FUSE_DRIVE_HALF, .first = 2, .count = 1});
	read_all();
	cr_expect_eq(fuse_drive_failed(&mirror), 1);
	end();
}
