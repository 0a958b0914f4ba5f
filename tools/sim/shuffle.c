/* SPDX-License-Identifier: Apache-2.0 */
/* The shuffled null; see shuffle.h. */
#include "tools/sim/shuffle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t draw(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/* Which experts a row has; where and whose it is stays. */
static void swap_experts(struct sim_row *a, struct sim_row *b)
{
	struct sim_row old = *a;

	a->first = b->first;
	a->count = b->count;
	b->first = old.first;
	b->count = old.count;
}

/* Row numbers by layer: those of layer i are order[begin[i]..begin[i + 1]). */
static void order_by_layer(const struct sim_trace *trace, uint32_t layers, uint64_t *begin, uint64_t *order)
{
	for (uint64_t i = 0; i < trace->row_count; i++)
		begin[trace->row[i].layer + 1]++;
	for (uint32_t i = 0; i < layers; i++)
		begin[i + 1] += begin[i];
	for (uint64_t i = trace->row_count; i-- > 0;)
		order[--begin[trace->row[i].layer + 1]] = i;
	for (uint32_t i = 0; i < layers; i++)
		begin[i] = begin[i + 1];
	begin[layers] = trace->row_count;
}

/* Fisher-Yates. */
static void shuffle(struct sim_row *row, const uint64_t *order, uint64_t count, uint64_t *state)
{
	for (uint64_t left = count; left > 1; left--)
		swap_experts(&row[order[left - 1]], &row[order[draw(state) % left]]);
}

int sim_shuffled_open(struct sim_shuffled *ret_shuffled, const struct sim_trace *trace,
		      const struct sim_geometry *geometry, uint64_t seed, const char *temporary)
{
	uint64_t *begin = calloc(geometry->layer_count + (size_t)1, sizeof *begin), state = seed;
	struct sim_scratch rows = {0}, order = {0};
	int r = begin == NULL ? -ENOMEM : 0;

	if (r == 0)
		r = sim_scratch_open(&rows, temporary, trace->row_count, sizeof *trace->row);
	if (r == 0)
		r = sim_scratch_open(&order, temporary, trace->row_count, sizeof *begin);
	if (r < 0)
		goto close_all;
	memcpy(rows.memory, trace->row, trace->row_count * sizeof *trace->row);
	order_by_layer(trace, geometry->layer_count, begin, order.memory);
	for (uint32_t i = 0; i < geometry->layer_count; i++)
		shuffle(rows.memory, (uint64_t *)order.memory + begin[i], begin[i + 1] - begin[i], &state);
	*ret_shuffled = (struct sim_shuffled){.trace = *trace, .rows = rows};
	ret_shuffled->trace.row = rows.memory;
	rows = (struct sim_scratch){0};
close_all:
	free(begin);
	sim_scratch_close(&order);
	sim_scratch_close(&rows);
	return r;
}

void sim_shuffled_close(struct sim_shuffled *shuffled)
{
	sim_scratch_close(&shuffled->rows);
	*shuffled = (struct sim_shuffled){0};
}
