/* SPDX-License-Identifier: Apache-2.0 */
/* A client that misuses what it gets of a KV namespace; see attacker.h. */
#ifndef CNRE_TESTS_SUPPORT_KV_ATTACKER_H
#define CNRE_TESTS_SUPPORT_KV_ATTACKER_H

#include "shm/kv.h"
#include "tests/support/attacker.h"

struct kv_attacker {
	struct attacker *attacker;
	uint32_t number; /* of the namespace */
	int fd[CNRE_KV_FD_COUNT];
	const struct cnre_kv_directory *directory;
	struct cnre_kv_channel *channel;
	char *staging;
	uint64_t staging_bytes;
	uint64_t next_ticket;
	char message[256]; /* of the last refusal */
};

/* KV_OPEN with these very bytes as a name (NULL: none); maps what comes. The status of the answer, or -EPIPE. */
int kv_attacker_open(struct kv_attacker *kv, struct attacker *attacker, const char name[CNRE_WIRE_KV_NAME_BYTES],
		     uint64_t block_bytes_max);
/* KV_SEGMENTS, KV_INVALIDATE of any number: status; descriptors that come are closed, but for the first. */
int kv_attacker_segments(struct attacker *attacker, uint32_t number, uint32_t first, int *ret_fd);
int kv_attacker_invalidate(struct attacker *attacker, uint32_t number, const unsigned char root[CNRE_KV_KEY_BYTES]);
/* Only sends it. */
int kv_attacker_send_invalidate(struct attacker *attacker, uint32_t number,
				const unsigned char root[CNRE_KV_KEY_BYTES]);

/* A request that would be taken: the first block of a root that is a byte repeated; tokens are seed, seed + 1, … */
struct cnre_kv_request kv_attacker_request(unsigned char root, int32_t seed, uint64_t bytes);
/* Posts a request in a slot as it is, and rings. */
void kv_attacker_post(struct kv_attacker *kv, uint32_t slot, const struct cnre_kv_request *request);
/* Waits for a slot; its result, or -ETIMEDOUT after 20 s. */
int kv_attacker_await(struct kv_attacker *kv, uint32_t slot);
/* Both, in slot 0. */
int kv_attacker_publish(struct kv_attacker *kv, const struct cnre_kv_request *request);

/* Random words over the whole channel, its ledger only where told so, with rings, for so long. */
void kv_attacker_write_garbage(struct kv_attacker *kv, int milliseconds, unsigned seed, int ledger_too);
/* Raises a lease on every entry there is, or on one in so many; and drops all. */
void kv_attacker_pin(struct kv_attacker *kv, uint32_t part, uint32_t parts);
void kv_attacker_unpin(struct kv_attacker *kv);

#endif
