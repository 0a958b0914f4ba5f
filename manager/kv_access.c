/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of namespaces; see kv_access.h. */
#include "manager/kv_access.h"

#include "base/message.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59 /* Linux 4.13 */
#endif

struct member {
	int is_group;
	uint32_t id;
};

struct rule {
	char name[KV_NAME_BYTES];
	struct member member[KV_ACCESS_MEMBERS_MAX];
	uint32_t member_count;
};

struct kv_access {
	struct rule rule[SETTINGS_LIST_MAX];
	uint32_t rule_count;
};

int kv_access_is_name(const char *name)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
	size_t n = strnlen(name, KV_NAME_BYTES);

	return n > 0 && n < KV_NAME_BYTES && name[0] != '.' && strspn(name, allowed) == n;
}

/* ---- reading ---- */

static int number_of(const char *text, uint32_t *ret_id)
{
	char *end;
	unsigned long value;

	if (text[0] < '0' || text[0] > '9')
		return 0;
	errno = 0;
	value = strtoul(text, &end, 10);
	if (errno != 0 || *end != '\0' || value >= UINT32_MAX)
		return 0;
	*ret_id = (uint32_t)value;
	return 1;
}

static int find_id(const char *text, int is_group, uint32_t *ret_id)
{
	const struct passwd *user;
	const struct group *group;

	if (number_of(text, ret_id))
		return 0;
	if (is_group) {
		group = getgrnam(text);
		if (group == NULL)
			return -ENOENT;
		*ret_id = group->gr_gid;
		return 0;
	}
	user = getpwnam(text);
	if (user == NULL)
		return -ENOENT;
	*ret_id = user->pw_uid;
	return 0;
}

static int refuse(const char *rule, const char *why, char *message)
{
	(void)snprintf(message, KV_ACCESS_MESSAGE_BYTES, "--kv-allow %.100s: %.60s: write NAME=user:U,group:G", rule, why);
	return -EINVAL;
}

static int add_member(struct rule *rule, const char *text, const char *whole, char *message)
{
	int is_group = strncmp(text, "group:", 6) == 0;
	struct member *member = &rule->member[rule->member_count];

	if (!is_group && strncmp(text, "user:", 5) != 0)
		return refuse(whole, "a member is user:NAME or group:NAME", message);
	if (rule->member_count == KV_ACCESS_MEMBERS_MAX)
		return refuse(whole, "too many members, name a group", message);
	member->is_group = is_group;
	if (find_id(text + (is_group ? 6 : 5), is_group, &member->id) < 0)
		return refuse(whole, "no such user or group", message);
	rule->member_count++;
	return 0;
}

static int read_rule(struct kv_access *access, const char *text, char *message)
{
	struct rule *rule = &access->rule[access->rule_count];
	char copy[1024], *members, *place, *part;
	int r = 0;

	if (strlen(text) >= sizeof copy)
		return refuse(text, "it is too long", message);
	strcpy(copy, text);
	members = strchr(copy, '=');
	if (members == NULL)
		return refuse(text, "it has no members", message);
	*members++ = '\0';
	if (!kv_access_is_name(copy))
		return refuse(text, "a name is 1 to 63 letters, digits, '.', '_' or '-'", message);
	for (uint32_t i = 0; i < access->rule_count; i++)
		if (strcmp(access->rule[i].name, copy) == 0)
			return refuse(text, "it is given twice", message);
	(void)snprintf(rule->name, sizeof rule->name, "%s", copy);
	for (part = strtok_r(members, ",", &place); part != NULL && r == 0; part = strtok_r(NULL, ",", &place))
		r = add_member(rule, part, text, message);
	if (r == 0 && rule->member_count == 0)
		r = refuse(text, "it has no members", message);
	access->rule_count += r == 0;
	return r;
}

int kv_access_open(struct kv_access **ret_access, const struct settings_list *rules, char message[KV_ACCESS_MESSAGE_BYTES])
{
	struct kv_access *access = calloc(1, sizeof *access);

	if (access == NULL) {
		(void)snprintf(message, KV_ACCESS_MESSAGE_BYTES, "out of memory for --kv-allow");
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < rules->count; i++) {
		int r = read_rule(access, rules->item[i], message);

		if (r < 0) {
			free(access);
			return r;
		}
	}
	*ret_access = access;
	return 0;
}

struct kv_access *kv_access_close(struct kv_access *access)
{
	free(access);
	return NULL;
}

/* ---- asking ---- */

static int has_group(const struct rule *rule, gid_t gid)
{
	for (uint32_t i = 0; i < rule->member_count; i++)
		if (rule->member[i].is_group && rule->member[i].id == gid)
			return 1;
	return 0;
}

/* The kernel keeps the groups that the peer had when it connected. */
static int has_any_group(const struct rule *rule, int socket)
{
	gid_t groups[KV_ACCESS_GROUPS_MAX];
	socklen_t bytes = sizeof groups;

	if (socket < 0 || getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups, &bytes) < 0)
		return 0;
	for (size_t i = 0; i < bytes / sizeof groups[0]; i++)
		if (has_group(rule, groups[i]))
			return 1;
	return 0;
}

static int is_member(const struct rule *rule, uid_t uid, gid_t gid, int socket)
{
	for (uint32_t i = 0; i < rule->member_count; i++)
		if (!rule->member[i].is_group && rule->member[i].id == uid)
			return 1;
	return uid == 0 || has_group(rule, gid) || has_any_group(rule, socket);
}

static const struct rule *find_rule(const struct kv_access *access, const char *name)
{
	for (uint32_t i = 0; i < access->rule_count; i++)
		if (strcmp(access->rule[i].name, name) == 0)
			return &access->rule[i];
	return NULL;
}

#define SHARED "shared."

int kv_access_is_full(const struct kv_access *access, const char *name)
{
	size_t digits = name[0] == 'u' ? strspn(name + 1, "0123456789") : 0;

	if (strncmp(name, SHARED, strlen(SHARED)) == 0)
		return find_rule(access, name + strlen(SHARED)) != NULL;
	return digits > 0 && (name[1 + digits] == '\0' || (name[1 + digits] == '.' && kv_access_is_name(name + 2 + digits)));
}

int kv_access_may_see(const struct kv_access *access, const char *full_name, uid_t uid, gid_t gid, int socket)
{
	const struct rule *rule;
	char own[32];
	size_t n = (size_t)snprintf(own, sizeof own, "u%u", uid);

	if (strncmp(full_name, own, n) == 0 && (full_name[n] == '\0' || full_name[n] == '.'))
		return 1;
	if (strncmp(full_name, SHARED, strlen(SHARED)) != 0)
		return 0;
	rule = find_rule(access, full_name + strlen(SHARED));
	return rule != NULL && is_member(rule, uid, gid, socket);
}

int kv_access_resolve(const struct kv_access *access, const char *name, uid_t uid, gid_t gid, int socket,
		      char *ret_name, size_t size, char message[KV_ACCESS_MESSAGE_BYTES])
{
	const struct rule *rule;

	if (name == NULL) {
		(void)snprintf(ret_name, size, "u%u", uid);
		return 0;
	}
	if (!kv_access_is_name(name)) {
		(void)snprintf(message, KV_ACCESS_MESSAGE_BYTES,
			       "a KV namespace is 1 to 63 letters, digits, '.', '_' or '-', and does not begin with a dot");
		return -EINVAL;
	}
	rule = find_rule(access, name);
	if (rule == NULL) {
		(void)snprintf(ret_name, size, "u%u.%s", uid, name);
		return 0;
	}
	if (!is_member(rule, uid, gid, socket)) {
		(void)snprintf(message, KV_ACCESS_MESSAGE_BYTES,
			       "KV namespace %.63s is configured for others: add user:%u to its --kv-allow", name, uid);
		return -EACCES;
	}
	(void)snprintf(ret_name, size, SHARED "%s", name);
	return 0;
}
