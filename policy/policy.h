/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Residency decisions, pure: no I/O, no clock, no allocation after creation, all inputs as arguments. The same object
 * files run in the manager and in the simulator. Objects are numbers below object_count; the caller owns what a number
 * means. A policy orders; it never evicts: the caller asks for victims in order, skips those that are leased, and says
 * which one it took.
 */
#ifndef CNRE_POLICY_POLICY_H
#define CNRE_POLICY_POLICY_H

#include <stdint.h>

#define POLICY_NONE UINT32_MAX

struct policy;

struct policy_setup {
	uint32_t object_count;
	uint32_t layer_count;
	const uint32_t *layer_of;         /* [object_count]; read during creation only */
	const uint64_t *bytes_of;         /* [object_count]; what each occupies; read during creation only */
};

/* 0, -ENOENT (no policy of that name) or -ENOMEM. */
int policy_create(struct policy **ret_policy, const char *name, const struct policy_setup *setup);
struct policy *policy_destroy(struct policy *policy); /* NULL is fine; returns NULL */
const char *policy_name(const struct policy *policy);
/* The names known, in order; NULL behind the last. */
const char *policy_name_at(unsigned index);

/* A layer visit of one client begins; it stands for token_count tokens. The clock of all policies (never wall time). */
void policy_visit(struct policy *policy, uint32_t layer, uint32_t token_count);

/* A client looked an object up; resident says what it found. */
void policy_access(struct policy *policy, uint32_t object, int resident);

/* The object became resident, or ceased to be. An object is removed only after it was added. */
void policy_add(struct policy *policy, uint32_t object);
void policy_remove(struct policy *policy, uint32_t object);

/*
 * Residents in the order in which they should go, worst first: previous POLICY_NONE begins, then each returned object
 * in turn; POLICY_NONE ends. Valid until the next call that changes the policy.
 */
uint32_t policy_victim(const struct policy *policy, uint32_t previous);

#endif
