/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpoint on one drive and its copy on another, loop devices both, and clients that read all the time: one drive
 * fails in each way and comes back, and nobody notices but the operator; both fail, and the manager outlives it. What one
 * client sees in detail is in test_system_replicas.c.
 *
 * Times are printed (make check-one T=test_system_drive_faults), and bounded only so that a test ends.
 */
#include "tests/support/drive_fault.h"
#include "tests/support/readers.h"
#include "tests/support/truth.h"
#include "tests/support/world.h"
#include "tests/support/world_client.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

TestSuite(system_drive_faults, .timeout = 150);

/* Small experts in layer 0, which go whole to a drive, and in layer 1 such as are striped. */
enum { LAYERS = 2, EXPERTS = 8, READERS = 3 };
enum { PRIMARY = 0, MIRROR = 1 };
#define DRIVE_MEGABYTES 112
#define WAIT_SECONDS 40
#define PROBED_SECONDS 70 /* a drive is tried more seldom the longer it is bad */

static const char *const shape[] = {"--layers",       "2",    "--experts", "8", "--hidden",      "512",
				    "--intermediate", "1024", "--seed",    "7", "--mixed-layer", "1:f32",
				    "--dense-format", "bf16", NULL};

static struct world world;
static struct hung_drives drives;
static struct truth *truth;
static struct readers readers;
static char directory[2][160];
static json_t *asked;

static double now(void)
{
	struct timespec at;

	(void)clock_gettime(CLOCK_MONOTONIC, &at);
	return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

/* ---- the world: the checkpoint itself on no drive, so that clients and this test can read it whatever fails ---- */

static void run(const char *program, const char *const *arguments)
{
	char output[512] = "";

	cr_assert_eq(world_run(program, arguments, output, sizeof output), 0, "%s: %s", program, output);
}

static void copy_all(const char *from, const char *to)
{
	run("/bin/cp", (const char *const[]){"-r", from, to, NULL});
}

/* Skips where there can be no drives. */
static void open_drives(void)
{
	const char *reason;

	world_open(&world);
	reason = hung_drives_open(&drives, world.directory, 2, DRIVE_MEGABYTES);
	if (reason != NULL) {
		world_close(&world);
		cr_skip("%s", reason);
	}
	for (int i = 0; i < 2; i++)
		(void)snprintf(directory[i], sizeof directory[i], "%s/model", drives.drive[i].mount);
}

static int is_among(const char *name, const char *const *options)
{
	for (; options != NULL && *options != NULL; options++)
		if (strcmp(*options, name) == 0)
			return 1;
	return 0;
}

/* In the shape above, but for what `more` says otherwise. */
static void make_checkpoint(const char *const *more)
{
	const char *options[32];
	size_t count = 0;

	for (size_t i = 0; shape[i] != NULL; i += 2) {
		if (is_among(shape[i], more))
			continue;
		options[count++] = shape[i];
		options[count++] = shape[i + 1];
	}
	for (; more != NULL && *more != NULL; more++)
		options[count++] = *more;
	options[count] = NULL;
	world_generate(&world, options);
	cr_assert_eq(truth_open(&truth, world.model), 0);
}

/* A manager with the checkpoint's copy on the first drive and a mirror on the second; `more` are further arguments. */
static void start(const char *const *more)
{
	const char *options[32] = {"--model", directory[PRIMARY], "--mirror", directory[MIRROR], "--ram",
				   "160M",    "--read-timeout",   "3s"};
	size_t count = 8;

	for (; more != NULL && *more != NULL; more++)
		options[count++] = *more;
	sync();
	cr_assert_gt(world_start(&world, options), 0, "the manager does not start");
	hung_drives_enter(&drives, world.manager);
}

static void begin(void)
{
	open_drives();
	make_checkpoint(NULL);
	copy_all(world.model, directory[PRIMARY]);
	copy_all(world.model, directory[MIRROR]);
}

static void end(void)
{
	cr_expect_eq(world_stop(&world, SIGTERM), 0, "the manager did not end well");
	truth_close(truth);
	json_decref(asked);
	hung_drives_close(&drives);
	world_close(&world);
}

/* ---- what the manager says ---- */

/* Valid until the next one. */
static const json_t *ask(const char *verb)
{
	static char output[1 << 18];

	cr_assert_eq(world_run("cnrectl", (const char *const[]){"--socket", world.socket, verb, "--json", NULL}, output,
			       sizeof output),
		     0, "cnrectl %s: %s", verb, output);
	json_decref(asked);
	asked = json_loads(output, 0, NULL);
	cr_assert_not_null(asked, "%s", output);
	return asked;
}

/* Whose files lie below this drive's mount; NULL: the manager knows none. */
static const json_t *drive_of(int which)
{
	const json_t *list = json_object_get(ask("drives"), "drives"), *drive;
	const char *mount = drives.drive[which].mount;
	size_t index;

	json_array_foreach (list, index, drive)
		if (strncmp(json_string_value(json_object_get(drive, "directory")), mount, strlen(mount)) == 0)
			return drive;
	return NULL;
}

static uint64_t bytes_of(int which)
{
	return (uint64_t)json_integer_value(json_object_get(drive_of(which), "bytes"));
}

/* Of a drive, or of its files alone. */
static int is_well(int which)
{
	const json_t *drive = drive_of(which);
	const char *state = json_string_value(json_object_get(drive, "state"));

	return state != NULL && (strcmp(state, "ok") == 0 || strcmp(state, "spare") == 0) &&
	       json_integer_value(json_object_get(drive, "files_degraded")) == 0;
}

static const json_t *mirror_status(void)
{
	return json_array_get(json_object_get(ask("status"), "mirrors"), 0);
}

static long long mirror_number(const char *key)
{
	return json_integer_value(json_object_get(mirror_status(), key));
}

/* ---- waiting; what is waited for needs misses, so everything is evicted again and again ---- */

struct wanted {
	int which, is_well;
	uint64_t number;
};

/* By the clock: a question to the manager may take longer than a pause between two. */
static int wait_for(int (*condition)(void *context), void *context, int seconds)
{
	double until = now() + seconds;

	while (!condition(context)) {
		if (now() > until)
			return 0;
		(void)usleep(5000);
	}
	return 1;
}

static void evict_all(void)
{
	(void)world_run("cnrectl", (const char *const[]){"--socket", world.socket, "reset", NULL}, NULL, 0);
}

static int mirror_is_checked(void *context)
{
	const char *state = json_string_value(json_object_get(mirror_status(), "state"));

	(void)context;
	return state != NULL && strcmp(state, "checked") == 0;
}

static void await_mirror(void)
{
	cr_assert(wait_for(mirror_is_checked, NULL, WAIT_SECONDS), "the mirror is not checked");
}

static int has_come_to(void *context)
{
	const struct wanted *wanted = context;

	evict_all();
	return is_well(wanted->which) == wanted->is_well;
}

static double await_state(int which, int well, int most_s)
{
	struct wanted wanted = {.which = which, .is_well = well};
	double begun = now();

	cr_assert(wait_for(has_come_to, &wanted, most_s), "drive %d is still %s", which, well ? "degraded" : "well");
	return now() - begun;
}

static int have_read(void *context)
{
	const struct wanted *wanted = context;

	evict_all();
	return readers_see(&readers).reads_least >= wanted->number;
}

static void await_reads(uint64_t count)
{
	struct wanted wanted = {.number = readers_see(&readers).reads_least + count};

	cr_assert(wait_for(have_read, &wanted, WAIT_SECONDS), "the clients do not get on");
}

static int has_given_more(void *context)
{
	const struct wanted *wanted = context;

	evict_all();
	return bytes_of(wanted->which) > wanted->number;
}

static void await_bytes(int which)
{
	struct wanted wanted = {.which = which, .number = bytes_of(which)};

	cr_assert(wait_for(has_given_more, &wanted, WAIT_SECONDS), "drive %d is not read from", which);
}

static void expect_no_trouble(const char *when)
{
	struct readers_seen seen = readers_see(&readers);

	cr_expect_eq(seen.errors, 0, "%s: %llu errors, the last one %s", when, (unsigned long long)seen.errors,
		     strerror(-seen.error));
	cr_expect_eq(seen.wrong, 0, "%s: wrong bytes", when);
}

/* ---- one of two ---- */

static void one_fails(enum drive_fault fault, int which)
{
	double begun, degraded_s, longest_s, back_s;

	begin();
	start(NULL);
	await_mirror();
	readers_start(&readers, READERS, &world, truth, LAYERS, EXPERTS, drives.lifeline);
	await_reads(20);
	await_bytes(PRIMARY);
	await_bytes(MIRROR);
	cr_expect(is_well(PRIMARY) && is_well(MIRROR));
	readers_forget(&readers);
	begun = now();
	drive_fault_begin(&drives, which, fault);
	(void)await_state(which, 0, WAIT_SECONDS);
	degraded_s = now() - begun;
	await_reads(30);
	longest_s = readers_see(&readers).longest_s;
	cr_expect(is_well(!which), "the other drive is blamed, too");
	expect_no_trouble("while it is bad");
	drive_fault_end(&drives, which, fault);
	back_s = await_state(which, 1, PROBED_SECONDS);
	await_bytes(which);
	expect_no_trouble("after it came back");
	fprintf(stderr,
		"%s, %s: failover within %.3f s (the longest acquire), seen as bad after %.3f s, back after %.3f s\n",
		which == PRIMARY ? "primary" : "mirror", drive_fault_name(fault), longest_s, degraded_s, back_s);
	readers_stop(&readers);
	end();
}

static int unmount(void *argument)
{
	return umount(((const struct faulty_drive *)argument)->mount) == 0;
}

/* Mounted twice: what the journal has is replayed at the first time, and is in memory then. */
static void mount_cold(int which)
{
	struct faulty_drive *drive = &drives.drive[which];
	char aside[160];

	(void)snprintf(aside, sizeof aside, "%s/aside", world.directory);
	cr_assert(world_wait_until(unmount, drive, WAIT_SECONDS), "%s is busy", drive->mount);
	cr_assert_eq(mkdir(aside, 0755), 0);
	cr_assert_eq(mount(drive->device, aside, "ext4", 0, NULL), 0, "%s", strerror(errno));
	cr_assert_eq(umount(aside), 0, "%s", strerror(errno));
	cr_assert_eq(mount(drive->device, drive->mount, "ext4", 0, NULL), 0, "%s", strerror(errno));
	cr_assert_eq(rmdir(aside), 0);
}

/*
 * Goal: a network's drive may keep whoever opens a file there waiting as long as its server is away, and a bad drive is tried
 * again and again. Method: when the mirror is bad its file system is mounted anew, so that nothing of it is in memory, and its
 * drive hangs.
 */
Test(system_drive_faults, a_bad_drive_on_which_even_opening_a_file_hangs_holds_up_nobody)
{
	double until;

	begin();
	start(NULL);
	await_mirror();
	readers_start(&readers, READERS, &world, truth, LAYERS, EXPERTS, drives.lifeline);
	await_reads(20);
	await_bytes(MIRROR);
	drive_fault_begin(&drives, MIRROR, DRIVE_FAULT_LIMIT);
	(void)await_state(MIRROR, 0, WAIT_SECONDS);
	hung_drives_stop(&drives, MIRROR);
	drive_fault_end(&drives, MIRROR, DRIVE_FAULT_LIMIT);
	mount_cold(MIRROR);
	for (until = now() + 10; now() < until;) /* some tries of the drive are due in it */
		await_reads(5);
	cr_expect(!is_well(MIRROR));
	hung_drives_go(&drives, MIRROR);
	(void)await_state(MIRROR, 1, PROBED_SECONDS);
	await_bytes(MIRROR);
	expect_no_trouble("all the time");
	readers_stop(&readers);
	end();
}

Test(system_drive_faults, a_primary_that_ends_early_is_left_and_taken_back)
{
	one_fails(DRIVE_FAULT_LIMIT, PRIMARY);
}

Test(system_drive_faults, a_mirror_that_ends_early_is_left_and_taken_back)
{
	one_fails(DRIVE_FAULT_LIMIT, MIRROR);
}

Test(system_drive_faults, a_primary_that_is_pulled_is_left_and_taken_back)
{
	one_fails(DRIVE_FAULT_SHUTDOWN, PRIMARY);
}

Test(system_drive_faults, a_mirror_that_is_pulled_is_left_and_taken_back)
{
	one_fails(DRIVE_FAULT_SHUTDOWN, MIRROR);
}

Test(system_drive_faults, a_primary_that_loses_its_data_is_left_and_taken_back)
{
	one_fails(DRIVE_FAULT_TRUNCATED, PRIMARY);
}

Test(system_drive_faults, a_mirror_that_loses_its_data_is_left_and_taken_back)
{
	one_fails(DRIVE_FAULT_TRUNCATED, MIRROR);
}

Test(system_drive_faults, a_primary_that_hangs_is_left_and_taken_back)
{
	one_fails(DRIVE_FAULT_HANGS, PRIMARY);
}

Test(system_drive_faults, a_mirror_that_hangs_is_left_and_taken_back)
{
	one_fails(DRIVE_FAULT_HANGS, MIRROR);
}

/* ---- both ---- */

static int errors_are_seen(void *context)
{
	(void)context;
	evict_all();
	return readers_see(&readers).errors >= READERS;
}

static int reads_are_seen(void *context)
{
	(void)context;
	evict_all();
	return readers_see(&readers).reads_least > 0;
}

static void both_fail(enum drive_fault fault)
{
	begin();
	start(NULL);
	await_mirror();
	readers_start(&readers, READERS, &world, truth, LAYERS, EXPERTS, drives.lifeline);
	await_reads(20);
	drive_fault_begin(&drives, PRIMARY, fault);
	drive_fault_begin(&drives, MIRROR, fault);
	cr_assert(wait_for(errors_are_seen, NULL, WAIT_SECONDS), "nobody is told");
	cr_expect_eq(readers_see(&readers).error, -EIO, "%s", strerror(-readers_see(&readers).error));
	cr_expect_eq(kill(world.manager, 0), 0, "the manager has gone");
	drive_fault_end(&drives, PRIMARY, fault);
	drive_fault_end(&drives, MIRROR, fault);
	(void)await_state(PRIMARY, 1, PROBED_SECONDS);
	(void)await_state(MIRROR, 1, PROBED_SECONDS);
	readers_forget(&readers); /* a call that began before may still fail */
	cr_assert(wait_for(reads_are_seen, NULL, WAIT_SECONDS), "it does not serve again");
	readers_forget(&readers);
	await_reads(20);
	expect_no_trouble("after both came back");
	readers_stop(&readers);
	end();
}

Test(system_drive_faults, when_both_end_early_clients_are_told_and_served_again_later)
{
	both_fail(DRIVE_FAULT_LIMIT);
}

Test(system_drive_faults, when_both_hang_clients_are_told_and_served_again_later)
{
	both_fail(DRIVE_FAULT_HANGS);
}

/* ---- part of a copy (D5), and a copy that gains nothing ---- */

static int is_said(const char *verb, const char *text)
{
	static char output[1 << 18];

	cr_assert_eq(world_run("cnrectl", (const char *const[]){"--socket", world.socket, verb, NULL}, output,
			       sizeof output),
		     0);
	return strstr(output, text) != NULL;
}

static void path_of(int which, const char *name, char path[256])
{
	(void)snprintf(path, 256, "%s/%s", directory[which], name);
}

/* Shards of one expert or two each: a third of them on the mirror. */
Test(system_drive_faults, a_partial_mirror_is_used_for_what_it_has)
{
	double coverage;
	int copied = 0;

	open_drives();
	make_checkpoint((const char *const[]){"--shard-bytes", "7M", NULL});
	copy_all(world.model, directory[PRIMARY]);
	cr_assert_eq(mkdir(directory[MIRROR], 0755), 0);
	for (uint32_t i = 1; i <= truth_shards(truth); i += 3, copied++) {
		char from[256], name[64];

		(void)snprintf(name, sizeof name, "model-%05u-of-%05u.safetensors", i, truth_shards(truth));
		path_of(PRIMARY, name, from);
		copy_all(from, directory[MIRROR]);
	}
	cr_assert_gt(copied, 2, "%u shards", truth_shards(truth));
	start(NULL);
	await_mirror();
	cr_expect_gt(mirror_number("used"), 0);
	cr_expect_leq(mirror_number("used"), copied);
	cr_expect_gt(mirror_number("absent"), 0);
	cr_expect_eq(mirror_number("refused"), 0);
	readers_start(&readers, READERS, &world, truth, LAYERS, EXPERTS, drives.lifeline);
	await_reads(30);
	await_bytes(MIRROR);
	expect_no_trouble("with part of a mirror");
	coverage = json_real_value(json_object_get(drive_of(MIRROR), "coverage"));
	cr_expect(coverage > 0.05 && coverage < 0.75, "%.2f", coverage);
	cr_expect_float_eq((double)mirror_number("expert_bytes") / (double)mirror_number("expert_bytes_of"), coverage,
			   1e-3);
	readers_stop(&readers);
	end();
}

Test(system_drive_faults, a_mirror_on_the_checkpoints_own_disk_is_said_to_gain_nothing)
{
	open_drives();
	make_checkpoint((const char *const[]){"--experts", "4", NULL});
	copy_all(world.model, directory[PRIMARY]);
	(void)snprintf(directory[MIRROR], sizeof directory[MIRROR], "%s/copy", drives.drive[PRIMARY].mount);
	copy_all(world.model, directory[MIRROR]);
	start(NULL);
	await_mirror();
	cr_expect_eq(mirror_number("on_same_disk"), 1);
	cr_expect(is_said("status", "own disk"), "an operator is not told");
	end();
}

/* ---- many shards, twice, and few descriptors (D12) ---- */

static void allow_256(void)
{
	const struct rlimit limit = {256, 256};

	if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
		_exit(99);
}

enum { MANY_LAYERS = 4, MANY_EXPERTS = 40, MANY_READERS = 8 }; /* a shard holds one expert */

Test(system_drive_faults, over_142_shards_and_their_mirror_and_8_clients_need_fewer_than_256_descriptors)
{
	static const char *const many[] = {"--layers", "4", "--experts", "40", "--shard-bytes", "16K", NULL};

	open_drives();
	world_generate(&world, many);
	cr_assert_eq(truth_open(&truth, world.model), 0);
	cr_assert_geq(truth_shards(truth), 142);
	for (int i = 0; i < 2; i++)
		copy_all(world.model, directory[i]);
	sync();
	cr_assert_gt(world_start_with(&world,
				      (const char *const[]){"--model", directory[PRIMARY], "--mirror",
							    directory[MIRROR], "--ram", "1400K", NULL}, /* half of it */
				      allow_256),
		     0);
	await_mirror();
	cr_expect_geq(mirror_number("used"), 142);
	readers_start(&readers, MANY_READERS, &world, truth, MANY_LAYERS, MANY_EXPERTS, drives.lifeline);
	await_reads(200);
	await_bytes(MIRROR);
	expect_no_trouble("with few descriptors");
	cr_expect(is_well(PRIMARY) && is_well(MIRROR), "a limit of ours is no fault of a drive");
	readers_stop(&readers);
	end();
}
