/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A warm list in a real manager, and histories that go to engines and come from them: what one engine used is resident
 * for the next although the manager began cold, nobody is evicted or delayed for it, and a file on a drive that hangs
 * costs nobody anything.
 */
#include "cnre/cnre.h"
#include "tests/support/hung_drive.h"
#include "tests/support/world.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(system_warm, .timeout = 180);

enum { LAYERS = 4, EXPERTS = 16, ALL = LAYERS * EXPERTS, USED = 5 }; /* what world_generate makes by itself */

static struct world world;
static char output[65536];

static const char *path_of(const char *name)
{
	static char path[192];

	(void)snprintf(path, sizeof path, "%s/%s", world.directory, name);
	return path;
}

static void write_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "we");

	cr_assert_not_null(file);
	(void)fputs(text, file);
	(void)fclose(file);
}

static int ctl(const char *const *words)
{
	const char *arguments[12] = {"--socket", world.socket};
	size_t count = 2;

	for (; *words != NULL && count < 11; words++)
		arguments[count++] = *words;
	output[0] = '\0';
	return world_run("cnrectl", arguments, output, sizeof output);
}
#define CTL(...) ctl((const char *const[]){__VA_ARGS__, NULL})

static uint64_t warm_number(const char *key)
{
	char path[64];

	(void)snprintf(path, sizeof path, "warm.%s", key);
	return world_status(&world, path);
}

static const char *warm_word(const char *key)
{
	static char word[128];
	json_t *status = json_loads(world_status_text(&world), 0, NULL);

	(void)snprintf(word, sizeof word, "%s", json_string_value(json_object_get(json_object_get(status, "warm"), key)));
	json_decref(status);
	return word;
}

static int is_over(void *context)
{
	(void)context;
	return strcmp(warm_word("state"), "over") == 0 && warm_number("on_their_way") == 0;
}

static void await_the_end(void)
{
	cr_assert(world_wait_until(is_over, NULL, 60));
}

static struct cnre *attach(void)
{
	struct cnre_options options = {.size = sizeof options, .socket = world.socket, .timeout_ns = 20000000000};
	struct cnre *client = NULL;

	cr_assert_eq(cnre_attach(&client, world.model, &options), 0);
	return client;
}

/* 1: it was resident. */
static int use(struct cnre *client, uint32_t layer, uint32_t expert)
{
	struct cnre_expert view;
	int hit;

	cr_assert_eq(cnre_acquire(client, layer, expert, -1, &view), 0);
	hit = (view.flags & CNRE_WAS_RESIDENT) != 0;
	cr_assert_eq(cnre_release(client, &view), 0);
	return hit;
}

/* An engine's work: the first USED experts of each layer, the first of them most. Its misses. */
static uint32_t run_engine(void)
{
	struct cnre *client = attach();
	uint32_t misses = 0;

	for (uint32_t layer = 0; layer < LAYERS; layer++)
		for (uint32_t expert = 0; expert < USED; expert++)
			for (uint32_t times = 0; times < USED - expert; times++)
				misses += !use(client, layer, expert);
	cnre_detach(client);
	return misses;
}

static void begin(const char *const *options)
{
	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, options), 0);
}
#define BEGIN(...) begin((const char *const[]){"--hugepages", "4k", __VA_ARGS__, NULL})

/* ---- B11 ---- */

Test(system_warm, what_one_engine_used_is_resident_for_the_next_after_a_cold_start)
{
	char history[192];
	uint64_t bytes_read;

	BEGIN("--ram", "8M");
	(void)snprintf(history, sizeof history, "%s", path_of("engine.coli_usage"));
	cr_assert_eq(run_engine(), LAYERS * USED, "the first pays");
	cr_assert_eq(run_engine(), 0, "the manager outlives engines");
	cr_assert_eq(CTL("usage", "export", history), 0, "%s", output);
	(void)world_stop(&world, SIGTERM);

	cr_assert_gt(world_start(&world, (const char *const[]){"--ram", "8M", "--hugepages", "4k", NULL}), 0);
	cr_assert_eq(world_stat(&world, "resident_objects"), 0);
	cr_assert_eq(CTL("warm", history), 0, "%s", output);
	await_the_end();
	cr_assert_str_eq(warm_word("end"), "all");
	cr_assert_eq(warm_number("loaded"), LAYERS * USED);
	cr_assert_eq(world_stat(&world, "warm_loads"), LAYERS * USED);
	cr_assert_eq(world_stat(&world, "prefetches_issued"), 0, "it is a class of its own");
	bytes_read = world_stat(&world, "bytes_read");
	cr_assert_eq(run_engine(), 0, "all of it is there");
	cr_assert_eq(world_stat(&world, "bytes_read"), bytes_read);
	(void)world_stop(&world, SIGTERM);

	cr_assert_gt(world_start(&world, (const char *const[]){"--ram", "8M", "--hugepages", "4k", "--warm", history, NULL}), 0);
	await_the_end();
	cr_assert_eq(run_engine(), 0, "--warm does the same");
	world_close(&world);
}

Test(system_warm, successor_of_a_manager_that_died_does_not_begin_again)
{
	char list[192];

	world_open(&world);
	world_generate(&world, NULL);
	(void)snprintf(list, sizeof list, "%s", path_of("list"));
	write_file(list, "0 1\n0 2\n");
	cr_assert_gt(world_start(&world, (const char *const[]){"--ram", "8M", "--hugepages", "4k", "--warm", list, "--keeper",
								"auto", NULL}),
		     0);
	await_the_end();
	world_kill_manager(&world);
	cr_assert_str_eq(warm_word("state"), "none");
	cr_assert_eq(world_stat(&world, "resident_objects"), 2);
	world_close(&world);
}

/* ---- limits, priorities ---- */

Test(system_warm, most_used_come_first_and_bytes_end_it)
{
	char list[192], bytes[32];
	struct cnre *client;

	BEGIN("--ram", "8M");
	(void)snprintf(list, sizeof list, "%s", path_of("list"));
	write_file(list, "0 0 1\n0 1 9\n1 0 2\n2 3 8\n3 3 1\n");
	(void)snprintf(bytes, sizeof bytes, "%llu", 2ull * world_status(&world, "pool.window_bytes"));
	cr_assert_eq(CTL("warm", list, "--bytes", bytes), 0, "%s", output);
	await_the_end();
	cr_assert_str_eq(warm_word("end"), "bytes");
	cr_assert_eq(world_stat(&world, "resident_objects"), 2);
	client = attach();
	cr_assert(use(client, 0, 1));
	cr_assert(use(client, 2, 3));
	cr_assert_not(use(client, 1, 0));
	cnre_detach(client);
	world_close(&world);
}

Test(system_warm, full_pool_ends_it_and_nobody_goes)
{
	static char list[ALL * 16];
	char path[192];
	uint64_t loads, resident;
	struct cnre *client;

	for (uint32_t i = 0; i < ALL; i++)
		(void)snprintf(list + strlen(list), sizeof list - strlen(list), "%u %u\n", i / EXPERTS, i % EXPERTS);
	BEGIN("--ram", "512K", "--policy", "lru");
	(void)snprintf(path, sizeof path, "%s", path_of("list"));
	write_file(path, list);
	client = attach();
	(void)use(client, 3, 15);
	cr_assert_eq(CTL("warm", path), 0, "%s", output);
	await_the_end();
	cr_assert_str_eq(warm_word("end"), "full");
	loads = world_stat(&world, "warm_loads");
	resident = world_stat(&world, "resident_objects");
	cr_assert_gt(loads, 0);
	cr_assert_lt(resident, ALL);
	cr_assert_eq(world_stat(&world, "evictions"), 0);
	cr_assert(use(client, 3, 15), "who was there is there");
	cr_assert_eq(CTL("warm", path), 0, "%s", output);
	await_the_end();
	cr_assert_eq(world_stat(&world, "warm_loads"), loads, "it does not churn");
	cr_assert_eq(world_stat(&world, "resident_objects"), resident);
	(void)use(client, 3, 14); /* a demand finds room all the same */
	cnre_detach(client);
	world_close(&world);
}

/* ---- files that are no lists ---- */

Test(system_warm, hostile_file_is_refused_with_its_line_and_loads_nothing)
{
	char path[192];

	BEGIN("--ram", "8M");
	(void)snprintf(path, sizeof path, "%s", path_of("list"));
	write_file(path, "0 1\n0 99\n");
	cr_assert_eq(CTL("warm", path), 1);
	cr_assert_eq(world_stat(&world, "warm_loads"), 0);
	cr_assert_str_eq(warm_word("error"), "line 2: expert 99 of 16");
	cr_assert_eq(CTL("usage", "import", path), 1);
	cr_assert_eq(CTL("usage"), 0);
	cr_assert_not_null(strstr(output, "line 2: expert 99 of 16"), "%s", output);
	cr_assert_eq(CTL("warm", path, "--model", "another"), 1);
	cr_assert_eq(CTL("warm", world.directory), 1, "a folder");
	cr_assert_eq(truncate(path, 1l << 40), 0);
	cr_assert_eq(CTL("warm", path), 1, "too large, and not read");
	cr_assert_not_null(strstr(warm_word("error"), "at most"));
	cr_assert_eq(CTL("warm", "stop"), 1, "none is under way");
	world_close(&world);
}

/* ---- histories ---- */

static uint64_t sum_of(const char *path)
{
	long long layer, expert, count;
	uint64_t sum = 0;
	FILE *file = fopen(path, "re");

	cr_assert_not_null(file);
	while (fscanf(file, "%lld %lld %lld", &layer, &expert, &count) == 3)
		sum += layer >= 0 ? (uint64_t)count : 0;
	(void)fclose(file);
	return sum;
}

Test(system_warm, imported_history_adds_to_what_is_known_and_is_exported_as_the_engine_writes_it)
{
	char in[192], out[192], head[64] = "";
	FILE *file;

	world_open(&world);
	world_generate(&world, NULL);
	(void)snprintf(in, sizeof in, "%s", path_of("usage"));
	cr_assert_eq(mkdir(in, 0700), 0);
	cr_assert_gt(world_start(&world, (const char *const[]){"--ram", "8M", "--hugepages", "4k", "--usage", in, NULL}), 0);
	(void)snprintf(in, sizeof in, "%s", path_of("in"));
	(void)snprintf(out, sizeof out, "%s", path_of("out"));
	write_file(in, "-1 4 16\n-2 1 3841822045\n2 3 1000\n");
	cr_assert_eq(CTL("usage", "import", in), 0, "%s", output);
	cr_assert_not_null(strstr(output, "1,000 uses of 1 experts added"), "%s", output);
	cr_assert_null(strstr(output, "memory only"), "%s", output);
	write_file(in, "0 0 2 3:0.5000 4:0.5000\n");
	cr_assert_eq(CTL("usage", "import", in), 0, "a routing trace: %s", output);
	(void)run_engine();
	cr_assert_eq(CTL("usage", "export", out), 0, "%s", output);
	cr_assert_eq(sum_of(out), 1000 + 2 + LAYERS * USED * (USED + 1) / 2);
	file = fopen(out, "re");
	cr_assert_not_null(file);
	(void)fread(head, 1, 24, file);
	(void)fclose(file);
	cr_assert_str_eq(head, "-1 4 16\n-2 1 3841822045\n");
	(void)world_stop(&world, SIGTERM);

	(void)snprintf(in, sizeof in, "%s", path_of("usage"));
	cr_assert_gt(world_start(&world, (const char *const[]){"--ram", "8M", "--hugepages", "4k", "--usage", in, NULL}), 0);
	cr_assert_eq(CTL("usage", "export", out), 0, "%s", output);
	cr_assert_eq(sum_of(out), 1000 + 2 + LAYERS * USED * (USED + 1) / 2, "it was saved with the rest");
	world_close(&world);
}

enum { WRITERS = 2, EXPORTS = 40 };

static atomic_int writing;

static void *export_often(void *path)
{
	char text[1024];
	const char *const arguments[] = {"--socket", world.socket, "usage", "export", path, NULL};

	void *failed = NULL;

	for (int i = 0; i < EXPORTS && failed == NULL; i++)
		if (world_run("cnrectl", arguments, text, sizeof text) != 0)
			failed = path;
	atomic_fetch_sub(&writing, 1);
	return failed;
}

/* A reader at any moment finds a whole file: the one before, or either writer's. */
Test(system_warm, two_writers_of_one_file_never_leave_it_torn)
{
	char out[192];
	pthread_t writer[WRITERS];
	uint64_t expected;
	void *failed;

	BEGIN("--ram", "8M");
	(void)snprintf(out, sizeof out, "%s", path_of("out"));
	(void)run_engine();
	cr_assert_eq(CTL("usage", "export", out), 0, "%s", output);
	expected = sum_of(out);
	atomic_store(&writing, WRITERS);
	for (int i = 0; i < WRITERS; i++)
		cr_assert_eq(pthread_create(&writer[i], NULL, export_often, out), 0);
	while (atomic_load(&writing) > 0)
		cr_assert_eq(sum_of(out), expected);
	for (int i = 0; i < WRITERS; i++) {
		cr_assert_eq(pthread_join(writer[i], &failed), 0);
		cr_assert_null(failed);
	}
	cr_assert_eq(sum_of(out), expected);
	world_close(&world);
}

/* ---- variables of Colibri's engines ---- */

Test(system_warm, status_says_what_became_of_the_engines_variables)
{
	cr_assert_eq(setenv("COLI_MODEL_MIRROR", "/nowhere", 1), 0);
	BEGIN("--ram", "8M");
	cr_assert_eq(CTL("status"), 0);
	cr_assert_not_null(strstr(output, "colibri    COLI_MODEL_MIRROR ignored: with --colibri-env it would be --mirror"), "%s", output);
	(void)unsetenv("COLI_MODEL_MIRROR");
	world_close(&world);
}

/* ---- drives that hang ---- */

static struct hung_drives drives;

static void open_drives(int count)
{
	const char *reason;

	world_open(&world);
	reason = hung_drives_open(&drives, world.directory, count, 32);
	if (reason == NULL)
		return;
	world_close(&world);
	cr_skip("%s", reason);
}

static void close_drives(void)
{
	(void)world_stop(&world, SIGTERM);
	hung_drives_close(&drives);
	world_close(&world);
}

static void drop_from_cache(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	cr_assert_geq(fd, 0);
	cr_assert_eq(fsync(fd), 0);
	cr_assert_eq(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
	(void)close(fd);
}

static void *want_one(void *model)
{
	struct cnre_options options = {.size = sizeof options, .socket = world.socket, .timeout_ns = 60000000000};
	struct cnre_expert view;
	struct cnre *client = NULL;
	int r = cnre_attach(&client, model, &options);

	if (r == 0)
		r = cnre_acquire(client, 0, 0, 60000000000, &view);
	if (r == 0)
		(void)cnre_release(client, &view);
	cnre_detach(client);
	return (void *)(intptr_t)r;
}

static int is_reading(void *context)
{
	(void)context;
	return world_stat(&world, "loads_in_flight") == 1;
}

/* The demand is on its way to a drive that hangs; the list is of a model on another one, which would answer at once. */
Test(system_warm, nothing_of_a_list_begins_while_a_demand_is_on_its_way)
{
	char hung[160], well[192], list[192], shard[224];
	pthread_t client;
	void *r;

	open_drives(1);
	(void)snprintf(well, sizeof well, "%s", world.model);
	world_generate(&world, NULL);
	(void)snprintf(hung, sizeof hung, "%s/hung", drives.drive[0].mount);
	(void)snprintf(world.model, sizeof world.model, "%s", hung);
	world_generate(&world, (const char *const[]){"--seed", "7", NULL});
	(void)snprintf(list, sizeof list, "%s", path_of("list"));
	write_file(list, "0 1\n0 2\n0 3\n");
	cr_assert_gt(world_start(&world, (const char *const[]){"--ram", "8M", "--hugepages", "4k", "--model", hung, "--model",
								well, "--read-timeout", "0", NULL}),
		     0);
	(void)snprintf(shard, sizeof shard, "%s/model-00001-of-00001.safetensors", hung);
	drop_from_cache(shard);
	hung_drives_enter(&drives, world.manager);
	hung_drives_stop(&drives, 0);
	cr_assert_eq(pthread_create(&client, NULL, want_one, hung), 0);
	cr_assert(world_wait_until(is_reading, NULL, 30));
	cr_assert_eq(CTL("warm", list, "--model", strrchr(well, '/') + 1), 0, "%s", output);
	for (int i = 0; i < 20; i++) {
		cr_assert_str_eq(warm_word("state"), "loading");
		cr_assert_eq(world_stat(&world, "warm_loads"), 0);
	}
	hung_drives_go(&drives, 0);
	cr_assert_eq(pthread_join(client, &r), 0);
	cr_assert_eq((intptr_t)r, 0);
	await_the_end();
	cr_assert_eq(world_stat(&world, "warm_loads"), 3);
	close_drives();
}

/* A list of everything, loading from a drive that gives a few experts a second; the history of it is on another. */
static void begin_slowly(const char *option, const char *value)
{
	static char pairs[ALL * 16];
	char list[192], model[160], shard[224];

	open_drives(1);
	(void)snprintf(model, sizeof model, "%s/slow", drives.drive[0].mount);
	(void)snprintf(world.model, sizeof world.model, "%s", model);
	world_generate(&world, (const char *const[]){"--hidden", "128", "--intermediate", "256", NULL});
	(void)snprintf(list, sizeof list, "%s", path_of("list"));
	pairs[0] = '\0';
	for (uint32_t i = 0; i < ALL; i++)
		(void)snprintf(pairs + strlen(pairs), sizeof pairs - strlen(pairs), "%u %u\n", i / EXPERTS, i % EXPERTS);
	write_file(list, pairs);
	cr_assert_gt(world_start(&world, (const char *const[]){"--ram", "16M", "--hugepages", "4k", NULL}), 0);
	(void)snprintf(shard, sizeof shard, "%s/model-00001-of-00001.safetensors", model);
	drop_from_cache(shard);
	hung_drives_enter(&drives, world.manager);
	hung_drives_slow(&drives, 0, 300000); /* three experts a second */
	cr_assert_eq(CTL("warm", list, option, value), 0, "%s", output);
}

static int has_loaded_some(void *context)
{
	(void)context;
	return warm_number("loaded") > 0;
}

static void expect_nothing_more(const char *end)
{
	uint64_t loads;

	await_the_end();
	cr_expect_str_eq(warm_word("end"), end);
	loads = world_stat(&world, "warm_loads");
	cr_expect(loads > 0 && loads < ALL, "%llu", (unsigned long long)loads);
	hung_drives_slow(&drives, 0, 0);
	cr_expect_eq(run_engine() > 0, 1, "the rest is read when it is wanted");
	cr_expect_eq(world_stat(&world, "warm_loads"), loads, "and nothing of the list begins any more");
	close_drives();
}

Test(system_warm, list_that_is_being_loaded_is_stopped_where_it_is)
{
	begin_slowly("--bytes", "16M");
	cr_assert(world_wait_until(has_loaded_some, NULL, 60));
	cr_assert_str_eq(warm_word("state"), "loading");
	cr_assert_eq(CTL("warm", "stop"), 0, "%s", output);
	cr_expect_str_eq(warm_word("state"), "over", "at once");
	expect_nothing_more("stopped");
}

Test(system_warm, list_ends_when_its_time_is_over)
{
	begin_slowly("--seconds", "2");
	expect_nothing_more("time");
}

static void enter_group(void)
{
	hung_drives_enter(&drives, getpid());
}

Test(system_warm, list_on_a_drive_that_hangs_costs_nobody_anything_and_is_stopped_at_once)
{
	static char pairs[1 << 20];
	char list[192];

	open_drives(1);
	world_generate(&world, NULL);
	(void)snprintf(list, sizeof list, "%s/list", drives.drive[0].mount);
	for (size_t at = 0; at + 5 < sizeof pairs; at += 4)
		(void)strcpy(pairs + at, "0 1\n");
	write_file(list, pairs);
	drop_from_cache(list);
	hung_drives_stop(&drives, 0);
	cr_assert_gt(world_start_with(&world, (const char *const[]){"--ram", "8M", "--hugepages", "4k", "--warm", list, NULL},
				      enter_group),
		     0, "it serves all the same");
	cr_assert_str_eq(warm_word("state"), "reading");
	cr_assert_eq(run_engine(), LAYERS * USED);
	cr_assert_eq(CTL("warm", "stop"), 0, "%s", output);
	cr_assert_str_eq(warm_word("end"), "stopped");
	cr_assert_eq(world_stat(&world, "warm_loads"), 0);
	hung_drives_go(&drives, 0);
	close_drives();
}
