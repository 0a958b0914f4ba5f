/* SPDX-License-Identifier: Apache-2.0 */
/* A client attached to a fake host; see attached.h. */
#include "tests/support/attached.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int attached_again(const char *socket, struct cnre **ret_client)
{
	struct cnre_options options = {.size = sizeof options, .socket = socket, .timeout_ns = 10 * SECOND_NS};

	return cnre_attach(ret_client, FAKE_HOST_MODEL, &options);
}

struct fake_host *attached_start(const struct fake_host_setup *setup, struct cnre **ret_client)
{
	struct fake_host *host = fake_host_start(setup);
	int r = attached_again(fake_host_socket(host), ret_client);

	if (r < 0) {
		(void)fprintf(stderr, "attach: %s\n", strerror(-r));
		abort();
	}
	return host;
}

void attached_stop(struct fake_host *host, struct cnre *client)
{
	cnre_detach(client);
	fake_host_stop(host);
}

int attached_is_right(const struct cnre_expert *expert)
{
	uint32_t object = expert->layer * EXPERTS + expert->expert;

	for (unsigned role = 0; role < 3; role++) {
		const uint32_t *data = expert->part[role].data;

		if (expert->part[role].bytes != FAKE_HOST_PART_BYTES || data == NULL || (uintptr_t)data % 64 != 0)
			return 0;
		for (unsigned i = 0; i < FAKE_HOST_PART_BYTES / sizeof *data + 16;
		     i++) /* and 64 readable bytes behind it */
			if (data[i] != object)
				return 0;
	}
	return expert->bytes == 3 * FAKE_HOST_PART_BYTES && expert->part[CNRE_GATE_SCALE].bytes == 0 &&
	       expert->lease != 0;
}

struct cnre_stats attached_stats(struct cnre *client)
{
	struct cnre_stats stats = {.size = sizeof stats};

	if (cnre_stats(client, &stats) != 0)
		abort();
	return stats;
}

struct attached_thread {
	pthread_t thread;
	struct cnre *client;
	uint32_t layer, expert;
	int64_t timeout_ns;
	int result;
	struct cnre_expert view;
};

static void *run_acquire(void *context)
{
	struct attached_thread *thread = context;

	thread->result = cnre_acquire(thread->client, thread->layer, thread->expert, thread->timeout_ns, &thread->view);
	return NULL;
}

struct attached_thread *attached_acquire_begin(struct cnre *client, uint32_t layer, uint32_t expert, int64_t timeout_ns)
{
	struct attached_thread *thread = calloc(1, sizeof *thread);

	if (thread == NULL)
		abort();
	*thread =
		(struct attached_thread){.client = client, .layer = layer, .expert = expert, .timeout_ns = timeout_ns};
	if (pthread_create(&thread->thread, NULL, run_acquire, thread) != 0)
		abort();
	return thread;
}

int attached_acquire_end(struct attached_thread *thread, struct cnre_expert *ret_expert)
{
	int r;

	(void)pthread_join(thread->thread, NULL);
	r = thread->result;
	if (ret_expert != NULL)
		*ret_expert = thread->view;
	free(thread);
	return r;
}
