/* SPDX-License-Identifier: Apache-2.0 */
/* A forked child has no session and cannot harm its parent's (R12). */
#include "tests/support/attached.h"
#include "tests/support/child.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <unistd.h>

TestSuite(client_fork, .timeout = 30);

struct family {
	struct cnre *client;
	struct cnre_batch *batch;
	struct cnre_expert view;
	const char *socket;
};

static int use_everything(void *context)
{
	struct family *family = context;
	struct cnre *client = family->client;
	struct cnre_stats stats = {.size = sizeof stats};
	struct cnre_model_info info = {.size = sizeof info};
	struct cnre_batch *batch;
	struct cnre_expert view;
	const uint32_t expert = 0;
	uint8_t tier;

	if (cnre_acquire(client, 0, 0, 0, &view) != -ECHILD || cnre_release(client, &family->view) != -ECHILD)
		return 1;
	if (cnre_describe(client, 0, 0, &view) != -ECHILD || cnre_stats(client, &stats) != -ECHILD ||
	    cnre_model(client, &info) != -ECHILD)
		return 2;
	if (cnre_batch_begin(client, 0, &expert, 1, 1, &batch) != -ECHILD ||
	    cnre_batch_wait(family->batch, 0, 0, &view) != -ECHILD ||
	    cnre_batch_next(family->batch, 0, &view) != -ECHILD || cnre_batch_end(family->batch) != -ECHILD)
		return 3;
	if (cnre_prefetch(client, 0, &expert, 1) != -ECHILD || cnre_resident(client, 0, &expert, 1, &tier) != -ECHILD)
		return 4;
	cnre_token_end(client, 1);
	cnre_detach(client);
	return 0;
}

Test(client_fork, every_call_of_a_child_is_echild_and_the_parents_leases_stay)
{
	struct family family;
	struct fake_host *host = attached_start(NULL, &family.client);
	const uint32_t expert = 2;

	cr_assert_eq(cnre_acquire(family.client, 0, 1, -1, &family.view), 0);
	cr_assert_eq(cnre_batch_begin(family.client, 0, &expert, 1, 1, &family.batch), 0);
	cr_expect_eq(child_run(use_everything, &family), 0);
	cr_expect_eq(fake_host_leases(host, 1), 1);
	cr_expect_eq(fake_host_leases(host, 2), 1);
	cr_expect_eq(fake_host_sessions(host), 1);
	cr_expect_eq(fake_host_detaches(host), 0);
	cr_expect(attached_is_right(&family.view));
	cr_expect_eq(cnre_release(family.client, &family.view), 0);
	cr_expect_eq(cnre_batch_end(family.batch), 0);
	attached_stop(host, family.client);
}

static int attach_anew(void *context)
{
	struct family *family = context;
	struct cnre *client;
	struct cnre_expert view;

	if (attached_again(family->socket, &client) != 0)
		return 1;
	if (cnre_acquire(client, 0, 1, -1, &view) != 0 || !attached_is_right(&view) || cnre_release(client, &view) != 0)
		return 2;
	cnre_detach(client);
	return 0;
}

Test(client_fork, child_may_attach_anew)
{
	struct family family;
	struct fake_host *host = attached_start(NULL, &family.client);

	family.socket = fake_host_socket(host);
	cr_expect_eq(child_run(attach_anew, &family), 0);
	attached_stop(host, family.client);
}

static int only_wait(void *context)
{
	(void)context;
	for (;;)
		(void)pause();
	return 0;
}

Test(client_fork, child_does_not_keep_the_session_open)
{
	struct cnre *client;
	struct fake_host *host = attached_start(NULL, &client);
	pid_t child = child_start(only_wait, NULL);

	cr_assert_gt(child, 0);
	cnre_detach(client);
	cr_expect_eq(fake_host_sessions(host), 0);
	(void)kill(child, SIGKILL);
	cr_expect_eq(child_wait(child), -SIGKILL);
	fake_host_stop(host);
}
