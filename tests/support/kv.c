/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations that can be checked; see kv.h. */
#include "tests/support/kv.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define AWAIT_MS 20000
#define TRIES_MAX 20000 /* a millisecond each, where there is no staging for the moment */
#define READ_TIMEOUT_NS 20000000000LL
#define COMPUTE_NS 1000000u

static void pause_ms(void)
{
	struct timespec pause = {.tv_nsec = 1000000};

	(void)nanosleep(&pause, NULL);
}

struct cnre_kv_identity kv_test_identity(void)
{
	return (struct cnre_kv_identity){.size = sizeof(struct cnre_kv_identity),
					 .tokenizer = "t",
					 .chat_template = "c",
					 .position = "p",
					 .representation = "r",
					 .version = 1,
					 .block_tokens = KV_TEST_BLOCK,
					 .block_bytes_max = KV_TEST_BYTES};
}

static uint64_t mix(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdull;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ull;
	return x ^ x >> 33;
}

void kv_test_tokens(unsigned seed, size_t shared, int32_t *ret_tokens, size_t count)
{
	for (size_t i = 0; i < count; i++)
		ret_tokens[i] = (int32_t)(mix((i < shared ? 0 : (uint64_t)seed << 32) + i) & 0x7fff);
}

static uint64_t sum(const int32_t *tokens, size_t end)
{
	uint64_t state = 1;

	for (size_t i = 0; i < end; i++)
		state = mix(state ^ (uint64_t)(uint32_t)tokens[i]);
	return state;
}

void kv_test_fill(void *payload, size_t bytes, const int32_t *tokens, size_t end)
{
	uint64_t state = sum(tokens, end);

	for (size_t i = 0; i < bytes / 8; i++)
		((uint64_t *)payload)[i] = state + i;
}

uint64_t kv_test_check(const void *payload, size_t bytes, const int32_t *tokens, size_t end)
{
	uint64_t state = sum(tokens, end);

	for (size_t i = 0; i < bytes / 8; i++)
		if (((const uint64_t *)payload)[i] != state + i)
			return 1 + 8 * i;
	return 0;
}

/* 1 stored, 0 there already, or -errno. */
static int publish_one(struct cnre_kv_chain *chain, const int32_t *tokens, size_t start, size_t count)
{
	void *buffer;
	int r = -EAGAIN;

	for (int i = 0; i < TRIES_MAX && r == -EAGAIN; i++) {
		r = cnre_kv_stage(chain, tokens + start, count, NULL, 0, KV_TEST_BYTES, &buffer);
		if (r == -EAGAIN)
			pause_ms();
	}
	if (r != 0)
		return r == 1 ? 0 : r;
	kv_test_fill(buffer, KV_TEST_BYTES, tokens, start + count);
	r = cnre_kv_commit(chain, COMPUTE_NS, 0);
	return r < 0 ? r : 1;
}

int kv_test_commit(struct cnre_kv *kv, const int32_t *tokens, size_t count)
{
	struct cnre_kv_chain *chain;
	int matched = cnre_kv_match(kv, tokens, count, NULL, 0, &chain), stored = 0;

	if (matched < 0)
		return matched;
	(void)cnre_kv_unpin(chain);
	for (size_t at = (size_t)matched / KV_TEST_BLOCK * KV_TEST_BLOCK; at < count;) {
		size_t part = count - at < KV_TEST_BLOCK ? count - at : KV_TEST_BLOCK;
		int r = publish_one(chain, tokens, at, part);

		if (r < 0) {
			cnre_kv_release(chain);
			return r;
		}
		stored += r;
		at += part;
	}
	cnre_kv_release(chain);
	return stored;
}

int kv_test_publish(struct cnre_kv *kv, const int32_t *tokens, size_t count)
{
	int stored = kv_test_commit(kv, tokens, count);

	if (stored >= 0 && kv_test_await(kv, tokens, count, (int)count) != (int)count)
		return -ETIMEDOUT;
	return stored;
}

int kv_test_await(struct cnre_kv *kv, const int32_t *tokens, size_t count, int wanted)
{
	int covered = 0;

	for (int i = 0; i < AWAIT_MS; i++) {
		covered = cnre_kv_route(kv, tokens, count, NULL, 0, NULL, 0);
		if (covered == wanted || covered < 0)
			break;
		pause_ms();
	}
	return covered;
}

int kv_test_read(struct cnre_kv *kv, const int32_t *tokens, size_t count)
{
	struct cnre_kv_chain *chain;
	int matched = cnre_kv_match(kv, tokens, count, NULL, 0, &chain), seen = 0;
	const void *data;
	uint64_t bytes;

	if (matched < 0)
		return matched;
	for (size_t i = 0;; i++) {
		int r = cnre_kv_block(chain, i, READ_TIMEOUT_NS, &data, &bytes);

		if (r <= 0) {
			cnre_kv_release(chain);
			return r < 0 ? r : seen == matched ? seen : -EPROTO;
		}
		/* A block that is cut holds the payload of its own end, which we know only where it is whole. */
		if (bytes != KV_TEST_BYTES ||
		    (r == KV_TEST_BLOCK && kv_test_check(data, bytes, tokens, (i + 1) * KV_TEST_BLOCK) != 0)) {
			cnre_kv_release(chain);
			return -EBADMSG;
		}
		seen += r;
	}
}
