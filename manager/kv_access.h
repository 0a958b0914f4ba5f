/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may open which namespace. By its user: every user has namespaces that are nobody else's. Sharing is configured:
 *
 *   --kv-allow NAME=user:ann,user:1007,group:research
 *
 * and NAME is then one namespace for all of these, and for nobody else. Full names, which are also names of folders:
 *
 *   u1000            the one of user 1000 that has no name
 *   u1000.NAME       one that user 1000 named
 *   shared.NAME      a configured one
 */
#ifndef CNRE_MANAGER_KV_ACCESS_H
#define CNRE_MANAGER_KV_ACCESS_H

#include "manager/settings.h"

#include <sys/types.h>

#define KV_ACCESS_MESSAGE_BYTES 256u
#define KV_ACCESS_MEMBERS_MAX 32u         /* of one rule */
#define KV_ACCESS_GROUPS_MAX 256u         /* of one peer */
#define KV_NAME_BYTES 64u                 /* as a client says it, with its end */

struct kv_access;

/* 0, or -EINVAL: a rule that says nothing, names nobody known, or is given twice. */
int kv_access_open(struct kv_access **ret_access, const struct settings_list *rules, char message[KV_ACCESS_MESSAGE_BYTES]);
struct kv_access *kv_access_close(struct kv_access *access);

/* 1: 1..63 of [A-Za-z0-9._-], no dot first. */
int kv_access_is_name(const char *name);

/*
 * The full name of what a peer means by `name` (NULL: the one without a name). socket: where the kernel knows its groups; -1:
 * only its own. Root may open every configured one.
 * Returns:  0, -EINVAL (no such name can be), -EACCES (configured for others); message: what to do.
 */
int kv_access_resolve(const struct kv_access *access, const char *name, uid_t uid, gid_t gid, int socket,
		      char *ret_name, size_t size, char message[KV_ACCESS_MESSAGE_BYTES]);

/* 1: a full name as above: of any user, or a configured one. */
int kv_access_is_full(const struct kv_access *access, const char *name);

/* 1: a namespace of that full name is one that the peer may open. */
int kv_access_may_see(const struct kv_access *access, const char *full_name, uid_t uid, gid_t gid, int socket);

#endif
