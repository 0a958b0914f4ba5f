/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpoint and its mirror on two drives: both serve, and when one fails in any way no client sees an error or a wrong
 * byte; it is taken back when it is well again. Both failing is an error, and the manager lives. The drives are loop devices
 * with file systems of their own; bytes are compared with the checkpoint by a reader of the test's own.
 */
#include "cnre/cnre.h"
#include "tests/support/hung_drive.h"
#include "tests/support/truth.h"
#include "tests/support/world.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <time.h>
#include <unistd.h>

TestSuite(system_replicas, .timeout = 200);

enum { LAYERS = 4, EXPERTS = 16, ALL = LAYERS * EXPERTS, PRIMARY = 0, MIRROR = 1 };

#define PATIENCE_NS 60000000000ll
#define EXT4_IOC_SHUTDOWN_NUMBER 0x8004587dul /* _IOR('X', 125, __u32) */

static struct world world;
static struct hung_drives drives;
static char model[2][160]; /* on each drive */
static char digests[96];   /* the manifest, in the world's directory */

/* ---- what the manager says of its drives ---- */

static json_t *ask_drives(void)
{
	static char output[1 << 16];
	json_t *answer;

	cr_assert_eq(world_run("cnrectl", (const char *const[]){"--socket", world.socket, "drives", "--json", NULL}, output,
			       sizeof output),
		     0);
	answer = json_loads(output, 0, NULL);
	cr_assert_not_null(answer, "%s", output);
	return answer;
}

static json_t *drive_of(json_t *answer, int which)
{
	json_t *drive;
	size_t i;

	json_array_foreach (json_object_get(answer, "drives"), i, drive)
		if (strncmp(json_string_value(json_object_get(drive, "directory")), drives.drive[which].mount,
			    strlen(drives.drive[which].mount)) == 0)
			return drive;
	return NULL;
}

static double number_of(int which, const char *key)
{
	json_t *answer = ask_drives();
	double value = json_number_value(json_object_get(drive_of(answer, which), key));

	json_decref(answer);
	return value;
}

static int is_in_state(int which, const char *state)
{
	json_t *answer = ask_drives(), *drive = drive_of(answer, which);
	const char *now = json_string_value(json_object_get(drive, "state"));
	int is = now != NULL && strcmp(now, state) == 0;

	json_decref(answer);
	return is;
}

static int mirror_is_well(void *context)
{
	(void)context;
	return is_in_state(MIRROR, "ok");
}

static int primary_is_well(void *context)
{
	(void)context;
	return is_in_state(PRIMARY, "ok");
}

/* Every byte that was read is some drive's. */
static void expect_sum(void)
{
	json_t *answer = ask_drives(), *drive;
	json_int_t sum = json_integer_value(json_object_get(answer, "bytes_before"));
	size_t i;

	json_array_foreach (json_object_get(answer, "drives"), i, drive)
		sum += json_integer_value(json_object_get(drive, "bytes"));
	cr_expect_eq(sum, json_integer_value(json_object_get(answer, "bytes_read")));
	cr_expect_eq((uint64_t)sum, world_stat(&world, "bytes_read"));
	json_decref(answer);
}

/* ---- a world with two drives ---- */

static int is_replicated(void *context)
{
	json_t *answer = ask_drives();
	const char *weights = json_string_value(json_object_get(answer, "weights"));
	int is = json_is_true(json_object_get(answer, "replicated")) && strcmp(weights, "measuring") != 0 &&
		 json_number_value(json_object_get(drive_of(answer, MIRROR), "files")) > 0;

	(void)context;
	json_decref(answer);
	return is;
}

static void skip_world(const char *reason)
{
	world_close(&world);
	cr_skip("%s", reason);
}

static void begin(const char *const *shape, const char *const *more, unsigned megabytes)
{
	const char *options[24] = {"--model", model[PRIMARY], "--mirror", model[MIRROR], "--idle-exit", "2m"};
	size_t count = 6;
	const char *reason;

	world_open(&world);
	(void)snprintf(digests, sizeof digests, "%s/digests", world.directory);
	reason = hung_drives_open(&drives, world.directory, 2, megabytes);
	if (reason != NULL)
		skip_world(reason);
	for (int i = 0; i < 2; i++)
		(void)snprintf(model[i], sizeof model[i], "%s/model", drives.drive[i].mount);
	(void)snprintf(world.model, sizeof world.model, "%s", model[PRIMARY]);
	world_generate(&world, shape);
	cr_assert_eq(world_run("/bin/cp", (const char *const[]){"-a", model[PRIMARY], model[MIRROR], NULL}, NULL, 0), 0);
	sync();
	for (; *more != NULL; more++)
		options[count++] = *more;
	cr_assert_gt(world_start(&world, options), 0);
	cr_assert(world_wait_until(is_replicated, NULL, 30), "the mirror is not used");
}

static void begin_small(const char *weights)
{
	begin(NULL, (const char *const[]){"--drive-weights", weights, "--ram", "4M", NULL}, 32);
}

static void end(void)
{
	(void)world_stop(&world, SIGTERM);
	hung_drives_close(&drives);
	world_close(&world);
}

static struct cnre *attach(void)
{
	struct cnre_options options = {.size = sizeof options, .socket = world.socket, .timeout_ns = 20000000000};
	struct cnre *client = NULL;
	int r = cnre_attach(&client, model[PRIMARY], &options);

	cr_assert_eq(r, 0, "attach: %s", strerror(-r));
	return client;
}

static void reset(void)
{
	cr_assert_eq(world_run("cnrectl", (const char *const[]){"--socket", world.socket, "reset", NULL}, NULL, 0), 0);
}

/* Every expert once, from the drives; each has its right bytes. */
static void read_all(struct cnre *client, const struct truth *truth)
{
	reset();
	for (uint32_t i = 0; i < ALL; i++)
		cr_assert_eq(truth_check_one(truth, client, i / EXPERTS, i % EXPERTS), 0, "expert %u", i);
}

static struct truth *open_truth(void)
{
	struct truth *truth;

	cr_assert_eq(truth_open(&truth, model[PRIMARY]), 0);
	return truth;
}

/* ---- both are well ---- */

Test(system_replicas, reads_are_divided_as_the_weights_say_and_add_up)
{
	struct truth *truth;
	struct cnre *client;

	begin_small("3:1");
	truth = open_truth();
	client = attach();
	read_all(client, truth);
	cr_expect_leq(fabs(number_of(PRIMARY, "share") - 0.75), 0.05, "%.3f", number_of(PRIMARY, "share"));
	cr_expect_eq(number_of(PRIMARY, "weight"), 0.75, "as it was declared");
	cr_expect_eq(number_of(MIRROR, "coverage"), 1.0);
	expect_sum();
	cr_expect_eq(world_stat(&world, "failovers"), 0);
	cnre_detach(client);
	truth_close(truth);
	end();
}

/* Its pieces would come last and hold up whoever waits for the whole. */
Test(system_replicas, a_mirror_that_is_declared_far_slower_only_stands_by)
{
	struct truth *truth;
	struct cnre *client;

	begin_small("17:1");
	truth = open_truth();
	client = attach();
	read_all(client, truth);
	cr_expect_eq(number_of(MIRROR, "bytes"), 0);
	cr_expect(is_in_state(PRIMARY, "ok") && is_in_state(MIRROR, "spare"));
	cr_expect_eq(number_of(PRIMARY, "weight"), 1.0);
	cr_expect_eq(number_of(MIRROR, "weight"), 0.0);
	faulty_drive_break(&drives.drive[PRIMARY]);
	reset();
	for (uint32_t i = 0; i < ALL; i++) {
		struct cnre_expert expert;

		cr_assert_eq(cnre_acquire(client, i / EXPERTS, i % EXPERTS, PATIENCE_NS, &expert), 0, "expert %u", i);
		cr_assert_eq(cnre_release(client, &expert), 0);
	}
	cr_expect_gt(number_of(MIRROR, "bytes"), 0);
	faulty_drive_heal(&drives.drive[PRIMARY]);
	cnre_detach(client);
	truth_close(truth);
	end();
}

Test(system_replicas, large_experts_are_read_from_both_drives_at_once)
{
	struct truth *truth;
	struct cnre *client;

	begin((const char *const[]){"--layers", "1", "--experts", "6", "--hidden", "1024", "--intermediate", "2048", NULL},
	      (const char *const[]){"--drive-weights", "1:1", "--ram", "64M", NULL}, 72);
	truth = open_truth();
	client = attach();
	for (uint32_t i = 0; i < 6; i++)
		cr_assert_eq(truth_check_one(truth, client, 0, i), 0, "expert %u", i);
	cr_expect_eq(number_of(PRIMARY, "reads"), 6);
	cr_expect_eq(number_of(MIRROR, "reads"), 6);
	cr_expect_leq(fabs(number_of(PRIMARY, "share") - 0.5), 0.01);
	expect_sum();
	cnre_detach(client);
	truth_close(truth);
	end();
}

/* ---- one fails ---- */

static void expect_failed_over(const char *log)
{
	cr_expect_gt(world_stat(&world, "failovers"), 0);
	cr_expect_eq(world_stat(&world, "load_errors"), 0, "nobody saw an error");
	cr_expect(world_log_has(&world, "read from another replica"));
	cr_expect(world_log_has(&world, log));
	fprintf(stderr, "failovers %llu, %.1f ms each\n", (unsigned long long)world_stat(&world, "failovers"),
		(double)world_stat(&world, "failover_ns") / 1e6 / (double)world_stat(&world, "failovers"));
}

static void expect_taken_back(struct cnre *client, const struct truth *truth, const char *log)
{
	double before = number_of(MIRROR, "bytes");

	cr_assert(world_wait_until(mirror_is_well, NULL, 30), "it is not taken back");
	cr_expect(world_log_has(&world, log));
	read_all(client, truth);
	cr_expect_gt(number_of(MIRROR, "bytes"), before);
	expect_sum();
}

Test(system_replicas, a_mirror_that_fails_with_eio_is_replaced_and_taken_back)
{
	struct truth *truth;
	struct cnre *client;

	begin_small("1:1");
	truth = open_truth();
	client = attach();
	read_all(client, truth);
	faulty_drive_break(&drives.drive[MIRROR]);
	read_all(client, truth);
	expect_failed_over("degraded: Input/output error");
	cr_expect(is_in_state(MIRROR, "degraded"));
	cr_expect_eq(world_stat(&world, "replicas_degraded"), 1 + (uint64_t)number_of(MIRROR, "files_degraded"));
	faulty_drive_heal(&drives.drive[MIRROR]);
	expect_taken_back(client, truth, "it reads again, after");
	cnre_detach(client);
	truth_close(truth);
	end();
}

Test(system_replicas, a_primary_that_fails_is_replaced_as_well)
{
	struct truth *truth;
	struct cnre *client;

	begin_small("4:1");
	truth = open_truth();
	client = attach();
	read_all(client, truth);
	faulty_drive_break(&drives.drive[PRIMARY]);
	reset();
	for (uint32_t i = 0; i < ALL; i++) {
		struct cnre_expert expert;

		cr_assert_eq(cnre_acquire(client, i / EXPERTS, i % EXPERTS, PATIENCE_NS, &expert), 0, "expert %u", i);
		cr_assert_eq(cnre_release(client, &expert), 0);
	}
	expect_failed_over("degraded: Input/output error");
	faulty_drive_heal(&drives.drive[PRIMARY]);
	cr_assert(world_wait_until(primary_is_well, NULL, 30));
	read_all(client, truth);
	cnre_detach(client);
	truth_close(truth);
	end();
}

static void shut_down(const struct faulty_drive *drive)
{
	int fd = open(drive->mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	unsigned how = 2; /* without writing the journal: as a drive that was pulled */

	cr_assert_geq(fd, 0);
	cr_assert_eq(ioctl(fd, EXT4_IOC_SHUTDOWN_NUMBER, &how), 0, "%s", strerror(errno));
	(void)close(fd);
}

Test(system_replicas, a_mirror_that_is_pulled_is_replaced_and_taken_back_when_it_is_mounted_again)
{
	struct truth *truth;
	struct cnre *client;
	int r = -1;

	begin_small("1:1");
	truth = open_truth();
	client = attach();
	shut_down(&drives.drive[MIRROR]);
	read_all(client, truth);
	expect_failed_over("degraded:");
	for (int i = 0; i < 50 && r < 0; i++) { /* a probe may hold a file for a moment */
		r = umount(drives.drive[MIRROR].mount);
		(void)usleep(r < 0 ? 100000 : 0);
	}
	cr_assert_eq(r, 0, "the manager keeps it busy: %s", strerror(errno));
	cr_assert_eq(mount(drives.drive[MIRROR].device, drives.drive[MIRROR].mount, "ext4", 0, NULL), 0, "%s", strerror(errno));
	expect_taken_back(client, truth, "it reads again, after");
	cnre_detach(client);
	truth_close(truth);
	end();
}

static void shard_path(int which, char path[256])
{
	(void)snprintf(path, 256, "%s/model-00001-of-00001.safetensors", model[which]);
	if (access(path, F_OK) < 0)
		(void)snprintf(path, 256, "%s/model.safetensors", model[which]);
}

Test(system_replicas, a_copy_that_is_cut_short_is_replaced_and_its_drive_is_not_blamed)
{
	struct truth *truth;
	struct cnre *client;
	char path[256];

	begin_small("1:1");
	truth = open_truth();
	client = attach();
	shard_path(MIRROR, path);
	cr_assert_eq(truncate(path, 65536), 0);
	read_all(client, truth);
	expect_failed_over("file ");
	cr_expect(is_in_state(MIRROR, "ok"));
	cr_expect_gt(number_of(MIRROR, "files_degraded"), 0);
	expect_sum(); /* what came before the end of the file counts */
	cnre_detach(client);
	truth_close(truth);
	end();
}

static void hang_and_go(const char *const *more)
{
	struct truth *truth;
	struct cnre *client;
	char path[256], text[320];

	begin(NULL, more, 32);
	truth = open_truth();
	client = attach();
	read_all(client, truth);
	truth_drop_cache(truth);
	hung_drives_enter(&drives, world.manager);
	hung_drives_stop(&drives, MIRROR);
	read_all(client, truth);
	expect_failed_over("no answer for");
	cr_expect(is_in_state(MIRROR, "hangs"));
	cr_expect_eq(world_stat(&world, "loads_timed_out"), 0);
	hung_drives_go(&drives, MIRROR);
	expect_taken_back(client, truth, "it answers again");
	shard_path(MIRROR, path);
	(void)snprintf(text, sizeof text, "drive of %s: it reads again", path);
	cr_expect(world_log_has(&world, text), "it was tried where it did not answer");
	reset();
	cr_expect_eq(world_stat(&world, "loads_in_flight"), 0);
	cr_expect_eq(world_status(&world, "pool.used_bytes"), 0, "a slab leaked");
	cnre_detach(client);
	truth_close(truth);
	end();
}

Test(system_replicas, a_mirror_that_hangs_is_replaced_in_time_and_taken_back_when_it_answers)
{
	hang_and_go((const char *const[]){"--drive-weights", "1:1", "--ram", "4M", NULL});
}

Test(system_replicas, the_same_where_a_read_has_all_the_time_there_is)
{
	hang_and_go((const char *const[]){"--drive-weights", "1:1", "--ram", "4M", "--read-timeout", "0", "--io", "pool", NULL});
}

static int reads_are_out(void *context)
{
	(void)context;
	return number_of(PRIMARY, "in_flight") > 0 && number_of(MIRROR, "in_flight") > 0;
}

static void *acquire_one(void *argument)
{
	static int status;
	struct cnre *client = argument;
	struct cnre_expert expert;

	status = cnre_acquire(client, 0, 0, PATIENCE_NS, &expert);
	if (status == 0)
		(void)cnre_release(client, &expert);
	return &status;
}

/* A controller that resets, a machine that swaps. Each drive alone could be left for the other one; both together cannot. */
Test(system_replicas, drives_that_both_stand_still_for_a_while_fail_nobody)
{
	struct cnre *client;
	pthread_t thread;
	void *status;

	begin((const char *const[]){"--layers", "1", "--experts", "6", "--hidden", "1024", "--intermediate", "2048", NULL},
	      (const char *const[]){"--drive-weights", "1:1", "--ram", "64M", NULL}, 72);
	client = attach();
	hung_drives_enter(&drives, world.manager);
	hung_drives_stop(&drives, PRIMARY);
	hung_drives_stop(&drives, MIRROR);
	cr_assert_eq(pthread_create(&thread, NULL, acquire_one, client), 0);
	cr_assert(world_wait_until(reads_are_out, NULL, 10));
	(void)usleep(4500000); /* longer than a read is waited for where another replica is well, and a look at it */
	hung_drives_go(&drives, PRIMARY);
	hung_drives_go(&drives, MIRROR);
	cr_assert_eq(pthread_join(thread, &status), 0);
	cr_expect_eq(*(int *)status, 0, "%s", strerror(-*(int *)status));
	cr_expect_eq(world_stat(&world, "load_errors"), 0);
	cr_expect_eq(world_stat(&world, "loads_timed_out"), 0);
	cnre_detach(client);
	end();
}

/* Each load has a part on both drives, and there are two places: the one that hangs may not have both. */
static void hang_in_a_small_pool(const char *ram)
{
	struct truth *truth;
	struct cnre *client;

	begin((const char *const[]){"--layers", "1", "--experts", "16", "--top-k", "2", "--hidden", "512", "--intermediate", "2800",
				    NULL},
	      (const char *const[]){"--drive-weights", "1:1", "--ram", ram, NULL}, 160);
	cr_assert_eq(world_status(&world, "pool.loads_max"), 2);
	truth = open_truth();
	client = attach();
	hung_drives_enter(&drives, world.manager);
	hung_drives_stop(&drives, MIRROR);
	for (uint32_t i = 0; i < 12; i += 2) {
		cr_assert_geq(cnre_prefetch(client, 0, (const uint32_t[]){i, i + 1}, 2), 0);
		cr_assert_eq(truth_check_one(truth, client, 0, i), 0, "expert %u", i);
	}
	cr_expect_eq(world_stat(&world, "load_errors"), 0);
	cr_expect(is_in_state(MIRROR, "hangs"));
	hung_drives_go(&drives, MIRROR);
	cr_assert(world_wait_until(mirror_is_well, NULL, 30));
	cnre_detach(client);
	truth_close(truth);
	end();
}

Test(system_replicas, a_small_pool_keeps_a_place_for_loads_that_do_without_the_hung_drive)
{
	hang_in_a_small_pool("34M");
}

/* By its share it has one place, and when that was counted the mirror's drive was not known yet. */
Test(system_replicas, the_smallest_pool_has_a_place_for_the_drive_of_a_mirror)
{
	hang_in_a_small_pool("26M");
}

/* ---- both fail ---- */

Test(system_replicas, where_both_fail_it_is_an_error_and_afterwards_all_is_well)
{
	struct truth *truth;
	struct cnre *client;
	struct cnre_expert expert;

	begin_small("1:1");
	truth = open_truth();
	client = attach();
	read_all(client, truth);
	truth_drop_cache(truth);
	for (int i = 0; i < 2; i++)
		faulty_drive_break(&drives.drive[i]);
	reset();
	for (uint32_t i = 0; i < ALL; i++)
		cr_assert_eq(cnre_acquire(client, i / EXPERTS, i % EXPERTS, PATIENCE_NS, &expert), -EIO, "expert %u", i);
	cr_expect_eq(world_stat(&world, "load_errors"), ALL);
	cr_expect(world_log_has(&world, "no replica is left after 2 attempts"));
	for (int i = 0; i < 2; i++)
		faulty_drive_heal(&drives.drive[i]);
	cr_assert(world_wait_until(primary_is_well, NULL, 30));
	expect_taken_back(client, truth, "it reads again");
	cr_expect_eq(world_stat(&world, "load_errors"), ALL);
	cnre_detach(client);
	truth_close(truth);
	end();
}

/* ---- wrong bytes ---- */

static void damage_mirror(void)
{
	static unsigned char noise[1 << 16];
	char path[256];
	int fd;

	shard_path(MIRROR, path);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	cr_assert_geq(fd, 0);
	memset(noise, 0x5a, sizeof noise);
	for (off_t at = 1 << 19; at < 3 << 19; at += sizeof noise) /* experts, behind the dense part */
		cr_assert_eq(pwrite(fd, noise, sizeof noise, at), (ssize_t)sizeof noise);
	cr_assert_eq(fsync(fd), 0);
	(void)close(fd);
}

Test(system_replicas, wrong_bytes_of_a_copy_are_found_and_the_other_one_is_read)
{
	struct truth *truth;
	struct cnre *client;

	begin(NULL, (const char *const[]){"--drive-weights", "1:1", "--ram", "4M", "--verify", "load", NULL}, 32);
	truth = open_truth();
	client = attach();
	read_all(client, truth);
	damage_mirror();
	read_all(client, truth);
	cr_expect_gt(world_stat(&world, "digest_errors"), 0);
	expect_failed_over("known is");
	cr_expect_gt(number_of(MIRROR, "files_degraded"), 0);
	cr_expect_eq(number_of(PRIMARY, "files_degraded"), 0);
	cnre_detach(client);
	truth_close(truth);
	end();
}

static int scrub_found_some(void *context)
{
	(void)context;
	return world_stat(&world, "digest_errors") > 0;
}

static int all_are_right(void *context)
{
	struct truth *truth = open_truth();
	struct cnre *client = context;
	int right = 1;

	for (uint32_t i = 0; i < ALL && right; i++)
		right = truth_check_one(truth, client, i / EXPERTS, i % EXPERTS) == 0;
	truth_close(truth);
	return right;
}

/* Loads are not compared; what the scrub finds is, at its next load, and then the other copy is asked. */
Test(system_replicas, what_the_scrub_finds_is_read_from_the_other_copy)
{
	struct cnre *client;
	struct truth *truth;

	begin(NULL, (const char *const[]){"--drive-weights", "1:1", "--ram", "4M", "--scrub", "5ms", "--verify", "load", "--digests",
					  digests, NULL},
	      32);
	truth = open_truth();
	client = attach();
	read_all(client, truth);
	cnre_detach(client);
	cr_assert_eq(world_stop(&world, SIGTERM), 0);
	cr_assert_gt(world_start(&world, (const char *const[]){"--model", model[PRIMARY], "--mirror", model[MIRROR], "--drive-weights",
							       "1:1", "--ram", "4M", "--scrub", "5ms", "--digests", digests, NULL}),
		     0);
	cr_assert(world_wait_until(is_replicated, NULL, 30));
	damage_mirror();
	client = attach();
	for (uint32_t i = 0; i < ALL; i++) {
		struct cnre_expert expert;

		cr_assert_eq(cnre_acquire(client, i / EXPERTS, i % EXPERTS, PATIENCE_NS, &expert), 0);
		cr_assert_eq(cnre_release(client, &expert), 0);
	}
	cr_assert(world_wait_until(scrub_found_some, NULL, 30));
	cr_assert(world_wait_until(all_are_right, client, 60), "wrong bytes stay");
	cr_expect_gt(world_stat(&world, "failovers"), 0);
	cr_expect_eq(world_stat(&world, "load_errors"), 0);
	cnre_detach(client);
	truth_close(truth);
	end();
}

/* ---- and the manager dies ---- */

static int mirror_hangs(void *context)
{
	(void)context;
	return is_in_state(MIRROR, "hangs");
}

static int nothing_is_quarantined(void *context)
{
	(void)context;
	return world_status(&world, "pool.quarantined") == 0;
}

Test(system_replicas, a_manager_that_dies_beside_a_hung_drive_leaves_no_slab_and_no_wrong_byte)
{
	struct truth *truth;
	struct cnre *client;

	begin(NULL, (const char *const[]){"--drive-weights", "1:1", "--ram", "4M", "--keeper", "auto", NULL}, 32);
	truth = open_truth();
	client = attach();
	truth_drop_cache(truth);
	hung_drives_enter(&drives, world.manager); /* the keeper, and so every manager to come */
	hung_drives_enter(&drives, (pid_t)world_status(&world, "pid"));
	hung_drives_stop(&drives, MIRROR);
	for (uint32_t i = 0; i < 8; i++)
		cr_assert_eq(truth_check_one(truth, client, i / EXPERTS, i % EXPERTS), 0, "expert %u", i);
	cr_assert(world_wait_until(mirror_hangs, NULL, 10));
	world_kill_manager(&world);
	cr_expect_gt(world_status(&world, "pool.quarantined"), 0, "late bytes may still land there");
	read_all(client, truth);
	cr_expect_eq(world_stat(&world, "load_errors"), 0);
	hung_drives_go(&drives, MIRROR);
	cr_assert(world_wait_until(nothing_is_quarantined, NULL, 20));
	reset();
	cr_expect_eq(world_status(&world, "pool.used_bytes"), 0, "a slab leaked");
	expect_sum();
	cnre_detach(client);
	truth_close(truth);
	end();
}

Test(system_replicas, weights_for_another_number_of_mirrors_are_refused)
{
	char text[4096];

	world_open(&world);
	world_generate(&world, NULL);
	cr_expect_eq(world_start(&world, (const char *const[]){"--drive-weights", "4:1", NULL}), -2);
	cr_expect(world_log_has(&world, "--drive-weights 4:1: 2 weights, but 1 for the primary"));
	cr_expect_eq(world_start(&world, (const char *const[]){"--drive-weights", "4:-1", NULL}), -2);
	/* Exit status 2 is for what no further start would mend, and --check says what a start would. */
	cr_expect_eq(world_run("cnre-managerd", (const char *const[]){"--model", world.model, "--drive-weights", "4:1", "--check", NULL},
			       text, sizeof text), 2, "%s", text);
	world_close(&world);
}
