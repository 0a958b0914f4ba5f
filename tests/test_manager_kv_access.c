/* SPDX-License-Identifier: Apache-2.0 */
/* Who may open which KV namespace, and that no two meanings have one name. */
#include "manager/kv_access.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

TestSuite(manager_kv_access, .timeout = 10);

static char message[KV_ACCESS_MESSAGE_BYTES];

static struct kv_access *open_rules(const char *first, const char *second)
{
	struct settings_list rules = {.item = {(char *)first, (char *)second}, .count = (first != NULL) + (second != NULL)};
	struct kv_access *access = NULL;

	cr_assert_eq(kv_access_open(&access, &rules, message), 0, "%s", message);
	return access;
}

static const char *resolve(const struct kv_access *access, const char *name, uid_t uid, gid_t gid)
{
	static char full[128];

	return kv_access_resolve(access, name, uid, gid, -1, full, sizeof full, message) < 0 ? NULL : full;
}

Test(manager_kv_access, without_rules_every_user_has_namespaces_of_its_own)
{
	struct kv_access *access = open_rules(NULL, NULL);

	cr_expect_str_eq(resolve(access, NULL, 1000, 1000), "u1000");
	cr_expect_str_eq(resolve(access, NULL, 1001, 1000), "u1001");
	cr_expect_str_eq(resolve(access, "chat", 1000, 1000), "u1000.chat");
	cr_expect_str_eq(resolve(access, "chat", 1001, 1000), "u1001.chat");
	cr_expect_str_eq(resolve(access, "chat", 0, 0), "u0.chat", "root's own, not somebody's");
	kv_access_close(access);
}

Test(manager_kv_access, a_configured_one_is_shared_by_its_members_and_nobody_else)
{
	struct kv_access *access = open_rules("team=user:1000,group:77", "other=user:root");

	cr_expect_str_eq(resolve(access, "team", 1000, 1), "shared.team");
	cr_expect_str_eq(resolve(access, "team", 2000, 77), "shared.team");
	cr_expect_str_eq(resolve(access, "team", 0, 0), "shared.team");
	cr_expect_null(resolve(access, "team", 2000, 78));
	cr_expect_not_null(strstr(message, "user:2000"), "%s", message);
	cr_expect_null(resolve(access, "other", 1000, 77));
	cr_expect_str_eq(resolve(access, "unnamed", 2000, 78), "u2000.unnamed");
	kv_access_close(access);
}

/* A name that a user chose can never be another user's, a shared one, or a path. */
Test(manager_kv_access, names_that_could_mean_something_else_are_refused)
{
	static const char *const bad[] = {"", ".", "..", ".hidden", "a/b", "a b", "a\nb", "a\xff"};
	struct kv_access *access = open_rules(NULL, NULL);
	char longest[KV_NAME_BYTES + 1];

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		cr_expect_null(resolve(access, bad[i], 1000, 1000), "\"%s\"", bad[i]);
	memset(longest, 'x', sizeof longest);
	longest[KV_NAME_BYTES] = '\0';
	cr_expect_null(resolve(access, longest, 1000, 1000));
	longest[KV_NAME_BYTES - 1] = '\0';
	cr_expect_not_null(resolve(access, longest, 1000, 1000));
	cr_expect_str_eq(resolve(access, "u1001", 1000, 1000), "u1000.u1001");
	cr_expect_str_eq(resolve(access, "shared.x", 1000, 1000), "u1000.shared.x");
	kv_access_close(access);
}

Test(manager_kv_access, rules_that_say_nothing_are_refused_with_what_to_write)
{
	static const char *const bad[] = {"team", "team=", "team=1000", "te/am=user:1", "team=user:nobody-of-that-name-here",
					  "team=group:", "=user:1", "team=user:99999999999"};

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct settings_list rules = {.item = {(char *)bad[i]}, .count = 1};
		struct kv_access *access = NULL;

		cr_expect_eq(kv_access_open(&access, &rules, message), -EINVAL, "%s", bad[i]);
		cr_expect_null(access);
		cr_expect_not_null(strstr(message, "write NAME=user:U,group:G"), "%s", message);
	}
	{
		struct settings_list twice = {.item = {"team=user:1", "team=user:2"}, .count = 2};
		struct kv_access *access = NULL;

		cr_expect_eq(kv_access_open(&access, &twice, message), -EINVAL);
	}
}

Test(manager_kv_access, full_names_are_those_of_users_and_of_rules)
{
	struct kv_access *access = open_rules("team=user:1000", NULL);

	cr_expect(kv_access_is_full(access, "u1000"));
	cr_expect(kv_access_is_full(access, "u0.chat"));
	cr_expect(kv_access_is_full(access, "shared.team"));
	cr_expect_not(kv_access_is_full(access, "shared.other"));
	cr_expect_not(kv_access_is_full(access, "team"));
	cr_expect_not(kv_access_is_full(access, "u"));
	cr_expect_not(kv_access_is_full(access, "u1000x"));
	cr_expect_not(kv_access_is_full(access, "u1000."));
	cr_expect_not(kv_access_is_full(access, "u1000.a/b"));
	cr_expect_not(kv_access_is_full(access, "u1000..x"));
	kv_access_close(access);
}
