/* SPDX-License-Identifier: Apache-2.0 */
/* kvstore/block.c: a header that was not written by it, or not for these tokens, is refused, whoever computed its check. */
#include "kvstore/block.h"
#include "kvstore/check_inner.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

TestSuite(kvstore_block, .timeout = 60);

/* Places in the header that are attacked; they are the format. */
enum {
	AT_VERSION = 8,
	AT_FIRST_PADDING = 12,
	AT_FLAGS = 16,
	AT_SECOND_PADDING = 56,
	AT_KEY = 128,
	AT_THIRD_PADDING = 208,
	AT_TOKENS = 256,
	AT_LAST_PADDING = 256 + 4 * 256,
	AT_CHECK = KV_BLOCK_HEADER_BYTES - KV_BLOCK_CHECK_BYTES,
};

static char message[KV_BLOCK_MESSAGE_BYTES];

static void name(struct kv_block *block)
{
	cr_assert_eq(kv_key_block(block->parent, block->token, block->token_count, &block->mark, block->key), 0);
}

static struct kv_block sample(void)
{
	struct kv_block block = {
		.root = {1, 2, 3},
		.parent = {4, 5, 6},
		.mark = {.digest = {7}, .first = 3},
		.position = 128,
		.bytes = 123456,
		.compute_ns = 1234567890123,
		.token_count = 60,
		.block_tokens = 64,
		.flags = KV_BLOCK_POINT | KV_BLOCK_CHECKPOINTS,
		.check = {8, 9},
	};

	for (int32_t i = 0; i < 60; i++)
		block.token[i] = 1000 * i - 7;
	name(&block);
	return block;
}

/* As an attacker does. */
static void seal(unsigned char *header)
{
	kv_check_payload(header, AT_CHECK, header + AT_CHECK);
}

static int decodes_to(const unsigned char *header)
{
	static const struct kv_block untouched = {.bytes = 42};
	struct kv_block block = untouched;
	int r;

	message[0] = '\0';
	r = kv_block_decode(header, &block, message);
	if (r < 0) {
		cr_expect_eq(memcmp(&block, &untouched, sizeof block), 0, "the output of a failure was touched");
		cr_expect_neq(message[0], '\0', "no message");
	}
	return r;
}

Test(kvstore_block, what_was_encoded_is_decoded)
{
	unsigned char header[KV_BLOCK_HEADER_BYTES];
	struct kv_block block = sample(), again;

	kv_block_encode(&block, header);
	cr_assert_eq(kv_block_decode(header, &again, message), 0, "%s", message);
	cr_expect_eq(memcmp(&block, &again, sizeof block), 0);
}

Test(kvstore_block, extremes_are_taken)
{
	unsigned char header[KV_BLOCK_HEADER_BYTES];
	struct kv_block block = {.bytes = KV_BLOCK_BYTES_MAX,
				 .compute_ns = UINT64_MAX,
				 .token_count = KV_BLOCK_TOKENS_MAX,
				 .block_tokens = KV_BLOCK_TOKENS_MAX,
				 .mark = {.first = KV_BLOCK_TOKENS_MAX}};
	struct kv_block again;

	for (unsigned i = 0; i < KV_BLOCK_TOKENS_MAX; i++)
		block.token[i] = i % 2 == 0 ? INT32_MIN : INT32_MAX;
	name(&block);
	kv_block_encode(&block, header);
	cr_assert_eq(kv_block_decode(header, &again, message), 0, "%s", message);
	cr_expect_eq(memcmp(&block, &again, sizeof block), 0);
	block.token_count = block.block_tokens = block.mark.first = 1;
	block.bytes = 1;
	memset(block.token + 1, 0, sizeof block.token - sizeof block.token[0]);
	name(&block);
	kv_block_encode(&block, header);
	cr_expect_eq(kv_block_decode(header, &again, message), 0, "%s", message);
}

Test(kvstore_block, every_flipped_bit_is_refused)
{
	unsigned char header[KV_BLOCK_HEADER_BYTES];
	struct kv_block block = sample();
	unsigned refused = 0;

	kv_block_encode(&block, header);
	for (unsigned bit = 0; bit < 8 * KV_BLOCK_HEADER_BYTES; bit++) {
		header[bit / 8] ^= (unsigned char)(1u << bit % 8);
		refused += decodes_to(header) == -EBADMSG;
		header[bit / 8] ^= (unsigned char)(1u << bit % 8);
	}
	cr_expect_eq(refused, 8 * KV_BLOCK_HEADER_BYTES);
	cr_expect_eq(decodes_to(header), 0);
}

/* A file that was cut reads as zeros from there on, or as something else. */
Test(kvstore_block, a_header_that_was_cut_is_refused)
{
	unsigned char header[KV_BLOCK_HEADER_BYTES], cut[KV_BLOCK_HEADER_BYTES];
	struct kv_block block = sample();

	kv_block_encode(&block, header);
	for (unsigned length = 0; length < KV_BLOCK_HEADER_BYTES; length += 64) {
		memset(cut, 0, sizeof cut);
		memcpy(cut, header, length);
		cr_expect_eq(decodes_to(cut), -EBADMSG, "cut at %u", length);
		memset(cut + length, 0xff, sizeof cut - length);
		cr_expect_eq(decodes_to(cut), -EBADMSG, "cut at %u", length);
	}
}

Test(kvstore_block, a_newer_version_is_eproto_and_an_older_one_is_none)
{
	unsigned char header[KV_BLOCK_HEADER_BYTES];
	struct kv_block block = sample();

	kv_block_encode(&block, header);
	header[AT_VERSION] = 2;
	seal(header);
	cr_expect_eq(decodes_to(header), -EPROTO);
	header[AT_VERSION] = 0;
	seal(header);
	cr_expect_eq(decodes_to(header), -EBADMSG);
}

/* ---- values that nobody honest writes, with every check right ---- */

static void expect_refused(const struct kv_block *block, const char *what)
{
	unsigned char header[KV_BLOCK_HEADER_BYTES];

	kv_block_encode(block, header);
	cr_expect_eq(decodes_to(header), -EBADMSG, "%s was accepted", what);
}

Test(kvstore_block, counts_out_of_range_are_refused)
{
	struct kv_block block = sample();

	block.block_tokens = 0;
	expect_refused(&block, "block_tokens 0");
	block.block_tokens = KV_BLOCK_TOKENS_MAX + 1;
	block.position = 0;
	expect_refused(&block, "block_tokens beyond the bound");
	block = sample();
	block.token_count = 0;
	expect_refused(&block, "token_count 0");
	block.token_count = 65;
	name(&block);
	expect_refused(&block, "token_count beyond block_tokens");
	block.token_count = UINT32_MAX;
	expect_refused(&block, "token_count beyond all");
	block = sample();
	block.bytes = 0;
	expect_refused(&block, "bytes 0");
	block.bytes = KV_BLOCK_BYTES_MAX + 1;
	expect_refused(&block, "bytes beyond the bound");
	block.bytes = UINT64_MAX;
	expect_refused(&block, "bytes beyond all");
	block = sample();
	block.flags |= 4;
	expect_refused(&block, "an unknown flag");
}

Test(kvstore_block, position_must_be_a_multiple_and_fit_the_parent)
{
	struct kv_block block = sample();

	block.position = 127;
	expect_refused(&block, "position 127");
	block.position = UINT64_MAX - 63;
	expect_refused(&block, "a position that wraps");
	block.position = 0;
	expect_refused(&block, "position 0 with a parent that is not the root");
	block = sample();
	memcpy(block.root, block.parent, sizeof block.root);
	expect_refused(&block, "position 128 with the root as parent");
}

Test(kvstore_block, a_name_that_is_not_the_content_s_is_refused)
{
	struct kv_block block = sample();

	block.token[59]++;
	expect_refused(&block, "another token");
	cr_expect_not(kv_block_is_named_right(&block));
	block = sample();
	cr_expect(kv_block_is_named_right(&block));
	block.parent[31] ^= 1;
	expect_refused(&block, "another parent");
	block = sample();
	block.mark.digest[31] ^= 1;
	expect_refused(&block, "other media");
	block = sample();
	block.mark.first = 4;
	expect_refused(&block, "media at another place");
	block = sample();
	block.key[0] ^= 1;
	expect_refused(&block, "another key");
	block = sample();
	block.token_count = 59;
	expect_refused(&block, "a token fewer");
}

Test(kvstore_block, place_of_media_fits_whether_there_are_any)
{
	struct kv_block block = sample();

	memset(block.mark.digest, 0, sizeof block.mark.digest);
	name(&block);
	expect_refused(&block, "no media, but a place");
	block = sample();
	block.mark.first = 60;
	expect_refused(&block, "media behind the tokens");
	block.mark.first = UINT32_MAX;
	expect_refused(&block, "media far behind the tokens");
}

Test(kvstore_block, padding_must_be_zero)
{
	static const unsigned places[] = {AT_FIRST_PADDING,    AT_SECOND_PADDING, AT_THIRD_PADDING, AT_TOKENS + 4 * 60,
					  AT_TOKENS + 4 * 255, AT_LAST_PADDING,   AT_CHECK - 1};
	unsigned char header[KV_BLOCK_HEADER_BYTES];
	struct kv_block block = sample();

	for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
		kv_block_encode(&block, header);
		header[places[i]] = 1;
		seal(header);
		cr_expect_eq(decodes_to(header), -EBADMSG, "byte %u", places[i]);
	}
}

/* ---- check ---- */

/* What xxHash publishes as XXH3-128 of nothing, seed 0: 99aa06d3014798d86001c324468d497f. */
Test(kvstore_block, check_is_canonical_xxh3_128)
{
	static const unsigned char of_nothing[KV_BLOCK_CHECK_BYTES] = {0x99, 0xaa, 0x06, 0xd3, 0x01, 0x47, 0x98, 0xd8,
								       0x60, 0x01, 0xc3, 0x24, 0x46, 0x8d, 0x49, 0x7f};
	unsigned char check[KV_BLOCK_CHECK_BYTES];

	kv_check_payload("", 0, check);
	cr_expect_eq(memcmp(check, of_nothing, sizeof check), 0);
}

Test(kvstore_block, payload_is_checked_alike_at_once_and_in_pieces)
{
	enum { BYTES = 100000 };
	unsigned char *payload = malloc(BYTES), whole[KV_BLOCK_CHECK_BYTES], pieces[KV_BLOCK_CHECK_BYTES];
	static const size_t steps[] = {1, 63, 64, 4096, 65536};
	struct kv_check *check;

	for (size_t i = 0; i < BYTES; i++)
		payload[i] = (unsigned char)(i * 7 + i / 256);
	kv_check_payload(payload, BYTES, whole);
	cr_assert_eq(kv_check_open(&check), 0);
	for (size_t k = 0; k < sizeof steps / sizeof steps[0]; k++) {
		kv_check_begin(check);
		for (size_t at = 0; at < BYTES; at += steps[k])
			kv_check_add(check, payload + at, BYTES - at < steps[k] ? BYTES - at : steps[k]);
		kv_check_end(check, pieces);
		cr_expect_eq(memcmp(whole, pieces, sizeof whole), 0, "step %zu", steps[k]);
	}
	payload[BYTES - 1] ^= 1;
	kv_check_payload(payload, BYTES, pieces);
	cr_expect_neq(memcmp(whole, pieces, sizeof whole), 0);
	cr_expect_null(kv_check_close(check));
	cr_expect_null(kv_check_close(NULL));
	free(payload);
}

/* Around what the hash treats apart: nothing, 16, 128, 240 bytes, a stripe, its blocks of 1024. */
Test(kvstore_block, each_kind_of_cpu_checks_alike)
{
	static const size_t sizes[] = {0, 1, 3, 4, 8, 9, 16, 17, 128, 129, 240, 241, 255, 256, 257, 1023, 1024, 1025, 4096, 100000};
	const struct kv_checker *other = kv_checker_avx2(), *plain = &kv_checker_plain;
	unsigned char *payload = malloc(100000), a[KV_BLOCK_CHECK_BYTES], b[KV_BLOCK_CHECK_BYTES];
	void *state;

	if (other == NULL)
		cr_skip_test("no AVX2");
	for (size_t i = 0; i < 100000; i++)
		payload[i] = (unsigned char)(i * 11 + i / 256);
	state = aligned_alloc(other->state_alignment, other->state_bytes);
	memset(state, 0, other->state_bytes);
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		plain->whole(payload, sizes[i], a);
		other->whole(payload, sizes[i], b);
		cr_expect_eq(memcmp(a, b, sizeof a), 0, "%zu bytes", sizes[i]);
		other->begin(state);
		other->add(state, payload, sizes[i] / 3);
		other->add(state, payload + sizes[i] / 3, sizes[i] - sizes[i] / 3);
		other->end(state, b);
		cr_expect_eq(memcmp(a, b, sizeof a), 0, "%zu bytes in two pieces", sizes[i]);
	}
	free(state);
	free(payload);
}
