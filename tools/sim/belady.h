/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Farthest next use (Belady), what no policy that cannot see the future beats: in the same pools, with the same leases
 * and the same order of lookups as the policies, so that the gap is the policy's and not the rules'. Much of that gap
 * is luck: on a shuffled trace, where nothing can be learned, it is wide too.
 */
#ifndef CNRE_SIM_BELADY_H
#define CNRE_SIM_BELADY_H

#include "policy/policy.h"
#include "tools/sim/scratch.h"
#include "tools/sim/trace.h"

#define BELADY_NEVER UINT64_MAX

/* When each lookup of a trace comes again; read-only, any number of threads. */
struct sim_future {
	struct sim_scratch scratch;
	const uint64_t *next_use;    /* by the lookup's number: the number of the object's next one, or BELADY_NEVER */
	uint64_t lookup_count;
	uint64_t *first_use;         /* [object_count] for what is resident before */
};

/* unions: an object counts once in a visit (batch, block64). 0 or -errno. */
int sim_future_open(struct sim_future *ret_future, const struct sim_trace *trace, const struct sim_geometry *geometry,
		    int unions, const char *temporary);
void sim_future_close(struct sim_future *future);

/* Who may go, farthest first. Its life is that of a policy (policy/policy.h), plus the number of each lookup. */
struct belady;

int belady_create(struct belady **ret_belady, const struct policy_setup *setup, const struct sim_future *future);
struct belady *belady_destroy(struct belady *belady);
/* Residents, capacities and bounds are kept by a policy that is told the same. */
const struct policy *belady_book(const struct belady *belady);

void belady_visit(struct belady *belady, uint32_t layer, uint32_t tokens);
void belady_access(struct belady *belady, uint32_t object, uint64_t lookup);
void belady_add(struct belady *belady, uint32_t object);
void belady_remove(struct belady *belady, uint32_t object);
/*
 * Whom to replace by `object`: the farthest that the pool allows and that is not leased: mark[it] is not `leased` (0:
 * nothing is). POLICY_NONE: nobody.
 */
uint32_t belady_victim(struct belady *belady, uint32_t object, const uint32_t *mark, uint32_t leased);
/* 1: the object is needed no earlier than the victim, so that keeping the victim is as good. */
int belady_needs_later(const struct belady *belady, uint32_t object, uint32_t victim);

#endif
