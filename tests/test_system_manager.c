/* SPDX-License-Identifier: Apache-2.0 */
/* The real manager from outside: starting, refusing, being found, and giving memory back. */
#include "tests/support/world.h"
#include "tests/support/world_client.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(system_manager, .timeout = 120);

enum { NOBODY = 65534, EXPERTS = 64 };

/* In a process of its own: one process attaches a model once. The error as its exit status gives it. */
static int attach_error(const struct world *world, const char *model, uint64_t reserve_bytes)
{
	struct cnre_options options = {.size = sizeof options,
				       .socket = world->socket,
				       .timeout_ns = 20000000000,
				       .reserve_bytes = reserve_bytes};
	int status = 0;
	pid_t child = fork();

	cr_assert_geq(child, 0);
	if (child == 0) {
		struct cnre *untouched = (struct cnre *)&options, *client = untouched;
		int r = cnre_attach(&client, model, &options);

		if (r == 0)
			cnre_detach(client);
		else if (client != untouched)
			r = -255;
		_exit(-r);
	}
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert(WIFEXITED(status), "status 0x%x", status);
	cr_assert_neq(WEXITSTATUS(status), 255, "output is untouched on failure");
	return -WEXITSTATUS(status);
}

static void touch_all(struct cnre *client)
{
	for (uint32_t i = 0; i < EXPERTS; i++) {
		struct cnre_expert expert;

		cr_assert_eq(cnre_acquire(client, i / 16, i % 16, 20000000000, &expert), 0);
		cr_assert_eq(cnre_release(client, &expert), 0);
	}
}

Test(system_manager, a_second_manager_on_one_socket_is_refused_with_the_pid_of_the_first)
{
	struct world world, second;
	char pid[32];

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, NULL), 0);
	second = world;
	second.manager = 0;
	(void)snprintf(second.log, sizeof second.log, "%.60s/log2", world.directory);
	(void)snprintf(pid, sizeof pid, "pid %d", (int)world.manager);
	cr_assert_eq(world_start(&second, NULL), -1, "exit status 1");
	cr_assert(world_log_has(&second, pid), "the message names the holder");
	cr_assert_eq(attach_error(&world, world.model, 0), 0, "the first goes on");
	world_close(&world);
}

Test(system_manager, sigterm_ends_it_cleanly_and_removes_the_socket)
{
	struct world world;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, NULL), 0);
	touch_all(world_attach(&world, 0));
	cr_assert_eq(world_stop(&world, SIGTERM), 0, "exit status 0");
	cr_assert_neq(access(world.socket, F_OK), 0);
	cr_assert_gt(world_start(&world, NULL), 0, "and the next one starts");
	world_close(&world);
}

Test(system_manager, a_leased_expert_stays_readable_when_the_manager_is_killed)
{
	struct world world;
	struct cnre_expert expert, other;
	struct cnre *client;
	uint64_t before = 0, after = 0;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, NULL), 0);
	client = world_attach(&world, 0);
	cr_assert_eq(cnre_acquire(client, 0, 3, 20000000000, &expert), 0);
	for (uint64_t i = 0; i < expert.part[CNRE_UP].bytes; i++)
		before = before * 31 + ((const unsigned char *)expert.part[CNRE_UP].data)[i];
	(void)world_stop(&world, SIGKILL);
	for (uint64_t i = 0; i < expert.part[CNRE_UP].bytes; i++)
		after = after * 31 + ((const unsigned char *)expert.part[CNRE_UP].data)[i];
	cr_assert_eq(before, after);
	cr_assert_eq(cnre_acquire(client, 0, 4, 10000000000, &other), -EPIPE, "a miss says that the manager is gone");
	cr_assert_eq(cnre_release(client, &expert), 0);
	cnre_detach(client);
	world_close(&world);
}

static void edit_header(const struct world *world)
{
	char path[256], byte;
	int fd;

	(void)snprintf(path, sizeof path, "%s/config.json", world->model);
	fd = open(path, O_RDWR | O_APPEND | O_CLOEXEC);
	cr_assert_geq(fd, 0);
	byte = '\n';
	cr_assert_eq(write(fd, &byte, 1), 1);
	(void)close(fd);
}

Test(system_manager, unknown_models_and_other_revisions_are_told_apart)
{
	struct world world, other;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, NULL), 0);
	cr_assert_eq(attach_error(&world, "tiny-olmoe", 0), 0, "by name");
	cr_assert_eq(attach_error(&world, "no-such-name", 0), -ENOENT);
	cr_assert_eq(attach_error(&world, "/no/such/directory", 0), -ENOENT);
	world_open(&other);
	world_generate(&other, (const char *const[]){"--seed", "2", "--layers", "5", NULL});
	cr_assert_eq(attach_error(&world, other.model, 0), -ENOENT, "another model");
	edit_header(&world);
	cr_assert_eq(attach_error(&world, world.model, 0), -ESTALE, "the directory changed under the manager");
	world_close(&other);
	world_close(&world);
}

Test(system_manager, reservations_are_exact_or_enospc_and_come_back)
{
	static const char *const options[] = {"--ram", "600K", NULL};
	struct world world;
	struct cnre_model_info info = {.size = sizeof info};
	struct cnre *client;
	uint64_t windows, loads, window;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, options), 0);
	windows = world_status(&world, "pool.windows");
	loads = world_status(&world, "pool.loads_max");
	window = world_status(&world, "pool.window_bytes");
	cr_assert_eq(attach_error(&world, world.model, (windows - loads + 1) * window), -ENOSPC);
	cr_assert(world_log_has(&world, "raise --ram"), "the log says the numbers and what to do");
	client = world_attach(&world, (windows - loads) * window);
	cr_assert_eq(cnre_model(client, &info), 0);
	cr_assert_eq(info.reserve_bytes, (windows - loads) * window);
	cr_assert_eq(attach_error(&world, world.model, window), -ENOSPC, "everything is reserved");
	cnre_detach(client);
	cr_assert_eq(attach_error(&world, world.model, (windows - loads) * window), 0, "a detach gives it back");
	world_close(&world);
}

/* Goal: an unprivileged manager with 8 MiB of memlock works (D9). Method: drop everything in the child before exec. */
static void become_poor(void)
{
	struct rlimit now, memlock = {8 << 20, 8 << 20};

	if (getrlimit(RLIMIT_MEMLOCK, &now) == 0 && now.rlim_max > memlock.rlim_max)
		(void)setrlimit(RLIMIT_MEMLOCK, &memlock);
	if (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0)
		_exit(99);
}

Test(system_manager, works_without_privilege_and_with_little_memlock)
{
	static const char *const options[] = {"--socket-mode", "0666", NULL};
	struct world world;

	if (geteuid() != 0)
		cr_skip("needs root to give up privileges");
	world_open(&world);
	world_generate(&world, (const char *const[]){"--hidden", "512", "--intermediate", "512", NULL}); /* 48 MiB */
	cr_assert_eq(chmod(world.directory, 0777), 0);
	cr_assert_gt(world_start_with(&world, options, become_poor), 0);
	touch_all(world_attach(&world, 0));
	cr_assert_eq(world_stat(&world, "loads"), EXPERTS);
	cr_assert_eq(world_stat(&world, "load_errors"), 0);
	world_close(&world);
}

/* What a user has where nobody set anything; memory that is locked counts for all of a user's processes (D9). */
static void become_poorer(void)
{
	struct rlimit memlock = {64 << 10, 64 << 10};

	(void)setrlimit(RLIMIT_MEMLOCK, &memlock);
	become_poor();
}

Test(system_manager, two_managers_of_one_user_with_64_kib_of_memlock_both_serve)
{
	static const char *const options[] = {"--socket-mode", "0666", NULL};
	struct world world[2];

	if (geteuid() != 0)
		cr_skip("needs root to give up privileges");
	for (int i = 0; i < 2; i++) {
		world_open(&world[i]);
		world_generate(&world[i], NULL);
		cr_assert_eq(chmod(world[i].directory, 0777), 0);
		cr_assert_gt(world_start_with(&world[i], options, become_poorer), 0, "manager %d", i);
	}
	for (int i = 0; i < 2; i++) {
		struct cnre *client = world_attach(&world[i], 0);

		touch_all(client);
		cnre_detach(client);
		cr_expect_eq(world_stat(&world[i], "loads"), EXPERTS, "manager %d", i);
		cr_expect_eq(world_stat(&world[i], "load_errors"), 0, "manager %d", i);
	}
	for (int i = 0; i < 2; i++)
		world_close(&world[i]);
}

/* A filter that refuses io_uring_setup as container runtimes do (D10). */
static void forbid_io_uring(int error)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof code / sizeof code[0], .filter = code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
		_exit(99);
}

static void forbid_with_eperm(void)
{
	forbid_io_uring(EPERM);
}

static void forbid_with_enosys(void)
{
	forbid_io_uring(ENOSYS);
}

Test(system_manager, without_io_uring_the_results_and_counters_are_the_same)
{
	void (*const prepare[])(void) = {NULL, forbid_with_eperm, forbid_with_enosys};
	uint64_t loads[3], bytes[3];
	struct world world;

	world_open(&world);
	world_generate(&world, NULL);
	for (int i = 0; i < 3; i++) {
		struct cnre *client;

		cr_assert_gt(world_start_with(&world, NULL, prepare[i]), 0);
		client = world_attach(&world, 0);
		touch_all(client);
		cnre_detach(client);
		loads[i] = world_stat(&world, "loads");
		bytes[i] = world_stat(&world, "bytes_read");
		cr_assert_eq(world_log_has(&world, "io_uring"), i > 0, "the cause is named, and only then");
		(void)world_stop(&world, SIGTERM);
	}
	cr_assert_eq(loads[0], EXPERTS);
	cr_assert(loads[0] == loads[1] && loads[1] == loads[2]);
	cr_assert(bytes[0] == bytes[1] && bytes[1] == bytes[2]);
	world_close(&world);
}

static void bells_by_thread(void)
{
	(void)setenv("CNRE_TEST_NO_RING_FUTEX", "1", 1);
}

Test(system_manager, bells_by_threads_lose_no_ring)
{
	struct world world;
	struct cnre *client;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start_with(&world, NULL, bells_by_thread), 0);
	client = world_attach(&world, 0);
	touch_all(client);
	/* A lost ring would cost a slice of 250 ms each. */
	cr_assert_lt(world_stat(&world, "felt_wait_ns"), EXPERTS * 100000000ull);
	cnre_detach(client);
	world_close(&world);
}

/* ---- the budget at run time ---- */

struct churn {
	struct world *world;
	_Atomic int stop, errors;
	_Atomic uint64_t rounds;
	uint64_t seen;
};

/* The storm has gone on for a while since `seen`. */
static int has_churned(void *context)
{
	struct churn *churn = context;

	return atomic_load_explicit(&churn->rounds, memory_order_relaxed) >= churn->seen + 30;
}

static void *churn_experts(void *argument)
{
	struct churn *churn = argument;
	struct cnre *client = world_attach(churn->world, 4 << 20);
	uint64_t state = (uint64_t)(uintptr_t)&client;

	while (!atomic_load_explicit(&churn->stop, memory_order_relaxed)) {
		struct cnre_expert expert;

		state = state * 6364136223846793005ull + 1442695040888963407ull;
		if (cnre_acquire(client, (uint32_t)(state >> 33) % 4, (uint32_t)(state >> 40) % 16, 20000000000,
				 &expert) < 0)
			atomic_fetch_add_explicit(&churn->errors, 1, memory_order_relaxed);
		else
			(void)cnre_release(client, &expert);
		atomic_fetch_add_explicit(&churn->rounds, 1, memory_order_relaxed);
	}
	cnre_detach(client);
	return NULL;
}

static void set_ram(struct world *world, const char *size, int expected)
{
	const char *const arguments[] = {"--socket", world->socket, "set", "ram", size, NULL};
	char output[512];

	cr_assert_eq(world_run("cnrectl", arguments, output, sizeof output), expected, "set ram %s: %s", size, output);
}

/* A4: what a lowered budget took away is not taken again, whatever the storm. */
Test(system_manager, resident_bytes_stay_below_a_budget_that_moves_under_a_miss_storm)
{
	static const char *const options[] = {"--ram", "40M", NULL};
	static const struct {
		const char *text;
		uint64_t bytes;
	} budgets[] = {{"20M", 20 << 20}, {"16M", 16 << 20}, {"30M", 30 << 20},
		       {"18M", 18 << 20}, {"40M", 40 << 20}, {"16M", 16 << 20}};
	struct world world;
	struct churn churn = {.world = &world};
	pthread_t thread;

	world_open(&world);
	world_generate(&world,
		       (const char *const[]){"--hidden", "512", "--intermediate", "512", NULL}); /* 64 x 0.8 MiB */
	cr_assert_gt(world_start(&world, options), 0);
	cr_assert_eq(pthread_create(&thread, NULL, churn_experts, &churn), 0);
	for (size_t i = 0; i < sizeof budgets / sizeof budgets[0]; i++) {
		set_ram(&world, budgets[i].text, 0);
		for (int look = 0; look < 5; look++) {
			uint64_t resident;

			churn.seen = atomic_load_explicit(&churn.rounds, memory_order_relaxed);
			cr_assert(world_wait_until(has_churned, &churn, 20), "the storm stands still");
			resident = world_stat(&world, "resident_bytes");

			/* One lease may be up while the budget falls; its object goes with the next turn. */
			cr_assert_leq(resident, budgets[i].bytes + (look == 0 ? 1 << 20 : 0), "%s: %llu resident",
				      budgets[i].text, (unsigned long long)resident);
		}
		cr_assert_leq(world_status(&world, "pool.used_bytes"), budgets[i].bytes);
	}
	atomic_store_explicit(&churn.stop, 1, memory_order_relaxed);
	(void)pthread_join(thread, NULL);
	cr_assert_eq(churn.errors, 0);
	cr_assert_leq(world_status(&world, "pool.backed_bytes"), 18 << 20, "memory goes back in whole segments");
	set_ram(&world, "1M", 1);
	set_ram(&world, "nonsense", 2);
	world_close(&world);
}

Test(system_manager, reset_evicts_what_nobody_holds)
{
	struct world world;
	struct cnre_expert expert;
	struct cnre *client;
	char output[256];

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, NULL), 0);
	client = world_attach(&world, 0);
	touch_all(client);
	cr_assert_eq(cnre_acquire(client, 1, 1, -1, &expert), 0);
	cr_assert_eq(world_run("cnrectl", (const char *const[]){"--socket", world.socket, "--json", "reset", NULL},
			       output, sizeof output),
		     0);
	cr_assert_eq(world_stat(&world, "resident_objects"), 1);
	cr_assert_eq(world_stat(&world, "bytes_loaded") - world_stat(&world, "bytes_evicted"),
		     world_stat(&world, "resident_bytes"));
	cr_assert_eq(cnre_release(client, &expert), 0);
	cnre_detach(client);
	world_close(&world);
}

/* ---- bad checkpoints: one line that names the file ---- */

Test(system_manager, a_truncated_shard_is_refused_at_start_by_name_and_missing_bytes)
{
	struct world world;
	char path[256];
	struct stat status;

	world_open(&world);
	world_generate(&world, NULL);
	(void)snprintf(path, sizeof path, "%s/model-00001-of-00001.safetensors", world.model);
	if (stat(path, &status) < 0)
		(void)snprintf(path, sizeof path, "%s/model.safetensors", world.model);
	cr_assert_eq(stat(path, &status), 0, "%s", path);
	cr_assert_eq(truncate(path, status.st_size - 1), 0);
	cr_assert_eq(world_start(&world, NULL), -1);
	cr_assert(world_log_has(&world, ".safetensors"), "the message names the shard");
	cr_assert(world_log_has(&world, "1 byte"), "and the missing bytes");
	world_close(&world);
}

Test(system_manager, a_shard_truncated_after_the_start_is_an_error_and_never_wrong_bytes)
{
	struct world world;
	struct cnre_expert expert;
	struct cnre *client;
	char path[256];
	struct stat status;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, NULL), 0);
	client = world_attach(&world, 0);
	(void)snprintf(path, sizeof path, "%s/model-00001-of-00001.safetensors", world.model);
	if (stat(path, &status) < 0)
		(void)snprintf(path, sizeof path, "%s/model.safetensors", world.model);
	cr_assert_eq(truncate(path, 4096), 0);
	cr_assert_lt(cnre_acquire(client, 3, 15, 20000000000, &expert), 0);
	cr_assert_eq(world_stat(&world, "resident_objects"), 0);
	cnre_detach(client);
	world_close(&world);
}

/* ---- on demand ---- */

static int nobody_answers(void *context)
{
	return access(context, F_OK) != 0;
}

Test(system_manager, starts_on_demand_serves_the_next_engine_and_leaves_when_idle)
{
	struct cnre_options options = {.size = sizeof options, .timeout_ns = 30000000000};
	struct cnre *first = NULL;
	struct world world;
	char command[512], sockets[512] = "";
	int r;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_eq(setenv("XDG_RUNTIME_DIR", world.directory, 1), 0);
	cr_assert_eq(setenv("CNRE_MANAGERD", world_program("cnre-managerd", command, sizeof command), 1), 0);
	cr_assert_eq(setenv("CNRE_RAM", "1M", 1), 0);
	r = cnre_attach(&first, world.model, &options);
	cr_assert_eq(r, 0, "attach: %s", strerror(-r));
	touch_all(first);
	(void)world_run("/bin/sh", (const char *const[]){"-c", "ls $XDG_RUNTIME_DIR/cnre/*.sock", NULL}, sockets,
			sizeof sockets);
	sockets[strcspn(sockets, "\n")] = '\0';
	(void)snprintf(world.socket, sizeof world.socket, "%.95s", sockets);
	cr_assert_eq(world_stat(&world, "clients"), 1);
	cr_assert_leq(world_stat(&world, "budget_bytes"), 1 << 20, "CNRE_RAM is honoured");
	cnre_detach(first);
	cr_assert(world_wait_until(nobody_answers, world.socket, 30), "it leaves after its idle time and removes %s",
		  world.socket);
	world_close(&world);
}

Test(system_manager, no_autostart_and_none_fail_at_once)
{
	struct cnre_options options = {.size = sizeof options, .timeout_ns = 30000000000, .flags = CNRE_NO_AUTOSTART};
	struct cnre *client = NULL;
	struct world world;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_eq(setenv("XDG_RUNTIME_DIR", world.directory, 1), 0);
	cr_assert_eq(cnre_attach(&client, world.model, &options), -ECONNREFUSED);
	options = (struct cnre_options){.size = sizeof options, .socket = "none", .timeout_ns = -1};
	cr_assert_eq(cnre_attach(&client, world.model, &options), -ECONNREFUSED);
	world_close(&world);
}

/* ---- fork ---- */

Test(system_manager, a_forked_child_cannot_disturb_the_parents_leases)
{
	struct world world;
	struct cnre_expert expert, copy;
	struct cnre *client;
	int status = 0;
	pid_t child;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, NULL), 0);
	client = world_attach(&world, 0);
	cr_assert_eq(cnre_acquire(client, 2, 2, -1, &expert), 0);
	copy = expert;
	child = fork();
	if (child == 0) {
		int wrong = cnre_release(client, &copy) != -ECHILD;
		struct cnre_expert other;

		wrong += cnre_acquire(client, 0, 0, 0, &other) != -ECHILD;
		cnre_detach(client);
		_exit(wrong);
	}
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status 0x%x", status);
	cr_assert_eq(world_stat(&world, "clients"), 1, "the child's end is not the parent's");
	cr_assert_eq(world_stat(&world, "leased_objects"), 1);
	cr_assert_eq(cnre_release(client, &expert), 0);
	cnre_detach(client);
	world_close(&world);
}

static int one_client_left(void *context)
{
	return world_stat(context, "clients") == 1;
}

Test(system_manager, a_killed_client_gives_everything_back)
{
	struct world world;
	int ready[2];
	char byte;
	struct cnre *client;
	pid_t child;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, NULL), 0);
	cr_assert_eq(pipe2(ready, O_CLOEXEC), 0);
	client = world_attach(&world, 0);
	child = fork();
	if (child == 0) {
		struct cnre_options options = {
			.size = sizeof options, .socket = world.socket, .timeout_ns = 20000000000};
		struct cnre *own;
		struct cnre_expert expert;

		if (cnre_attach(&own, "tiny-olmoe", &options) != 0)
			_exit(1);
		for (uint32_t i = 0; i < 4; i++)
			if (cnre_acquire(own, 0, i, -1, &expert) != 0)
				_exit(2);
		(void)!write(ready[1], "r", 1);
		(void)pause();
		_exit(3);
	}
	cr_assert_eq(read(ready[0], &byte, 1), 1);
	cr_assert_eq(world_stat(&world, "clients"), 2);
	cr_assert_eq(world_stat(&world, "leased_objects"), 4);
	(void)kill(child, SIGKILL);
	(void)waitpid(child, NULL, 0);
	cr_assert(world_wait_until(one_client_left, &world, 5), "the pidfd tells the manager");
	cr_assert_eq(world_stat(&world, "leased_objects"), 0);
	cr_assert_eq(world_stat(&world, "client_deaths"), 1);
	cnre_detach(client);
	world_close(&world);
}
