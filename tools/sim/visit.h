/* SPDX-License-Identifier: Apache-2.0 */
/* Visits of a trace: the rows of one call in one layer, which is what an engine looks up together. Pure. */
#ifndef CNRE_SIM_VISIT_H
#define CNRE_SIM_VISIT_H

#include "tools/sim/trace.h"

struct sim_visit {
	uint64_t first_row, end_row;
	uint32_t layer, tokens, token; /* token: of its first row */
};

/* The visit that begins with a row of the trace. */
static inline struct sim_visit sim_visit_at(const struct sim_trace *trace, uint64_t row)
{
	const struct sim_row *first = &trace->row[row], *next = first;
	struct sim_visit visit = {.first_row = row, .end_row = row, .layer = first->layer, .token = first->token};

	do {
		visit.tokens += next->tokens;
		visit.end_row++;
		next++;
	} while (visit.end_row < trace->row_count && next->call == first->call && next->layer == first->layer &&
		 next->client == first->client);
	return visit;
}

#endif
