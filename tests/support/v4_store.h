/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What Colibri's DeepSeek V4 engine has around an expert store, as far as a backend can see it: the registry, and a
 * built-in store named "auto" whose state others look into without asking whose it is. Ours, for tests only; the
 * headers in tests/support/colibri/ say what is imitated. Nothing here asserts.
 */
#ifndef CNRE_TESTS_SUPPORT_V4_STORE_H
#define CNRE_TESTS_SUPPORT_V4_STORE_H

#include "tests/support/colibri/expert_store_registry.h"

#include <stdatomic.h>

/* The built-in store's state. Every view of it has zeros for data. */
struct v4_builtin {
	unsigned magic;                   /* V4_BUILTIN_MAGIC, or whoever looks has another's state */
	_Atomic unsigned lookups, leases, emaps, fails; /* fails: so many lookups fail from now on */
};
#define V4_BUILTIN_MAGIC 0x56344255u

/* Stores of the built-in kind that were opened and not destroyed, and how many opens fail from now on. */
extern _Atomic int v4_builtins_open, v4_builtin_opens_fail;

/* As the engine's helpers: looks into the state of any store. -1: it is not the built-in one's. */
int v4_helper_looks(const ColiExpertStore *store);

/* The inline functions of the engine around the operations. */
int v4_lookup(ColiExpertStore *store, int layer, int expert, ColiExpertView *view);
void v4_release(ColiExpertStore *store, ColiExpertView *view);

#endif
