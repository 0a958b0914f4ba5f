/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A listening socket from a supervisor that keeps no descriptors (systemd-socket-activate, another init): LISTEN_FDS
 * without NOTIFY_SOCKET. The manager serves on it, through its own keeper or without one, or refuses it with a reason.
 */
#include "tests/support/truth.h"
#include "tests/support/world.h"
#include "tests/support/world_client.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

TestSuite(system_activation, .timeout = 60);

static int passed_fd = -1; /* the socket, in the test */

/* In the child: as a supervisor leaves it. */
static void pass(void)
{
	char pid[16];

	(void)dup2(passed_fd, 3);
	(void)snprintf(pid, sizeof pid, "%d", (int)getpid());
	(void)setenv("LISTEN_PID", pid, 1);
	(void)setenv("LISTEN_FDS", "1", 1);
	(void)unsetenv("LISTEN_FDNAMES");
	(void)unsetenv("NOTIFY_SOCKET");
}

static void listen_at(const struct world *world, int type)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	(void)snprintf(address.sun_path, sizeof address.sun_path, "%s", world->socket);
	passed_fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
	cr_assert_geq(passed_fd, 0);
	cr_assert_eq(bind(passed_fd, (const struct sockaddr *)&address, sizeof address), 0);
	cr_assert_eq(listen(passed_fd, 8), 0);
}

/* Goal: who connects to the passed socket is served. Method: nothing else listens at its path, and it stays the same. */
static void check_served(struct world *world, const char *keeper)
{
	struct truth *truth;
	struct cnre *client;
	struct stat before, after;

	world_open(world);
	world_generate(world, NULL);
	listen_at(world, SOCK_SEQPACKET);
	cr_assert_eq(stat(world->socket, &before), 0);
	cr_assert_gt(world_start_with(world, (const char *const[]){"--keeper", keeper, NULL}, pass), 0);
	(void)close(passed_fd); /* now only the manager, or its keeper, has it */
	cr_assert_eq(truth_open(&truth, world->model), 0);
	client = world_attach(world, 0);
	cr_assert_eq(truth_check_one(truth, client, 1, 2), 0);
	if (strcmp(keeper, "auto") == 0) {
		world_kill_manager(world);
		cr_assert_eq(truth_check_one(truth, client, 1, 3), 0);
	}
	cr_assert_eq(stat(world->socket, &after), 0);
	cr_assert_eq(before.st_ino, after.st_ino);
	cnre_detach(client);
	truth_close(truth);
	cr_assert_eq(world_stop(world, SIGTERM), 0);
	cr_assert_eq(access(world->socket, F_OK), 0, "the path is the supervisor's");
	world_close(world);
}

Test(system_activation, with_a_keeper_every_manager_gets_the_passed_socket)
{
	struct world world;

	check_served(&world, "auto");
}

Test(system_activation, without_a_keeper_the_manager_serves_on_it)
{
	struct world world;

	check_served(&world, "no");
}

static void check_refused(const char *keeper, const char *wanted)
{
	struct world world;

	world_open(&world);
	world_generate(&world, NULL);
	if (passed_fd < 0)
		listen_at(&world, SOCK_STREAM);
	cr_assert_eq(world_start_with(&world, (const char *const[]){"--keeper", keeper, NULL}, pass), -2,
		     "a wrong setting");
	cr_assert(world_log_has(&world, wanted));
	(void)close(passed_fd);
	passed_fd = -1;
	world_close(&world);
}

Test(system_activation, a_stream_socket_is_refused_by_its_kind)
{
	check_refused("auto", "no Unix socket of packets: use ListenSequentialPacket= or --seqpacket");
	check_refused("no", "no Unix socket of packets");
}

Test(system_activation, a_connection_is_refused_as_one)
{
	int pair[2];

	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	passed_fd = pair[0];
	check_refused("auto", "passed was a connection and no listening socket");
	(void)close(pair[1]);
}
