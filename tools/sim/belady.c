/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Farthest next use; see belady.h. Residents stand in heaps, farthest on top: one in all where the pool is global, one
 * a layer otherwise. Objects of a layer are adjacent numbers, so every heap has a range of one array.
 */
#include "tools/sim/belady.h"

#include "base/check.h"

#include <errno.h>
#include <stdlib.h>

/* ---- the future ---- */

struct marking {
	uint64_t *next_use;
	uint64_t *first, *last; /* [object_count] numbers of its lookups, or BELADY_NEVER */
	uint32_t *mark;         /* [object_count] visit that saw it */
	uint64_t lookups;
};

static void note_lookup(struct marking *marking, uint32_t object)
{
	uint64_t lookup = marking->lookups++, last = marking->last[object];

	if (last != BELADY_NEVER)
		marking->next_use[last] = lookup;
	else
		marking->first[object] = lookup;
	marking->last[object] = lookup;
	marking->next_use[lookup] = BELADY_NEVER;
}

static void mark_trace(struct marking *marking, const struct sim_trace *trace, int unions)
{
	uint32_t visit = 0;

	for (uint64_t i = 0; i < trace->row_count; i++) {
		const struct sim_row *row = &trace->row[i], *before = i > 0 ? row - 1 : NULL;

		if (before == NULL || before->call != row->call || before->layer != row->layer ||
		    before->client != row->client)
			visit++;
		for (uint32_t k = 0; k < row->count; k++) {
			uint32_t object = trace->object[row->first + k];

			if (unions && marking->mark[object] == visit)
				continue;
			marking->mark[object] = visit;
			note_lookup(marking, object);
		}
	}
}

static int open_marking(struct marking *marking, uint32_t objects)
{
	marking->first = malloc(objects * sizeof *marking->first);
	marking->last = malloc(objects * sizeof *marking->last);
	marking->mark = calloc(objects, sizeof *marking->mark);
	if (marking->first == NULL || marking->last == NULL || marking->mark == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < objects; i++)
		marking->first[i] = marking->last[i] = BELADY_NEVER;
	return 0;
}

int sim_future_open(struct sim_future *ret_future, const struct sim_trace *trace, const struct sim_geometry *geometry,
		    int unions, const char *temporary)
{
	struct marking marking = {0};
	struct sim_scratch scratch = {0};
	int r;

	if (trace->row_count >= UINT32_MAX)
		return -EOVERFLOW; /* marks are numbers of visits */
	r = open_marking(&marking, geometry->object_count);
	if (r == 0)
		r = sim_scratch_open(&scratch, temporary, trace->access_count, sizeof *marking.next_use);
	if (r == 0) {
		marking.next_use = scratch.memory;
		mark_trace(&marking, trace, unions);
		*ret_future = (struct sim_future){.scratch = scratch,
						  .next_use = marking.next_use,
						  .lookup_count = marking.lookups,
						  .first_use = marking.first};
		marking.first = NULL;
	}
	free(marking.first);
	free(marking.last);
	free(marking.mark);
	return r;
}

void sim_future_close(struct sim_future *future)
{
	sim_scratch_close(&future->scratch);
	free(future->first_use);
	*future = (struct sim_future){0};
}

/* ---- heaps ---- */

struct heap {
	uint32_t *object; /* its range of belady.heap_object */
	uint32_t count;
};

struct belady {
	struct policy *book;
	const struct sim_future *future;
	uint32_t heap_count;
	struct heap *heap;     /* [heap_count] */
	uint32_t *heap_object; /* [object_count] */
	uint32_t *at;          /* [object_count] where in its heap */
	uint64_t *next_use;    /* [object_count] */
	uint32_t *layer_of;    /* [object_count] */
	uint32_t *aside;       /* [object_count] leased ones, taken off a heap while it is searched */
};

/* Ties by number: the same trace gives the same victims everywhere. */
static int is_farther(const struct belady *belady, uint32_t a, uint32_t b)
{
	return belady->next_use[a] != belady->next_use[b] ? belady->next_use[a] > belady->next_use[b] : a < b;
}

static void set_at(struct belady *belady, struct heap *heap, uint32_t place, uint32_t object)
{
	heap->object[place] = object;
	belady->at[object] = place;
}

static void rise(struct belady *belady, struct heap *heap, uint32_t place)
{
	uint32_t object = heap->object[place];

	while (place > 0 && is_farther(belady, object, heap->object[(place - 1) / 2])) {
		set_at(belady, heap, place, heap->object[(place - 1) / 2]);
		place = (place - 1) / 2;
	}
	set_at(belady, heap, place, object);
}

static void sink(struct belady *belady, struct heap *heap, uint32_t place)
{
	uint32_t object = heap->object[place], child;

	while ((child = 2 * place + 1) < heap->count) {
		if (child + 1 < heap->count && is_farther(belady, heap->object[child + 1], heap->object[child]))
			child++;
		if (!is_farther(belady, heap->object[child], object))
			break;
		set_at(belady, heap, place, heap->object[child]);
		place = child;
	}
	set_at(belady, heap, place, object);
}

static void push(struct belady *belady, struct heap *heap, uint32_t object)
{
	heap->object[heap->count] = object;
	rise(belady, heap, heap->count++);
}

static void take_out(struct belady *belady, struct heap *heap, uint32_t place)
{
	uint32_t last = heap->object[--heap->count];

	if (place == heap->count)
		return;
	set_at(belady, heap, place, last);
	rise(belady, heap, place);
	sink(belady, heap, belady->at[last]);
}

static struct heap *heap_of(struct belady *belady, uint32_t object)
{
	return &belady->heap[belady->heap_count == 1 ? 0 : belady->layer_of[object]];
}

/* ---- life ---- */

static int open_heaps(struct belady *belady, const struct policy_setup *setup)
{
	uint32_t objects = setup->object_count;

	belady->heap_count = policy_pool_of(belady->book) == POLICY_POOL_GLOBAL ? 1 : setup->layer_count;
	belady->heap = calloc(belady->heap_count, sizeof *belady->heap);
	belady->heap_object = calloc(objects, sizeof *belady->heap_object);
	belady->at = calloc(objects, sizeof *belady->at);
	belady->next_use = calloc(objects, sizeof *belady->next_use);
	belady->layer_of = calloc(objects, sizeof *belady->layer_of);
	belady->aside = calloc(objects, sizeof *belady->aside);
	if (belady->heap == NULL || belady->heap_object == NULL || belady->at == NULL || belady->next_use == NULL ||
	    belady->layer_of == NULL || belady->aside == NULL)
		return -ENOMEM;
	belady->heap[0].object = belady->heap_object;
	for (uint32_t i = 0; i < objects; i++) {
		belady->layer_of[i] = setup->layer_of[i];
		belady->next_use[i] = belady->future->first_use[i];
		if (belady->heap_count > 1 && (i == 0 || setup->layer_of[i] != setup->layer_of[i - 1]))
			belady->heap[setup->layer_of[i]].object = &belady->heap_object[i];
	}
	return 0;
}

int belady_create(struct belady **ret_belady, const struct policy_setup *setup, const struct sim_future *future)
{
	struct belady *belady = calloc(1, sizeof *belady);
	int r;

	if (belady == NULL)
		return -ENOMEM;
	belady->future = future;
	r = policy_create(&belady->book, "fifo", setup);
	if (r == 0)
		r = open_heaps(belady, setup);
	if (r < 0) {
		(void)belady_destroy(belady);
		return r;
	}
	*ret_belady = belady;
	return 0;
}

struct belady *belady_destroy(struct belady *belady)
{
	if (belady == NULL)
		return NULL;
	(void)policy_destroy(belady->book);
	free(belady->heap);
	free(belady->heap_object);
	free(belady->at);
	free(belady->next_use);
	free(belady->layer_of);
	free(belady->aside);
	free(belady);
	return NULL;
}

const struct policy *belady_book(const struct belady *belady)
{
	return belady->book;
}

/* ---- what happens ---- */

void belady_visit(struct belady *belady, uint32_t layer, uint32_t tokens)
{
	policy_visit(belady->book, layer, tokens);
}

void belady_access(struct belady *belady, uint32_t object, uint64_t lookup)
{
	struct heap *heap = heap_of(belady, object);

	CNRE_CHECK(lookup < belady->future->lookup_count);
	belady->next_use[object] = belady->future->next_use[lookup];
	if (policy_is_resident(belady->book, object))
		rise(belady, heap, belady->at[object]); /* its next use only moved away */
}

void belady_add(struct belady *belady, uint32_t object)
{
	policy_add(belady->book, object);
	push(belady, heap_of(belady, object), object);
}

void belady_remove(struct belady *belady, uint32_t object)
{
	policy_remove(belady->book, object);
	take_out(belady, heap_of(belady, object), belady->at[object]);
}

/* ---- victims ---- */

static uint32_t farthest_of(struct belady *belady, struct heap *heap, const uint32_t *mark, uint32_t leased)
{
	uint32_t aside = 0, farthest = POLICY_NONE;

	while (heap->count > 0 && leased != 0 && mark[heap->object[0]] == leased) {
		belady->aside[aside++] = heap->object[0];
		take_out(belady, heap, 0);
	}
	if (heap->count > 0)
		farthest = heap->object[0];
	while (aside > 0)
		push(belady, heap, belady->aside[--aside]);
	return farthest;
}

static int may_give(const struct belady *belady, uint32_t layer, uint32_t own_layer)
{
	struct policy_layer state;

	if (layer == own_layer)
		return 1;
	policy_get_layer(belady->book, layer, &state);
	return state.resident > state.floor;
}

uint32_t belady_victim(struct belady *belady, uint32_t object, const uint32_t *mark, uint32_t leased)
{
	uint32_t own = belady->layer_of[object], farthest = POLICY_NONE;

	if (belady->heap_count == 1)
		return farthest_of(belady, &belady->heap[0], mark, leased);
	if (policy_must_replace(belady->book, object))
		return farthest_of(belady, &belady->heap[own], mark, leased);
	for (uint32_t layer = 0; layer < belady->heap_count; layer++) {
		uint32_t candidate = farthest_of(belady, &belady->heap[layer], mark, leased);

		if (candidate != POLICY_NONE && may_give(belady, layer, own) &&
		    (farthest == POLICY_NONE || is_farther(belady, candidate, farthest)))
			farthest = candidate;
	}
	return farthest;
}

int belady_needs_later(const struct belady *belady, uint32_t object, uint32_t victim)
{
	return belady->next_use[object] >= belady->next_use[victim];
}
