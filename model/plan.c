/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How one object gets from its shards into its slab; the contract is at struct model_run in catalog.h.
 *
 * Why moves are safe when done in the order listed (last part first): parts of a run land in file order without overlap,
 * and every destination is at or above its landing. So moving part k overwrites, below its own source, nothing of
 * parts 0..k-1, and by construction nothing at or above the destination of part k+1, which has been moved already. The next
 * run begins above all destinations of this one.
 */
#include "model/catalog.h"

#include "base/check.h"
#include "base/size.h"
#include "model/view.h"

#include <string.h>

struct span { /* a part as it lies in its shard */
	uint64_t file_off, bytes;
	uint32_t shard, role;
};

static int comes_before(const struct span *a, const struct span *b)
{
	return a->shard != b->shard ? a->shard < b->shard : a->file_off < b->file_off;
}

/* The parts in file order, by insertion: there are at most MODEL_ROLES. */
static uint32_t collect_spans(const struct model_catalog *catalog, const struct model_object *object,
			      struct span span[MODEL_ROLES])
{
	const struct model_shape *shape = &catalog->shape[object->shape];
	uint32_t role, count = 0, at;
	struct span next;

	for (role = 0; role < MODEL_ROLES; role++) {
		if (shape->part[role].bytes == 0)
			continue;
		next = (struct span){.file_off = object->piece[role].file_off,
				     .bytes = shape->part[role].bytes,
				     .shard = object->piece[role].shard,
				     .role = role};
		for (at = count; at > 0 && comes_before(&next, &span[at - 1]); at--)
			span[at] = span[at - 1];
		span[at] = next;
		count++;
	}
	return count;
}

/* How many spans from the first on are adjacent: one read. */
static uint32_t run_length(const struct span *span, uint32_t count)
{
	uint32_t n = 1;

	while (n < count && span[n].shard == span[0].shard &&
	       span[n].file_off == span[n - 1].file_off + span[n - 1].bytes)
		n++;
	return n;
}

static void set_run(const struct span *first, const struct span *last, uint64_t slab_off, struct model_run *run)
{
	uint64_t end = last->file_off + last->bytes;

	run->shard = first->shard;
	run->file_off = cnre_size_align_down(first->file_off, MODEL_READ_ALIGNMENT);
	run->needed_bytes = end - run->file_off;
	run->bytes = cnre_size_align_up(run->needed_bytes, MODEL_READ_ALIGNMENT);
	run->slab_off = slab_off;
}

/* Final places of the parts of a run, ascending; returns where the last one ends. */
static uint64_t place_parts(const struct span *span, uint32_t count, const struct model_run *run,
			    struct model_plan *plan)
{
	uint64_t landing, end = 0, to;
	uint32_t i;

	for (i = 0; i < count; i++) {
		landing = run->slab_off + (span[i].file_off - run->file_off);
		to = cnre_size_align_up(landing > end ? landing : end, MODEL_PART_ALIGNMENT);
		CNRE_CHECK(to <= UINT32_MAX); /* an object has at most MODEL_OBJECT_BYTES_MAX bytes */
		plan->part_off[span[i].role] = (uint32_t)to;
		end = to + span[i].bytes;
	}
	return end;
}

static void list_moves(const struct span *span, uint32_t count, const struct model_run *run, struct model_plan *plan)
{
	uint64_t landing, to;

	while (count-- > 0) {
		landing = run->slab_off + (span[count].file_off - run->file_off);
		to = plan->part_off[span[count].role];
		if (to == landing)
			continue;
		plan->move[plan->move_count++] = (struct model_move){landing, to, span[count].bytes};
	}
}

static void plan_as_stored(const struct model_catalog *catalog, uint32_t object, struct model_plan *ret_plan)
{
	struct span span[MODEL_ROLES];
	struct model_run *run;
	uint64_t used = 0, parts_end;
	uint32_t count, at, n;

	CNRE_CHECK(object < catalog->object_count);
	memset(ret_plan, 0, sizeof *ret_plan);
	count = collect_spans(catalog, &catalog->object[object], span);
	for (at = 0; at < count; at += n) {
		n = run_length(span + at, count - at);
		run = &ret_plan->run[ret_plan->run_count++];
		set_run(&span[at], &span[at + n - 1], cnre_size_align_up(used, MODEL_READ_ALIGNMENT), run);
		parts_end = place_parts(span + at, n, run, ret_plan);
		list_moves(span + at, n, run, ret_plan);
		used = run->slab_off + run->bytes;
		if (used < parts_end + MODEL_TAIL_BYTES)
			used = parts_end + MODEL_TAIL_BYTES;
	}
	ret_plan->slab_bytes = cnre_size_align_up(used, MODEL_READ_ALIGNMENT);
}

void model_plan(const struct model_catalog *catalog, uint32_t object, struct model_plan *ret_plan)
{
	plan_as_stored(catalog->source != NULL ? catalog->source : catalog, object, ret_plan);
	if (catalog->source != NULL)
		model_view_plan(catalog, object, ret_plan);
}
