/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prepared objects through a real manager: made once, shared by all, other objects than the checkpoint's own, right in every
 * byte, and nobody's wait but of who asked for them.
 */
#include "shm/layout.h"
#include "shm/wire.h"
#include "tests/support/child.h"
#include "tests/support/packed.h"
#include "tests/support/truth.h"
#include "tests/support/world.h"
#include "tests/support/world_client.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(system_view, .timeout = 120);

enum { LAYERS = 4, EXPERTS = 16, OBJECTS = LAYERS * EXPERTS };
#define TIMEOUT_NS 20000000000
#define RESERVE_BYTES (64u << 10) /* a few experts of these worlds */

static const char *const serving[] = {"--view", "rows16", NULL};

/* ---- clients ---- */

static int attach(const struct world *world, const char *view, struct cnre **ret_client)
{
	struct cnre_options options = {.size = sizeof options,
				       .socket = world->socket,
				       .timeout_ns = TIMEOUT_NS,
				       .reserve_bytes = RESERVE_BYTES,
				       .view = view};

	return cnre_attach(ret_client, world->model, &options);
}

static struct cnre *must_attach(const struct world *world, const char *view)
{
	struct cnre *client = NULL;
	int r = attach(world, view, &client);

	cr_assert_eq(r, 0, "attach: %s", strerror(-r));
	return client;
}

/* Takes one expert in both, the checkpoint's own compared with the file. 0, or what is wrong. */
static const char *check_both(const struct truth *truth, struct cnre *plain, struct cnre *view, uint32_t layer, uint32_t expert)
{
	struct cnre_expert raw, prepared;
	const char *wrong = NULL;

	if (cnre_acquire(plain, layer, expert, TIMEOUT_NS, &raw) != 0)
		return "no lease of the checkpoint's own";
	if (cnre_acquire(view, layer, expert, TIMEOUT_NS, &prepared) != 0) {
		(void)cnre_release(plain, &raw);
		return "no lease of the prepared one";
	}
	if (truth_compare(truth, &raw) != 0)
		wrong = "the checkpoint's own bytes are wrong";
	else if (!packed_is_right(&raw, &prepared))
		wrong = "the prepared bytes are wrong";
	if (cnre_release(plain, &raw) != 0 || cnre_release(view, &prepared) != 0)
		wrong = "a release failed";
	return wrong;
}

static void check_all(const struct world *world, struct cnre *plain, struct cnre *view)
{
	struct truth *truth;

	cr_assert_eq(truth_open(&truth, world->model), 0);
	for (uint32_t i = 0; i < OBJECTS; i++) {
		const char *wrong = check_both(truth, plain, view, i / EXPERTS, i % EXPERTS);

		cr_assert_null(wrong, "layer %u expert %u: %s", i / EXPERTS, i % EXPERTS, wrong);
	}
	truth_close(truth);
}

static int try(struct cnre *client, uint32_t layer, uint32_t expert)
{
	struct cnre_expert taken;
	int r = cnre_acquire(client, layer, expert, TIMEOUT_NS, &taken);

	return r < 0 ? r : cnre_release(client, &taken);
}

static void touch_all(struct cnre *client)
{
	for (uint32_t i = 0; i < OBJECTS; i++)
		cr_assert_eq(try(client, i / EXPERTS, i % EXPERTS), 0);
}

/* Of the status of a served model by its name; -1: it has none. */
static long long model_number(const struct world *world, const char *name, const char *key)
{
	json_t *status = json_loads(world_status_text(world), 0, NULL), *model;
	long long number = -1;
	size_t i;

	json_array_foreach (json_object_get(status, "models"), i, model)
		if (strcmp(json_string_value(json_object_get(model, "name")), name) == 0)
			number = json_integer_value(json_object_get(model, key));
	json_decref(status);
	return number;
}

static void open_world(struct world *world)
{
	world_open(world);
	world_generate(world, (const char *const[]){"--expert-format", "int8-row", NULL});
}

/* ---- one copy, and whose ---- */

static int use_all_in_view(void *argument)
{
	const struct world *world = argument;
	struct cnre *client;
	int r = attach(world, "rows16", &client);

	for (uint32_t i = 0; i < OBJECTS && r == 0; i++)
		r = try(client, i / EXPERTS, i % EXPERTS);
	if (r == 0)
		cnre_detach(client);
	return r == 0 ? 0 : 1;
}

Test(system_view, two_processes_share_one_prepared_copy)
{
	struct world world;

	open_world(&world);
	cr_assert_gt(world_start(&world, serving), 0);
	cr_assert_eq(child_run(use_all_in_view, &world), 0);
	cr_expect_eq(world_stat(&world, "loads"), OBJECTS);
	cr_assert_eq(child_run(use_all_in_view, &world), 0);
	cr_expect_eq(world_stat(&world, "loads"), OBJECTS, "nothing is read or prepared twice");
	cr_expect_eq(world_stat(&world, "hits"), OBJECTS);
	cr_expect_eq(model_number(&world, "tiny-olmoe:rows16", "resident_objects"), OBJECTS);
	cr_expect_eq(model_number(&world, "tiny-olmoe", "resident_objects"), 0, "of the checkpoint's own there is none");
	world_close(&world);
}

Test(system_view, a_view_is_other_objects_with_memory_of_their_own)
{
	struct cnre_model_info info = {.size = sizeof info};
	struct cnre *plain, *view, *again = NULL;
	struct world world;

	open_world(&world);
	cr_assert_gt(world_start(&world, serving), 0);
	plain = must_attach(&world, NULL);
	view = must_attach(&world, "rows16");
	cr_expect_eq(attach(&world, "rows16", &again), -EBUSY, "once in each view");
	cr_expect_eq(attach(&world, NULL, &again), -EBUSY);
	check_all(&world, plain, view);
	cr_expect_eq(world_stat(&world, "loads"), 2 * OBJECTS);
	cr_expect_eq(model_number(&world, "tiny-olmoe", "resident_objects"), OBJECTS);
	cr_expect_eq(model_number(&world, "tiny-olmoe:rows16", "resident_objects"), OBJECTS);
	cr_expect_eq(model_number(&world, "tiny-olmoe", "resident_bytes") +
			     model_number(&world, "tiny-olmoe:rows16", "resident_bytes"),
		     (long long)world_stat(&world, "resident_bytes"), "each counts its own");
	cr_assert_eq(cnre_model(view, &info), 0);
	cr_expect_str_eq(info.view, "rows16");
	cr_expect_eq(info.view_version, 1);
	cr_assert_eq(cnre_model(plain, &info), 0);
	cr_expect_str_eq(info.view, "");
	cr_expect_eq(info.view_version, 0);
	cnre_detach(plain);
	cnre_detach(view);
	world_close(&world);
}

/* Rows that are no multiple of sixteen, columns that are none of four: what is filled up must be zeros. */
Test(system_view, odd_sizes_are_filled_up_with_zeros)
{
	struct cnre *plain, *view;
	struct world world;

	world_open(&world);
	world_generate(&world, (const char *const[]){"--expert-format", "int8-row", "--intermediate", "37", NULL});
	cr_assert_gt(world_start(&world, (const char *const[]){"--view", "tiny-olmoe=rows16", "--verify", "load", NULL}), 0);
	plain = must_attach(&world, NULL);
	view = must_attach(&world, "rows16");
	check_all(&world, plain, view);
	cnre_detach(plain);
	cnre_detach(view);
	world_close(&world);
}

/* Both kinds evict each other in a pool for half of either, and all bytes stay right. */
Test(system_view, both_kinds_share_a_pool_that_is_too_small_for_them)
{
	struct cnre *plain, *view;
	struct world world;

	world_open(&world);
	world_generate(&world, (const char *const[]){"--expert-format", "int8-row", "--hidden", "256", "--intermediate", "256", NULL});
	cr_assert_gt(world_start(&world, (const char *const[]){"--view", "rows16", "--ram", "16M", "--verify", "load", "--hugepages",
							       "4k", NULL}),
		     0);
	plain = world_attach(&world, 1 << 20);
	cr_assert_eq(cnre_attach(&view, world.model,
				 &(struct cnre_options){.size = sizeof(struct cnre_options),
							.socket = world.socket,
							.timeout_ns = TIMEOUT_NS,
							.reserve_bytes = 1 << 20,
							.view = "rows16"}),
		     0);
	for (int round = 0; round < 3; round++)
		check_all(&world, plain, view);
	cr_expect_gt(world_stat(&world, "evictions"), OBJECTS / 2);
	cr_expect_eq(world_stat(&world, "digest_errors"), 0);
	cnre_detach(plain);
	cnre_detach(view);
	world_close(&world);
}

/* ---- what is not served ---- */

Test(system_view, a_view_that_is_not_served_is_enotsup_and_the_log_names_those_that_are_known)
{
	struct cnre *client = NULL;
	struct world world;

	open_world(&world);
	cr_assert_gt(world_start(&world, NULL), 0);
	cr_expect_eq(attach(&world, "rows16", &client), -ENOTSUP, "known, but nobody asked the manager for it");
	cr_expect(world_log_has(&world, "this manager knows rows16"));
	cr_expect_eq(attach(&world, "nibbles", &client), -ENOTSUP);
	cr_expect_eq(attach(&world, "a-name-of-31-bytes-that-no-view-", &client), -ENOTSUP);
	cr_expect_null(client, "output is untouched on failure");
	cr_expect_eq(attach(&world, "", &client), 0, "no view is the checkpoint's own bytes");
	cnre_detach(client);
	world_close(&world);
}

Test(system_view, the_manager_refuses_views_that_no_model_has)
{
	static const struct {
		const char *view, *says;
	} wrong[] = {{"rows17", "no model that is served has such a view"},
		     {"tiny-olmoe=rows17", "a olmoe model has no such view; it has rows16"},
		     {"other=rows16", "no model of that name"}};
	struct world world;

	open_world(&world);
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		cr_expect_eq(world_start(&world, (const char *const[]){"--view", wrong[i].view, NULL}), -1);
		cr_expect(world_log_has(&world, wrong[i].says), "%s", wrong[i].says);
	}
	cr_expect_gt(world_start(&world, (const char *const[]){"--try-view", "rows17", NULL}), 0, "asked for by an engine only");
	cr_expect(world_log_has(&world, "--try-view rows17"));
	world_close(&world);
	world_open(&world);
	world_generate(&world, (const char *const[]){"--expert-format", "bf16", NULL});
	cr_expect_eq(world_start(&world, (const char *const[]){"--view", "tiny-olmoe=rows16", NULL}), -1);
	cr_expect(world_log_has(&world, "layer 0 expert 0: it is of a format that this view is not for"));
	world_close(&world);
}

/* A HELLO by hand: 32 bytes of view without an end. */
static int hello_status(const char *path, const char *model, int fill)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char buffer[CNRE_WIRE_MESSAGE_MAX];
	struct cnre_wire_welcome welcome;
	struct cnre_wire_hello hello = {.by_path = 0};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), got, fds[CNRE_WIRE_FDS_MAX];
	size_t fd_count = 0;

	(void)snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	cr_assert_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
	cnre_wire_fill(&hello.header, CNRE_WIRE_HELLO, 1, sizeof hello);
	(void)snprintf(hello.model, sizeof hello.model, "%s", model);
	memset(hello.view, fill, sizeof hello.view);
	cr_assert_eq(cnre_wire_send(fd, &hello, sizeof hello, NULL, 0), 0);
	got = cnre_wire_receive(fd, buffer, fds, &fd_count);
	cr_assert_eq(cnre_wire_expect(buffer, got, CNRE_WIRE_WELCOME, sizeof welcome), 0);
	memcpy(&welcome, buffer, sizeof welcome);
	while (fd_count > 0)
		(void)close(fds[--fd_count]);
	(void)close(fd);
	return welcome.status;
}

Test(system_view, a_view_without_an_end_in_the_message_is_enotsup)
{
	struct world world;

	open_world(&world);
	cr_assert_gt(world_start(&world, serving), 0);
	cr_expect_eq(hello_status(world.socket, "tiny-olmoe", 'r'), -ENOTSUP);
	cr_expect_eq(hello_status(world.socket, "tiny-olmoe", 0xff), -ENOTSUP);
	cr_expect_eq(hello_status(world.socket, "tiny-olmoe", 0x1b), -ENOTSUP);
	cr_expect_not(world_log_has(&world, "\x1b"), "what a client says does not reach the log");
	cr_expect_eq(hello_status(world.socket, "tiny-olmoe:rows16", 0), -ENOENT, "a view is asked for as one");
	cr_expect_eq(hello_status(world.socket, "tiny-olmoe", 0), 0);
	world_close(&world);
}

/* ---- nobody else waits (colibri #900) ---- */

/* Stops every thread of a process but its first. How many, or -errno. */
static int freeze_threads(pid_t process, pid_t *thread, int most)
{
	char path[64];
	struct dirent *entry;
	int count = 0, r = 0;
	DIR *folder;

	(void)snprintf(path, sizeof path, "/proc/%d/task", (int)process);
	folder = opendir(path);
	cr_assert_not_null(folder);
	while (r == 0 && (entry = readdir(folder)) != NULL) {
		pid_t id = (pid_t)atoi(entry->d_name);

		if (id <= 0 || id == process || count == most)
			continue;
		if (ptrace(PTRACE_SEIZE, id, NULL, NULL) < 0 || ptrace(PTRACE_INTERRUPT, id, NULL, NULL) < 0)
			r = -errno;
		else if (waitpid(id, NULL, __WALL) == id)
			thread[count++] = id;
	}
	(void)closedir(folder);
	return r < 0 ? r : count;
}

static void thaw_threads(const pid_t *thread, int count)
{
	for (int i = 0; i < count; i++)
		(void)ptrace(PTRACE_DETACH, thread[i], NULL, NULL);
}

struct read_so_far {
	struct world *world;
	uint64_t bytes;
};

static int was_read(void *context)
{
	const struct read_so_far *wanted = context;

	return world_stat(wanted->world, "bytes_read") >= wanted->bytes;
}

/*
 * Goal: while preparing X takes for ever, hits on Y take what they always take, and the manager does everything that needs no
 * worker. Method: its worker threads are stopped one by one, so that X, which was read, is LOADING for as long as we like; by
 * counts and order, not by time. Attaching and reading go through the core thread.
 */
Test(system_view, while_one_object_is_prepared_hits_on_others_and_the_manager_go_on)
{
	enum { HITS = 10000 };
	struct cnre *view, *plain;
	uint32_t slow = 1, ready = 0;
	pid_t thread[64];
	struct read_so_far wanted;
	struct world world;
	uint64_t hits;
	uint8_t tier;
	int count;

	open_world(&world);
	/* Parts that land where they stay need no worker: then a plain miss is the core thread's alone. */
	cr_assert_gt(world_start(&world, (const char *const[]){"--view", "rows16", "--io", "uring", NULL}), 0);
	view = must_attach(&world, "rows16");
	cr_assert_eq(try(view, 0, ready), 0);
	count = freeze_threads(world.manager, thread, 64);
	if (count < 0) {
		cnre_detach(view);
		world_close(&world);
		cr_skip("no thread may be stopped here: %s", strerror(-count));
	}
	wanted = (struct read_so_far){&world, world_stat(&world, "bytes_read") + 1};
	cr_assert_eq(cnre_prefetch(view, 0, &slow, 1), 1);
	cr_assert(world_wait_until(was_read, &wanted, 10), "it is read while nobody prepares");
	hits = world_stat(&world, "hits");
	for (int i = 0; i < HITS; i++) {
		struct cnre_expert taken;

		cr_assert_eq(cnre_acquire(view, 0, ready, 0, &taken), 0, "without any wait");
		cr_assert_eq(cnre_release(view, &taken), 0);
	}
	cr_expect_eq(world_stat(&world, "hits"), hits + HITS);
	plain = must_attach(&world, NULL);
	cnre_detach(plain);
	cr_assert_eq(cnre_resident(view, 0, &slow, 1, &tier), 0);
	cr_expect_eq(tier, CNRE_LOADING, "after all that it is still not prepared, and nobody sees it");
	thaw_threads(thread, count);
	cr_expect_eq(try(view, 0, slow), 0);
	cnre_detach(view);
	world_close(&world);
}

/* ---- restarts ---- */

Test(system_view, prepared_objects_outlive_the_manager_and_are_not_made_again)
{
	static const char *const kept[] = {"--view", "rows16", "--keeper", "auto", NULL};
	struct cnre *plain, *view;
	struct world world;

	open_world(&world);
	cr_assert_gt(world_start(&world, kept), 0);
	plain = must_attach(&world, NULL);
	view = must_attach(&world, "rows16");
	touch_all(view);
	world_kill_manager(&world);
	world_await_epoch(&world, 2);
	cr_expect_eq(world_stat(&world, "resident_objects"), OBJECTS);
	cr_expect_eq(model_number(&world, "tiny-olmoe:rows16", "resident_objects"), OBJECTS);
	check_all(&world, plain, view);
	cr_expect_eq(world_stat(&world, "loads"), 2 * OBJECTS, "the prepared ones were there, the others came");
	cnre_detach(plain);
	cnre_detach(view);
	world_close(&world);
}

/* Calls `change` with descriptors of the manager's own segments of a name until one returns 1: 1, 0 none did, or -errno. */
static int change_segment(pid_t manager, const char *segment, int (*change)(int fd, void *context), void *context)
{
	char folder[64], name[320], target[64];
	struct dirent *entry;
	int r = 0;
	DIR *fds;

	(void)snprintf(folder, sizeof folder, "/proc/%d/fd", (int)manager);
	fds = opendir(folder);
	if (fds == NULL)
		return -errno;
	while (r == 0 && (entry = readdir(fds)) != NULL) {
		ssize_t n;
		int fd;

		(void)snprintf(name, sizeof name, "%s/%s", folder, entry->d_name);
		n = readlink(name, target, sizeof target - 1);
		target[n > 0 ? n : 0] = '\0';
		if (strncmp(target, "/memfd:", 7) != 0 || strncmp(target + 7, segment, strlen(segment)) != 0)
			continue;
		fd = open(name, O_RDWR | O_CLOEXEC);
		r = fd < 0 ? -errno : change(fd, context);
		if (fd >= 0)
			(void)close(fd);
	}
	(void)closedir(fds);
	return r;
}

static void skip_without_root(int r, struct world *world)
{
	if (r >= 0)
		return;
	world_close(world);
	cr_skip("needs root to write into the manager's memory");
}

static int raise_version(int fd, void *context)
{
	struct cnre_catalog catalog;

	(void)context;
	if (pread(fd, &catalog, sizeof catalog, 0) != (ssize_t)sizeof catalog || strcmp(catalog.view, "rows16") != 0)
		return 0;
	catalog.view_version++;
	return pwrite(fd, &catalog, sizeof catalog, 0) == (ssize_t)sizeof catalog;
}

static int is_begun_anew(void *context)
{
	return world_log_has(context, "other models or views");
}

/* As an upgrade that lays the bytes otherwise would find them. */
Test(system_view, prepared_objects_of_another_version_are_not_taken_over)
{
	static const char *const kept[] = {"--view", "rows16", "--keeper", "auto", NULL};
	struct cnre *view;
	struct world world;
	int r;

	open_world(&world);
	cr_assert_gt(world_start(&world, kept), 0);
	view = must_attach(&world, "rows16");
	touch_all(view);
	r = change_segment((pid_t)world_status(&world, "pid"), "cnre-catalog", raise_version, NULL);
	skip_without_root(r, &world);
	cr_assert_eq(r, 1);
	cr_assert_eq(kill((pid_t)world_status(&world, "pid"), SIGKILL), 0);
	cr_assert(world_wait_until(is_begun_anew, &world, 30));
	world_await_epoch(&world, 1);
	cr_expect_eq(world_stat(&world, "resident_objects"), 0);
	cnre_detach(view);
	view = must_attach(&world, "rows16");
	cr_expect_eq(try(view, 0, 0), 0);
	cnre_detach(view);
	world_close(&world);
}

/* ---- digests ---- */

static char digests[128];

static void part_of_checkpoint(const struct world *world, uint32_t layer, uint32_t expert, struct cnre_expert *ret_taken,
			       struct cnre **ret_plain)
{
	*ret_plain = must_attach(world, NULL);
	cr_assert_eq(cnre_acquire(*ret_plain, layer, expert, TIMEOUT_NS, ret_taken), 0);
}

/* Turns the bits of 16 bytes in the middle of a part's copy in the shard. */
static void damage_shard(const struct world *world, const struct cnre_part *part)
{
	const char *const names[] = {"model-00001-of-00001.safetensors", "model.safetensors"};
	char path[256];
	unsigned char *text, *found;
	FILE *file = NULL;
	long bytes;

	for (size_t i = 0; i < 2 && file == NULL; i++) {
		(void)snprintf(path, sizeof path, "%s/%s", world->model, names[i]);
		file = fopen(path, "r+e");
	}
	cr_assert_not_null(file);
	cr_assert_eq(fseek(file, 0, SEEK_END), 0);
	bytes = ftell(file);
	text = malloc((size_t)bytes);
	cr_assert_not_null(text);
	rewind(file);
	cr_assert_eq(fread(text, 1, (size_t)bytes, file), (size_t)bytes);
	found = memmem(text, (size_t)bytes, part->data, part->bytes);
	cr_assert_not_null(found);
	for (int i = 0; i < 16; i++)
		found[part->bytes / 2 + (uint64_t)i] ^= 0xff;
	rewind(file);
	cr_assert_eq(fwrite(text, 1, (size_t)bytes, file), (size_t)bytes);
	cr_assert_eq(fflush(file), 0);
	cr_assert_eq(fsync(fileno(file)), 0);
	(void)fclose(file);
	free(text);
}

Test(system_view, a_changed_byte_in_the_file_is_found_in_the_prepared_object_by_the_next_manager)
{
	static const char *const options[] = {"--view", "rows16", "--verify", "load", "--digests", digests, NULL};
	struct cnre *plain, *view;
	struct cnre_expert taken;
	struct world world;

	open_world(&world);
	(void)snprintf(digests, sizeof digests, "%s/digests", world.directory);
	cr_assert_gt(world_start(&world, options), 0);
	view = must_attach(&world, "rows16");
	touch_all(view);
	part_of_checkpoint(&world, 1, 2, &taken, &plain);
	damage_shard(&world, &taken.part[CNRE_DOWN]);
	cr_assert_eq(cnre_release(plain, &taken), 0);
	cnre_detach(plain);
	cnre_detach(view);
	cr_assert_eq(world_stop(&world, SIGTERM), 0);
	cr_assert_gt(world_start(&world, options), 0, "a manifest has a section for each");
	view = must_attach(&world, "rows16");
	cr_expect_eq(try(view, 1, 2), -EBADMSG);
	cr_expect_eq(try(view, 1, 3), 0);
	cr_expect_eq(world_stat(&world, "digest_errors"), 1);
	cr_expect(world_log_has(&world, "tiny-olmoe:rows16 layer 1 expert 2"));
	cnre_detach(view);
	world_close(&world);
}

static int path_is_gone(void *context)
{
	return access(context, F_OK) < 0;
}

/* What a worker finds when the loader is closed already; its threads are stopped until then. */
Test(system_view, a_stop_while_wrong_bytes_are_prepared_is_as_any_other)
{
	struct cnre *plain, *view;
	struct cnre_expert taken;
	struct read_so_far wanted;
	pid_t thread[64];
	struct world world;
	uint32_t wrong = 2;
	int count;

	open_world(&world);
	cr_assert_gt(world_start(&world, (const char *const[]){"--view", "rows16", "--verify", "load", "--io", "uring", NULL}), 0);
	view = must_attach(&world, "rows16");
	touch_all(view);
	part_of_checkpoint(&world, 1, wrong, &taken, &plain);
	damage_shard(&world, &taken.part[CNRE_DOWN]);
	cr_assert_eq(cnre_release(plain, &taken), 0);
	cnre_detach(plain);
	cr_assert_eq(world_run("cnrectl", (const char *const[]){"--socket", world.socket, "reset", NULL}, NULL, 0), 0);
	count = freeze_threads(world.manager, thread, 64);
	if (count < 0) {
		cnre_detach(view);
		world_close(&world);
		cr_skip("no thread may be stopped here: %s", strerror(-count));
	}
	wanted = (struct read_so_far){&world, world_stat(&world, "bytes_read") + 1};
	cr_assert_eq(cnre_prefetch(view, 1, &wrong, 1), 1);
	cr_assert(world_wait_until(was_read, &wanted, 10), "it is read while nobody prepares");
	cr_assert_eq(kill(world.manager, SIGTERM), 0);
	cr_assert(world_wait_until(path_is_gone, world.socket, 10));
	(void)usleep(300000); /* it closes the loader, and waits for its workers */
	thaw_threads(thread, count);
	cr_expect_eq(world_stop(&world, SIGTERM), 0);
	cnre_detach(view);
	world_close(&world);
}

struct bytes {
	unsigned char *data;
	size_t count;
};

/* Turns a byte in the middle of what equals these. */
static int damage_memory(int fd, void *context)
{
	const struct bytes *bytes = context;
	struct stat status;
	unsigned char *map, *found;

	cr_assert_eq(fstat(fd, &status), 0);
	map = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	cr_assert_neq(map, MAP_FAILED, "%s", strerror(errno));
	found = memmem(map, (size_t)status.st_size, bytes->data, bytes->count);
	if (found != NULL)
		found[bytes->count / 2] ^= 0xff;
	cr_assert_eq(munmap(map, (size_t)status.st_size), 0);
	return found != NULL;
}

static struct bytes copy_part(struct cnre *client, uint32_t layer, uint32_t expert)
{
	struct cnre_expert taken;
	struct bytes copy;

	cr_assert_eq(cnre_acquire(client, layer, expert, TIMEOUT_NS, &taken), 0);
	copy = (struct bytes){malloc(taken.part[CNRE_DOWN].bytes), taken.part[CNRE_DOWN].bytes};
	cr_assert_not_null(copy.data);
	memcpy(copy.data, taken.part[CNRE_DOWN].data, copy.count);
	cr_assert_eq(cnre_release(client, &taken), 0);
	return copy;
}

static int has_found_one(void *context)
{
	return world_stat(context, "digest_errors") >= 1;
}

/* The damaged one is found whenever its turn comes; that it stays the only one is what the others' digests are worth. */
Test(system_view, the_scrub_finds_a_prepared_object_that_changed_and_no_other)
{
	static const char *const options[] = {"--view", "rows16", "--verify", "load", "--scrub", "1ms", "--hugepages", "4k", NULL};
	struct cnre *plain, *view;
	struct world world;
	struct bytes part;
	int r;

	open_world(&world);
	cr_assert_gt(world_start(&world, options), 0);
	plain = must_attach(&world, NULL);
	view = must_attach(&world, "rows16");
	check_all(&world, plain, view);
	part = copy_part(view, 3, 15);
	r = change_segment(world.manager, "cnre-pool", damage_memory, &part);
	skip_without_root(r, &world);
	cr_assert_eq(r, 1);
	cr_assert(world_wait_until(has_found_one, &world, 30));
	cr_expect(world_log_has(&world, "tiny-olmoe:rows16 layer 3 expert 15: memory corruption"));
	check_all(&world, plain, view);
	cr_expect_eq(world_stat(&world, "digest_errors"), 1);
	cr_expect_eq(world_stat(&world, "loads"), 2 * OBJECTS + 1, "it was made anew, and nothing else");
	free(part.data);
	cnre_detach(plain);
	cnre_detach(view);
	world_close(&world);
}

/* ---- the history of uses ---- */

/* The counts of a history: lines "layer expert count", after those of numbers below 0. */
static long long sum_uses(const char *path)
{
	long long layer, expert, count, sum = 0;
	FILE *file = fopen(path, "re");

	cr_assert_not_null(file, "%s", path);
	while (fscanf(file, "%lld %lld %lld", &layer, &expert, &count) == 3)
		sum += layer >= 0 ? count : 0;
	(void)fclose(file);
	return sum;
}

/* Which experts are used has nothing to do with how their bytes lie. */
Test(system_view, uses_in_either_layout_are_counted_in_one_file)
{
	char folder[128], path[384] = "";
	const char *const options[] = {"--view", "rows16", "--usage", folder, NULL};
	struct cnre *plain, *view;
	struct dirent *entry;
	struct world world;
	unsigned files = 0;
	DIR *listed;

	open_world(&world);
	(void)snprintf(folder, sizeof folder, "%s/usage", world.directory);
	cr_assert_eq(mkdir(folder, 0700), 0);
	cr_assert_gt(world_start(&world, options), 0);
	plain = must_attach(&world, NULL);
	view = must_attach(&world, "rows16");
	touch_all(plain);
	touch_all(view);
	cnre_detach(plain);
	cnre_detach(view);
	cr_assert_eq(world_stop(&world, SIGTERM), 0);
	listed = opendir(folder);
	cr_assert_not_null(listed);
	while ((entry = readdir(listed)) != NULL)
		if (strlen(entry->d_name) > 11 && strcmp(entry->d_name + strlen(entry->d_name) - 11, ".coli_usage") == 0) {
			files++;
			(void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
		}
	(void)closedir(listed);
	cr_assert_eq(files, 1);
	cr_expect_eq(sum_uses(path), 2 * OBJECTS);
	world_close(&world);
}

/* ---- the engine ---- */

static json_t *run_engine(const struct world *world, const char *const *options)
{
	const char *arguments[32] = {"--model", world->model, "--tokens", "95 28 14", "--steps", "12", "--json", "--socket",
				     world->socket};
	char output[8192];
	size_t count = 9;
	json_t *result;

	for (; options != NULL && *options != NULL; options++)
		arguments[count++] = *options;
	cr_assert_eq(world_run("cnre-olmoe", arguments, output, sizeof output), 0, "%s", output);
	result = json_loads(output, 0, NULL);
	cr_assert_not_null(result, "%s", output);
	return result;
}

static void expect_same_tokens(const struct world *world, const char *kernel)
{
	json_t *rows = run_engine(world, (const char *const[]){"--kernel", kernel, NULL});
	json_t *view = run_engine(world, (const char *const[]){"--kernel", kernel, "--view", "rows16", NULL});

	cr_expect_eq(json_array_size(json_object_get(rows, "tokens")), 12);
	cr_expect(json_equal(json_object_get(rows, "tokens"), json_object_get(view, "tokens")), "%s", kernel);
	json_decref(rows);
	json_decref(view);
}

/* 64 columns meet an int8 operand, 40 a float one. */
Test(system_view, the_engine_says_the_same_tokens_from_prepared_experts)
{
	static const char *const sizes[] = {"64", "40", "37"};
	const char *const engine[] = {"--version", NULL};
	struct world world;

	if (world_run("cnre-olmoe", engine, NULL, 0) != 0)
		cr_skip("cnre-olmoe is not built");
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		world_open(&world);
		world_generate(&world, (const char *const[]){"--expert-format", "int8-row", "--intermediate", sizes[i], NULL});
		cr_assert_gt(world_start(&world, serving), 0);
		expect_same_tokens(&world, "plain");
		if (__builtin_cpu_supports("avx2"))
			expect_same_tokens(&world, "avx2");
		if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"))
			expect_same_tokens(&world, "avx512");
		cr_expect_eq(model_number(&world, "tiny-olmoe", "resident_objects"),
			     model_number(&world, "tiny-olmoe:rows16", "resident_objects"), "both took what the tokens need");
		world_close(&world);
	}
}

static int is_published(void *context)
{
	return world_stat(context, "kv_published") >= 1;
}

/* Prefixes are named by what is computed, and that is the same: one layout's are the other's. */
Test(system_view, prefixes_are_shared_between_layouts)
{
	static const char *const options[] = {"--view", "rows16", "--kv-ram", "8M", NULL};
	struct world world;
	json_t *rows, *view;

	open_world(&world);
	cr_assert_gt(world_start(&world, options), 0);
	rows = run_engine(&world, (const char *const[]){"--kv", "cnre", NULL});
	cr_assert(world_wait_until(is_published, &world, 30), "a block that is handed over is copied behind the engine's back");
	view = run_engine(&world, (const char *const[]){"--kv", "cnre", "--view", "rows16", NULL});
	cr_expect_eq(json_integer_value(json_object_get(json_object_get(view, "kv"), "matched_tokens")), 2);
	cr_expect(json_equal(json_object_get(rows, "tokens"), json_object_get(view, "tokens")));
	json_decref(rows);
	json_decref(view);
	world_close(&world);
}

/* ---- on demand ---- */

Test(system_view, a_manager_started_by_an_engine_serves_the_view_that_it_asked_for)
{
	struct cnre_options options = {.size = sizeof options, .timeout_ns = TIMEOUT_NS, .view = "rows16"};
	struct cnre *client = NULL;
	char build[256], sockets[512] = "";
	struct world world;

	open_world(&world);
	cr_assert_eq(setenv("XDG_RUNTIME_DIR", world.directory, 1), 0);
	cr_assert_eq(setenv("CNRE_MANAGERD", world_program("cnre-managerd", build, sizeof build), 1), 0);
	cr_assert_eq(setenv("CNRE_RAM", "16M", 1), 0);
	(void)unsetenv("CNRE_SOCKET");
	cr_assert_eq(cnre_attach(&client, world.model, &options), 0);
	cr_expect_eq(try(client, 0, 0), 0);
	options.view = "rows17";
	cr_expect_eq(cnre_attach(&client, world.model, &options), -ENOTSUP, "it knows no such view, and serves the others");
	cnre_detach(client);
	(void)world_run("/bin/sh", (const char *const[]){"-c", "ls $XDG_RUNTIME_DIR/cnre/*.sock", NULL}, sockets, sizeof sockets);
	sockets[strcspn(sockets, "\n")] = '\0';
	(void)snprintf(world.socket, sizeof world.socket, "%.95s", sockets);
	cr_expect_eq(kill((pid_t)world_status(&world, "pid"), SIGTERM), 0, "not for as long as it would wait for another engine");
	world_close(&world);
}
