/* SPDX-License-Identifier: Apache-2.0 */
/* The check of payloads, see block.h; check_inner.h has how. */
#include "kvstore/check_inner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct kv_checker *choose(void)
{
	const struct kv_checker *checker = kv_checker_avx2();

	return checker != NULL ? checker : &kv_checker_plain;
}

struct kv_check {
	const struct kv_checker *checker;
	void *state;
};

int kv_check_open(struct kv_check **ret_check)
{
	struct kv_check *check = calloc(1, sizeof *check);

	if (check == NULL)
		return -ENOMEM;
	check->checker = choose();
	/* The state has vectors in it; its alignment is more than malloc's, and its size a multiple of that. */
	check->state = aligned_alloc(check->checker->state_alignment, check->checker->state_bytes);
	if (check->state == NULL) {
		free(check);
		return -ENOMEM;
	}
	memset(check->state, 0, check->checker->state_bytes);
	*ret_check = check;
	return 0;
}

struct kv_check *kv_check_close(struct kv_check *check)
{
	if (check != NULL)
		free(check->state);
	free(check);
	return NULL;
}

void kv_check_begin(struct kv_check *check)
{
	check->checker->begin(check->state);
}

void kv_check_add(struct kv_check *check, const void *bytes, size_t count)
{
	check->checker->add(check->state, bytes, count);
}

void kv_check_end(struct kv_check *check, unsigned char ret_check[KV_BLOCK_CHECK_BYTES])
{
	check->checker->end(check->state, ret_check);
}

void kv_check_payload(const void *payload, size_t bytes, unsigned char ret_check[KV_BLOCK_CHECK_BYTES])
{
	choose()->whole(payload, bytes, ret_check);
}
