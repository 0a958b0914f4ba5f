/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpoint as JSON: what the manager would understand of it, how its experts are read, and what of them an engine of
 * its family could not use as it is. From the headers alone, with the code that the manager has.
 */
#include "tools/ctl/inspect_words.h"

#include "base/fingerprint.h"
#include "model/catalog.h"
#include "model/encoding.h"
#include "model/family.h"

#include <errno.h>
#include <string.h>

_Static_assert(MODEL_MESSAGE_BYTES <= CTL_MESSAGE_BYTES, "one buffer for both");

static const char *const role_names[] = {"gate", "up", "down", "gate-scale", "up-scale", "down-scale"};
#define ROLES (sizeof role_names / sizeof role_names[0])

/* What the objects of one shape have in common, and where they differ. */
struct tally {
	uint32_t objects;
	uint32_t reads[MODEL_RUNS_MAX + 1];    /* objects that need so many */
	uint32_t in_several_shards, with_gaps; /* of those that need more than one read */
	uint32_t without_moves;
	uint32_t moved_parts_max;
	uint64_t moved_bytes_max;
	uint64_t file_offs;                    /* of all parts, or'ed: its lowest bit is their alignment */
	uint32_t contiguous[FAMILY_UNITS_MAX]; /* objects in whose slab this unit of the family is one stretch */
};

/* ---- counting ---- */

static int is_contiguous(const struct family_unit *unit, const struct model_shape *shape, const struct model_plan *plan)
{
	for (uint32_t i = 1; i < unit->count; i++)
		if (plan->part_off[unit->role[i]] !=
		    plan->part_off[unit->role[i - 1]] + shape->part[unit->role[i - 1]].bytes)
			return 0;
	return 1;
}

/* A unit of parts that this shape has none of is nobody's trouble. */
static int has_unit(const struct family_unit *unit, const struct model_shape *shape)
{
	return shape->part[unit->role[0]].bytes > 0;
}

static void tally_reads(struct tally *tally, const struct model_plan *plan)
{
	int several = 0, gaps = 0;

	tally->reads[plan->run_count]++;
	for (uint32_t i = 1; i < plan->run_count; i++) {
		several |= plan->run[i].shard != plan->run[i - 1].shard;
		gaps |= plan->run[i].shard == plan->run[i - 1].shard;
	}
	tally->in_several_shards += (uint32_t)several;
	tally->with_gaps += (uint32_t)gaps;
}

static void tally_moves(struct tally *tally, const struct model_plan *plan)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < plan->move_count; i++)
		bytes += plan->move[i].bytes;
	tally->without_moves += plan->move_count == 0;
	if (tally->moved_parts_max < plan->move_count)
		tally->moved_parts_max = plan->move_count;
	if (tally->moved_bytes_max < bytes)
		tally->moved_bytes_max = bytes;
}

static struct tally count(const struct model_catalog *catalog, uint32_t index, const struct family *family)
{
	const struct model_shape *shape = &catalog->shape[index];
	struct tally tally = {0};
	struct model_plan plan;

	for (uint32_t i = 0; i < catalog->object_count; i++) {
		if (catalog->object[i].shape != index)
			continue;
		tally.objects++;
		model_plan(catalog, i, &plan);
		tally_reads(&tally, &plan);
		tally_moves(&tally, &plan);
		for (uint32_t role = 0; role < MODEL_ROLES; role++)
			if (shape->part[role].bytes > 0)
				tally.file_offs |= catalog->object[i].piece[role].file_off;
		for (uint32_t u = 0; family != NULL && u < family->unit_count; u++)
			tally.contiguous[u] += (uint32_t)is_contiguous(&family->unit[u], shape, &plan);
	}
	return tally;
}

/* ---- JSON ---- */

/* Jansson's functions take NULL, and the last one of a chain says so: one check at the end is enough. */
static void append_new(json_t *array, json_t *value)
{
	(void)json_array_append_new(array, value);
}

static json_t *parts_of(const struct model_shape *shape)
{
	json_t *parts = json_array();

	for (uint32_t role = 0; role < ROLES; role++) {
		const struct model_part_shape *part = &shape->part[role];

		if (part->bytes > 0)
			append_new(parts, json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I}", "role", role_names[role],
						    "dtype", encoding_dtype_name(part->dtype), "rows",
						    (json_int_t)part->rows, "columns", (json_int_t)part->columns,
						    "block_rows", (json_int_t)part->block_rows, "block_columns",
						    (json_int_t)part->block_columns, "bytes", (json_int_t)part->bytes));
	}
	return parts;
}

static json_t *reads_of(const struct tally *tally)
{
	json_t *reads = json_array();

	for (uint32_t i = 1; i <= MODEL_RUNS_MAX; i++)
		if (tally->reads[i] > 0)
			append_new(reads, json_pack("{s:I, s:I}", "reads", (json_int_t)i, "objects",
						    (json_int_t)tally->reads[i]));
	return reads;
}

static json_t *roles_of(const struct family_unit *unit)
{
	json_t *roles = json_array();

	for (uint32_t i = 0; i < unit->count; i++)
		append_new(roles, json_string(role_names[unit->role[i]]));
	return roles;
}

static json_t *units_of(const struct family *family, const struct model_shape *shape, const struct tally *tally)
{
	json_t *units = json_array();

	for (uint32_t i = 0; family != NULL && i < family->unit_count; i++)
		if (has_unit(&family->unit[i], shape))
			append_new(units, json_pack("{s:o, s:I}", "parts", roles_of(&family->unit[i]), "contiguous",
						    (json_int_t)tally->contiguous[i]));
	return units;
}

/* The lowest bit of all offsets, 4096 at most. */
static uint64_t alignment_of(const struct tally *tally)
{
	uint64_t bits = tally->file_offs | MODEL_READ_ALIGNMENT;

	return bits & (~bits + 1);
}

static json_t *format_of(const struct model_catalog *catalog, uint32_t index, const struct family *family)
{
	const struct model_shape *shape = &catalog->shape[index];
	struct tally tally = count(catalog, index, family);

	return json_pack("{s:s, s:I, s:I, s:I, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "format", shape->format,
			 "objects", (json_int_t)tally.objects, "expert_bytes", (json_int_t)shape->payload_bytes,
			 "slab_bytes", (json_int_t)shape->slab_bytes, "parts", parts_of(shape), "reads",
			 reads_of(&tally), "in_several_shards", (json_int_t)tally.in_several_shards, "with_gaps",
			 (json_int_t)tally.with_gaps, "file_alignment", (json_int_t)alignment_of(&tally), "unmoved",
			 (json_int_t)tally.without_moves, "moved_parts_max", (json_int_t)tally.moved_parts_max,
			 "moved_bytes_max", (json_int_t)tally.moved_bytes_max, "wanted_contiguous",
			 units_of(family, shape, &tally));
}

static json_t *formats_of(const struct model_catalog *catalog, const struct family *family)
{
	json_t *formats = json_array();

	for (uint32_t i = 0; i < catalog->shape_count; i++)
		append_new(formats, format_of(catalog, i, family));
	return formats;
}

/* Appends a text that is not there yet. */
static void append_once(json_t *array, const char *text)
{
	const json_t *word;
	size_t i;

	json_array_foreach (array, i, word)
		if (strcmp(json_string_value(word), text) == 0)
			return;
	append_new(array, json_string(text));
}

/* The least and the most bytes of an expert of a layer, and its formats in order of appearance. */
static json_t *layer_of(const struct model_catalog *catalog, uint32_t index)
{
	const struct model_layer *layer = &catalog->layer[index];
	uint64_t least = 0, most = 0;
	json_t *formats = json_array();
	uint32_t last = UINT32_MAX;
	char name[24];

	for (uint32_t i = 0; i < layer->expert_count; i++) {
		uint32_t shape = catalog->object[layer->first_object + i].shape;
		uint64_t bytes = catalog->shape[shape].payload_bytes;

		least = i == 0 || bytes < least ? bytes : least;
		most = bytes > most ? bytes : most;
		if (shape != last)
			append_once(formats, catalog->shape[shape].format);
		last = shape;
	}
	if (index < catalog->main_layer_count)
		(void)snprintf(name, sizeof name, "%u", index);
	else
		(void)snprintf(name, sizeof name, "mtp.%u", index - catalog->main_layer_count);
	return json_pack("{s:I, s:s, s:I, s:I, s:I, s:I, s:o}", "layer", (json_int_t)index, "name", name, "experts",
			 (json_int_t)layer->expert_count, "top_k", (json_int_t)layer->top_k, "expert_bytes_min",
			 (json_int_t)least, "expert_bytes_max", (json_int_t)most, "formats", formats);
}

static json_t *layers_of(const struct model_catalog *catalog)
{
	json_t *layers = json_array();

	for (uint32_t i = 0; i < catalog->layer_count; i++)
		append_new(layers, layer_of(catalog, i));
	return layers;
}

static json_t *shards_of(const struct model_catalog *catalog)
{
	json_t *shards = json_array();

	for (uint32_t i = 0; i < catalog->shard_count; i++)
		append_new(shards, json_pack("{s:s, s:I}", "path", catalog->shard[i].path, "bytes",
					     (json_int_t)catalog->shard[i].bytes));
	return shards;
}

static json_t *capabilities_of(const struct model_catalog *catalog)
{
	static const char *const names[] = {"expert-cache", "direct-io", "mmap",           "compressed-ram",
					    "vram",         "kv-prefix", "kv-persistence", "continuous-batching"};
	json_t *capabilities = json_array();

	for (uint32_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if ((catalog->capabilities & 1u << i) != 0)
			append_new(capabilities, json_string(names[i]));
	return capabilities;
}

static json_t *describe(const struct model_catalog *catalog)
{
	static const char *const states[] = {"unknown", "any-token", "points"};
	const struct family *family = catalog->is_described ? NULL : family_by_name(catalog->family);
	char identity[2 * CNRE_DIGEST_BYTES + 1];

	(void)cnre_fingerprint_hex(catalog->fingerprint.identity, CNRE_DIGEST_BYTES, identity);
	return json_pack(
		"{s:s, s:s, s:s, s:b, s:s, s:s, s:s*, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o}",
		"name", catalog->name, "directory", catalog->directory, "family", catalog->family, "described",
		catalog->is_described, "identity", identity, "state", states[catalog->state], "engine_note",
		family != NULL ? family->note : NULL, "layers", (json_int_t)catalog->main_layer_count, "rows_after",
		(json_int_t)(catalog->layer_count - catalog->main_layer_count), "experts",
		(json_int_t)catalog->expert_count, "top_k", (json_int_t)catalog->top_k, "objects",
		(json_int_t)catalog->object_count, "expert_bytes_min", (json_int_t)catalog->payload_bytes_min,
		"expert_bytes_max", (json_int_t)catalog->payload_bytes_max, "expert_bytes_total",
		(json_int_t)catalog->payload_bytes_total, "slab_bytes_max", (json_int_t)catalog->slab_bytes_max,
		"slab_bytes_total", (json_int_t)catalog->slab_bytes_total, "capabilities", capabilities_of(catalog),
		"formats", formats_of(catalog, family), "by_layer", layers_of(catalog), "shards", shards_of(catalog));
}

int inspect_model(const struct inspect_words *words, json_t **ret_answer, char message[CTL_MESSAGE_BYTES])
{
	const struct model_source source = {.directory = words->directory,
					    .further = words->further,
					    .further_count = words->further_count,
					    .family_file = words->family_file};
	struct model_catalog *catalog = NULL;
	char reason[MODEL_MESSAGE_BYTES] = "";
	int r = model_catalog_open_source(&catalog, &source, reason);

	if (r < 0) {
		if (strncmp(reason, words->directory, strlen(words->directory)) == 0)
			(void)snprintf(message, CTL_MESSAGE_BYTES, "%s", reason);
		else
			(void)snprintf(message, CTL_MESSAGE_BYTES, "%.300s: %s", words->directory, reason);
		return r;
	}
	*ret_answer = describe(catalog);
	(void)model_catalog_close(catalog);
	if (*ret_answer != NULL)
		return 0;
	(void)snprintf(message, CTL_MESSAGE_BYTES, "out of memory, or a name that is no UTF-8 text");
	return -ENOMEM;
}
