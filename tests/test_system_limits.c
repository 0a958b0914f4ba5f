/* SPDX-License-Identifier: Apache-2.0 */
/* What one client, one user or a broken surrounding may take from the others: room, descriptors, connections, the log. */
#include "cnre/cnre.h"
#include "shm/ledger.h"
#include "tests/support/attacker.h"
#include "tests/support/world.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

TestSuite(system_limits, .timeout = 40);

enum { NOBODY = 65534, EXPERTS = 64 };

static int try_attach(const struct world *world, struct cnre **ret_client, int64_t timeout_ns)
{
	struct cnre_options options = {
		.size = sizeof options, .socket = world->socket, .timeout_ns = timeout_ns, .name = "honest"};

	return cnre_attach(ret_client, world->model, &options);
}

static struct cnre *attach(const struct world *world)
{
	struct cnre *client = NULL;
	int r = try_attach(world, &client, 20000000000);

	cr_assert_eq(r, 0, "attach: %s", strerror(-r));
	return client;
}

static void touch_all(struct cnre *client)
{
	for (uint32_t i = 0; i < EXPERTS; i++) {
		struct cnre_expert expert;

		cr_assert_eq(cnre_acquire(client, i / 16, i % 16, 20000000000, &expert), 0);
		cr_assert_eq(cnre_release(client, &expert), 0);
	}
}

static int become_nobody(void)
{
	if (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0)
		return -errno;
	return prctl(PR_SET_PDEATHSIG, SIGKILL); /* which another user does not inherit */
}

/* A child that says 'r' when it has done its worst, and then holds on to it until it is killed. */
static pid_t start_hog(struct world *world, int (*take)(struct world *world))
{
	int ready[2];
	char byte = 0;
	pid_t child;

	cr_assert_eq(pipe2(ready, O_CLOEXEC), 0);
	child = fork();
	cr_assert_geq(child, 0);
	if (child == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody behind */
		byte = take(world) == 0 ? 'r' : 'f';
		(void)!write(ready[1], &byte, 1);
		(void)pause();
		_exit(1);
	}
	(void)close(ready[1]);
	cr_assert_eq(read(ready[0], &byte, 1), 1);
	(void)close(ready[0]);
	cr_assert_eq(byte, 'r', "the hog could not do what this test is about");
	return child;
}

static void end_hog(pid_t child)
{
	(void)kill(child, SIGKILL);
	(void)waitpid(child, NULL, 0);
}

static int lease_everything(struct world *world)
{
	struct attacker attacker;
	struct cnre_ledger *ledger;
	struct stat status;

	if (attacker_attach(&attacker, world->socket, world->model) < 0 ||
	    fstat(attacker.fd[CNRE_FD_LEDGER], &status) < 0)
		return -1;
	ledger = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, attacker.fd[CNRE_FD_LEDGER], 0);
	if (ledger == MAP_FAILED)
		return -1;
	for (uint32_t i = 0; i < EXPERTS; i++)
		atomic_store_explicit(&ledger->word[i], CNRE_LEDGER_LEASE, memory_order_seq_cst);
	return 0;
}

/* R19: a ledger is the client's own to write, so leases beyond the reservation must not keep others waiting for ever. */
Test(system_limits, leases_beyond_a_reservation_end_their_client_when_others_need_the_room)
{
	static const char *const options[] = {"--ram", "600K", NULL};
	struct world world;
	struct cnre *client;
	pid_t hog;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, options), 0);
	hog = start_hog(&world, lease_everything);
	client = attach(&world);
	touch_all(client);
	cr_assert(world_log_has(&world, "more than its reservation"));
	cr_assert_eq(world_stat(&world, "clients"), 1);
	end_hog(hog);
	cnre_detach(client);
	world_close(&world);
}

/* R27: descriptors on their way count against the manager's user, and beyond a limit nobody could be sent any. */
Test(system_limits, a_client_that_does_not_read_has_one_message_with_descriptors_on_its_way)
{
	_Alignas(8) char buffer[CNRE_WIRE_MESSAGE_MAX];
	struct cnre_wire_segments ask = {0};
	struct attacker attacker;
	struct world world;
	int fds[CNRE_WIRE_FDS_MAX];
	size_t count, total = 0, with_descriptors = 0;
	int answers = 0;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, NULL), 0);
	cr_assert_eq(attacker_attach(&attacker, world.socket, world.model), 0);
	for (uint32_t i = 0; i < 50; i++) {
		cnre_wire_fill(&ask.header, CNRE_WIRE_SEGMENTS, i, sizeof ask);
		cr_assert_eq(cnre_wire_send(attacker.socket, &ask, sizeof ask, NULL, 0), 0);
	}
	cr_assert_neq(world_status(&world, "pid"),
		      UINT64_MAX); /* an answer to somebody else: all of ours were looked at */
	for (; answers < 50; answers++) {
		struct pollfd ready = {.fd = attacker.socket, .events = POLLIN};

		if (poll(&ready, 1, 2000) <= 0 || cnre_wire_receive(attacker.socket, buffer, fds, &count) <= 0)
			break;
		with_descriptors += count > 0;
		total += count;
		for (size_t i = 0; i < count; i++)
			(void)close(fds[i]);
	}
	cr_assert_geq(answers, 1);
	cr_assert_leq(with_descriptors, 2,
		      "%zu messages with %zu descriptors: the last ones may have been read meanwhile", with_descriptors,
		      total);
	world_close(&world);
}

static int connect_many(struct world *world)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	if (become_nobody() < 0)
		return -1;
	(void)snprintf(address.sun_path, sizeof address.sun_path, "%s", world->socket);
	for (int i = 0; i < 400; i++) {
		int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		int r = connect(fd, (struct sockaddr *)&address, sizeof address);
		struct timespec pause_a_moment = {.tv_nsec = 1000000};

		if (fd < 0 || (r < 0 && errno != EAGAIN))
			return -1;
		if (r < 0)
			(void)nanosleep(&pause_a_moment, NULL);
	}
	return 0;
}

Test(system_limits, one_user_cannot_take_every_connection)
{
	static const char *const options[] = {"--socket-mode", "0666", NULL};
	struct world world;
	struct cnre *client = NULL;
	pid_t hog;

	if (geteuid() != 0)
		cr_skip("needs root to become another user");
	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, options), 0);
	hog = start_hog(&world, connect_many);
	cr_assert_eq(try_attach(&world, &client, 5000000000), 0);
	cnre_detach(client);
	end_hog(hog);
	world_close(&world);
}

static int reserve(const struct world *world, uint64_t bytes)
{
	struct cnre_options options = {.size = sizeof options,
				       .socket = world->socket,
				       .timeout_ns = 5000000000,
				       .reserve_bytes = bytes,
				       .name = "hog"};
	struct cnre *client;

	return cnre_attach(&client, world->model, &options);
}

static int reserve_most(struct world *world)
{
	uint64_t window = world_status(world, "pool.window_bytes"), windows = world_status(world, "pool.windows");
	int r = become_nobody();

	if (r < 0)
		return r;
	r = -ENOSPC;
	for (uint64_t n = windows; n > 0 && r == -ENOSPC; n--)
		r = reserve(world, n * window);
	return r;
}

/* 0: not even one slab is left for this user. */
static int reserve_one_in_vain(struct world *world)
{
	uint64_t window = world_status(world, "pool.window_bytes");

	return become_nobody() == 0 && reserve(world, window) == -ENOSPC ? 0 : -1;
}

Test(system_limits, one_user_cannot_reserve_every_slab)
{
	static const char *const options[] = {"--ram", "600K", "--socket-mode", "0666", NULL};
	struct world world;
	struct cnre *client = NULL;
	uint64_t most, least;
	pid_t hog, second;

	if (geteuid() != 0)
		cr_skip("needs root to become another user");
	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, options), 0);
	most = world_status(&world, "pool.windows") - world_status(&world, "pool.loads_max");
	hog = start_hog(&world, reserve_most);
	least = most - world_status(&world, "pool.reserved_slabs");
	cr_assert_lt(least, most / 2, "or this shows nothing");
	second = start_hog(&world, reserve_one_in_vain); /* another process is no way around */
	cr_assert_eq(try_attach(&world, &client, 5000000000), 0, "the first client of another user");
	touch_all(client);
	cnre_detach(client);
	end_hog(second);
	end_hog(hog);
	world_close(&world);
}

static void log_into_a_broken_pipe(void)
{
	int ends[2];

	if (pipe(ends) < 0 || dup2(ends[1], STDERR_FILENO) < 0)
		_exit(99);
	(void)close(ends[0]);
	(void)close(ends[1]);
}

Test(system_limits, a_log_that_nobody_reads_any_more_does_not_end_the_manager)
{
	struct world world;
	struct cnre *client;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start_with(&world, NULL, log_into_a_broken_pipe), 0);
	client = attach(&world); /* which is logged */
	touch_all(client);
	cnre_detach(client);
	cr_assert_eq(world_stat(&world, "loads"), EXPERTS);
	world_close(&world);
}

/* What --check promises: top_k + 2 windows are enough for one client. */
Test(system_limits, the_smallest_budget_that_starts_serves_one_client)
{
	static const char *const model[] = {"--top-k", "8", NULL};
	struct world world;
	struct cnre *client;
	char ram[32];
	uint64_t window;

	world_open(&world);
	world_generate(&world, model);
	cr_assert_gt(world_start(&world, NULL), 0);
	window = world_status(&world, "pool.window_bytes");
	(void)world_stop(&world, SIGTERM);
	(void)snprintf(ram, sizeof ram, "%llu", (unsigned long long)(10 * window));
	cr_assert_gt(world_start(&world, (const char *const[]){"--ram", ram, NULL}), 0);
	client = attach(&world);
	touch_all(client);
	cnre_detach(client);
	world_close(&world);
}

Test(system_limits, pool_bytes_follow_the_budget)
{
	static const char *const options[] = {"--ram", "2M", NULL};
	struct world world;
	uint64_t before;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, options), 0);
	before = world_stat(&world, "pool_bytes");
	cr_assert_eq(before, world_status(&world, "pool.backed_bytes"));
	cr_assert_eq(world_run("cnrectl", (const char *const[]){"--socket", world.socket, "set", "ram", "1M", NULL},
			       NULL, 0),
		     0);
	cr_assert_lt(world_stat(&world, "pool_bytes"), before);
	cr_assert_eq(world_stat(&world, "pool_bytes"), world_status(&world, "pool.backed_bytes"));
	world_close(&world);
}

/* A path is bytes, JSON is UTF-8: a name that is none must not cost the whole answer. */
Test(system_limits, a_model_whose_name_is_not_utf8_is_reported_all_the_same)
{
	struct world world;
	struct cnre *client;
	char output[1 << 16];
	json_t *root;

	world_open(&world);
	(void)snprintf(world.model, sizeof world.model, "%s/tiny-\xff-olmoe", world.directory);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, NULL), 0);
	client = attach(&world);
	cr_assert_eq(world_status(&world, "clients"), 1);
	cr_assert_eq(world_run("cnrectl", (const char *const[]){"--socket", world.socket, "clients", "--json", NULL},
			       output, sizeof output),
		     0);
	root = json_loads(output, 0, NULL);
	cr_assert_eq(json_array_size(json_object_get(root, "clients")), 1, "%s", output);
	json_decref(root);
	cnre_detach(client);
	world_close(&world);
}

static int one_is_resident(void *context)
{
	return world_stat(context, "resident_objects") == 1;
}

/* The demand and the prefetch that replaces it are taken in one turn, when the lease is down already. */
Test(system_limits, an_acquire_that_gave_up_has_started_the_load)
{
	struct world world;
	struct cnre_expert expert;
	struct cnre *client;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, NULL), 0);
	client = attach(&world);
	cr_assert_eq(kill(world.manager, SIGSTOP), 0);
	cr_assert_eq(cnre_acquire(client, 1, 2, 50000000, &expert), -ETIMEDOUT);
	cr_assert_eq(kill(world.manager, SIGCONT), 0);
	cr_assert(world_wait_until(one_is_resident, &world, 5));
	cnre_detach(client);
	world_close(&world);
}

Test(system_limits, a_larger_budget_is_bounded_by_the_machine)
{
	struct world world;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, NULL), 0);
	cr_assert_eq(world_run("cnrectl", (const char *const[]){"--socket", world.socket, "set", "ram", "900T", NULL},
			       NULL, 0),
		     0);
	cr_assert_lt(world_stat(&world, "budget_bytes"), 900ull << 40);
	cr_assert(world_log_has(&world, "set ram: bounded by"));
	world_close(&world);
}
