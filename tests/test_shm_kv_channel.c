/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/kv_channel.h"

#include "shm/futex.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 4u
#define POSTS 2000u /* of each thread */

TestSuite(shm_kv_channel, .timeout = 60);

static struct cnre_kv_channel *make_channel(void)
{
	struct cnre_kv_channel *channel = aligned_alloc(64, sizeof *channel);

	cr_assert_not_null(channel);
	memset((void *)channel, 0, sizeof *channel);
	return channel;
}

static int post(struct cnre_kv_channel *channel, uint64_t ticket)
{
	struct cnre_kv_request request = {.ticket = ticket, .kind = CNRE_KV_PUBLISH};

	return cnre_kv_channel_post(channel, &request);
}

Test(shm_kv_channel, every_byte_of_a_request_arrives)
{
	struct cnre_kv_channel *channel = make_channel();
	struct cnre_kv_request sent, got;
	int slot;

	for (size_t i = 0; i < sizeof sent; i++)
		((unsigned char *)&sent)[i] = (unsigned char)(i * 7 + i / 256);
	slot = cnre_kv_channel_post(channel, &sent);
	cr_assert_geq(slot, 0);
	cr_expect(cnre_kv_channel_is_pending(channel));
	cr_expect_eq(cnre_kv_channel_submitted(channel), 1ull << slot);
	cr_expect_eq(cnre_kv_channel_submitted(channel), 0, "a bit is taken once");
	cr_assert_eq(cnre_kv_channel_take(channel, (uint32_t)slot, &got), 1);
	cr_expect_eq(memcmp(&sent, &got, sizeof sent), 0);
	free(channel);
}

Test(shm_kv_channel, slot_is_the_managers_until_it_is_done)
{
	struct cnre_kv_channel *channel = make_channel();
	struct cnre_kv_request got;
	int slot = post(channel, 9), result = 77;

	cr_expect_eq(cnre_kv_channel_reap(channel, (uint32_t)slot, &result), 0);
	cr_expect_eq(cnre_kv_channel_take(channel, (uint32_t)slot, &got), 1);
	cr_expect_eq(cnre_kv_channel_reap(channel, (uint32_t)slot, &result), 0);
	cr_expect_eq(result, 77, "untouched until there is one");
	cr_expect_eq(cnre_kv_channel_take(channel, (uint32_t)slot, &got), 1, "a successor takes it again");
	cnre_kv_channel_finish(channel, (uint32_t)slot, -ENOSPC);
	cr_expect_eq(cnre_kv_channel_take(channel, (uint32_t)slot, &got), 0);
	cr_expect_eq(cnre_kv_channel_reap(channel, (uint32_t)slot, &result), 1);
	cr_expect_eq(result, -ENOSPC);
	cr_expect_eq(cnre_kv_channel_reap(channel, (uint32_t)slot, &result), 0, "read once");
	free(channel);
}

Test(shm_kv_channel, full_channel_is_eagain_until_a_result_was_read)
{
	struct cnre_kv_channel *channel = make_channel();
	int result;

	for (uint32_t i = 0; i < CNRE_KV_SLOTS; i++)
		cr_assert_geq(post(channel, i), 0);
	cr_expect_eq(post(channel, 64), -EAGAIN);
	cr_expect_eq(cnre_kv_channel_submitted(channel), UINT64_MAX);
	cnre_kv_channel_finish(channel, 40, 0);
	cr_expect_eq(post(channel, 64), -EAGAIN);
	cr_assert_eq(cnre_kv_channel_reap(channel, 40, &result), 1);
	cr_expect_eq(post(channel, 64), 40);
	free(channel);
}

/* ---- a client that lies ---- */

Test(shm_kv_channel, bits_without_requests_are_nothing)
{
	struct cnre_kv_channel *channel = make_channel();
	struct cnre_kv_request got;

	memset(&got, 0x5a, sizeof got);
	channel->submitted = UINT64_MAX;
	cr_expect_not(cnre_kv_channel_is_pending(channel));
	cr_expect_eq(cnre_kv_channel_submitted(channel), UINT64_MAX);
	for (uint32_t i = 0; i < CNRE_KV_SLOTS; i++)
		cr_assert_eq(cnre_kv_channel_take(channel, i, &got), 0);
	cr_expect_eq(got.ticket, 0x5a5a5a5a5a5a5a5a, "untouched");
	free(channel);
}

Test(shm_kv_channel, only_submitted_of_all_states_is_taken)
{
	static const uint32_t states[] = {CNRE_KV_SLOT_FREE, CNRE_KV_SLOT_CLAIMED, CNRE_KV_SLOT_DONE, 4, 77,
					  UINT32_MAX};
	struct cnre_kv_channel *channel = make_channel();
	struct cnre_kv_request got;

	channel->submitted = UINT64_MAX;
	for (unsigned i = 0; i < sizeof states / sizeof states[0]; i++) {
		channel->slot[3].state = states[i];
		cr_expect_eq(cnre_kv_channel_take(channel, 3, &got), 0);
		cr_expect_not(cnre_kv_channel_is_pending(channel));
	}
	channel->slot[3].state = CNRE_KV_SLOT_SUBMITTED;
	cr_expect_eq(cnre_kv_channel_take(channel, 3, &got), 1);
	cr_expect(cnre_kv_channel_is_pending(channel));
	free(channel);
}

Test(shm_kv_channel, state_that_is_none_is_never_claimed)
{
	struct cnre_kv_channel *channel = make_channel();

	for (uint32_t i = 0; i < CNRE_KV_SLOTS; i++)
		channel->slot[i].state = 77;
	cr_expect_eq(post(channel, 0), -EAGAIN);
	free(channel);
}

/* ---- both at work ---- */

static void *sleep_on(void *argument)
{
	struct cnre_kv_slot *slot = argument;

	while (atomic_load_explicit(&slot->state, memory_order_acquire) != CNRE_KV_SLOT_DONE)
		(void)cnre_futex_wait(&slot->state, CNRE_KV_SLOT_SUBMITTED, -1);
	return NULL;
}

Test(shm_kv_channel, finish_wakes_who_sleeps_on_the_slot)
{
	struct cnre_kv_channel *channel = make_channel();
	int slot = post(channel, 5);
	pthread_t sleeper;

	cr_assert_eq(pthread_create(&sleeper, NULL, sleep_on, &channel->slot[slot]), 0);
	cnre_kv_channel_finish(channel, (uint32_t)slot, 0);
	cr_expect_eq(pthread_join(sleeper, NULL), 0);
	free(channel);
}

static void *post_many(void *argument)
{
	struct cnre_kv_channel *channel = argument;

	for (uint32_t i = 0; i < POSTS; i++) {
		int result, slot;

		while ((slot = post(channel, i)) == -EAGAIN)
			continue;
		while (!cnre_kv_channel_reap(channel, (uint32_t)slot, &result))
			continue;
		if (result != (int)i)
			return argument;
	}
	return NULL;
}

Test(shm_kv_channel, threads_get_each_its_own_result)
{
	struct cnre_kv_channel *channel = make_channel();
	pthread_t client[THREADS];

	for (uint32_t i = 0; i < THREADS; i++)
		cr_assert_eq(pthread_create(&client[i], NULL, post_many, channel), 0);
	for (uint32_t done = 0; done < THREADS * POSTS;) {
		uint64_t bits = cnre_kv_channel_submitted(channel);

		for (uint32_t slot = 0; slot < CNRE_KV_SLOTS; slot++) {
			struct cnre_kv_request request;

			if ((bits >> slot & 1) == 0 || !cnre_kv_channel_take(channel, slot, &request))
				continue;
			cnre_kv_channel_finish(channel, slot, (int)request.ticket);
			done++;
		}
	}
	for (uint32_t i = 0; i < THREADS; i++) {
		void *wrong;

		cr_assert_eq(pthread_join(client[i], &wrong), 0);
		cr_expect_null(wrong);
	}
	free(channel);
}
