/* SPDX-License-Identifier: Apache-2.0 */
/* The description of every counter; see counters.def. */
#include "shm/counters.h"

#define COUNTER CNRE_COUNTER_KIND_COUNTER
#define GAUGE CNRE_COUNTER_KIND_GAUGE

const struct cnre_counter_description cnre_counter_table[] = {
#define CNRE_COUNTER(name, kind, unit, sentence) {#name, kind, unit, sentence, offsetof(struct cnre_counters, name)},
#include "shm/counters.def"
#undef CNRE_COUNTER
};

const size_t cnre_counter_count = sizeof cnre_counter_table / sizeof cnre_counter_table[0];
