/* SPDX-License-Identifier: Apache-2.0 */
#include "client/kv.h"
#include "tests/support/kv_attached.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

TestSuite(client_kv_stage, .timeout = 60);

static const int32_t tokens[18] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18};

static struct cnre_kv_chain *match(struct kv_attached *attached, size_t count, int wanted)
{
	struct cnre_kv_chain *chain;

	cr_assert_eq(cnre_kv_match(attached->kv, tokens, count, NULL, 0, &chain), wanted);
	return chain;
}

static int stage(struct cnre_kv_chain *chain, size_t from, size_t count)
{
	void *buffer = NULL;
	int r = cnre_kv_stage(chain, tokens + from, count, NULL, 0, KV_BYTES, &buffer);

	cr_expect_eq(buffer != NULL, r == 0);
	if (r == 0)
		memset(buffer, (int)from, KV_BYTES);
	return r;
}

static int store(struct cnre_kv_chain *chain, size_t from, size_t count)
{
	int r = stage(chain, from, count);

	return r != 0 ? r : cnre_kv_commit(chain, 1, 0);
}

static int covered(struct kv_attached *attached)
{
	struct cnre_kv_chain *chain;
	int r = cnre_kv_match(attached->kv, tokens, 18, NULL, 0, &chain);

	cnre_kv_release(chain);
	return r;
}

/* ---- what is handed over ---- */

Test(client_kv_stage, everything_of_a_block_arrives)
{
	static const struct cnre_kv_media cat = {
		.token_offset = 6, .token_count = 9, .digest = (const unsigned char *)"cat", .digest_bytes = 3};
	struct kv_attached attached = kv_attached_start(NULL, CNRE_KV_CHECKPOINTS);
	const struct cnre_kv_request *got = fake_kv_published(attached.fake);
	struct cnre_kv_chain *chain = match(&attached, 0, 0);
	void *buffer;

	cr_assert_eq(cnre_kv_stage(chain, tokens, 4, &cat, 1, 200, &buffer), 0);
	cr_expect_eq((uintptr_t)buffer % 4096, 0);
	memset(buffer, 0x11, 200);
	cr_assert_eq(cnre_kv_commit(chain, 5, 0), 0);
	cr_assert_eq(fake_kv_serve(attached.fake, 0), 1);
	cr_expect_eq(got->flags, CNRE_KV_ENTRY_CHECKPOINTS);
	cr_expect_eq(got->media_first, 4);
	cr_assert_eq(cnre_kv_stage(chain, tokens + 4, 3, &cat, 1, 300, &buffer), 0);
	memset(buffer, 0x22, 300);
	cr_assert_eq(cnre_kv_commit(chain, 77, CNRE_KV_POINT), 0);
	cr_assert_eq(fake_kv_serve(attached.fake, 0), 1);
	cr_expect_eq(got->kind, CNRE_KV_PUBLISH);
	cr_expect_eq(got->count, 3);
	cr_expect_eq(got->bytes, 300);
	cr_expect_eq(got->compute_ns, 77);
	cr_expect_eq(got->position, 4);
	cr_expect_eq(got->block_tokens, KV_TOKENS);
	cr_expect_eq(got->media_first, 2);
	cr_expect_eq(got->flags, CNRE_KV_ENTRY_CHECKPOINTS | CNRE_KV_ENTRY_POINT);
	cr_expect_eq(memcmp(got->root, attached.kv->root, sizeof got->root), 0);
	cr_expect_eq(memcmp(got->parent, fake_kv_entry(attached.fake, 0)->key, sizeof got->parent), 0);
	cr_expect_eq(memcmp(got->token, tokens + 4, 3 * sizeof tokens[0]), 0);
	cr_expect_eq(got->token[3], 0);
	cnre_kv_release(chain);
	kv_attached_stop(&attached);
}

Test(client_kv_stage, bad_arguments_are_einval)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_chain *chain = match(&attached, 0, 0);
	void *buffer = (void *)1;

	cr_expect_eq(cnre_kv_stage(NULL, tokens, 4, NULL, 0, 1, &buffer), -EINVAL);
	cr_expect_eq(cnre_kv_stage(chain, NULL, 4, NULL, 0, 1, &buffer), -EINVAL);
	cr_expect_eq(cnre_kv_stage(chain, tokens, 0, NULL, 0, 1, &buffer), -EINVAL);
	cr_expect_eq(cnre_kv_stage(chain, tokens, 5, NULL, 0, 1, &buffer), -EINVAL);
	cr_expect_eq(cnre_kv_stage(chain, tokens, 4, NULL, 1, 1, &buffer), -EINVAL);
	cr_expect_eq(cnre_kv_stage(chain, tokens, 4, NULL, 0, 0, &buffer), -EINVAL);
	cr_expect_eq(cnre_kv_stage(chain, tokens, 4, NULL, 0, KV_BYTES_MAX + 1, &buffer), -EINVAL);
	cr_expect_eq(cnre_kv_stage(chain, tokens, 4, NULL, 0, 1, NULL), -EINVAL);
	cr_expect_eq(buffer, (void *)1);
	cr_expect_eq(cnre_kv_commit(chain, 0, 0), -EINVAL, "nothing is staged");
	cr_expect_eq(cnre_kv_commit(NULL, 0, 0), -EINVAL);
	cr_assert_eq(stage(chain, 0, 4), 0);
	cr_expect_eq(cnre_kv_commit(chain, 0, 2), -EINVAL);
	cr_expect_eq(cnre_kv_commit(chain, 0, 0), 0, "still staged");
	cnre_kv_release(chain);
	kv_attached_stop(&attached);
}

Test(client_kv_stage, block_with_media_that_has_no_digest_cannot_be_named)
{
	static const struct cnre_kv_media unnamed = {.token_offset = 5, .token_count = 1};
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_chain *chain = match(&attached, 0, 0);
	void *buffer;

	cr_expect_eq(cnre_kv_stage(chain, tokens, 4, &unnamed, 1, 1, &buffer), 0, "it is before the media");
	cr_assert_eq(cnre_kv_commit(chain, 0, 0), 0);
	cr_expect_eq(cnre_kv_stage(chain, tokens + 4, 4, &unnamed, 1, 1, &buffer), -ENODATA);
	cnre_kv_release(chain);
	kv_attached_stop(&attached);
}

/* ---- there already ---- */

Test(client_kv_stage, block_that_is_there_is_gone_over)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_chain *chain;

	kv_attached_store_tokens(&attached, tokens, 10);
	chain = match(&attached, 0, 0);
	cr_expect_eq(stage(chain, 0, 4), 1);
	cr_expect_eq(stage(chain, 4, 4), 1);
	cr_expect_eq(stage(chain, 8, 2), 1, "a part, too");
	cr_expect_eq(chain->base, 8, "which is a leaf");
	cr_expect_eq(kv_attached_leases(&attached), 0);
	cr_expect_eq(cnre_kv_commit(chain, 0, 0), -EINVAL);
	cr_expect_eq(store(chain, 8, 3), 0, "it may grow");
	(void)fake_kv_serve(attached.fake, 0);
	cr_expect_eq(covered(&attached), 11);
	cr_expect_eq(store(chain, 8, 4), 0);
	cr_expect_eq(chain->base, 12);
	(void)fake_kv_serve(attached.fake, 0);
	cr_expect_eq(covered(&attached), 12);
	cnre_kv_release(chain);
	kv_attached_stop(&attached);
}

Test(client_kv_stage, block_that_is_only_in_a_file_is_there)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_chain *chain;

	kv_attached_store_tokens(&attached, tokens, 4);
	cr_assert_eq(fake_kv_evict(attached.fake, 0), 1);
	chain = match(&attached, 0, 0);
	cr_expect_eq(stage(chain, 0, 4), 1);
	cr_expect_eq(fake_kv_serve(attached.fake, 0), 0, "nobody reads it for that");
	cnre_kv_release(chain);
	kv_attached_stop(&attached);
}

Test(client_kv_stage, unpinned_chain_is_extended_behind_its_whole_blocks)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_chain *chain;

	kv_attached_store_tokens(&attached, tokens, 10);
	chain = match(&attached, 10, 10);
	cr_expect_eq(cnre_kv_unpin(chain), 0);
	cr_expect_eq(chain->base, 8);
	cr_expect_eq(store(chain, 8, 4), 0);
	cr_expect_eq(store(chain, 12, 4), 0, "on one that is not stored yet");
	cr_expect_eq(fake_kv_serve(attached.fake, 0), 2);
	cr_expect_eq(covered(&attached), 16);
	cnre_kv_release(chain);
	kv_attached_stop(&attached);
}

Test(client_kv_stage, match_that_was_cut_is_extended_at_its_cut_block)
{
	static const int32_t asked[8] = {1, 2, 3, 4, 5, 6, 97, 98};
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_chain *chain;
	void *buffer;

	kv_attached_store_tokens(&attached, tokens, 8);
	cr_assert_eq(cnre_kv_match(attached.kv, asked, 8, NULL, 0, &chain), 6);
	cr_expect_eq(chain->base, 4);
	cr_assert_eq(cnre_kv_stage(chain, asked + 4, 4, NULL, 0, 1, &buffer), 0);
	cr_assert_eq(cnre_kv_commit(chain, 0, 0), 0);
	(void)fake_kv_serve(attached.fake, 0);
	cnre_kv_release(chain);
	cr_assert_eq(cnre_kv_match(attached.kv, asked, 8, NULL, 0, &chain), 8);
	cnre_kv_release(chain);
	kv_attached_stop(&attached);
}

/* ---- room ---- */

Test(client_kv_stage, full_staging_is_eagain_until_something_was_copied)
{
	struct kv_attached attached = kv_attached_start(&(struct fake_kv_setup){.staging_bytes = 2 * 4096}, 0);
	struct cnre_kv_chain *chain = match(&attached, 0, 0), *other = match(&attached, 0, 0);

	cr_expect_eq(store(chain, 0, 4), 0);
	cr_expect_eq(store(chain, 4, 4), 0);
	cr_expect_eq(stage(chain, 8, 4), -EAGAIN);
	cr_expect_eq(stage(other, 0, 3), -EAGAIN);
	cr_expect_eq(fake_kv_serve(attached.fake, 0), 2);
	cr_expect_eq(stage(chain, 8, 4), 0);
	cr_expect_eq(stage(other, 0, 3), 0);
	cr_expect_eq(stage(other, 0, 2), 0, "another try of a chain gives up the one before");
	cnre_kv_release(chain); /* with its block staged */
	cr_expect_eq(stage(other, 0, 1), 0);
	chain = match(&attached, 8, 8);
	cr_expect_eq(stage(chain, 8, 1), 0);
	cnre_kv_release(chain);
	cnre_kv_release(other);
	cr_expect_eq(attached.kv->space->staging.count, 0);
	cr_expect_eq(attached.kv->space->promised, 0);
	kv_attached_stop(&attached);
}

Test(client_kv_stage, every_staged_block_has_a_slot)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_chain *chain[CNRE_KV_SLOTS + 1];

	for (uint32_t i = 0; i <= CNRE_KV_SLOTS; i++) {
		int32_t first = 1000 + (int32_t)i;
		void *buffer;

		chain[i] = match(&attached, 0, 0);
		cr_expect_eq(cnre_kv_stage(chain[i], &first, 1, NULL, 0, 1, &buffer), i < CNRE_KV_SLOTS ? 0 : -EAGAIN);
	}
	for (uint32_t i = 0; i < CNRE_KV_SLOTS; i++)
		cr_expect_eq(cnre_kv_commit(chain[i], 0, 0), 0);
	cr_expect_eq(stage(chain[CNRE_KV_SLOTS], 0, 1), -EAGAIN);
	cr_expect_eq(fake_kv_serve(attached.fake, 0), CNRE_KV_SLOTS);
	cr_expect_eq(stage(chain[CNRE_KV_SLOTS], 0, 1), 0);
	for (uint32_t i = 0; i <= CNRE_KV_SLOTS; i++)
		cnre_kv_release(chain[i]);
	kv_attached_stop(&attached);
}

Test(client_kv_stage, loads_leave_promised_slots_alone)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_chain *chain[CNRE_KV_SLOTS], *reader;

	kv_attached_store_tokens(&attached, tokens, 4);
	cr_assert_eq(fake_kv_evict(attached.fake, 0), 1);
	for (uint32_t i = 0; i < CNRE_KV_SLOTS; i++) {
		int32_t first = 1000 + (int32_t)i;
		void *buffer;

		chain[i] = match(&attached, 0, 0);
		cr_assert_eq(cnre_kv_stage(chain[i], &first, 1, NULL, 0, 1, &buffer), 0);
	}
	reader = match(&attached, 4, 4);
	cr_expect_eq(fake_kv_serve(attached.fake, 0), 0);
	for (uint32_t i = 0; i < CNRE_KV_SLOTS; i++) {
		cr_expect_eq(cnre_kv_commit(chain[i], 0, 0), 0);
		cnre_kv_release(chain[i]);
	}
	cnre_kv_release(reader);
	kv_attached_stop(&attached);
}

/* ---- what fails later ---- */

Test(client_kv_stage, commit_on_a_block_that_was_not_stored_is_estale)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_chain *chain = match(&attached, 0, 0);

	cr_expect_eq(store(chain, 0, 4), 0);
	cr_expect_eq(stage(chain, 4, 4), 0);
	cr_expect_eq(fake_kv_serve(attached.fake, -ENOSPC), 1);
	cr_expect_eq(cnre_kv_commit(chain, 0, 0), -ESTALE);
	cr_expect_eq(stage(chain, 4, 4), -ESTALE);
	cr_expect_eq(attached.kv->space->staging.count, 0, "its room is back");
	cnre_kv_release(chain);
	chain = match(&attached, 18, 0); /* match again */
	cr_expect_eq(store(chain, 0, 4), 0);
	cr_expect_eq(fake_kv_serve(attached.fake, 0), 1);
	cr_expect_eq(stage(chain, 4, 4), 0);
	cnre_kv_release(chain);
	kv_attached_stop(&attached);
}

/* Goal: the whole chain is asked about, not only its end. Method: of two blocks on their way only the second is stored. */
Test(client_kv_stage, block_that_was_not_stored_spoils_what_lies_behind_it)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_channel *channel = fake_kv_channel(attached.fake);
	struct cnre_kv_chain *chain = match(&attached, 0, 0);
	uint64_t first;

	cr_expect_eq(store(chain, 0, 4), 0);
	first = atomic_load_explicit(&channel->submitted, memory_order_acquire);
	cr_expect_eq(store(chain, 4, 4), 0);
	cnre_kv_channel_finish(channel, (uint32_t)__builtin_ctzll(first), -ENOSPC);
	cr_expect_eq(fake_kv_serve(attached.fake, 0), 1);
	cr_expect_eq(stage(chain, 8, 4), -ESTALE);
	cnre_kv_release(chain);
	kv_attached_stop(&attached);
}

Test(client_kv_stage, leaf_that_was_not_stored_is_nobodys_ancestor)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_chain *chain = match(&attached, 0, 0);

	cr_expect_eq(store(chain, 0, 3), 0);
	cr_expect_eq(fake_kv_serve(attached.fake, -ENOSPC), 1);
	cr_expect_eq(store(chain, 0, 4), 0);
	cr_expect_eq(fake_kv_serve(attached.fake, 0), 1);
	cr_expect_eq(store(chain, 4, 4), 0);
	cnre_kv_release(chain);
	kv_attached_stop(&attached);
}

Test(client_kv_stage, commit_on_a_block_that_was_dropped_is_estale)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_chain *chain;

	kv_attached_store_tokens(&attached, tokens, 8);
	chain = match(&attached, 8, 8);
	cr_expect_eq(cnre_kv_unpin(chain), 0);
	cr_expect_eq(stage(chain, 8, 4), 0);
	cr_assert_eq(fake_kv_forget(attached.fake, 1), 1);
	cr_expect_eq(cnre_kv_commit(chain, 0, 0), -ESTALE);
	cr_expect_eq(stage(chain, 8, 4), -ESTALE);
	cnre_kv_release(chain);
	kv_attached_stop(&attached);
}

Test(client_kv_stage, chain_that_was_released_does_not_wait_for_its_blocks)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_chain *chain = match(&attached, 0, 0);

	cr_expect_eq(store(chain, 0, 4), 0);
	cnre_kv_release(chain);
	cr_expect_eq(fake_kv_serve(attached.fake, 0), 1);
	cr_expect_eq(covered(&attached), 4);
	chain = match(&attached, 0, 0);
	cr_expect_eq(store(chain, 4, 4), 0); /* another first block */
	cnre_kv_release(chain);
	cr_expect_eq(fake_kv_serve(attached.fake, -EIO), 1);
	cr_expect_eq(covered(&attached), 4, "nor is it asked how it went");
	kv_attached_stop(&attached);
}

Test(client_kv_stage, without_a_manager_stage_and_commit_are_epipe)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_chain *chain = match(&attached, 0, 0), *other = match(&attached, 0, 0);

	cr_expect_eq(stage(chain, 0, 4), 0);
	fake_host_hang_up(attached.host);
	cr_expect_eq(cnre_kv_commit(chain, 0, 0), -EPIPE);
	cr_expect_eq(stage(other, 0, 4), -EPIPE);
	cr_expect_eq(cnre_kv_invalidate(attached.kv), -EPIPE);
	cnre_kv_release(chain);
	cnre_kv_release(other);
	kv_attached_stop(&attached);
}

/* ---- threads ---- */

#define WRITERS 4u
#define ROUNDS 300u

struct writer {
	pthread_t thread;
	struct cnre_kv *kv;
	int32_t first;
	_Atomic int *left;
	int wrong;
};

/* Stores, matches and unpins conversations of its own, and one that all have in common. */
static void *write_rounds(void *argument)
{
	struct writer *writer = argument;

	for (int32_t i = 0; i < (int32_t)ROUNDS; i++) {
		const int32_t asked[8] = {1, 2, 3, 4, writer->first, i, 3, 4};
		struct cnre_kv_chain *chain;
		int found = cnre_kv_match(writer->kv, asked, 8, NULL, 0, &chain);
		void *buffer;

		for (size_t from = (size_t)found / 4 * 4; from < 8; from += 4) {
			int r = cnre_kv_stage(chain, asked + from, 4, NULL, 0, 1, &buffer);

			if (r == 0)
				r = cnre_kv_commit(chain, 0, 0);
			writer->wrong += r != 0 && r != 1 && r != -EAGAIN && r != -ESTALE;
			if (r < 0)
				break;
		}
		writer->wrong += cnre_kv_unpin(chain) != 0;
		cnre_kv_release(chain);
	}
	atomic_fetch_sub_explicit(writer->left, 1, memory_order_relaxed);
	return NULL;
}

Test(client_kv_stage, threads_store_and_match_beside_each_other)
{
	struct kv_attached attached = kv_attached_start(&(struct fake_kv_setup){.entry_count = 128}, 0);
	struct writer writer[WRITERS];
	_Atomic int left = WRITERS;

	for (unsigned i = 0; i < WRITERS; i++) {
		writer[i] = (struct writer){.kv = attached.kv, .first = 100 + (int32_t)i, .left = &left};
		cr_assert_eq(pthread_create(&writer[i].thread, NULL, write_rounds, &writer[i]), 0);
	}
	for (uint32_t i = 0; atomic_load_explicit(&left, memory_order_relaxed) > 0; i++) {
		(void)fake_kv_serve(attached.fake, 0);
		if (fake_kv_entry(attached.fake, i % 128)->load.state % 8 == CNRE_STATE_READY)
			(void)fake_kv_forget(attached.fake, i % 128);
	}
	for (unsigned i = 0; i < WRITERS; i++) {
		cr_assert_eq(pthread_join(writer[i].thread, NULL), 0);
		cr_expect_eq(writer[i].wrong, 0);
	}
	(void)fake_kv_serve(attached.fake, 0);
	cr_expect_eq(kv_attached_leases(&attached), 0);
	cr_expect_eq(attached.kv->space->pinned_bytes, 0);
	cr_expect_eq(attached.kv->space->pinned_count, 0);
	cr_expect_eq(attached.kv->space->promised, 0);
	kv_attached_stop(&attached);
}
