/* SPDX-License-Identifier: Apache-2.0 */
/* Traces written down in a test, row by row, with the geometry and costs that a replay wants. */
#ifndef CNRE_TESTS_SUPPORT_HAND_TRACE_H
#define CNRE_TESTS_SUPPORT_HAND_TRACE_H

#include "tools/sim/manifest.h"
#include "tools/sim/replay.h"
#include "tools/sim/trace.h"

struct hand_trace {
	struct sim_geometry geometry;
	struct sim_trace trace;
	struct sim_manifest manifest; /* every expert 1 byte, a miss 1000 us */
	struct sim_model model;
	struct sim_row *row;         /* of trace, to be written */
	uint32_t *object;
	uint64_t row_room, object_room;
};

/* Asserts; in a test's own process only. */
void hand_trace_open(struct hand_trace *hand, uint32_t layers, uint32_t experts, uint32_t top_k);
void hand_trace_close(struct hand_trace *hand);

/* A row of its own call, for a token. Experts end with -1. */
void hand_trace_add(struct hand_trace *hand, uint32_t token, uint32_t layer, const int *experts);
#define HAND_ROW(hand, token, layer, ...) hand_trace_add(hand, token, layer, (const int[]){__VA_ARGS__, -1})
/* The last row belongs to the call of the one before it: one visit of two tokens. */
void hand_trace_join(struct hand_trace *hand);

/* tokens rows in every layer: each top_k distinct experts, the lower numbers the likelier by `skew` (0: uniform). */
void hand_trace_fill(struct hand_trace *hand, uint32_t tokens, double skew, uint32_t rotate, uint64_t seed);

/* Replays; asserts that it works. The caller closes the counts. */
struct sim_counts hand_trace_replay(const struct hand_trace *hand, const struct sim_arm *arm);

#endif
