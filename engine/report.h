/* SPDX-License-Identifier: Apache-2.0 */
/* What a run came to, for people or as JSON. Only main.c prints, too, and serve.c. */
#ifndef ENGINE_REPORT_H
#define ENGINE_REPORT_H

#include "engine/conversation.h"
#include "engine/expert_source.h"

#include <stdbool.h>
#include <stdint.h>

struct report {
	const uint32_t *tokens;           /* the generated ones */
	uint32_t steps, prompt_tokens, threads;
	uint64_t load_ns, prefill_ns;
	uint64_t decode_ns;               /* of steps - 1 passes: the first token comes from the prefill */
	const char *cache, *kernel;
	const char *kv;                   /* "cnre" or "none": whether a store of prefixes was in use */
	const struct turn_result *turn;
	struct source_counters counters;
};

/* Writes to standard output. Returns 0 or -EIO. */
int report_print(const struct report *report, bool json);

#endif
