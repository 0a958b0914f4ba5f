/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer: a channel of any bytes, as a hostile client can write it, read by the manager's half of ring and access
 * log. Every call must end, within its bounds, and read nothing outside of the channel.
 */
#include "base/check.h"
#include "shm/access_log.h"
#include "shm/ring.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BYTES CNRE_CHANNEL_BYTES(4)

/* The input over and over, from the bell on, so that a short one reaches all of the log too. */
static void fill(unsigned char *channel, const uint8_t *data, size_t size)
{
	memset(channel, 0, BYTES);
	for (size_t at = offsetof(struct cnre_channel, bell); at < BYTES && size > 0; at += size)
		memcpy(channel + at, data, size < BYTES - at ? size : BYTES - at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cnre_access_log_reader reader = {0};
	struct cnre_request request;
	struct cnre_channel *channel = aligned_alloc(64, BYTES); /* on the heap: the sanitizer guards its ends */
	uint32_t head = 0, taken = 0;
	uint64_t entry;

	CNRE_CHECK(channel != NULL);
	fill((unsigned char *)channel, data, size);
	while (cnre_ring_take(channel, &head, &request)) {
		CNRE_CHECK(request.count <= CNRE_SLOT_OBJECTS);
		CNRE_CHECK(++taken <= CNRE_SLOTS); /* each slot is freed when it is taken, and nobody fills it again */
	}
	(void)cnre_ring_take_want_scan(channel);
	CNRE_CHECK(cnre_ring_is_pending(channel, head) == 0);
	for (int i = 0; i < 200; i++)
		(void)cnre_access_log_next(cnre_access_log_of(channel), &reader, &entry);
	free(channel);
	return 0;
}
