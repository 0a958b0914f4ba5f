/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two containers are known. Colibri's: merged_weight, int8 rows of gate, up and down after one another, and qs,
 * the F32 scales of those rows in the same order. Hugging Face's: gate_proj, up_proj, down_proj as F32, BF16 or
 * F16.
 */
#include "engine/expert_table.h"

#include "cnre/cnre.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define NAME_BYTES 128

static const char *const projections[] = {
	[CNRE_GATE] = "gate_proj",
	[CNRE_UP] = "up_proj",
	[CNRE_DOWN] = "down_proj",
};

static void set_part(struct expert_place *place, uint32_t role, const struct tensor *tensor, uint64_t from,
		     uint64_t bytes)
{
	place->part[role].file_off = tensor->file_off + from;
	place->part[role].bytes = bytes;
	place->part[role].shard = tensor->shard;
	place->part[role].dtype = tensor->dtype;
	place->bytes += bytes;
}

static const struct tensor *find(const struct shard_set *shards, uint32_t layer, uint32_t expert, const char *suffix)
{
	char name[NAME_BYTES];

	(void)snprintf(name, sizeof name, "model.layers.%u.mlp.experts.%u.%s", layer, expert, suffix);
	return shard_find(shards, name);
}

/* The sizes are checked by expert_make in check_place; here only that the slices lie inside their tensors. */
static int place_merged(struct expert_place *place, const struct config *config, const struct tensor *weight,
			const struct tensor *scale)
{
	const uint64_t matrix = (uint64_t)config->intermediate * config->hidden;
	const uint64_t inner = (uint64_t)config->intermediate * sizeof(float);
	const uint64_t outer = (uint64_t)config->hidden * sizeof(float);

	if (!scale || weight->bytes != 3 * matrix || scale->bytes != 2 * inner + outer)
		return -EBADMSG;
	set_part(place, CNRE_GATE, weight, 0, matrix);
	set_part(place, CNRE_UP, weight, matrix, matrix);
	set_part(place, CNRE_DOWN, weight, 2 * matrix, matrix);
	set_part(place, CNRE_GATE_SCALE, scale, 0, inner);
	set_part(place, CNRE_UP_SCALE, scale, inner, inner);
	set_part(place, CNRE_DOWN_SCALE, scale, 2 * inner, outer);
	return 0;
}

static int place_separate(struct expert_place *place, const struct shard_set *shards, uint32_t layer, uint32_t expert)
{
	for (uint32_t role = CNRE_GATE; role <= CNRE_DOWN; role++) {
		char suffix[NAME_BYTES / 2];
		const struct tensor *tensor;

		(void)snprintf(suffix, sizeof suffix, "%s.weight", projections[role]);
		tensor = find(shards, layer, expert, suffix);
		if (!tensor)
			return -EBADMSG;
		set_part(place, role, tensor, 0, tensor->bytes);
	}
	return 0;
}

/* The same rules as for bytes in memory, asked of the headers, so that a run does not fail half way. */
static int check_place(const struct expert_place *place, const struct config *config)
{
	struct expert_part part[EXPERT_PARTS];
	struct expert unused;

	for (uint32_t i = 0; i < EXPERT_PARTS; i++)
		part[i] = (struct expert_part){.data = place, .bytes = place->part[i].bytes, .dtype = place->part[i].dtype};
	return expert_make(config, part, &unused);
}

static int place_expert(struct expert_place *place, const struct config *config, const struct shard_set *shards,
			uint32_t layer, uint32_t expert)
{
	const struct tensor *merged = find(shards, layer, expert, "merged_weight");
	int error = merged ? place_merged(place, config, merged, find(shards, layer, expert, "qs"))
			   : place_separate(place, shards, layer, expert);

	return error < 0 ? error : check_place(place, config);
}

int expert_table_make(struct expert_table *ret_table, const struct config *config, const struct shard_set *shards,
		      char message[ENGINE_MESSAGE_BYTES])
{
	struct expert_table table = {.experts = config->experts};

	table.place = calloc((size_t)config->layers * config->experts, sizeof *table.place);
	if (!table.place)
		return engine_fail(message, -ENOMEM, "out of memory for the expert table");
	for (uint32_t i = 0; i < config->layers * config->experts; i++) {
		const uint32_t layer = i / config->experts, expert = i % config->experts;
		struct expert_place *place = &table.place[i];
		struct expert_plan plan;

		if (place_expert(place, config, shards, layer, expert) < 0) {
			expert_table_free(&table);
			return engine_fail(message, -EBADMSG,
					   "layer %u expert %u: missing, or not int8 rows "
					   "(merged_weight, qs) nor F32, BF16, F16 projections of config.json's shape",
					   layer, expert);
		}
		expert_plan_make(place, &plan);
		table.bytes_max = place->bytes > table.bytes_max ? place->bytes : table.bytes_max;
		table.buffer_bytes = plan.buffer_bytes > table.buffer_bytes ? plan.buffer_bytes : table.buffer_bytes;
	}
	*ret_table = table;
	return 0;
}

void expert_table_free(struct expert_table *table)
{
	free(table->place);
	*table = (struct expert_table){0};
}

/* Roles with bytes, by place in the files; returns how many. */
static uint32_t order_parts(const struct expert_place *place, uint32_t order[EXPERT_PARTS])
{
	uint32_t count = 0;

	for (uint32_t role = 0; role < EXPERT_PARTS; role++) {
		uint32_t at = count;

		if (place->part[role].bytes == 0)
			continue;
		for (; at > 0; at--) {
			uint32_t before = order[at - 1];

			if (place->part[before].shard < place->part[role].shard ||
			    (place->part[before].shard == place->part[role].shard &&
			     place->part[before].file_off <= place->part[role].file_off))
				break;
			order[at] = before;
		}
		order[at] = role;
		count++;
	}
	return count;
}

/* Rounds a run of [from, to) out to whole blocks and gives it the next room in the buffer. */
static void add_run(struct expert_plan *plan, uint32_t shard, uint64_t from, uint64_t to)
{
	const uint64_t mask = EXPERT_READ_ALIGNMENT - 1;
	struct expert_run *run = &plan->run[plan->run_count++];

	run->shard = shard;
	run->file_off = from & ~mask;
	run->needed_bytes = to - run->file_off;
	run->bytes = (run->needed_bytes + mask) & ~mask;
	run->buffer_off = plan->buffer_bytes;
	plan->buffer_bytes += run->bytes;
}

void expert_plan_make(const struct expert_place *place, struct expert_plan *ret_plan)
{
	struct expert_plan plan = {0};
	uint32_t order[EXPERT_PARTS], count = order_parts(place, order);

	for (uint32_t i = 0; i < count;) {
		const uint32_t shard = place->part[order[i]].shard, first = i;
		const uint64_t from = place->part[order[i]].file_off;
		uint64_t to = from;

		for (; i < count && place->part[order[i]].shard == shard && place->part[order[i]].file_off == to; i++)
			to += place->part[order[i]].bytes;
		add_run(&plan, shard, from, to);
		for (uint32_t j = first; j < i; j++)
			plan.part_off[order[j]] = plan.run[plan.run_count - 1].buffer_off +
						  place->part[order[j]].file_off -
						  plan.run[plan.run_count - 1].file_off;
	}
	*ret_plan = plan;
}
