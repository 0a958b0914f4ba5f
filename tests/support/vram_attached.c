/* SPDX-License-Identifier: Apache-2.0 */
/* See vram_attached.h. */
#include "tests/support/vram_attached.h"

#include "tests/support/attached.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int vram_attached_again(const struct vram_attached *attached, uint32_t flags, struct cnre **ret_client)
{
	struct cnre_options options = {
		.size = sizeof options, .socket = fake_host_socket(attached->host), .timeout_ns = 10 * SECOND_NS, .flags = flags};

	return cnre_attach(ret_client, FAKE_HOST_MODEL, &options);
}

struct vram_attached vram_attached_start(const struct fake_vram_setup *setup, uint32_t flags)
{
	struct vram_attached attached = {.fake = fake_vram_start(setup)};
	const struct fake_host_setup host = {.vram = attached.fake, .vram_answer = fake_vram_answer};
	int r;

	attached.host = fake_host_start(&host);
	r = vram_attached_again(&attached, flags, &attached.client);
	if (r < 0) {
		(void)fprintf(stderr, "attach: %s\n", strerror(-r));
		abort();
	}
	return attached;
}

void vram_attached_stop_host(struct vram_attached *attached)
{
	fake_host_stop(attached->host);
	fake_vram_stop(attached->fake);
}

void vram_attached_stop(struct vram_attached *attached)
{
	cnre_detach(attached->client);
	vram_attached_stop_host(attached);
}

int vram_attached_lies_in(const struct vram_attached *attached, const struct cnre_expert *view, uint32_t arena)
{
	const char *at = fake_vram_memory(attached->fake, arena) + (uint64_t)(view->layer * EXPERTS + view->expert) * 4096;

	for (unsigned role = 0; role < 3; role++)
		if ((const char *)view->part[role].data != at + role * FAKE_HOST_PART_BYTES)
			return 0;
	return 1;
}
