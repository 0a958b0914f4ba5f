/* SPDX-License-Identifier: Apache-2.0 */
#include "client/kv.h"
#include "tests/support/child.h"
#include "tests/support/kv_attached.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

TestSuite(client_kv_open, .timeout = 60);

static const int32_t tokens[8] = {1, 2, 3, 4, 5, 6, 7, 8};

static int open_close(struct cnre *client, const char *name, const struct cnre_kv_identity *identity)
{
	struct cnre_kv *kv = (void *)1;
	int r = cnre_kv_open(client, name, identity, &kv);

	if (r == 0)
		cnre_kv_close(kv);
	else
		cr_expect_eq(kv, (void *)1, "untouched on failure");
	return r;
}

Test(client_kv_open, namespace_is_asked_for_once)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_identity identity = kv_attached_identity();

	cr_expect_eq(fake_kv_opens(attached.fake), 1);
	identity.salt = "another";
	cr_expect_eq(open_close(attached.client, NULL, &identity), 0);
	cr_expect_eq(fake_kv_opens(attached.fake), 1);
	cr_expect_eq(open_close(attached.client, "tenant", &identity), 0);
	cr_expect_eq(open_close(attached.client, "tenant", &identity), 0);
	cr_expect_eq(fake_kv_opens(attached.fake), 2, "closing keeps it mapped");
	kv_attached_stop(&attached);
}

Test(client_kv_open, namespaces_share_nothing)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_identity identity = kv_attached_identity();
	struct cnre_kv_chain *chain;
	struct cnre_kv *tenant;

	kv_attached_store_tokens(&attached, tokens, 8);
	cr_assert_eq(cnre_kv_open(attached.client, "tenant", &identity, &tenant), 0);
	cr_expect_eq(cnre_kv_match(tenant, tokens, 8, NULL, 0, &chain), 0);
	cnre_kv_release(chain);
	cnre_kv_close(tenant);
	kv_attached_stop(&attached);
}

Test(client_kv_open, names_are_a_few_harmless_characters)
{
	static const char *const bad[] = {"", "a/b", "a b", "\xc3\xa9", "a\n", "*"};
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_identity identity = kv_attached_identity();
	char name[CNRE_WIRE_KV_NAME_BYTES + 1];

	for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++)
		cr_expect_eq(open_close(attached.client, bad[i], &identity), -EINVAL, "%s", bad[i]);
	memset(name, 'a', sizeof name);
	name[CNRE_WIRE_KV_NAME_BYTES] = '\0';
	cr_expect_eq(open_close(attached.client, name, &identity), -EINVAL);
	name[CNRE_WIRE_KV_NAME_BYTES - 1] = '\0';
	cr_expect_eq(open_close(attached.client, name, &identity), 0);
	cr_expect_eq(open_close(attached.client, "A.z_0-9", &identity), 0);
	kv_attached_stop(&attached);
}

Test(client_kv_open, identity_is_checked)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_identity identity = kv_attached_identity();
	struct cnre_kv *kv;

	identity.block_tokens = 257;
	cr_expect_eq(open_close(attached.client, NULL, &identity), -EINVAL);
	identity.block_tokens = 256;
	cr_expect_eq(open_close(attached.client, NULL, &identity), 0);
	identity.flags = 2;
	cr_expect_eq(open_close(attached.client, NULL, &identity), -EINVAL);
	identity = kv_attached_identity();
	identity.size = 0;
	cr_expect_eq(open_close(attached.client, NULL, &identity), -EINVAL);
	identity = kv_attached_identity();
	cr_expect_eq(cnre_kv_open(attached.client, NULL, NULL, &kv), -EINVAL);
	cr_expect_eq(cnre_kv_open(attached.client, NULL, &identity, NULL), -EINVAL);
	cr_expect_eq(cnre_kv_open(NULL, NULL, &identity, &kv), -EINVAL);
	kv_attached_stop(&attached);
}

Test(client_kv_open, shorter_struct_of_an_older_program_has_defaults)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_identity identity = kv_attached_identity();
	struct cnre_kv *kv;

	identity.size = offsetof(struct cnre_kv_identity, block_tokens);
	cr_assert_eq(cnre_kv_open(attached.client, NULL, &identity, &kv), 0);
	cr_expect_eq(kv->block_tokens, 64);
	cr_expect_eq(kv->block_bytes_max, 0);
	cnre_kv_close(kv);
	kv_attached_stop(&attached);
}

Test(client_kv_open, longer_struct_may_not_ask_for_what_is_not_known)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct {
		struct cnre_kv_identity known;
		uint64_t later;
	} identity = {.known = kv_attached_identity()};

	identity.known.size = sizeof identity;
	cr_expect_eq(open_close(attached.client, NULL, &identity.known), 0);
	identity.later = 1;
	cr_expect_eq(open_close(attached.client, NULL, &identity.known), -EINVAL);
	kv_attached_stop(&attached);
}

Test(client_kv_open, larger_blocks_than_were_agreed_are_asked_for)
{
	struct kv_attached attached = kv_attached_start(&(struct fake_kv_setup){.staging_bytes = 65536}, 0);
	struct cnre_kv_identity identity = kv_attached_identity();

	identity.block_bytes_max = 65537;
	cr_expect_eq(open_close(attached.client, NULL, &identity), -E2BIG);
	identity.block_bytes_max = 65536;
	cr_expect_eq(open_close(attached.client, NULL, &identity), 0);
	cr_expect_eq(fake_kv_opens(attached.fake), 3);
	cr_expect_eq(open_close(attached.client, NULL, &identity), 0);
	cr_expect_eq(fake_kv_opens(attached.fake), 3);
	cr_expect_eq(attached.client->kv_space_count, 1, "it is the same namespace");
	kv_attached_stop(&attached);
}

/* ---- a manager that refuses, or is wrong ---- */

static int open_with(const struct fake_kv_setup *setup)
{
	struct fake_kv *fake = fake_kv_start(setup);
	const struct fake_host_setup host_setup = {.kv = fake};
	const struct cnre_kv_identity identity = kv_attached_identity();
	struct cnre *client;
	struct fake_host *host = attached_start(&host_setup, &client);
	int r = open_close(client, NULL, &identity);

	cr_expect_eq(client->kv_space_count, r == 0);
	attached_stop(host, client);
	fake_kv_stop(fake);
	return r;
}

Test(client_kv_open, status_of_the_manager_is_the_callers)
{
	cr_expect_eq(open_with(&(struct fake_kv_setup){.open_status = -EACCES}), -EACCES);
	cr_expect_eq(open_with(&(struct fake_kv_setup){.open_status = -ENOTSUP}), -ENOTSUP);
	cr_expect_eq(open_with(&(struct fake_kv_setup){.open_status = 5}), -EBADMSG);
}

Test(client_kv_open, segments_that_do_not_fit_each_other_are_ebadmsg)
{
	static const struct fake_kv_setup lies[] = {
		{.said_entries = 1000},
		{.said_entries = CNRE_KV_ENTRIES_MAX + 1},
		{.said_buckets = 24},
		{.said_buckets = 1u << 31},
		{.said_number = 9},
		{.said_channel_entries = 63},
		{.said_staging_bytes = 1u << 30},
	};

	cr_expect_eq(open_with(&(struct fake_kv_setup){0}), 0);
	for (unsigned i = 0; i < sizeof lies / sizeof lies[0]; i++)
		cr_expect_eq(open_with(&lies[i]), -EBADMSG, "lie %u", i);
}

Test(client_kv_open, more_namespaces_than_a_client_may_have_are_enospc)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	const struct cnre_kv_identity identity = kv_attached_identity();
	struct cnre_kv_space *first = attached.client->kv_space[0];

	for (uint32_t i = 1; i < CNRE_KV_NAMESPACES_PER_CLIENT; i++)
		attached.client->kv_space[i] = first;
	attached.client->kv_space_count = CNRE_KV_NAMESPACES_PER_CLIENT;
	cr_expect_eq(open_close(attached.client, "one-more", &identity), -ENOSPC);
	attached.client->kv_space_count = 1;
	kv_attached_stop(&attached);
}

/* ---- the end of things ---- */

Test(client_kv_open, chain_keeps_what_it_needs_of_a_closed_identity)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_chain *chain;
	const void *data;
	uint64_t bytes;

	kv_attached_store_tokens(&attached, tokens, 8);
	cr_assert_eq(cnre_kv_match(attached.kv, tokens, 8, NULL, 0, &chain), 8);
	cnre_kv_close(attached.kv);
	attached.kv = NULL;
	cr_expect_eq(cnre_kv_block(chain, 1, 0, &data, &bytes), 4);
	cr_expect(kv_attached_is_right(data, bytes, 4));
	cnre_kv_release(chain);
	cnre_kv_close(NULL);
	kv_attached_stop(&attached);
}

Test(client_kv_open, detach_with_blocks_leased_keeps_them_readable)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	struct cnre_kv_chain *chain;
	const void *data;
	uint64_t bytes;

	kv_attached_store_tokens(&attached, tokens, 8);
	cr_assert_eq(cnre_kv_match(attached.kv, tokens, 8, NULL, 0, &chain), 8);
	cr_assert_eq(cnre_kv_block(chain, 0, 0, &data, &bytes), 4);
	cnre_detach(attached.client);
	cr_expect_eq(fake_host_detaches(attached.host), 0);
	cr_expect(kv_attached_is_right(data, bytes, 0));
	cr_expect_eq(fake_kv_leases(attached.fake, 0), 1);
	cnre_kv_release(chain);
	cnre_kv_close(attached.kv);
	cnre_detach(attached.client); /* now it can end */
	cr_expect_eq(fake_host_detaches(attached.host), 1);
	fake_host_stop(attached.host);
	fake_kv_stop(attached.fake);
}

struct fork_case {
	struct kv_attached attached;
	struct cnre_kv_chain *chain;
};

static int use_in_child(void *argument)
{
	struct fork_case *test = argument;
	const struct cnre_kv_identity identity = kv_attached_identity();
	struct cnre_kv_chain *chain;
	struct cnre_kv *kv;
	const void *data;
	uint64_t bytes;
	void *buffer;

	if (cnre_kv_open(test->attached.client, NULL, &identity, &kv) != -ECHILD ||
	    cnre_kv_match(test->attached.kv, tokens, 8, NULL, 0, &chain) != -ECHILD ||
	    cnre_kv_route(test->attached.kv, tokens, 8, NULL, 0, NULL, 0) != -ECHILD ||
	    cnre_kv_invalidate(test->attached.kv) != -ECHILD ||
	    cnre_kv_block(test->chain, 0, 0, &data, &bytes) != -ECHILD || cnre_kv_unpin(test->chain) != -ECHILD ||
	    cnre_kv_stage(test->chain, tokens, 4, NULL, 0, 1, &buffer) != -ECHILD ||
	    cnre_kv_commit(test->chain, 0, 0) != -ECHILD)
		return 1;
	cnre_kv_release(test->chain);
	cnre_kv_close(test->attached.kv);
	cnre_detach(test->attached.client);
	return 0;
}

Test(client_kv_open, every_call_in_a_forked_child_is_echild)
{
	struct fork_case test = {.attached = kv_attached_start(NULL, 0)};

	kv_attached_store_tokens(&test.attached, tokens, 8);
	cr_assert_eq(cnre_kv_match(test.attached.kv, tokens, 8, NULL, 0, &test.chain), 8);
	cr_expect_eq(child_run(use_in_child, &test), 0);
	cr_expect_eq(kv_attached_leases(&test.attached), 2, "the parent keeps its own");
	cnre_kv_release(test.chain);
	kv_attached_stop(&test.attached);
}

#define OPENERS 4u

static void *open_named(void *argument)
{
	const struct cnre_kv_identity identity = kv_attached_identity();
	struct cnre_kv *kv = NULL;

	return cnre_kv_open(argument, "together", &identity, &kv) == 0 ? kv : NULL;
}

Test(client_kv_open, threads_that_open_at_once_get_one_namespace)
{
	struct kv_attached attached = kv_attached_start(NULL, 0);
	pthread_t opener[OPENERS];

	for (unsigned i = 0; i < OPENERS; i++)
		cr_assert_eq(pthread_create(&opener[i], NULL, open_named, attached.client), 0);
	for (unsigned i = 0; i < OPENERS; i++) {
		void *kv;

		cr_assert_eq(pthread_join(opener[i], &kv), 0);
		cr_assert_not_null(kv);
		cnre_kv_close(kv);
	}
	cr_expect_eq(attached.client->kv_space_count, 2);
	cr_expect_eq(fake_kv_opens(attached.fake), 2);
	kv_attached_stop(&attached);
}
