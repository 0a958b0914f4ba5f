/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Restarts where something is missing or does not work: the test itself is the keeper, so that it decides what a
 * successor inherits. What a living client may still read must never be handed to another.
 */
#include "manager/keep_wire.h"
#include "manager/store.h"
#include "tests/support/world.h"
#include "tests/support/world_client.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(system_restart2, .timeout = 60);

enum { EXPERTS = 16, ALL = 64, KEPT_MAX = 128, FIRST_PASSED = 3 };

/* ---- a keeper ---- */

static struct fake {
	struct {
		char name[KEEP_NAME_BYTES];
		int fd;
	} kept[KEPT_MAX];
	int count;
	int socket; /* our end */
	pid_t manager;
	pthread_t thread;
	int was_ready;
} fake;

static void forget(const char *prefix)
{
	for (int i = fake.count; i-- > 0;) {
		if (strncmp(fake.kept[i].name, prefix, strlen(prefix)) != 0)
			continue;
		(void)close(fake.kept[i].fd);
		fake.kept[i] = fake.kept[--fake.count];
	}
}

/* As the real one: what is stored under a name replaces what was. */
static void forget_exactly(const char *name)
{
	for (int i = fake.count; i-- > 0;) {
		if (strcmp(fake.kept[i].name, name) != 0)
			continue;
		(void)close(fake.kept[i].fd);
		fake.kept[i] = fake.kept[--fake.count];
	}
}

static int has(const char *name)
{
	for (int i = 0; i < fake.count; i++)
		if (strcmp(fake.kept[i].name, name) == 0)
			return 1;
	return 0;
}

/* Until the manager's end: then every datagram was taken. */
static void *keep_all(void *unused)
{
	char text[KEEP_TEXT_MAX];
	int fds[KEEP_FDS_MAX], bytes;
	size_t count;

	(void)unused;
	while ((bytes = keep_receive(fake.socket, text, fds, &count)) > 0) {
		struct keep_message message;
		size_t used = 0;

		if (keep_parse(text, (size_t)bytes, &message) == 0) {
			fake.was_ready |= message.ready;
			if (message.remove || message.store)
				forget_exactly(message.name);
			if (message.store && count > 0 && fake.count < KEPT_MAX) {
				(void)snprintf(fake.kept[fake.count].name, KEEP_NAME_BYTES, "%s", message.name);
				fake.kept[fake.count++].fd = fds[used++];
			}
		}
		while (used < count)
			(void)close(fds[used++]);
	}
	return NULL;
}

static void exec_manager(const struct world *world, int socket)
{
	char names[KEPT_MAX * KEEP_NAME_BYTES] = "", number[16], program[256];
	int above = 400, moved[KEPT_MAX], log = open(world->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves no manager behind */
	(void)dup2(log, STDERR_FILENO);
	for (int i = 0; i < fake.count; i++) {
		moved[i] = fcntl(fake.kept[i].fd, F_DUPFD_CLOEXEC, above);
		(void)snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i > 0 ? ":" : "",
			       fake.kept[i].name);
	}
	socket = fcntl(socket, F_DUPFD_CLOEXEC, above);
	for (int i = 0; i < fake.count; i++)
		(void)dup2(moved[i], FIRST_PASSED + i);
	(void)dup2(socket, FIRST_PASSED + fake.count);
	(void)snprintf(number, sizeof number, "%d", (int)getpid());
	(void)setenv("LISTEN_PID", number, 1);
	(void)snprintf(number, sizeof number, "%d", fake.count);
	(void)setenv("LISTEN_FDS", number, 1);
	(void)setenv("LISTEN_FDNAMES", names, 1);
	(void)snprintf(number, sizeof number, "%d", FIRST_PASSED + fake.count);
	(void)setenv(STORE_KEEPER_ENVIRONMENT, number, 1);
	(void)execl(world_program("cnre-managerd", program, sizeof program), "cnre-managerd", "--model", world->model,
		    "--socket", world->socket, "--ram", "700K", (char *)NULL);
	_exit(127);
}

static void start(const struct world *world)
{
	int pair[2];

	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	fake.socket = pair[0];
	fake.was_ready = 0;
	fake.manager = fork();
	if (fake.manager == 0)
		exec_manager(world, pair[1]);
	cr_assert_gt(fake.manager, 0);
	(void)close(pair[1]);
	cr_assert_eq(pthread_create(&fake.thread, NULL, keep_all, NULL), 0);
}

/* The status as waitpid gives it; what was kept lies still then. */
static int end(int signal)
{
	int status = -1;

	if (signal != 0)
		(void)kill(fake.manager, signal);
	(void)waitpid(fake.manager, &status, 0);
	(void)pthread_join(fake.thread, NULL);
	(void)close(fake.socket);
	return status;
}

static int answers(void *context)
{
	const struct world *world = context;
	const char *const arguments[] = {"--socket", world->socket, "status", "--json", NULL};
	static char output[1 << 18];

	return world_run("cnrectl", arguments, output, sizeof output) == 0;
}

/* ---- clients ---- */

/* Twice as much as there is room for: whatever no scan sees a lease on is overwritten. Exit status 0: all could be had. */
static int use_every_expert(const struct world *world)
{
	struct cnre *client = world_attach(world, 0);
	int status = 0;

	for (uint32_t i = 0; i < 2 * ALL; i++) {
		struct cnre_expert expert;

		if (cnre_acquire(client, i % ALL / EXPERTS, i % EXPERTS, 20000000000, &expert) != 0)
			status = 1;
		else
			(void)cnre_release(client, &expert);
	}
	cnre_detach(client);
	return status;
}

static void use_every_expert_in_a_child(const struct world *world)
{
	pid_t child = fork();
	int status = -1;

	if (child == 0)
		_exit(use_every_expert(world));
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert_eq(status, 0);
}

static void lose_and_restart(const char *lost)
{
	struct world world;
	struct cnre *client;
	struct cnre_expert held;
	uint64_t sum;

	world_open(&world);
	world_generate(&world, NULL);
	start(&world);
	cr_assert(world_wait_until(answers, &world, 20));
	client = world_attach(&world, 0);
	cr_assert_eq(cnre_acquire(client, 0, 5, 20000000000, &held), 0);
	sum = world_sum(&held);
	(void)end(SIGKILL);
	cr_assert(has("c1.led"));
	forget(lost);
	start(&world);
	cr_assert_neq(end(0), 0, "it cannot see the leases of a living client, and serves all the same");
	cr_assert_not(fake.was_ready);
	cr_assert_not(has("page"), "the next one would try the same again");
	cr_assert(has("listen") && has("lock"));
	cr_assert_eq(access(world.socket, F_OK), 0, "nobody new would find the next one");
	start(&world);
	cr_assert(world_wait_until(answers, &world, 20));
	use_every_expert_in_a_child(&world);
	cr_assert_eq(world_sum(&held), sum, "a leased slab was given to another expert");
	cr_assert_eq(cnre_release(client, &held), 0);
	cnre_detach(client);
	cr_assert_eq(end(SIGTERM), 0);
	world_close(&world);
}

Test(system_restart2, a_client_whose_descriptors_were_lost_keeps_its_leased_bytes)
{
	lose_and_restart("c1.");
}

Test(system_restart2, a_client_whose_ledger_was_lost_keeps_its_leased_bytes)
{
	lose_and_restart("c1.led");
}

Test(system_restart2, a_lost_pool_segment_is_no_reason_to_take_the_socket_away)
{
	lose_and_restart("pool");
}

/* ---- what a crash in the middle of an attach leaves ---- */

static int no_client_left(void *context)
{
	return world_stat(context, "clients") == 0;
}

/* A client whose child holds a copy of its socket: its death is no hang-up. */
static pid_t start_client_with_child(const struct world *world, pid_t *ret_grandchild)
{
	int ready[2];
	pid_t child;

	cr_assert_eq(pipe2(ready, O_CLOEXEC), 0);
	child = fork();
	if (child == 0) {
		struct cnre_expert expert;
		struct cnre *client = world_attach(world, 0);
		pid_t grandchild;

		if (cnre_acquire(client, 0, 5, 20000000000, &expert) != 0)
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
	cr_assert_eq(read(ready[0], ret_grandchild, sizeof *ret_grandchild), (ssize_t)sizeof *ret_grandchild);
	(void)close(ready[0]);
	(void)close(ready[1]);
	return child;
}

/* A manager that was killed between storing the socket and storing the pidfd: the socket knows the process still. */
Test(system_restart2, a_client_whose_pidfd_was_not_stored_is_seen_to_die_and_its_pidfd_stored_again)
{
	struct world world;
	pid_t child, grandchild;

	world_open(&world);
	world_generate(&world, NULL);
	start(&world);
	cr_assert(world_wait_until(answers, &world, 20));
	child = start_client_with_child(&world, &grandchild);
	(void)end(SIGKILL);
	cr_assert(has("c1.sock") && has("c1.pid"));
	forget("c1.pid");
	start(&world);
	cr_assert(world_wait_until(answers, &world, 20));
	(void)end(SIGKILL);
	cr_expect(has("c1.pid"), "the next one would have to ask again");
	start(&world);
	cr_assert(world_wait_until(answers, &world, 20));
	cr_assert_eq(world_stat(&world, "leased_objects"), 1);
	(void)kill(child, SIGKILL);
	(void)waitpid(child, NULL, 0);
	cr_expect(world_wait_until(no_client_left, &world, 10));
	cr_expect_eq(kill(grandchild, SIGKILL), 0, "it was alive all the time");
	cr_assert_eq(end(SIGTERM), 0);
	world_close(&world);
}

/* ---- the socket's path, while nobody serves ---- */

static int bind_somebody_elses(const struct world *world)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	(void)snprintf(address.sun_path, sizeof address.sun_path, "%s", world->socket);
	cr_assert_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
	cr_assert_eq(listen(fd, 8), 0);
	return fd;
}

static struct cnre *hold_and_kill(struct world *world, struct cnre_expert *ret_held)
{
	struct cnre *client;

	world_open(world);
	world_generate(world, NULL);
	start(world);
	cr_assert(world_wait_until(answers, world, 20));
	client = world_attach(world, 0);
	cr_assert_eq(cnre_acquire(client, 0, 5, 20000000000, ret_held), 0);
	(void)end(SIGKILL);
	cr_assert_eq(unlink(world->socket), 0);
	return client;
}

Test(system_restart2, another_programs_socket_at_the_path_is_told_of_and_left_alone)
{
	struct world world;
	struct cnre_expert held, other;
	struct cnre *client = hold_and_kill(&world, &held);
	int foreign = bind_somebody_elses(&world);

	start(&world);
	cr_assert_eq(cnre_acquire(client, 1, 5, 20000000000, &other), 0, "who is attached is served");
	cr_expect(world_log_has(&world, "is not ours any more"));
	cr_assert_eq(cnre_release(client, &other), 0);
	cr_assert_eq(cnre_release(client, &held), 0);
	cnre_detach(client);
	cr_expect_eq(end(0), 0, "nobody new can find it, so it leaves");
	cr_expect_eq(access(world.socket, F_OK), 0, "it unlinked what is not its own");
	(void)close(foreign);
	world_close(&world);
}

Test(system_restart2, a_path_that_was_removed_is_bound_again_and_stored)
{
	struct world world;
	struct cnre_expert held;
	struct cnre *client = hold_and_kill(&world, &held);

	for (int i = 0; i < 2; i++) {
		start(&world);
		cr_assert(world_wait_until(answers, &world, 20), "nobody finds incarnation %d", i + 2);
		cr_expect_eq(world_stat(&world, "leased_objects"), 1);
		use_every_expert_in_a_child(&world);
		if (i == 0)
			(void)end(SIGKILL);
	}
	cr_expect(world_log_has(&world, "bound it again"));
	cr_assert_eq(cnre_release(client, &held), 0);
	cnre_detach(client);
	cr_assert_eq(end(SIGTERM), 0);
	cr_expect_neq(access(world.socket, F_OK), 0);
	world_close(&world);
}
