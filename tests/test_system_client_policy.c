/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that ask for a policy: who is followed, for how long it lasts, and messages that no library sends. */
#include "base/clock.h"
#include "cnre/cnre.h"
#include "tests/support/attacker.h"
#include "tests/support/world.h"
#include "tests/support/world_client.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

TestSuite(system_client_policy, .timeout = 120);

static const char *const own[] = {"--client-policy", "own", NULL};

static int has_policy(const struct world *world, const char *name)
{
	char wanted[64];

	(void)snprintf(wanted, sizeof wanted, "\"policy\":\"%s\"", name);
	return strstr(world_status_text(world), wanted) != NULL;
}

Test(system_client_policy, arguments_are_checked_before_the_manager_is_asked)
{
	struct cnre *client;
	struct world world;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, own), 0);
	client = world_attach(&world, 1);
	cr_expect_eq(cnre_set_policy(NULL, "lru"), -EINVAL);
	cr_expect_eq(cnre_set_policy(client, NULL), -EINVAL);
	cr_expect_eq(cnre_set_policy(client, ""), -EINVAL);
	cr_expect_eq(cnre_set_policy(client, "0123456789012345678901234567890"), -ENOENT, "31 bytes arrive");
	cr_expect_eq(cnre_set_policy(client, "01234567890123456789012345678901"), -ENOENT, "32 do not");
	cr_expect_eq(cnre_set_policy(client, "engine-lru"), 0);
	cr_expect(has_policy(&world, "engine-lru"));
	(void)world_stop(&world, SIGKILL);
	cr_expect_eq(cnre_set_policy(client, "lru"), -EPIPE);
	cnre_detach(client);
	world_close(&world);
}

Test(system_client_policy, what_a_client_chose_outlives_the_manager)
{
	const char *const kept[] = {"--client-policy", "own", "--keeper", "auto", NULL};
	struct cnre *client;
	struct world world;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, kept), 0);
	client = world_attach(&world, 1);
	cr_assert_eq(cnre_set_policy(client, "slru"), 0);
	cnre_detach(client);
	world_kill_manager(&world);
	cr_expect(has_policy(&world, "slru"));
	world_close(&world);
}

/* The status of the answer, or 1000: none came, and the session is over. */
static int32_t send_policy(const struct world *world, struct cnre_wire_policy *message, size_t bytes)
{
	_Alignas(8) char buffer[CNRE_WIRE_MESSAGE_MAX];
	struct attacker attacker;
	struct pollfd wait;
	int32_t status = 1000;
	int r = attacker_attach(&attacker, world->socket, world->model);

	cr_assert_eq(r, 0, "attach: %s", strerror(-r));
	cnre_wire_fill(&message->header, CNRE_WIRE_POLICY, 7, bytes);
	cr_assert_eq(cnre_wire_send(attacker.socket, message, bytes, NULL, 0), 0);
	wait = (struct pollfd){.fd = attacker.socket, .events = POLLIN};
	cr_assert_eq(poll(&wait, 1, 10000), 1);
	r = cnre_wire_receive(attacker.socket, buffer, NULL, NULL);
	if (r > 0 && cnre_wire_expect(buffer, r, CNRE_WIRE_POLICY, sizeof *message) == 0)
		status = ((const struct cnre_wire_policy *)buffer)->status;
	(void)close(attacker.socket);
	return status;
}

Test(system_client_policy, malformed_wishes_change_nothing)
{
	struct cnre_wire_policy message;
	struct world world;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, own), 0);
	memset(&message, 0, sizeof message);
	cr_expect_eq(send_policy(&world, &message, sizeof message), -EINVAL, "an empty name");
	memset(&message, 'x', sizeof message);
	cr_expect_eq(send_policy(&world, &message, sizeof message), -EINVAL, "a name without an end");
	cr_expect_eq(send_policy(&world, &message, sizeof message - 1), 1000, "half a message");
	memset(&message, 0, sizeof message);
	(void)strcpy(message.name, "%s%n\nlru");
	cr_expect_eq(send_policy(&world, &message, sizeof message), -ENOENT);
	cr_expect(has_policy(&world, "cost"));
	(void)strcpy(message.name, "lru");
	cr_expect_eq(send_policy(&world, &message, sizeof message), 0, "the same way a good one is followed");
	cr_expect(has_policy(&world, "lru"));
	world_close(&world);
}

/* What so many wishes take, each with this answer. */
static int64_t time_wishes(struct cnre *client, const char *name, int answer)
{
	int64_t begin_ns = cnre_clock_now_ns();

	for (int i = 0; i < 200; i++)
		cr_assert_eq(cnre_set_policy(client, name), answer);
	return cnre_clock_now_ns() - begin_ns;
}

/*
 * Goal: where clients may choose, one that asks for what cannot be has nothing made for it, whatever the size of the models.
 * Method: against wishes for the policy that is there.
 */
Test(system_client_policy, wishes_that_cannot_be_met_cost_no_more_than_those_that_are)
{
	struct cnre *client;
	struct world world;
	int64_t met_ns;

	world_open(&world);
	world_generate(&world, (const char *const[]){"--layers", "32", "--experts", "1024", "--hidden", "16",
						     "--intermediate", "16", NULL});
	cr_assert_gt(world_start(&world, (const char *const[]){"--client-policy", "allow", "--pool", "global", "--policy",
							       "lru", "--ram", "32M", NULL}),
		     0);
	client = world_attach(&world, 1);
	met_ns = time_wishes(client, "lru", 0);
	cr_expect_lt(time_wishes(client, "nonsense", -ENOENT), 4 * met_ns);
	cr_expect_lt(time_wishes(client, "engine-lru", -EINVAL), 4 * met_ns);
	cnre_detach(client);
	world_close(&world);
}
