/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each drive gives, from outside: the hot set of a model falls on primary and mirrors as their weights say, whatever
 * its shape and the size of its experts; and of a mirror of a part it is told which part, by bytes and by use. Drives are
 * file systems in memory here: how fast they are plays no part.
 */
#include "cnre/cnre.h"
#include "tests/support/drives_said.h"
#include "tests/support/truth.h"
#include "tests/support/world.h"
#include "tests/support/world_client.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(system_shares, .timeout = 200);

enum { DRIVES_MAX = 3, HOT = 8 };
#define ACQUIRE_NS 60000000000

static struct world world;
static char drive[DRIVES_MAX][96], model[DRIVES_MAX][160];

/* ---- drives in memory ---- */

static void skip(const char *reason)
{
	world_close(&world);
	cr_skip("%s", reason);
}

static void open_drives(int count)
{
	world_open(&world);
	if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		skip("needs root for file systems of its own");
	for (int i = 0; i < count; i++) {
		(void)snprintf(drive[i], sizeof drive[i], "%.60s/drive-%d", world.directory, i);
		(void)snprintf(model[i], sizeof model[i], "%.90s/model", drive[i]);
		if (mkdir(drive[i], 0755) < 0 || mount("cnre-test", drive[i], "tmpfs", 0, "size=1g") < 0)
			skip("no tmpfs can be mounted here");
	}
	(void)snprintf(world.model, sizeof world.model, "%s", model[0]);
}

static void copy(const char *from, const char *to)
{
	char output[256] = "";

	cr_assert_eq(world_run("/bin/cp", (const char *const[]){"-r", from, to, NULL}, output, sizeof output), 0, "%s",
		     output);
}

static void close_drives(int count)
{
	cr_expect_eq(world_stop(&world, SIGTERM), 0, "the manager did not end well");
	for (int i = 0; i < count; i++)
		(void)umount2(drive[i], MNT_DETACH);
	world_close(&world);
}

static int are_checked(void *context)
{
	const char *at = world_status_text(&world);
	int checked = 0;

	while ((at = strstr(at, "\"state\":\"checked\"")) != NULL) {
		checked++;
		at++;
	}
	return checked == *(const int *)context;
}

static void await_mirrors(int count)
{
	cr_assert(world_wait_until(are_checked, &count, 60), "%s", world_status_text(&world));
}

/* ---- the hot set ---- */

struct shape {
	const char *options[24];
	uint32_t first, layers; /* with experts */
	const char *ram;
};

/* Small experts go whole to a drive; large ones are cut, in one or several runs of bytes. */
static const struct shape shapes[] = {
	{{"--layers", "2", "--experts", "16"}, 0, 2, "8M"},
	{{"--layers", "16", "--experts", "8"}, 0, 16, "8M"},
	{{"--family", "glm", "--layers", "31", "--dense-layers", "3", "--experts", "34", "--hidden", "128"}, 3, 28, "64M"},
	{{"--family", "kimi_k3", "--layers", "9", "--dense-layers", "1", "--experts", "11", "--hidden", "256"}, 1, 8, "8M"},
	{{"--family", "deepseek_v4", "--layers", "5", "--experts", "13", "--hidden", "128", "--scattered", "--shard-bytes",
	  "100K"},
	 0, 5, "8M"},
	{{"--layers", "3", "--experts", "8", "--hidden", "1024", "--intermediate", "1600"}, 0, 3, "160M"},
	{{"--family", "glm", "--layers", "4", "--dense-layers", "1", "--experts", "9", "--hidden", "1024", "--intermediate",
	  "4096"},
	 1, 3, "256M"},
	{{"--family", "inkling", "--layers", "3", "--dense-layers", "1", "--experts", "8", "--hidden", "2048",
	  "--intermediate", "2048"},
	 1, 2, "256M"},
};

static void read_hot_set(const struct shape *shape)
{
	struct cnre *client = world_attach(&world, 0);

	for (uint32_t layer = shape->first; layer < shape->first + shape->layers; layer++)
		for (uint32_t i = 0; i < HOT; i++) {
			struct cnre_expert expert;

			cr_assert_eq(cnre_acquire(client, layer, i, ACQUIRE_NS, &expert), 0, "%u/%u", layer, i);
			cr_assert_eq(expert.flags & CNRE_WAS_RESIDENT, 0);
			cr_assert_eq(cnre_release(client, &expert), 0);
		}
	cnre_detach(client);
}

static void expect_shares(size_t which, int count, const char *text, const double *weight)
{
	double weights = 0, total = (double)world_stat(&world, "bytes_read");

	for (int i = 0; i < count; i++)
		weights += weight[i];
	for (int i = 0; i < count; i++) {
		double given = drives_said_number(&world, drive[i], "bytes") / total;

		cr_expect_leq(fabs(given - weight[i] / weights) * 100, 5.0, "shape %zu, weights %s: drive %d gave %.1f %%", which,
			      text, i, given * 100);
		cr_expect_leq(fabs(given - drives_said_number(&world, drive[i], "share")), 1e-9);
	}
	drives_said_expect_sum(&world);
}

static void serve_hot_set(size_t which, int count, const char *text, const double *weight)
{
	const char *options[16] = {"--ram", shapes[which].ram, "--drive-weights", text};

	for (int i = 1; i < count; i++) {
		options[2 + 2 * i] = "--mirror";
		options[3 + 2 * i] = model[i];
	}
	cr_assert_gt(world_start(&world, options), 0, "shape %zu", which);
	await_mirrors(count - 1);
	read_hot_set(&shapes[which]);
	expect_shares(which, count, text, weight);
	cr_assert_eq(world_stop(&world, SIGTERM), 0);
}

static void divide(size_t which)
{
	open_drives(DRIVES_MAX);
	world_generate(&world, shapes[which].options);
	copy(model[0], model[1]);
	copy(model[0], model[2]);
	serve_hot_set(which, 2, "200:50", (const double[]){200, 50});
	serve_hot_set(which, 2, "1:1", (const double[]){1, 1});
	serve_hot_set(which, 2, "3:7", (const double[]){3, 7});
	serve_hot_set(which, 3, "48:46:5", (const double[]){48, 46, 5});
	serve_hot_set(which, 3, "5,2,3", (const double[]){5, 2, 3});
	close_drives(DRIVES_MAX);
}

Test(system_shares, hot_set_of_small_experts_falls_on_the_drives_as_their_weights_say)
{
	divide(0);
}

Test(system_shares, hot_set_of_many_layers_with_only_hot_experts)
{
	divide(1);
}

/* As many experts as a Fibonacci number, behind dense layers. */
Test(system_shares, hot_set_of_glm_behind_its_dense_layers)
{
	divide(2);
}

Test(system_shares, hot_set_of_kimi)
{
	divide(3);
}

Test(system_shares, hot_set_of_experts_whose_tensors_lie_in_many_shards)
{
	divide(4);
}

Test(system_shares, hot_set_of_experts_just_large_enough_to_be_cut)
{
	divide(5);
}

Test(system_shares, hot_set_of_large_experts_of_glm)
{
	divide(6);
}

Test(system_shares, hot_set_of_slices_of_fused_tensors)
{
	divide(7);
}

/* ---- a mirror of a part (D5) ---- */

enum { PART_LAYERS = 4, PART_EXPERTS = 16, EVERY = 10, USES_HOT = 90, USES_COLD = 10 };

/* Whether all of an expert lies on the mirror. */
static int is_mirrored(const struct truth *mirrored, uint32_t layer, uint32_t expert)
{
	struct truth_tensor tensor;
	char name[128];

	(void)snprintf(name, sizeof name, "model.layers.%u.mlp.experts.%u.merged_weight", layer, expert);
	return truth_tensor(mirrored, name, &tensor);
}

/* Three shards of ten; how many there were. */
static int mirror_a_part(void)
{
	char from[256];
	int found = 0;

	cr_assert_eq(mkdir(model[1], 0755), 0);
	for (int i = 1; i <= 999; i++) {
		int n = 0;

		for (int of = 1; of <= 99 && n == 0; of++) {
			(void)snprintf(from, sizeof from, "%s/model-%05d-of-%05d.safetensors", model[0], i, of);
			n = access(from, F_OK) == 0;
		}
		if (n == 0)
			return found;
		found++;
		if (i % EVERY < 3)
			copy(from, model[1]);
	}
	return found;
}

struct part {
	uint32_t objects, mirrored;
};

/* Uses, as an engine would have counted them: of those on the mirror more. */
static struct part write_history(const char *path, const struct truth *mirrored)
{
	struct part part = {0, 0};
	FILE *file = fopen(path, "we");

	cr_assert_not_null(file);
	(void)fprintf(file, "-1 %d %d\n", PART_LAYERS, PART_EXPERTS);
	for (uint32_t i = 0; i < PART_LAYERS * PART_EXPERTS; i++) {
		int is = is_mirrored(mirrored, i / PART_EXPERTS, i % PART_EXPERTS);

		(void)fprintf(file, "%u %u %d\n", i / PART_EXPERTS, i % PART_EXPERTS, is ? USES_HOT : USES_COLD);
		part.objects++;
		part.mirrored += (uint32_t)is;
	}
	(void)fclose(file);
	return part;
}

/* Whoever mirrors what is hot sees that it covers more of the use than of the bytes. */
Test(system_shares, coverage_of_a_partial_mirror_is_told_by_bytes_and_by_use)
{
	char path[160], output[512] = "";
	struct truth *mirrored;
	struct part part;
	double uses;

	open_drives(2);
	world_generate(&world, (const char *const[]){"--shard-bytes", "30K", NULL}); /* an expert or two in each */
	cr_assert_geq(mirror_a_part(), 2 * EVERY);
	cr_assert_eq(truth_open(&mirrored, model[1]), 0);
	cr_assert_gt(world_start(&world, (const char *const[]){"--mirror", model[1], "--drive-weights", "1:1", "--ram", "8M", NULL}),
		     0);
	await_mirrors(1);
	(void)snprintf(path, sizeof path, "%s/history", world.directory);
	part = write_history(path, mirrored);
	cr_assert(part.mirrored > part.objects / 10 && part.mirrored < part.objects / 2, "%u of %u", part.mirrored,
		  part.objects);
	cr_assert_eq(world_run("cnrectl", (const char *const[]){"--socket", world.socket, "usage", "import", path, NULL},
			       output, sizeof output),
		     0, "%s", output);
	uses = part.mirrored * (double)USES_HOT;
	uses /= uses + (part.objects - part.mirrored) * (double)USES_COLD;
	cr_expect_leq(fabs(drives_said_number(&world, model[1], "coverage") - (double)part.mirrored / part.objects), 0.02);
	cr_expect_leq(fabs(drives_said_number(&world, model[1], "coverage_used") - uses), 0.02, "%.3f, not %.3f",
		      drives_said_number(&world, model[1], "coverage_used"), uses);
	cr_expect_eq(drives_said_number(&world, model[0], "coverage"), 1);
	cr_expect_eq(drives_said_number(&world, model[0], "coverage_used"), 1);
	truth_close(mirrored);
	close_drives(2);
}

/* What the mirror does not have comes from the primary; of what it has, its part by weight. */
Test(system_shares, a_partial_mirror_gives_its_share_of_what_it_has_and_no_more)
{
	struct truth *truth, *mirrored;
	struct cnre *client;
	uint32_t has = 0;
	double given;

	open_drives(2);
	world_generate(&world, (const char *const[]){"--shard-bytes", "30K", NULL});
	cr_assert_geq(mirror_a_part(), 2 * EVERY);
	cr_assert_eq(truth_open(&truth, model[0]), 0);
	cr_assert_eq(truth_open(&mirrored, model[1]), 0);
	cr_assert_gt(world_start(&world, (const char *const[]){"--mirror", model[1], "--drive-weights", "1:100", "--ram", "8M", NULL}),
		     0);
	await_mirrors(1);
	client = world_attach(&world, 0);
	for (uint32_t i = 0; i < PART_LAYERS * PART_EXPERTS; i++) {
		has += (uint32_t)is_mirrored(mirrored, i / PART_EXPERTS, i % PART_EXPERTS);
		cr_assert_eq(truth_check_one(truth, client, i / PART_EXPERTS, i % PART_EXPERTS), 0, "expert %u", i);
	}
	given = drives_said_number(&world, model[1], "bytes") / (double)world_stat(&world, "bytes_read");
	cr_expect_leq(fabs(given - has / (double)(PART_LAYERS * PART_EXPERTS)), 0.05, "%.3f of %u experts", given, has);
	drives_said_expect_sum(&world);
	cnre_detach(client);
	truth_close(mirrored);
	truth_close(truth);
	close_drives(2);
}
