/* SPDX-License-Identifier: Apache-2.0 */
#include "client/kv.h"
#include "shm/word.h"
#include "tests/support/kv_attached.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <limits.h>
#include <string.h>

#define STORED 18u /* four whole blocks and a part */

TestSuite(client_kv_match, .timeout = 60);

static const int32_t tokens[24] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,
				   13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24};

static int match(struct kv_attached *attached, const int32_t *asked, size_t count)
{
	struct cnre_kv_chain *chain;
	int covered = cnre_kv_match(attached->kv, asked, count, NULL, 0, &chain);

	if (covered >= 0)
		cnre_kv_release(chain);
	return covered;
}

static int match_media(struct kv_attached *attached, struct kv_conversation asked)
{
	struct cnre_kv_chain *chain;
	int covered = cnre_kv_match(attached->kv, asked.tokens, asked.count, asked.media, asked.media_count, &chain);

	if (covered >= 0)
		cnre_kv_release(chain);
	return covered;
}

/* ---- exact to the token ---- */

Test(client_kv_match, nothing_stored_is_an_empty_chain)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_chain *chain = NULL;
	const void *data = NULL;
	uint64_t bytes = 7;

	cr_expect_eq(cnre_kv_match(attached.kv, tokens, 10, NULL, 0, &chain), 0);
	cr_assert_not_null(chain);
	cr_expect_eq(cnre_kv_block(chain, 0, 0, &data, &bytes), 0);
	cr_expect_null(data);
	cr_expect_eq(bytes, 7);
	cr_expect_eq(cnre_kv_unpin(chain), 0);
	cnre_kv_release(chain);
	kv_attached_stop(&attached);
}

Test(client_kv_match, covers_what_is_stored_and_asked_for)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);

	kv_attached_store_tokens(&attached, tokens, STORED);
	for (size_t count = 0; count <= 24; count++)
		cr_expect_eq(match(&attached, tokens, count), (int)(count < STORED ? count : STORED), "%zu", count);
	cr_expect_eq(kv_attached_leases(&attached), 0);
	kv_attached_stop(&attached);
}

Test(client_kv_match, ends_at_the_first_token_that_differs)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);

	kv_attached_store_tokens(&attached, tokens, STORED);
	for (size_t other = 0; other < STORED; other++) {
		int32_t asked[STORED];

		memcpy(asked, tokens, sizeof asked);
		asked[other] = -1;
		cr_expect_eq(match(&attached, asked, STORED), (int)other, "%zu", other);
	}
	kv_attached_stop(&attached);
}

Test(client_kv_match, takes_the_child_with_the_most_tokens_in_common)
{
	static const int32_t branches[][8] = {
		{1, 2, 3, 4, 50, 51, 52, 53}, {1, 2, 3, 4, 50, 51, 62, 63}, {1, 2, 3, 4, 50, 71, 72, 73}};
	static const int32_t asked[8] = {1, 2, 3, 4, 50, 51, 62, 99};
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_chain *chain;
	const void *data;
	uint64_t bytes;

	for (unsigned i = 0; i < 3; i++)
		kv_attached_store_tokens(&attached, branches[i], 8);
	cr_expect_eq(cnre_kv_match(attached.kv, asked, 8, NULL, 0, &chain), 7);
	cr_expect_eq(cnre_kv_block(chain, 0, 0, &data, &bytes), 4);
	cr_expect(kv_attached_is_right(data, bytes, 0));
	cr_expect_eq(cnre_kv_block(chain, 1, 0, &data, &bytes), 3);
	cr_expect(kv_attached_is_right(data, bytes, 4));
	cr_expect_eq(cnre_kv_block(chain, 2, 0, &data, &bytes), 0);
	cr_expect_eq(kv_attached_leases(&attached), 2, "those that were only looked at are back");
	cnre_kv_release(chain);
	kv_attached_stop(&attached);
}

Test(client_kv_match, identities_that_differ_share_nothing)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_identity identity = kv_attached_identity();
	struct kv_attached other = attached;

	kv_attached_store_tokens(&attached, tokens, STORED);
	identity.salt = "a tenant";
	cr_assert_eq(cnre_kv_open(attached.client, NULL, &identity, &other.kv), 0);
	cr_expect_eq(match(&other, tokens, STORED), 0);
	cnre_kv_close(other.kv);
	identity = kv_attached_identity();
	cr_assert_eq(cnre_kv_open(attached.client, NULL, &identity, &other.kv), 0);
	cr_expect_eq(match(&other, tokens, STORED), (int)STORED);
	cnre_kv_close(other.kv);
	kv_attached_stop(&attached);
}

Test(client_kv_match, bad_arguments_are_einval_and_leave_the_output)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_chain *chain = (void *)1;
	const struct cnre_kv_media empty = {.token_count = 1, .digest = (const unsigned char *)"", .digest_bytes = 0};

	cr_expect_eq(cnre_kv_match(NULL, tokens, 1, NULL, 0, &chain), -EINVAL);
	cr_expect_eq(cnre_kv_match(attached.kv, NULL, 1, NULL, 0, &chain), -EINVAL);
	cr_expect_eq(cnre_kv_match(attached.kv, tokens, 1, NULL, 1, &chain), -EINVAL);
	cr_expect_eq(cnre_kv_match(attached.kv, tokens, (size_t)INT_MAX + 1, NULL, 0, &chain), -EINVAL);
	cr_expect_eq(cnre_kv_match(attached.kv, tokens, 1, &empty, 1, &chain), -EINVAL);
	cr_expect_eq(cnre_kv_match(attached.kv, tokens, 1, NULL, 0, NULL), -EINVAL);
	cr_expect_eq(chain, (void *)1);
	kv_attached_stop(&attached);
}

/* ---- what an entry says of itself ---- */

static void change_root(struct cnre_kv_entry *entry)
{
	entry->root[31] ^= 1;
}

static void change_parent(struct cnre_kv_entry *entry)
{
	entry->parent[31] ^= 1;
}

static void change_key(struct cnre_kv_entry *entry)
{
	entry->key[31] ^= 1;
}

static void change_position(struct cnre_kv_entry *entry)
{
	entry->position += 4;
}

static void change_block_tokens(struct cnre_kv_entry *entry)
{
	entry->block_tokens++;
}

static void change_token_count(struct cnre_kv_entry *entry)
{
	entry->token_count = 1000;
}

static void change_bytes_to_none(struct cnre_kv_entry *entry)
{
	entry->bytes = 0;
}

static void change_bytes_to_many(struct cnre_kv_entry *entry)
{
	entry->bytes = CNRE_SEGMENT_BYTES_MAX + 1;
}

static void change_media_first(struct cnre_kv_entry *entry)
{
	entry->media_first = 5;
}

static void change_indexed(struct cnre_kv_entry *entry)
{
	entry->is_indexed = 0;
}

static void change_to_free(struct cnre_kv_entry *entry)
{
	entry->load.state = CNRE_KV_STATE_FREE;
}

static void change_to_evicting(struct cnre_kv_entry *entry)
{
	entry->load.state = CNRE_STATE_EVICTING;
}

static void change_to_nothing(struct cnre_kv_entry *entry)
{
	entry->load.state = 7;
}

Test(client_kv_match, entry_that_is_not_what_its_name_says_is_no_match)
{
	static void (*const changes[])(struct cnre_kv_entry * entry) = {
		change_root,        change_parent,        change_position,      change_block_tokens,
		change_token_count, change_bytes_to_none, change_bytes_to_many, change_media_first,
		change_indexed,     change_to_free,       change_to_evicting,   change_to_nothing,
	};
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_entry *entry, kept;

	kv_attached_store_tokens(&attached, tokens, 8);
	entry = fake_kv_entry(attached.fake, 1);
	memcpy((void *)&kept, (void *)entry, sizeof kept);
	for (unsigned i = 0; i < sizeof changes / sizeof changes[0]; i++) {
		changes[i](entry);
		cr_expect_eq(match(&attached, tokens, 8), 4, "change %u", i);
		cr_expect_eq(kv_attached_leases(&attached), 0, "change %u", i);
		memcpy((void *)entry, (void *)&kept, sizeof kept);
	}
	cr_expect_eq(match(&attached, tokens, 8), 8);
	kv_attached_stop(&attached);
}

Test(client_kv_match, tokens_are_compared_and_not_only_names)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);

	kv_attached_store_tokens(&attached, tokens, 8);
	fake_kv_entry(attached.fake, 1)->token[2]++; /* its name is that of what is asked for: a collision */
	cr_expect_eq(match(&attached, tokens, 8), 6);
	kv_attached_stop(&attached);
}

/* Found as a child it is what its tokens say, whatever its key. */
Test(client_kv_match, block_that_is_not_found_by_its_key_may_be_as_a_child)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);

	kv_attached_store_tokens(&attached, tokens, 8);
	change_key(fake_kv_entry(attached.fake, 1));
	cr_expect_eq(match(&attached, tokens, 8), 8);
	kv_attached_stop(&attached);
}

/* Published between the look by name and the look for children: what is committed next must lie behind it, not beside it. */
Test(client_kv_match, whole_block_that_is_found_as_a_child_is_one_that_the_chain_goes_on_from)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_entry *late;
	struct cnre_kv_chain *chain;
	void *buffer;

	kv_attached_store_tokens(&attached, tokens, 12);
	late = fake_kv_entry(attached.fake, 1);
	late->tag++;
	cr_assert_eq(cnre_kv_match(attached.kv, tokens, 16, NULL, 0, &chain), 12);
	late->tag--;
	cr_assert_eq(cnre_kv_stage(chain, tokens + 12, 4, NULL, 0, KV_BYTES, &buffer), 0);
	cr_assert_eq(cnre_kv_commit(chain, 1, 0), 0);
	cr_assert_eq(fake_kv_serve(attached.fake, 0), 1);
	cr_expect_eq(fake_kv_published(attached.fake)->position, 12);
	cr_expect_arr_eq(fake_kv_published(attached.fake)->parent, fake_kv_entry(attached.fake, 2)->key, CNRE_KV_KEY_BYTES);
	cnre_kv_release(chain);
	kv_attached_stop(&attached);
}

Test(client_kv_match, links_that_lie_end_a_match_and_nothing_else)
{
	struct kv_attached attached = kv_attached_start(&(struct fake_kv_setup){.bucket_count = 1}, 0);
	struct cnre_kv_entry *entry;

	kv_attached_store_tokens(&attached, tokens, STORED);
	entry = fake_kv_entry(attached.fake, 0);
	for (uint32_t i = 0; i < 5; i++)
		entry[i].next_of_key = entry[i].next_of_parent = i; /* circles */
	fake_kv_directory(attached.fake)->sequence++;
	cr_expect_geq(match(&attached, tokens, STORED), 0);
	for (uint32_t i = 0; i < 5; i++)
		entry[i].next_of_key = entry[i].next_of_parent = 64 + i; /* beyond the last entry */
	cr_expect_geq(match(&attached, tokens, STORED), 0);
	fake_kv_directory(attached.fake)->bucket[0].of_key = UINT32_MAX - 1;
	fake_kv_directory(attached.fake)->bucket[0].of_parent = 1u << 20;
	cr_expect_eq(match(&attached, tokens, STORED), 0);
	cr_expect_eq(kv_attached_leases(&attached), 0);
	kv_attached_stop(&attached);
}

/* ---- leases and the quota ---- */

Test(client_kv_match, leases_every_block_until_it_is_unpinned)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_chain *chain, *again;

	kv_attached_store_tokens(&attached, tokens, STORED);
	cr_assert_eq(cnre_kv_match(attached.kv, tokens, STORED, NULL, 0, &chain), (int)STORED);
	cr_expect_eq(kv_attached_leases(&attached), 5);
	cr_expect_eq(fake_kv_evict(attached.fake, 4), 0);
	cr_assert_eq(cnre_kv_match(attached.kv, tokens, 8, NULL, 0, &again), 8);
	cr_expect_eq(kv_attached_leases(&attached), 7);
	cr_expect_eq(cnre_kv_unpin(chain), 0);
	cr_expect_eq(kv_attached_leases(&attached), 2);
	cr_expect_eq(cnre_kv_unpin(chain), 0, "twice is once");
	cr_expect_eq(kv_attached_leases(&attached), 2);
	cr_expect_eq(fake_kv_evict(attached.fake, 4), 1);
	cnre_kv_release(chain);
	cr_expect_eq(kv_attached_leases(&attached), 2);
	cnre_kv_release(again);
	cr_expect_eq(kv_attached_leases(&attached), 0);
	cnre_kv_release(NULL);
	cr_expect_eq(cnre_kv_unpin(NULL), -EINVAL);
	kv_attached_stop(&attached);
}

Test(client_kv_match, match_over_the_quota_is_shorter)
{
	struct kv_attached attached = kv_attached_start(&(struct fake_kv_setup){.pin_bytes_max = 3 * KV_BYTES - 1}, 0);
	static const int32_t other[8] = {91, 92, 93, 94, 95, 96, 97, 98};
	struct cnre_kv_chain *chain, *same;

	kv_attached_store_tokens(&attached, tokens, STORED);
	kv_attached_store_tokens(&attached, other, 8);
	cr_assert_eq(cnre_kv_match(attached.kv, tokens, STORED, NULL, 0, &chain), 8);
	cr_expect_eq(kv_attached_leases(&attached), 2);
	cr_expect_eq(match(&attached, other, 8), 0, "the client has no more to lease");
	cr_expect_eq(cnre_kv_match(attached.kv, tokens, STORED, NULL, 0, &same), 8, "blocks count once");
	cnre_kv_release(chain);
	cr_expect_eq(match(&attached, other, 8), 0);
	cnre_kv_release(same);
	cr_expect_eq(match(&attached, other, 8), 8);
	kv_attached_stop(&attached);
}

Test(client_kv_match, every_use_is_in_the_log)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	static const uint32_t used[] = {4, 4, 1};
	const _Atomic uint64_t *log;

	kv_attached_store_tokens(&attached, tokens, STORED);
	log = cnre_kv_log(fake_kv_channel(attached.fake));
	cr_expect_eq(log[0], 0, "storing is no use");
	cr_expect_eq(match(&attached, tokens, 9), 9);
	for (uint32_t i = 0; i < 3; i++)
		cr_expect_eq(log[i], cnre_log_pack(i, CNRE_LOG_KV_USE, used[i], i));
	cr_expect_eq(log[3], 0);
	cr_expect_eq(match(&attached, tokens, 4), 4);
	cr_expect_eq(log[3], cnre_log_pack(3, CNRE_LOG_KV_USE, 4, 0));
	kv_attached_stop(&attached);
}

/* ---- media ---- */

#define DIGEST(text) .digest = (const unsigned char *)(text), .digest_bytes = sizeof(text) - 1

Test(client_kv_match, same_media_is_matched_and_other_media_up_to_its_first_token)
{
	static const struct cnre_kv_media cat = {.token_offset = 5, .token_count = 6, DIGEST("cat")};
	static const struct cnre_kv_media dog = {.token_offset = 5, .token_count = 6, DIGEST("dog")};
	static const struct cnre_kv_media late = {.token_offset = 6, .token_count = 5, DIGEST("cat")};
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct kv_conversation stored = {.tokens = tokens, .count = STORED, .media = &cat, .media_count = 1};

	kv_attached_store(&attached, stored, 0);
	cr_expect_eq(match_media(&attached, stored), (int)STORED);
	stored.media = &dog;
	cr_expect_eq(match_media(&attached, stored), 5);
	stored.media = &late;
	cr_expect_eq(match_media(&attached, stored), 5, "the earlier of both");
	stored.media_count = 0;
	cr_expect_eq(match_media(&attached, stored), 5);
	kv_attached_stop(&attached);
}

Test(client_kv_match, media_asked_for_where_none_was_stored_ends_the_match)
{
	static const struct cnre_kv_media cat = {.token_offset = 6, .token_count = 1, DIGEST("cat")};
	struct kv_attached attached = kv_attached_start(NULL, 0);
	const struct kv_conversation asked = {.tokens = tokens, .count = STORED, .media = &cat, .media_count = 1};

	kv_attached_store_tokens(&attached, tokens, STORED);
	cr_expect_eq(match_media(&attached, asked), 6);
	kv_attached_stop(&attached);
}

Test(client_kv_match, part_of_a_block_with_the_same_media_is_cut_anywhere)
{
	static const struct cnre_kv_media cat = {.token_offset = 4, .token_count = 4, DIGEST("cat")};
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct kv_conversation asked = {.tokens = tokens, .count = 8, .media = &cat, .media_count = 1};

	kv_attached_store(&attached, asked, 0);
	asked.count = 7;
	cr_expect_eq(match_media(&attached, asked), 7);
	kv_attached_stop(&attached);
}

Test(client_kv_match, nothing_behind_media_without_digest_is_matched)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_media unnamed = {.token_count = 1};
	const struct kv_conversation asked = {.tokens = tokens, .count = STORED, .media = &unnamed, .media_count = 1};

	kv_attached_store_tokens(&attached, tokens, STORED);
	for (uint64_t offset = 0; offset <= 20; offset++) {
		unnamed.token_offset = offset;
		cr_expect_eq(match_media(&attached, asked), (int)(offset < STORED ? offset : STORED));
	}
	kv_attached_stop(&attached);
}

/* ---- points ---- */

Test(client_kv_match, identity_with_checkpoints_ends_at_the_last_point)
{
	struct kv_attached attached = kv_attached_start(NULL, CNRE_KV_CHECKPOINTS);
	const struct kv_conversation stored = {.tokens = tokens, .count = 16};

	kv_attached_store(&attached, stored, 1u << 1);
	cr_expect_eq(match(&attached, tokens, 24), 8);
	cr_expect_eq(match(&attached, tokens, 8), 8);
	cr_expect_eq(match(&attached, tokens, 7), 0);
	cr_expect_eq(kv_attached_leases(&attached), 0);
	kv_attached_stop(&attached);
}

Test(client_kv_match, point_may_be_a_part_that_is_matched_whole)
{
	struct kv_attached attached = kv_attached_start(NULL, CNRE_KV_CHECKPOINTS);
	struct kv_conversation stored = {.tokens = tokens, .count = 6};
	struct cnre_kv_chain *chain;

	kv_attached_store(&attached, stored, 1u << 1);
	stored.count = 7;
	kv_attached_store(&attached, stored, 0); /* longer, but no point */
	cr_expect_eq(match(&attached, tokens, 5), 0);
	cr_expect_eq(match(&attached, tokens, 6), 6);
	cr_assert_eq(cnre_kv_match(attached.kv, tokens, 24, NULL, 0, &chain), 6);
	cr_expect_eq(chain->base, 4, "whole blocks are what it can be extended on");
	cnre_kv_release(chain);
	kv_attached_stop(&attached);
}

Test(client_kv_match, chain_that_was_cut_at_a_point_goes_on_over_what_is_there)
{
	struct kv_attached attached = kv_attached_start(NULL, CNRE_KV_CHECKPOINTS);
	const struct kv_conversation stored = {.tokens = tokens, .count = 16};
	struct cnre_kv_chain *chain;
	void *buffer;

	kv_attached_store(&attached, stored, 1u << 0);
	cr_assert_eq(cnre_kv_match(attached.kv, tokens, 20, NULL, 0, &chain), 4);
	for (size_t i = 4; i < 16; i += 4)
		cr_expect_eq(cnre_kv_stage(chain, tokens + i, 4, NULL, 0, KV_BYTES, &buffer), 1);
	cr_expect_eq(cnre_kv_stage(chain, tokens + 16, 4, NULL, 0, KV_BYTES, &buffer), 0);
	cnre_kv_release(chain);
	kv_attached_stop(&attached);
}

/* ---- route ---- */

Test(client_kv_match, route_names_the_deepest_live_holder_and_leases_nothing)
{
	struct kv_attached attached = kv_attached_start(&(struct fake_kv_setup){.pin_bytes_max = 1}, 0);
	char name[CNRE_NAME_BYTES + 1] = "untouched";

	kv_attached_store_tokens(&attached, tokens, STORED);
	cr_expect_eq(cnre_kv_route(attached.kv, tokens, 10, NULL, 0, name, sizeof name), 10, "no quota either");
	cr_expect_str_eq(name, "");
	fake_kv_hold(attached.fake, 0, 5, 3, "first");
	fake_kv_hold(attached.fake, 1, 6, 4, "second");
	fake_kv_hold(attached.fake, 2, 7, 5, "third");
	fake_kv_directory(attached.fake)->holder[5].session = 0; /* has left */
	cr_expect_eq(cnre_kv_route(attached.kv, tokens, 24, NULL, 0, name, sizeof name), (int)STORED);
	cr_expect_str_eq(name, "second");
	cr_expect_eq(cnre_kv_route(attached.kv, tokens, 24, NULL, 0, name, 4), (int)STORED);
	cr_expect_str_eq(name, "sec");
	fake_kv_directory(attached.fake)->holder[4].session = 99; /* its place is another's by now */
	cr_expect_eq(cnre_kv_route(attached.kv, tokens, 24, NULL, 0, name, sizeof name), (int)STORED);
	cr_expect_str_eq(name, "first");
	fake_kv_entry(attached.fake, 0)->holder = 5ull << 32 | 1u << 20; /* no such place */
	cr_expect_eq(cnre_kv_route(attached.kv, tokens, 24, NULL, 0, name, sizeof name), (int)STORED);
	cr_expect_str_eq(name, "");
	cr_expect_eq(cnre_kv_route(attached.kv, tokens, 3, NULL, 0, NULL, 0), 3);
	cr_expect_eq(cnre_kv_route(NULL, tokens, 3, NULL, 0, NULL, 0), -EINVAL);
	cr_expect_eq(kv_attached_leases(&attached), 0);
	kv_attached_stop(&attached);
}

Test(client_kv_match, invalidate_drops_the_blocks_of_its_identity)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_identity identity = kv_attached_identity();
	struct kv_attached other = attached;

	identity.version = 2;
	cr_assert_eq(cnre_kv_open(attached.client, NULL, &identity, &other.kv), 0);
	kv_attached_store_tokens(&attached, tokens, STORED);
	kv_attached_store_tokens(&other, tokens, 8);
	cr_expect_eq(cnre_kv_invalidate(attached.kv), 5);
	cr_expect_eq(match(&attached, tokens, STORED), 0);
	cr_expect_eq(match(&other, tokens, STORED), 8);
	cr_expect_eq(cnre_kv_invalidate(NULL), -EINVAL);
	cnre_kv_close(other.kv);
	kv_attached_stop(&attached);
}
