/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that end, stop or attack at the worst moment, beside others that go on. */
#include "cnre/cnre.h"
#include "tests/support/attacker.h"
#include "tests/support/world.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(system_death, .timeout = 150);

enum { LAYERS = 4, EXPERTS = 16 };

static int attach(const struct world *world, const char *model, struct cnre **ret_client)
{
	struct cnre_options options = {.size = sizeof options, .socket = world->socket, .timeout_ns = 30000000000};

	return cnre_attach(ret_client, model, &options);
}

static uint64_t sum_of(const struct cnre_expert *expert)
{
	uint64_t sum = 0;

	for (uint64_t i = 0; i < expert->part[CNRE_GATE].bytes; i++)
		sum = sum * 31 + ((const unsigned char *)expert->part[CNRE_GATE].data)[i];
	return sum;
}

/* `rounds` times every expert, each with the bytes it had the first time. 0, or what went wrong. */
static int use_all(struct cnre *client, int rounds)
{
	uint64_t sums[LAYERS * EXPERTS] = {0};

	for (int round = 0; round < rounds; round++) {
		for (uint32_t i = 0; i < LAYERS * EXPERTS; i++) {
			struct cnre_expert expert;
			int r = cnre_acquire(client, i / EXPERTS, i % EXPERTS, 30000000000, &expert);

			if (r < 0)
				return r;
			if (round > 0 && sum_of(&expert) != sums[i])
				return -EILSEQ;
			sums[i] = sum_of(&expert);
			r = cnre_release(client, &expert);
			if (r < 0)
				return r;
		}
	}
	return 0;
}

static int status_of(pid_t child)
{
	int status = 0;

	return waitpid(child, &status, 0) != child ? -1
	       : WIFEXITED(status)                 ? WEXITSTATUS(status)
						   : 128 + WTERMSIG(status);
}

static pid_t start_honest(const struct world *world, int rounds)
{
	pid_t child = fork();

	if (child == 0) {
		struct cnre *client;
		int r = attach(world, world->model, &client);

		if (r == 0) {
			r = use_all(client, rounds);
			cnre_detach(client);
		}
		_exit(-r);
	}
	return child;
}

static pid_t start_malicious(const struct world *world, unsigned seed)
{
	pid_t child = fork();

	if (child == 0) {
		struct attacker attacker;

		if (attacker_attach(&attacker, world->socket, world->model) < 0)
			_exit(100);
		attacker_write_garbage(&attacker, 600, seed, (int)(seed % 2));
		_exit(0);
	}
	return child;
}

Test(system_death, four_honest_clients_make_progress_beside_eight_malicious_ones)
{
	/* A budget of most of the model: twelve elastic reservations fit, and there are misses and evictions. */
	static const char *const options[] = {"--ram", "1300K", "--keeper", "auto", NULL};
	struct world world;
	pid_t honest[4], malicious[8];

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, options), 0);
	for (int i = 0; i < 4; i++)
		honest[i] = start_honest(&world, 6);
	for (unsigned i = 0; i < 8; i++)
		malicious[i] = start_malicious(&world, i);
	for (int i = 0; i < 4; i++)
		cr_expect_eq(status_of(honest[i]), 0, "honest client %d", i);
	for (int i = 0; i < 8; i++) {
		(void)kill(malicious[i], SIGKILL);
		(void)status_of(malicious[i]);
	}
	cr_assert_eq(world_status(&world, "epoch"), 1, "the manager lived all the time");
	world_close(&world);
}

static int no_client_left(void *context)
{
	return world_stat(context, "clients") == 0;
}

/* Goal: the end of a process is its own, whoever holds copies of its descriptors. Method: its child lives on. */
Test(system_death, a_killed_client_with_a_living_child_is_gone)
{
	struct world world;
	int ready[2];
	pid_t grandchild = 0, child;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, NULL), 0);
	cr_assert_eq(pipe2(ready, O_CLOEXEC), 0);
	child = fork();
	if (child == 0) {
		struct cnre *client;
		struct cnre_expert expert;

		if (attach(&world, "tiny-olmoe", &client) != 0 || cnre_acquire(client, 1, 2, -1, &expert) != 0)
			_exit(1);
		grandchild = fork();
		if (grandchild == 0) {
			(void)pause();
			_exit(0);
		}
		(void)!write(ready[1], &grandchild, sizeof grandchild);
		(void)pause();
		_exit(2);
	}
	cr_assert_eq(read(ready[0], &grandchild, sizeof grandchild), (ssize_t)sizeof grandchild);
	cr_assert_eq(world_stat(&world, "leased_objects"), 1);
	(void)kill(child, SIGKILL);
	(void)status_of(child);
	cr_assert(world_wait_until(no_client_left, &world, 5));
	cr_assert_eq(world_stat(&world, "leased_objects"), 0);
	cr_assert_eq(kill(grandchild, SIGKILL), 0, "it was alive all the time");
	world_close(&world);
}

/* A fork with both sides using: the child attaches for itself, and each ends without the other's noticing. */
Test(system_death, parent_and_child_use_their_own_sessions_and_die_apart)
{
	struct world world;
	struct cnre *client;
	pid_t child;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, NULL), 0);
	cr_assert_eq(attach(&world, world.model, &client), 0);
	cr_assert_eq(use_all(client, 1), 0);
	child = fork();
	if (child == 0) {
		struct cnre *own;
		int r = attach(&world, world.model, &own);

		if (r == 0)
			r = use_all(own, 2);
		if (r == 0)
			(void)kill(getpid(), SIGKILL);
		_exit(-r);
	}
	cr_assert_eq(use_all(client, 2), 0);
	cr_assert_eq(status_of(child), 128 + SIGKILL);
	cr_assert_eq(use_all(client, 1), 0);
	cnre_detach(client);
	cr_assert(world_wait_until(no_client_left, &world, 5));
	world_close(&world);
}

static void *acquire_missing(void *argument)
{
	struct cnre *client = argument;
	struct cnre_expert expert;
	int r = cnre_acquire(client, 3, 3, 30000000000, &expert);

	if (r == 0)
		r = cnre_release(client, &expert);
	return (void *)(intptr_t)r;
}

/* F7: a stopped manager is a pause: hits go on, a miss waits and is served, nothing is taken for dead. */
Test(system_death, a_stopped_manager_is_a_pause)
{
	struct world world;
	struct cnre *client;
	struct cnre_expert expert;
	pthread_t thread;
	void *result;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, NULL), 0);
	cr_assert_eq(attach(&world, world.model, &client), 0);
	cr_assert_eq(cnre_acquire(client, 0, 0, -1, &expert), 0);
	cr_assert_eq(cnre_release(client, &expert), 0);
	cr_assert_eq(kill(world.manager, SIGSTOP), 0);
	cr_assert_eq(pthread_create(&thread, NULL, acquire_missing, client), 0);
	for (int i = 0; i < 1000; i++) {
		cr_assert_eq(cnre_acquire(client, 0, 0, 0, &expert), 0, "hits need no manager");
		cr_assert_eq(cnre_release(client, &expert), 0);
		(void)usleep(1000); /* longer than four wait slices in all */
	}
	cr_assert_eq(kill(world.manager, SIGCONT), 0);
	(void)pthread_join(thread, &result);
	cr_assert_eq((intptr_t)result, 0);
	cnre_detach(client);
	world_close(&world);
}

/* F2: again and again, and everything is back each time. */
Test(system_death, a_hundred_killed_clients_leave_nothing)
{
	struct world world;
	uint64_t pool;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, NULL), 0);
	pool = world_stat(&world, "own_bytes");
	for (int i = 0; i < 100; i++) {
		int ready[2];
		char byte;
		pid_t child;

		cr_assert_eq(pipe2(ready, O_CLOEXEC), 0);
		child = fork();
		if (child == 0) {
			struct cnre *client;
			struct cnre_expert expert;

			if (attach(&world, "tiny-olmoe", &client) != 0 ||
			    cnre_acquire(client, 1, (uint32_t)i % EXPERTS, -1, &expert) != 0)
				_exit(1);
			(void)!write(ready[1], "r", 1);
			(void)pause();
		}
		cr_assert_eq(read(ready[0], &byte, 1), 1);
		(void)kill(child, SIGKILL);
		cr_assert_eq(status_of(child), 128 + SIGKILL);
		(void)close(ready[0]);
		(void)close(ready[1]);
	}
	cr_assert(world_wait_until(no_client_left, &world, 5));
	cr_assert_eq(world_stat(&world, "leased_objects"), 0);
	cr_assert_eq(world_stat(&world, "client_deaths"), 100);
	cr_assert_eq(world_status(&world, "pool.reserved_slabs"), 0);
	cr_assert_leq(world_stat(&world, "own_bytes"), pool + (1 << 20));
	world_close(&world);
}

/* F4: whoever is stopped keeps what it holds, and goes on afterwards as if nothing had been. */
Test(system_death, a_stopped_client_keeps_its_lease_and_goes_on)
{
	static const char *const options[] = {"--ram", "700K", NULL}; /* half: what is not leased goes */
	struct world world;
	struct cnre *client;
	int to_parent[2], to_child[2], status;
	char byte;
	pid_t child;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, options), 0);
	cr_assert_eq(pipe2(to_parent, O_CLOEXEC), 0);
	cr_assert_eq(pipe2(to_child, O_CLOEXEC), 0);
	child = fork();
	if (child == 0) {
		struct cnre *own;
		struct cnre_expert expert;
		uint64_t sum;

		if (attach(&world, world.model, &own) != 0 || cnre_acquire(own, 2, 7, -1, &expert) != 0)
			_exit(1);
		sum = sum_of(&expert);
		(void)!write(to_parent[1], "r", 1);
		(void)!read(to_child[0], &byte, 1);
		if (sum_of(&expert) != sum || cnre_release(own, &expert) != 0)
			_exit(2);
		_exit(use_all(own, 1) == 0 ? 0 : 3);
	}
	cr_assert_eq(read(to_parent[0], &byte, 1), 1);
	cr_assert_eq(kill(child, SIGSTOP), 0);
	cr_assert_eq(attach(&world, world.model, &client), 0);
	cr_assert_eq(use_all(client, 4), 0);
	cr_assert_eq(world_stat(&world, "clients"), 2, "time ends nobody");
	cr_assert_eq(kill(child, SIGCONT), 0);
	cr_assert_eq(write(to_child[1], "g", 1), 1);
	status = status_of(child);
	cr_assert_eq(status, 0, "%d", status);
	cnre_detach(client);
	world_close(&world);
}

/* F3: what a dead client had is summed up and unmapped elsewhere; others are served meanwhile, and at once. */
Test(system_death, the_end_of_a_client_with_many_objects_holds_nobody_up)
{
	static const char *const many[] = {"--layers",       "16", "--experts", "2048", "--hidden", "16",
					   "--intermediate", "16", NULL};
	struct world world;
	struct cnre *client;

	world_open(&world);
	world_generate(&world, many);
	cr_assert_gt(world_start(&world, (const char *const[]){"--ram", "16M", NULL}), 0);
	cr_assert_eq(attach(&world, world.model, &client), 0);
	for (uint32_t i = 0; i < 10; i++) {
		struct cnre_expert expert;
		pid_t child = fork();

		if (child == 0) {
			struct cnre *own;

			if (attach(&world, "tiny-olmoe", &own) != 0)
				_exit(1);
			for (uint32_t e = 0; e < 64; e++)
				if (cnre_acquire(own, i, e, -1, &expert) != 0)
					_exit(2);
			(void)kill(getpid(), SIGKILL);
		}
		cr_assert_eq(status_of(child), 128 + SIGKILL);
		/* A cold one, right behind the death: two seconds are far more than a read, and far less than a stop of all. */
		cr_assert_eq(cnre_acquire(client, 15, i, 2000000000, &expert), 0);
		cr_assert_eq(cnre_release(client, &expert), 0);
	}
	cnre_detach(client);
	cr_assert(world_wait_until(no_client_left, &world, 5));
	world_close(&world);
}
