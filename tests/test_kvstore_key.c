/* SPDX-License-Identifier: Apache-2.0 */
/* kvstore/key.c: what must change a name changes it, what must not does not, and no two fields can be taken for one another. */
#include "kvstore/key.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(kvstore_key, .timeout = 60);

#define HEX_BYTES (2 * KV_KEY_BYTES + 1)

static const unsigned char model[KV_KEY_BYTES] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
						  16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};
static const unsigned char adapter[] = {0xaa, 0xbb};

static struct kv_identity identity(void)
{
	return (struct kv_identity){
		.model = model,
		.tokenizer = "tok",
		.chat_template = "tmpl",
		.position = "rope",
		.representation = "f32",
		.salt = "salt",
		.version = 7,
		.adapter_digest = adapter,
		.adapter_digest_bytes = sizeof adapter,
		.block_tokens = 64,
		.flags = 1,
	};
}

static const char *hex(const unsigned char digest[KV_KEY_BYTES], char text[HEX_BYTES])
{
	for (unsigned i = 0; i < KV_KEY_BYTES; i++)
		snprintf(text + 2 * i, 3, "%02x", digest[i]);
	return text;
}

static void root_of(const struct kv_identity *from, unsigned char root[KV_KEY_BYTES])
{
	cr_assert_eq(kv_key_root(from, root), 0);
}

static int are_same(const unsigned char *a, const unsigned char *b)
{
	return memcmp(a, b, KV_KEY_BYTES) == 0;
}

/*
 * Computed with Python's hashlib from the definition in key.h and the table of fields in key.c:
 *
 *   f = lambda tag, b: tag.encode() + struct.pack('<Q', len(b)) + b
 *   n = lambda tag, v: f(tag, struct.pack('<Q', v & (2**64 - 1)))
 *   root = sha256(f('f', b'cnre-kv-root-1') + f('m', bytes(range(32))) + f('t', b'tok') + f('c', b'tmpl')
 *          + f('p', b'rope') + f('r', b'f32') + n('v', 7) + f('a', b'\xaa\xbb') + f('s', b'salt') + n('b', 64) + n('g', 1))
 *   bare = sha256(f('f', b'cnre-kv-root-1') + f('m', bytes(range(32))) + n('v', 0) + n('b', 64) + n('g', 0))
 *   media = sha256(f('f', b'cnre-kv-media-1') + n('o', -3) + n('n', 10) + f('d', bytes([1] * 32))
 *           + n('o', 20) + n('n', 5) + f('d', b'xyz'))
 *   tokens = struct.pack('<5i', 0, 1, -1, 151643, 2**31 - 1)
 *   block = sha256(f('f', b'cnre-kv-block-1') + f('p', root) + f('t', tokens))
 *   block with media = sha256(the same + f('d', media) + n('i', 2))
 */
#define GOLDEN_ROOT "899ce1025e4bfa980f5120b548b2bd93cb4be03affa36dd4d8eef3ea54336bc5"
#define GOLDEN_BARE "be537f559fc3c7e3dff4346a0bd1bd1b4feee361cddef192db9d0358c02011a9"
#define GOLDEN_MEDIA "1b23b6b3b9a774add4c25862302c3b5bf0a2d74031e743b3e77e7d723e20a1df"
#define GOLDEN_BLOCK "d3f5677df4e970c40622a8d555ff87db571bfc4b485bf3b7a7591d7c35a6bade"
#define GOLDEN_BLOCK_MEDIA "6789e247017028410b8076eee37943cd10eaa1120745ac6cdf5952b94987dfc1"

Test(kvstore_key, names_are_as_defined)
{
	static const int32_t tokens[] = {0, 1, -1, 151643, INT32_MAX};
	struct kv_identity full = identity(), bare = {.model = model, .block_tokens = 64};
	unsigned char ones[KV_KEY_BYTES], root[KV_KEY_BYTES], key[KV_KEY_BYTES];
	/* Not in the order of their offsets. */
	struct kv_media media[] = {
		{.token_offset = 120, .token_count = 5, .digest = (const unsigned char *)"xyz", .digest_bytes = 3},
		{.token_offset = 97, .token_count = 10, .digest = ones, .digest_bytes = sizeof ones},
	};
	struct kv_media_mark mark;
	char text[HEX_BYTES];

	memset(ones, 1, sizeof ones);
	root_of(&bare, key);
	cr_expect_str_eq(hex(key, text), GOLDEN_BARE);
	root_of(&full, root);
	cr_expect_str_eq(hex(root, text), GOLDEN_ROOT);
	cr_assert_eq(kv_key_media(media, 2, 100, 64, &mark), 0);
	cr_expect_str_eq(hex(mark.digest, text), GOLDEN_MEDIA);
	cr_expect_eq(mark.first, 0);
	mark.first = 2;
	cr_assert_eq(kv_key_block(root, tokens, 5, &mark, key), 0);
	cr_expect_str_eq(hex(key, text), GOLDEN_BLOCK_MEDIA);
	mark = (struct kv_media_mark){.first = 5};
	cr_assert_eq(kv_key_block(root, tokens, 5, &mark, key), 0);
	cr_expect_str_eq(hex(key, text), GOLDEN_BLOCK);
}

/* ---- root: every field, each changed alone; fields that could be confused ---- */

#define VARIANTS_MAX 64

struct variants {
	struct kv_identity identity[VARIANTS_MAX];
	const char *what[VARIANTS_MAX];
	size_t count;
};

static struct kv_identity *add(struct variants *variants, const char *what)
{
	cr_assert_lt(variants->count, VARIANTS_MAX);
	variants->identity[variants->count] = identity();
	variants->what[variants->count] = what;
	return &variants->identity[variants->count++];
}

static void add_changed_fields(struct variants *variants)
{
	static unsigned char first[KV_KEY_BYTES], last[KV_KEY_BYTES];
	static const unsigned char other_adapter[] = {0xaa, 0xbc};

	memcpy(first, model, sizeof first);
	memcpy(last, model, sizeof last);
	first[0] ^= 1;
	last[KV_KEY_BYTES - 1] ^= 0x80;
	(void)add(variants, "as it is");
	add(variants, "first bit of the model")->model = first;
	add(variants, "last bit of the model")->model = last;
	add(variants, "weights")->payload = model;
	add(variants, "other weights of the same shapes")->payload = model + 1;
	add(variants, "tokenizer")->tokenizer = "tok2";
	add(variants, "template")->chat_template = "tmpl2";
	add(variants, "RoPE scaling")->position = "rope scaling 2";
	add(variants, "representation")->representation = "fp8";
	add(variants, "salt")->salt = "salt2";
	add(variants, "version")->version = 8;
	add(variants, "high bit of the version")->version = 7u | 1u << 31;
	add(variants, "adapter of one name, other weights")->adapter_digest = other_adapter;
	add(variants, "shorter adapter digest")->adapter_digest_bytes = 1;
	add(variants, "block_tokens")->block_tokens = 32;
	add(variants, "flags")->flags = 0;
	add(variants, "another flag")->flags = 2;
}

static void add_absent_and_empty(struct variants *variants)
{
	struct kv_identity *none = add(variants, "no adapter");

	none->adapter_digest = NULL;
	none->adapter_digest_bytes = 0;
	add(variants, "an adapter digest of no bytes")->adapter_digest_bytes = 0;
	add(variants, "no tokenizer")->tokenizer = NULL;
	add(variants, "empty tokenizer")->tokenizer = "";
	add(variants, "no template")->chat_template = NULL;
	add(variants, "empty template")->chat_template = "";
	add(variants, "no position")->position = NULL;
	add(variants, "empty position")->position = "";
	add(variants, "no representation")->representation = NULL;
	add(variants, "empty representation")->representation = "";
	add(variants, "no salt")->salt = NULL;
	add(variants, "empty salt")->salt = "";
}

/* Only these two or three strings, so that nothing else tells the variants apart. */
static void add_strings(struct variants *variants, const char *what, const char *tokenizer, const char *chat_template,
			const char *adapter_text, const char *salt)
{
	struct kv_identity *made = add(variants, what);

	*made = (struct kv_identity){.model = model,
				     .tokenizer = tokenizer,
				     .chat_template = chat_template,
				     .salt = salt,
				     .adapter_digest = (const unsigned char *)adapter_text,
				     .adapter_digest_bytes = adapter_text != NULL ? strlen(adapter_text) : 0,
				     .block_tokens = 64};
}

static void add_confusable(struct variants *variants)
{
	add_strings(variants, "ab, c", "ab", "c", NULL, NULL);
	add_strings(variants, "a, bc", "a", "bc", NULL, NULL);
	add_strings(variants, "abc, empty", "abc", "", NULL, NULL);
	add_strings(variants, "abc, none", "abc", NULL, NULL, NULL);
	add_strings(variants, "none, abc", NULL, "abc", NULL, NULL);
	add_strings(variants, "adapter X", NULL, NULL, "X", NULL);
	add_strings(variants, "salt X", NULL, NULL, NULL, "X");
	add_strings(variants, "tokenizer X", "X", NULL, NULL, NULL);
	add_strings(variants, "template X", NULL, "X", NULL, NULL);
	add_strings(variants, "adapter ab, salt c", NULL, NULL, "ab", "c");
	add_strings(variants, "adapter a, salt bc", NULL, NULL, "a", "bc");
	/* A salt that looks like a field of its own behind the adapter. */
	add_strings(variants, "adapter with a field in it", NULL, NULL, "as\x01", "c");
}

Test(kvstore_key, each_field_alone_makes_another_root_and_no_two_fields_are_confused)
{
	static struct variants variants;
	static unsigned char root[VARIANTS_MAX][KV_KEY_BYTES];

	add_changed_fields(&variants);
	add_absent_and_empty(&variants);
	add_confusable(&variants);
	for (size_t i = 0; i < variants.count; i++) {
		root_of(&variants.identity[i], root[i]);
		for (size_t k = 0; k < i; k++)
			cr_expect_not(are_same(root[i], root[k]), "%s = %s", variants.what[i], variants.what[k]);
	}
}

Test(kvstore_key, equal_content_in_other_memory_is_the_same_root)
{
	struct kv_identity here = identity(), there = identity();
	unsigned char a[KV_KEY_BYTES], b[KV_KEY_BYTES];
	char *texts[] = {strdup("tok"), strdup("tmpl"), strdup("rope"), strdup("f32"), strdup("salt")};

	there.tokenizer = texts[0];
	there.chat_template = texts[1];
	there.position = texts[2];
	there.representation = texts[3];
	there.salt = texts[4];
	root_of(&here, a);
	root_of(&there, b);
	cr_expect(are_same(a, b));
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
		free(texts[i]);
}

Test(kvstore_key, root_refuses_what_is_out_of_range_and_leaves_the_output)
{
	struct kv_identity bad[] = {identity(), identity(), identity(), identity(), identity(), identity()};
	unsigned char root[KV_KEY_BYTES], before[KV_KEY_BYTES];
	char *text = malloc((size_t)KV_TEXT_BYTES_MAX + 2);

	memset(root, 0x5a, sizeof root);
	memcpy(before, root, sizeof before);
	memset(text, 'x', (size_t)KV_TEXT_BYTES_MAX + 1);
	text[KV_TEXT_BYTES_MAX + 1] = '\0';
	bad[0].model = NULL;
	bad[1].block_tokens = 0;
	bad[2].block_tokens = KV_BLOCK_TOKENS_MAX + 1;
	bad[3].adapter_digest_bytes = KV_ADAPTER_BYTES_MAX + 1;
	bad[4].adapter_digest = NULL;
	bad[5].salt = text;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		cr_expect_eq(kv_key_root(&bad[i], root), -EINVAL, "case %zu", i);
	cr_expect(are_same(root, before));
	text[KV_TEXT_BYTES_MAX] = '\0';
	cr_expect_eq(kv_key_root(&bad[5], root), 0, "the longest text that is allowed");
	free(text);
}

/* ---- block ---- */

static const int32_t tokens[4] = {10, 20, 30, 40};
static const unsigned char digest[KV_KEY_BYTES] = {1, 2, 3};

static void mark_of(const struct kv_media *media, uint64_t start, uint32_t count, struct kv_media_mark *mark)
{
	cr_assert_eq(kv_key_media(media, 1, start, count, mark), 0);
}

static void key_of(const unsigned char *parent, const int32_t *of, uint32_t count, const struct kv_media_mark *mark,
		   unsigned char *key)
{
	cr_assert_eq(kv_key_block(parent, of, count, mark, key), 0);
}

Test(kvstore_key, tokens_parent_and_their_order_each_change_a_block)
{
	static const int32_t changed[][4] = {{11, 20, 30, 40}, {10, 20, 30, 41},  {20, 10, 30, 40},
					     {10, 20, 30, 0},  {-10, 20, 30, 40}, {10, 20, 30, 40 + (1 << 24)}};
	const struct kv_media_mark none = {.first = 4}, none3 = {.first = 3};
	unsigned char parent[KV_KEY_BYTES] = {7}, key[KV_KEY_BYTES], other[KV_KEY_BYTES];

	key_of(parent, tokens, 4, &none, key);
	key_of(parent, tokens, 4, &none, other);
	cr_expect(are_same(key, other));
	for (size_t i = 0; i < sizeof changed / sizeof changed[0]; i++) {
		key_of(parent, changed[i], 4, &none, other);
		cr_expect_not(are_same(key, other), "tokens %zu", i);
	}
	key_of(parent, tokens, 3, &none3, other);
	cr_expect_not(are_same(key, other), "one token fewer");
	parent[KV_KEY_BYTES - 1] ^= 1;
	key_of(parent, tokens, 4, &none, other);
	cr_expect_not(are_same(key, other), "last bit of the parent");
}

/* The case of a store that kept 16 bits of a digest, and of one that compared all bytes but one. */
Test(kvstore_key, image_digest_offset_and_count_each_change_a_block)
{
	struct kv_media media = {.token_offset = 65, .token_count = 2, .digest = digest, .digest_bytes = sizeof digest};
	unsigned char parent[KV_KEY_BYTES] = {7}, behind_16_bits[KV_KEY_BYTES], in_last[KV_KEY_BYTES];
	unsigned char key[6][KV_KEY_BYTES];
	struct kv_media_mark mark;

	memcpy(behind_16_bits, digest, sizeof digest);
	memcpy(in_last, digest, sizeof digest);
	behind_16_bits[2] ^= 1;
	in_last[KV_KEY_BYTES - 1] ^= 1;
	for (int i = 0; i < 6; i++) {
		struct kv_media changed = media;

		if (i == 1)
			changed.digest = behind_16_bits;
		else if (i == 2)
			changed.digest = in_last;
		else if (i == 3)
			changed.token_offset = 66;
		else if (i == 4)
			changed.token_count = 3;
		mark_of(&changed, 64, 4, &mark);
		if (i == 5)
			mark = (struct kv_media_mark){.first = 4};
		key_of(parent, tokens, 4, &mark, key[i]);
		for (int k = 0; k < i; k++)
			cr_expect_not(are_same(key[i], key[k]), "%d = %d", i, k);
	}
}

Test(kvstore_key, one_image_at_one_place_relative_to_the_block_is_the_same_wherever_the_block_lies)
{
	struct kv_media here = {.token_offset = 65, .token_count = 2, .digest = digest, .digest_bytes = sizeof digest};
	struct kv_media there = here;
	struct kv_media_mark a, b;

	there.token_offset = 129;
	mark_of(&here, 64, 4, &a);
	mark_of(&there, 128, 4, &b);
	cr_expect(are_same(a.digest, b.digest));
	cr_expect_eq(a.first, 1);
	cr_expect_eq(b.first, 1);
}

Test(kvstore_key, only_items_that_overlap_mark_a_block)
{
	static const struct {
		uint64_t offset, count;
		uint32_t first;
		int overlaps;
	} cases[] = {
		{0, 64, 64, 0},  {0, 65, 0, 1},         {63, 1, 64, 0},
		{64, 1, 0, 1},   {127, 1, 63, 1},       {127, UINT64_MAX, 63, 1},
		{128, 1, 64, 0}, {100, 0, 64, 0},       {0, 1000, 0, 1},
		{64, 64, 0, 1},  {1, UINT64_MAX, 0, 1}, {INT64_MAX, UINT64_MAX, 64, 0},
	};
	static const unsigned char zeros[KV_KEY_BYTES];

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct kv_media media = {.token_offset = cases[i].offset,
					 .token_count = cases[i].count,
					 .digest = digest,
					 .digest_bytes = sizeof digest};
		struct kv_media_mark mark = {.first = 99};

		mark_of(&media, 64, 64, &mark);
		cr_expect_eq(mark.first, cases[i].first, "case %zu: %u", i, mark.first);
		cr_expect_eq(are_same(mark.digest, zeros), !cases[i].overlaps, "case %zu", i);
	}
}

/* More items than fit without an allocation, in both orders; some begin at one token. */
Test(kvstore_key, the_order_in_which_items_are_given_does_not_matter)
{
	enum { ITEMS = 40 };
	struct kv_media media[ITEMS], turned[ITEMS];
	struct kv_media_mark a, b;

	for (int i = 0; i < ITEMS; i++) {
		media[i] = (struct kv_media){.token_offset = (uint64_t)i / 2,
					     .token_count = 3,
					     .digest = model + i % 8,
					     .digest_bytes = (size_t)(i % 3 + 1)};
		turned[ITEMS - 1 - i] = media[i];
	}
	cr_assert_eq(kv_key_media(media, ITEMS, 0, 64, &a), 0);
	cr_assert_eq(kv_key_media(turned, ITEMS, 0, 64, &b), 0);
	cr_expect(are_same(a.digest, b.digest));
	turned[7].digest = model + 16;
	cr_assert_eq(kv_key_media(turned, ITEMS, 0, 64, &b), 0);
	cr_expect_not(are_same(a.digest, b.digest));
}

static void expect_order_not_to_matter(struct kv_media first, struct kv_media second)
{
	const struct kv_media one[] = {first, second}, other[] = {second, first};
	struct kv_media_mark a, b;

	cr_assert_eq(kv_key_media(one, 2, 0, 64, &a), 0);
	cr_assert_eq(kv_key_media(other, 2, 0, 64, &b), 0);
	cr_expect(are_same(a.digest, b.digest));
}

Test(kvstore_key, nor_does_it_where_items_begin_at_one_token)
{
	const struct kv_media item = {.token_offset = 5, .token_count = 3, .digest = model, .digest_bytes = 8};
	struct kv_media other = item;

	other.token_count = 4;
	expect_order_not_to_matter(item, other);
	other = item;
	other.digest = model + 1;
	expect_order_not_to_matter(item, other);
	other = item;
	other.digest_bytes = 9;
	expect_order_not_to_matter(item, other);
}

Test(kvstore_key, from_an_item_without_digest_on_nothing_has_a_name)
{
	const struct kv_media media = {.token_offset = 100, .token_count = 1};
	struct kv_media_mark mark = {.first = 77};

	cr_expect_eq(kv_key_media(&media, 1, 0, 64, &mark), 0, "before it everything has");
	mark.first = 77;
	cr_expect_eq(kv_key_media(&media, 1, 64, 64, &mark), -ENODATA);
	cr_expect_eq(kv_key_media(&media, 1, 64, 37, &mark), -ENODATA);
	cr_expect_eq(kv_key_media(&media, 1, 640, 64, &mark), -ENODATA);
	cr_expect_eq(mark.first, 77);
	cr_expect_eq(kv_key_media(&media, 1, 64, 36, &mark), 0, "a block that ends right before it has one");
}

Test(kvstore_key, media_out_of_range_are_refused)
{
	struct kv_media good = {.token_offset = 1, .token_count = 1, .digest = digest, .digest_bytes = sizeof digest};
	struct kv_media bad[] = {good, good, good};
	struct kv_media_mark mark = {.first = 77};

	bad[0].digest_bytes = 0;
	bad[1].digest_bytes = KV_MEDIA_DIGEST_BYTES_MAX + 1;
	bad[2].token_offset = (uint64_t)INT64_MAX + 1;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		cr_expect_eq(kv_key_media(&bad[i], 1, 0, 64, &mark), -EINVAL, "case %zu", i);
	cr_expect_eq(kv_key_media(&good, KV_MEDIA_MAX + 1, 0, 64, &mark), -EINVAL);
	cr_expect_eq(kv_key_media(&good, 1, 0, 0, &mark), -EINVAL);
	cr_expect_eq(kv_key_media(&good, 1, 0, KV_BLOCK_TOKENS_MAX + 1, &mark), -EINVAL);
	cr_expect_eq(kv_key_media(&good, 1, (uint64_t)INT64_MAX + 1, 1, &mark), -EINVAL);
	cr_expect_eq(mark.first, 77);
}

Test(kvstore_key, block_refuses_what_is_out_of_range_and_leaves_the_output)
{
	static const int32_t many[KV_BLOCK_TOKENS_MAX + 1];
	const struct kv_media_mark none = {.first = 4}, beyond = {.digest = {1}, .first = 4};
	unsigned char parent[KV_KEY_BYTES] = {7}, key[KV_KEY_BYTES], before[KV_KEY_BYTES];

	memset(key, 0x5a, sizeof key);
	memcpy(before, key, sizeof before);
	cr_expect_eq(kv_key_block(parent, many, 0, &none, key), -EINVAL);
	cr_expect_eq(kv_key_block(parent, many, KV_BLOCK_TOKENS_MAX + 1, &none, key), -EINVAL);
	cr_expect_eq(kv_key_block(parent, many, 4, &beyond, key), -EINVAL);
	cr_expect(are_same(key, before));
	cr_expect_eq(kv_key_block(parent, many, KV_BLOCK_TOKENS_MAX, &none, key), 0);
}

/* ---- threads ---- */

static void *name_blocks(void *argument)
{
	const struct kv_media_mark none = {.first = 4};
	unsigned char *key = argument;

	for (int i = 0; i < 1000; i++)
		(void)kv_key_block(key, tokens, 4, &none, key);
	return NULL;
}

Test(kvstore_key, threads_do_not_disturb_one_another)
{
	unsigned char key[4][KV_KEY_BYTES] = {{0}}, alone[KV_KEY_BYTES] = {0};
	pthread_t thread[4];

	for (int i = 0; i < 4; i++)
		cr_assert_eq(pthread_create(&thread[i], NULL, name_blocks, key[i]), 0);
	for (int i = 0; i < 4; i++)
		cr_assert_eq(pthread_join(thread[i], NULL), 0);
	(void)name_blocks(alone);
	for (int i = 0; i < 4; i++)
		cr_expect(are_same(key[i], alone));
}
