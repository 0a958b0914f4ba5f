/* SPDX-License-Identifier: Apache-2.0 */
#include "client/kv.h"
#include "shm/word.h"
#include "tests/support/kv_attached.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#define MS (SECOND_NS / 1000)

TestSuite(client_kv_block, .timeout = 60);

static const int32_t tokens[18] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18};

static struct cnre_kv_chain *match(struct kv_attached *attached, size_t count)
{
	struct cnre_kv_chain *chain;

	cr_assert_eq(cnre_kv_match(attached->kv, tokens, count, NULL, 0, &chain), (int)count);
	return chain;
}

static int block(const struct cnre_kv_chain *chain, size_t index, int64_t timeout_ns)
{
	const void *data = NULL;
	uint64_t bytes = 0;
	int r = cnre_kv_block(chain, index, timeout_ns, &data, &bytes);

	if (r > 0)
		cr_expect(kv_attached_is_right(data, bytes, index * KV_TOKENS));
	else
		cr_expect(data == NULL && bytes == 0, "untouched without tokens");
	return r;
}

/* One block on another thread. */
struct waiter {
	pthread_t thread;
	const struct cnre_kv_chain *chain;
	size_t index;
	int result;
};

static void *run_block(void *argument)
{
	struct waiter *waiter = argument;
	const void *data;
	uint64_t bytes;

	waiter->result = cnre_kv_block(waiter->chain, waiter->index, -1, &data, &bytes);
	return NULL;
}

static void begin(struct waiter *waiter, const struct cnre_kv_chain *chain, size_t index)
{
	*waiter = (struct waiter){.chain = chain, .index = index};
	cr_assert_eq(pthread_create(&waiter->thread, NULL, run_block, waiter), 0);
}

static int end(struct waiter *waiter)
{
	cr_assert_eq(pthread_join(waiter->thread, NULL), 0);
	return waiter->result;
}

Test(client_kv_block, usable_tokens_and_whole_payload_of_each_block)
{
	struct kv_attached attached = kv_attached_start(&(struct fake_kv_setup){.segment_count = 3}, 0);
	struct cnre_kv_chain *chain;

	kv_attached_store_tokens(&attached, tokens, 18);
	chain = match(&attached, 15);
	for (size_t i = 0; i < 3; i++)
		cr_expect_eq(block(chain, i, 0), 4);
	cr_expect_eq(block(chain, 3, 0), 3);
	cr_expect_eq(block(chain, 4, 0), 0);
	cr_expect_eq(block(chain, SIZE_MAX, 0), 0);
	cr_expect_eq(fake_kv_segment_asks(attached.fake), 1, "one answer mapped all");
	cnre_kv_release(chain);
	kv_attached_stop(&attached);
}

Test(client_kv_block, block_after_unpin_is_estale)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_chain *chain;
	const void *data;
	uint64_t bytes;

	kv_attached_store_tokens(&attached, tokens, 8);
	chain = match(&attached, 8);
	cr_expect_eq(cnre_kv_block(NULL, 0, 0, &data, &bytes), -EINVAL);
	cr_expect_eq(cnre_kv_block(chain, 0, 0, NULL, &bytes), -EINVAL);
	cr_expect_eq(cnre_kv_block(chain, 0, 0, &data, NULL), -EINVAL);
	cr_expect_eq(cnre_kv_unpin(chain), 0);
	cr_expect_eq(block(chain, 0, 0), -ESTALE);
	cr_expect_eq(block(chain, 9, 0), 0);
	cnre_kv_release(chain);
	kv_attached_stop(&attached);
}

/* ---- blocks that are in files ---- */

Test(client_kv_block, match_counts_blocks_in_files_and_asks_for_all_at_once)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_chain *chain;

	kv_attached_store_tokens(&attached, tokens, 18);
	cr_assert_eq(fake_kv_evict(attached.fake, 1), 1);
	cr_assert_eq(fake_kv_evict(attached.fake, 3), 1);
	chain = match(&attached, 18);
	cr_expect_eq(fake_kv_serve(attached.fake, 0), 1, "one request");
	cr_expect_eq(fake_kv_loads(attached.fake), 2);
	cr_expect_eq(block(chain, 0, 0), 4);
	cr_expect_eq(block(chain, 1, 0), -ETIMEDOUT);
	fake_kv_finish(attached.fake, 1, CNRE_LOAD_OK);
	cr_expect_eq(block(chain, 1, 0), 4);
	cr_expect_eq(block(chain, 3, 20 * MS), -ETIMEDOUT);
	cnre_kv_release(chain);
	kv_attached_stop(&attached);
}

Test(client_kv_block, waits_until_the_file_was_read)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_chain *chain;
	struct waiter waiter;

	kv_attached_store_tokens(&attached, tokens, 8);
	cr_assert_eq(fake_kv_evict(attached.fake, 1), 1);
	chain = match(&attached, 8);
	begin(&waiter, chain, 1);
	fake_kv_await_posts(attached.fake);
	(void)fake_kv_serve(attached.fake, 0);
	fake_kv_finish(attached.fake, 1, CNRE_LOAD_OK);
	cr_expect_eq(end(&waiter), 4);
	cnre_kv_release(chain);
	kv_attached_stop(&attached);
}

Test(client_kv_block, failed_read_is_its_error_for_who_waited_for_it)
{
	static const struct {
		enum cnre_load_error error;
		int wanted;
	} cases[] = {{CNRE_LOAD_EIO, -EIO},
		     {CNRE_LOAD_EBADMSG, -EBADMSG},
		     {CNRE_LOAD_ENOSPC, -ENOSPC},
		     {CNRE_LOAD_ETIMEDOUT, -EIO}};
	struct kv_attached attached = kv_attached_start(NULL, 0);

	kv_attached_store_tokens(&attached, tokens, 8);
	cr_assert_eq(fake_kv_evict(attached.fake, 1), 1);
	for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct cnre_kv_chain *chain = match(&attached, 8);
		struct waiter waiter;

		begin(&waiter, chain, 1);
		(void)fake_kv_serve(attached.fake, 0);
		fake_kv_finish(attached.fake, 1, cases[i].error);
		cr_expect_eq(end(&waiter), cases[i].wanted);
		cr_expect_eq(block(chain, 1, 0), cases[i].wanted, "and stays it for this chain");
		cr_expect_eq(block(chain, 0, 0), 4);
		cnre_kv_release(chain);
	}
	kv_attached_stop(&attached);
}

Test(client_kv_block, demand_that_was_lost_is_posted_again)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_chain *chain;
	struct waiter waiter;

	kv_attached_store_tokens(&attached, tokens, 8);
	cr_assert_eq(fake_kv_evict(attached.fake, 1), 1);
	chain = match(&attached, 8);
	(void)fake_kv_serve(attached.fake, 0);
	fake_kv_entry(attached.fake, 1)->load.state -= CNRE_STATE_LOADING; /* forgotten: ABSENT as before */
	begin(&waiter, chain, 1);
	fake_kv_await_posts(attached.fake); /* after a slice */
	cr_expect_eq(fake_kv_serve(attached.fake, 0), 1);
	fake_kv_finish(attached.fake, 1, CNRE_LOAD_OK);
	cr_expect_eq(end(&waiter), 4);
	cnre_kv_release(chain);
	kv_attached_stop(&attached);
}

/* Every slot is taken when it is matched: so block asks for it. */
Test(client_kv_block, load_that_found_no_slot_is_posted_by_block)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_chain *chain;
	uint64_t in_flight;

	kv_attached_store_tokens(&attached, tokens, 8);
	cr_assert_eq(fake_kv_evict(attached.fake, 1), 1);
	in_flight = attached.kv->space->in_flight;
	attached.kv->space->in_flight = UINT64_MAX;
	chain = match(&attached, 8);
	cr_expect_eq(fake_kv_serve(attached.fake, 0), 0);
	cr_expect_eq(block(chain, 1, 0), -ETIMEDOUT);
	cr_expect_eq(fake_kv_serve(attached.fake, 0), 0);
	attached.kv->space->in_flight = in_flight;
	cr_expect_eq(block(chain, 1, 0), -ETIMEDOUT);
	cr_expect_eq(fake_kv_serve(attached.fake, 0), 1);
	cr_expect_eq(block(chain, 1, 0), -ETIMEDOUT);
	cr_expect_eq(fake_kv_serve(attached.fake, 0), 0, "once");
	fake_kv_finish(attached.fake, 1, CNRE_LOAD_OK);
	cr_expect_eq(block(chain, 1, 0), 4);
	cnre_kv_release(chain);
	kv_attached_stop(&attached);
}

/* ---- the manager ---- */

Test(client_kv_block, without_a_manager_hits_go_on_and_what_is_absent_is_epipe)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_chain *chain;

	kv_attached_store_tokens(&attached, tokens, 8);
	chain = match(&attached, 8);
	cr_expect_eq(block(chain, 0, 0), 4); /* its segment is mapped */
	cnre_kv_release(chain);
	cr_assert_eq(fake_kv_evict(attached.fake, 1), 1);
	fake_host_hang_up(attached.host);
	chain = match(&attached, 8);
	cr_expect_eq(block(chain, 0, 0), 4);
	cr_expect_eq(block(chain, 1, -1), -EPIPE);
	cr_expect_eq(block(chain, 1, 0), -EPIPE);
	cnre_kv_release(chain);
	kv_attached_stop(&attached);
}

Test(client_kv_block, restart_of_the_manager_posts_again)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_chain *chain;
	struct waiter waiter;

	kv_attached_store_tokens(&attached, tokens, 8);
	cr_assert_eq(fake_kv_evict(attached.fake, 1), 1);
	chain = match(&attached, 8);
	begin(&waiter, chain, 1);
	(void)fake_kv_serve(attached.fake, 0);
	fake_host_restart(attached.host, 0);
	fake_kv_entry(attached.fake, 1)->load.state -= CNRE_STATE_LOADING;
	fake_kv_await_posts(attached.fake);
	(void)fake_kv_serve(attached.fake, 0);
	fake_kv_finish(attached.fake, 1, CNRE_LOAD_OK);
	cr_expect_eq(end(&waiter), 4);
	cr_expect_eq(block(chain, 0, 0), 4, "what was mapped is as it was");
	cnre_kv_release(chain);
	kv_attached_stop(&attached);
}

Test(client_kv_block, place_outside_of_the_pool_is_ebadmsg)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	const uint64_t pool_bytes = 64 * 4096;
	const uint64_t places[] = {cnre_place_pack(0, pool_bytes), cnre_place_pack(0, pool_bytes - KV_BYTES + 1),
				   cnre_place_pack(0, UINT64_MAX >> 16), cnre_place_pack(1, 0),
				   cnre_place_pack(CNRE_KV_SEGMENTS_MAX, 0)};
	struct cnre_kv_chain *chain;

	kv_attached_store_tokens(&attached, tokens, 4);
	chain = match(&attached, 4);
	for (unsigned i = 0; i < sizeof places / sizeof places[0]; i++) {
		fake_kv_entry(attached.fake, 0)->load.place = places[i];
		cr_expect_eq(block(chain, 0, 0), -EBADMSG, "place %u", i);
	}
	cnre_kv_release(chain);
	kv_attached_stop(&attached);
}

Test(client_kv_block, segment_that_the_manager_does_not_pass_is_ebadmsg)
{
	struct kv_attached attached = kv_attached_start(&(struct fake_kv_setup){.segments_lie = 1}, 0);
	struct cnre_kv_chain *chain;

	kv_attached_store_tokens(&attached, tokens, 4);
	chain = match(&attached, 4);
	cr_expect_eq(block(chain, 0, -1), -EBADMSG);
	cnre_kv_release(chain);
	kv_attached_stop(&attached);
}

/* The answer comes too late for this call: it is a time-out, and the next one has the segment. */
Test(client_kv_block, new_segment_is_waited_for_in_the_callers_time)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_chain *chain;

	kv_attached_store_tokens(&attached, tokens, 4);
	chain = match(&attached, 4);
	fake_host_pause(attached.host);
	cr_expect_eq(block(chain, 0, 0), -ETIMEDOUT);
	fake_host_resume(attached.host);
	cr_expect_eq(block(chain, 0, -1), 4);
	cnre_kv_release(chain);
	kv_attached_stop(&attached);
}
