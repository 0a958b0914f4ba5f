/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights that nobody declared: drives are measured, again and again while they work, and a slow one more takes nothing from
 * the others. Drives are loop devices with limits of bytes a second; only shares of bytes are looked at, never times.
 */
#include "tests/support/drives_said.h"
#include "tests/support/hung_drive.h"
#include "tests/support/readers.h"
#include "tests/support/truth.h"
#include "tests/support/world.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

TestSuite(system_drive_speed, .timeout = 280);

enum { FAST, SLOW, SNAIL, DRIVES, LAYERS = 2, EXPERTS = 8, READERS = 4, TRIES = 60 };

/* As 5.0, 4.9 and 0.5 GB/s are to each other the first two are not: a limit lets bursts through, and tells them apart. */
#define FAST_BYTES 48000000u
#define SLOW_BYTES 12000000u
#define SNAIL_BYTES 1000000u
#define WINDOW_BYTES 60000000.0 /* in which shares are looked at */

static struct world world;
static struct hung_drives drives;
static struct truth *truth;
static struct readers readers;
static char model[DRIVES][160];

static void begin(void)
{
	const char *reason;

	world_open(&world);
	reason = hung_drives_open(&drives, world.directory, DRIVES, 144);
	if (reason != NULL) {
		world_close(&world);
		cr_skip("%s", reason);
	}
	world_generate(&world, (const char *const[]){"--layers", "2", "--experts", "8", "--hidden", "1024", "--intermediate", "1600",
						     "--dense-format", "bf16", NULL}); /* 16 of 4.9 MB, each cut where there are two drives */
	cr_assert_eq(truth_open(&truth, world.model), 0);
	for (int i = 0; i < DRIVES; i++) {
		(void)snprintf(model[i], sizeof model[i], "%s/model", drives.drive[i].mount);
		cr_assert_eq(world_run("/bin/cp", (const char *const[]){"-r", world.model, model[i], NULL}, NULL, 0), 0);
	}
	sync();
}

static void slow_down(unsigned first, unsigned second)
{
	hung_drives_slow(&drives, FAST, first);
	hung_drives_slow(&drives, SLOW, second);
	hung_drives_slow(&drives, SNAIL, SNAIL_BYTES);
}

static void enter_group(void)
{
	hung_drives_enter(&drives, getpid());
}

static int are_measured(void *context)
{
	(void)context;
	return drives_said_weights(&world, "measured");
}

static void start(int mirrors)
{
	const char *options[16] = {"--model", model[FAST], "--ram", "64M"};

	for (int i = 1; i <= mirrors; i++) {
		options[2 + 2 * i] = "--mirror";
		options[3 + 2 * i] = model[i];
	}
	cr_assert_gt(world_start_with(&world, options, enter_group), 0);
	readers_start(&readers, READERS, &world, truth, LAYERS, EXPERTS, drives.lifeline);
}

static void end(void)
{
	struct readers_seen seen = readers_see(&readers);

	cr_expect_eq(seen.errors, 0, "%s", strerror(-seen.error));
	cr_expect_eq(seen.wrong, 0);
	readers_stop(&readers);
	for (int i = 0; i < DRIVES; i++)
		hung_drives_slow(&drives, i, 0);
	drives_said_expect_sum(&world);
	cr_expect_eq(world_stop(&world, SIGTERM), 0);
	truth_close(truth);
	hung_drives_close(&drives);
	world_close(&world);
}

static double bytes_of(int which)
{
	return drives_said_number(&world, model[which], "bytes");
}

/* While readers miss all the time: of the next bytes of the first two drives, the part that the first one gave. */
static double next_share(void)
{
	double first = bytes_of(FAST), second = bytes_of(SLOW), more = 0;

	for (int i = 0; i < 2000 && more < WINDOW_BYTES; i++) {
		(void)world_run("cnrectl", (const char *const[]){"--socket", world.socket, "reset", NULL}, NULL, 0);
		(void)usleep(20000);
		more = bytes_of(FAST) - first + bytes_of(SLOW) - second;
	}
	cr_assert_geq(more, WINDOW_BYTES, "the clients do not get on");
	return (bytes_of(FAST) - first) / more;
}

static void await_share(double least, double most)
{
	double share = -1;

	for (int i = 0; i < TRIES; i++) {
		share = next_share();
		if (share >= least && share <= most)
			return;
	}
	cr_assert(0, "the first drive gives %.2f of the bytes, not %.2f to %.2f", share, least, most);
}

/* D3: four to one, then the other way round, as when somebody else begins to use a drive. */
Test(system_drive_speed, shares_follow_what_drives_can_do_now)
{
	begin();
	slow_down(FAST_BYTES, SLOW_BYTES);
	start(1);
	cr_assert(world_wait_until(are_measured, NULL, 60));
	await_share(0.65, 0.9);
	slow_down(SLOW_BYTES, FAST_BYTES);
	await_share(0.1, 0.35);
	cr_expect(drives_said_state(&world, model[FAST], "ok"));
	cr_expect(drives_said_state(&world, model[SLOW], "ok"));
	end();
}

/* Equal stripes would make everybody wait for the slowest: 1 MB/s of it for every 60. */
Test(system_drive_speed, a_third_drive_of_a_fraction_of_the_speed_is_a_spare_and_takes_no_byte)
{
	double snail;

	begin();
	slow_down(FAST_BYTES, SLOW_BYTES);
	start(2);
	cr_assert(world_wait_until(are_measured, NULL, 90));
	await_share(0.65, 0.9);
	cr_expect(drives_said_state(&world, model[SNAIL], "spare"));
	snail = bytes_of(SNAIL);
	await_share(0.65, 0.9);
	cr_expect_eq(bytes_of(SNAIL), snail, "it holds up the others");
	end();
}
