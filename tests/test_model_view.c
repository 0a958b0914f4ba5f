/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model/view*.c: a matrix of any size comes out of rows16 as it went in, whatever its place in the slab; shapes that the view
 * is not for, or that would be too large, are refused; and the catalog of a checkpoint in a view says where its parts lie.
 */
#include "model/objects.h"
#include "model/safetensors.h"
#include "model/view.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MAX 50u
#define COLUMNS_MAX 70u
#define OBJECTS 3u

TestSuite(model_view, .timeout = 60);

static uint32_t seed = 7;

static unsigned char next_byte(void)
{
	seed = seed * 1664525u + 1013904223u;
	return (unsigned char)(seed >> 24);
}

static struct model_part_shape int8_rows(uint32_t rows, uint32_t columns)
{
	return (struct model_part_shape){
		.bytes = (uint64_t)rows * columns, .rows = rows, .columns = columns, .dtype = MODEL_I8};
}

static struct model_part_shape row_scales(uint32_t rows)
{
	return (struct model_part_shape){
		.bytes = rows * 4ull, .rows = rows, .columns = 1, .dtype = MODEL_F32, .block_rows = 1};
}

static struct model_shape int8_expert(uint32_t hidden, uint32_t inner)
{
	struct model_shape shape = {0};

	shape.part[MODEL_GATE] = shape.part[MODEL_UP] = int8_rows(inner, hidden);
	shape.part[MODEL_DOWN] = int8_rows(hidden, inner);
	shape.part[MODEL_GATE_SCALE] = shape.part[MODEL_UP_SCALE] = row_scales(inner);
	shape.part[MODEL_DOWN_SCALE] = row_scales(hidden);
	return shape;
}

/* ---- the bytes ---- */

/* Element by element, as the head of view_rows16.c says; what no element is must be 0. */
static void expect_packed(const struct model_part_shape *raw, const struct model_part_shape *prepared,
			  const unsigned char *from, const unsigned char *to)
{
	const uint64_t quads = (raw->columns + 3u) / 4u;
	uint64_t used = 0, zeros = 0;

	cr_assert_eq(prepared->rows, (raw->rows + 15u) / 16u);
	cr_assert_eq(prepared->columns, quads * 64);
	cr_assert_eq(prepared->bytes, (uint64_t)prepared->rows * prepared->columns);
	for (uint64_t row = 0; row < prepared->rows * 16ull; row++)
		for (uint64_t column = 0; column < quads * 4; column++) {
			unsigned char packed = to[((row / 16 * quads + column / 4) * 16 + row % 16) * 4 + column % 4];
			int is_there = row < raw->rows && column < raw->columns;

			cr_assert_eq(packed, is_there ? from[row * raw->columns + column] : 0, "row %llu column %llu of %u x %u",
				     (unsigned long long)row, (unsigned long long)column, raw->rows, raw->columns);
			used += (uint64_t)is_there;
			zeros += (uint64_t)!is_there;
		}
	cr_assert_eq(used + zeros, prepared->bytes, "every byte has one meaning");
}

/* Sources at odd addresses, destinations full of something else before. */
static void try_size(uint32_t hidden, uint32_t inner)
{
	static unsigned char from_bytes[MODEL_ROLES][1 + ROWS_MAX * COLUMNS_MAX];
	_Alignas(64) static unsigned char to_bytes[MODEL_ROLES][(ROWS_MAX + 15) * (COLUMNS_MAX + 3) * 2];
	const struct model_shape raw = int8_expert(hidden, inner);
	const unsigned char *from[MODEL_ROLES];
	unsigned char *to[MODEL_ROLES];
	struct model_shape prepared = {0};

	cr_assert_eq(view_rows16.shape(&raw, &prepared), 0);
	for (uint32_t role = 0; role < MODEL_ROLES; role++) {
		from[role] = from_bytes[role] + 1;
		to[role] = to_bytes[role];
		memset(to_bytes[role], 0xee, sizeof to_bytes[role]);
		for (uint64_t i = 0; i < raw.part[role].bytes; i++)
			from_bytes[role][1 + i] = next_byte();
	}
	view_rows16.prepare(&raw, from, to);
	for (uint32_t role = MODEL_GATE; role <= MODEL_DOWN; role++) {
		expect_packed(&raw.part[role], &prepared.part[role], from[role], to[role]);
		cr_assert_eq(to[role][prepared.part[role].bytes], 0xee, "it writes no byte more");
	}
	for (uint32_t role = MODEL_GATE_SCALE; role <= MODEL_DOWN_SCALE; role++) {
		cr_assert_arr_eq(to[role], from[role], raw.part[role].bytes);
		cr_assert_eq(to[role][raw.part[role].bytes], 0xee);
	}
}

Test(model_view, rows16_keeps_every_element_of_odd_sizes)
{
	static const uint32_t sizes[] = {1, 2, 3, 4, 5, 15, 16, 17, 20, 24, 31, 33, 48, 49};

	for (size_t h = 0; h < sizeof sizes / sizeof sizes[0]; h++)
		for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
			try_size(sizes[h], sizes[i]);
}

Test(model_view, rows16_refuses_what_it_is_not_for)
{
	const struct model_shape good = int8_expert(20, 12);
	struct model_shape bad, unused = {0};

	bad = good;
	bad.part[MODEL_UP].dtype = MODEL_U8; /* perhaps packed int4 */
	cr_expect_eq(view_rows16.shape(&bad, &unused), -ENOTSUP);
	bad = good;
	bad.part[MODEL_DOWN].bytes--; /* packed, padded, or a lie */
	cr_expect_eq(view_rows16.shape(&bad, &unused), -ENOTSUP);
	bad = good;
	bad.part[MODEL_DOWN] = (struct model_part_shape){0};
	cr_expect_eq(view_rows16.shape(&bad, &unused), -ENOTSUP);
	bad = good;
	bad.part[MODEL_GATE_SCALE].bytes *= 2; /* scales of blocks of columns */
	cr_expect_eq(view_rows16.shape(&bad, &unused), -ENOTSUP);
	bad = good;
	bad.part[7].bytes = 8; /* a part of a role that it does not know */
	cr_expect_eq(view_rows16.shape(&bad, &unused), -ENOTSUP);
}

/* Products of rows and columns that wrap, or that are more than an object may be. */
Test(model_view, rows16_refuses_sizes_that_overflow)
{
	static const uint32_t sizes[][2] = {{1, UINT32_MAX}, {UINT32_MAX, 1}, {UINT32_MAX, UINT32_MAX}, {1u << 16, 1u << 16}};

	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		struct model_shape shape = int8_expert(20, 12), unused = {0};

		shape.part[MODEL_GATE] = int8_rows(sizes[i][0], sizes[i][1]);
		shape.part[MODEL_GATE_SCALE] = row_scales(sizes[i][0]);
		cr_expect_eq(view_rows16.shape(&shape, &unused), -E2BIG, "%u x %u", sizes[i][0], sizes[i][1]);
	}
}

/* ---- the catalog ---- */

struct world {
	struct model_catalog catalog;
	struct model_object object[OBJECTS];
	struct model_shape shape[2];
	struct model_layer layer;
	struct model_shard shard;
};

static const struct model_view *const views[] = {&view_rows16, NULL};

/* Three objects of one shape, each part at an odd place of the shard, and in another order of roles in the last one. */
static void make_world(struct world *world)
{
	uint64_t at = 4097;

	memset(world, 0, sizeof *world);
	world->shape[0] = int8_expert(20, 12);
	for (uint32_t i = 0; i < OBJECTS; i++) {
		world->object[i] = (struct model_object){.expert = i};
		for (uint32_t k = 0; k < 6; k++) {
			uint32_t role = i == OBJECTS - 1 ? 5 - k : k;

			world->object[i].piece[role].file_off = at;
			at += world->shape[0].part[role].bytes;
			world->shape[0].payload_bytes += i == 0 ? world->shape[0].part[role].bytes : 0;
		}
	}
	world->layer.expert_count = OBJECTS;
	world->catalog = (struct model_catalog){.family = "olmoe",
						.name = "tiny",
						.layer_count = 1,
						.object_count = OBJECTS,
						.shape_count = 1,
						.shard_count = 1,
						.layer = &world->layer,
						.object = world->object,
						.shape = world->shape,
						.shard = &world->shard,
						.views = views};
	model_objects_size(&world->catalog);
}

Test(model_view, a_catalog_in_a_view_has_shapes_and_sums_of_its_own)
{
	char message[MODEL_MESSAGE_BYTES];
	struct model_catalog *view = NULL;
	struct world world;

	make_world(&world);
	cr_assert_eq(model_view_open(&view, &world.catalog, model_view_find(&world.catalog, "rows16"), message), 0);
	cr_expect_str_eq(view->name, "tiny:rows16");
	cr_expect_eq(view->shape[0].part[MODEL_GATE].bytes, 1u * 64 * 5);
	cr_expect_eq(view->shape[0].part[MODEL_DOWN].bytes, 2u * 64 * 3);
	cr_expect_eq(view->shape[0].payload_bytes, 2 * 320u + 384 + 12 * 4 * 2 + 20 * 4);
	cr_expect_eq(view->payload_bytes_total, OBJECTS * view->shape[0].payload_bytes);
	cr_expect_eq(view->payload_bytes_max, view->shape[0].payload_bytes);
	cr_expect_geq(view->shape[0].slab_bytes, world.catalog.shape[0].slab_bytes, "both must fit");
	cr_expect_eq(view->slab_bytes_total, OBJECTS * view->shape[0].slab_bytes);
	cr_expect_null(model_view_find(&world.catalog, "rows17"));
	(void)model_catalog_close(view);
	cr_expect_eq(world.catalog.shape[0].part[MODEL_GATE].columns, 20, "the checkpoint's own catalog is as it was");
}

/* Reads into the slab what the runs say, of a shard whose byte i is f(i); prepares; and finds every element where it should be. */
Test(model_view, an_object_is_prepared_from_where_it_landed)
{
	static unsigned char shard[1 << 16], slab[1 << 16], image[1 << 14];
	char message[MODEL_MESSAGE_BYTES];
	struct model_catalog *view = NULL;
	struct world world;

	make_world(&world);
	for (size_t i = 0; i < sizeof shard; i++)
		shard[i] = next_byte();
	cr_assert_eq(model_view_open(&view, &world.catalog, &view_rows16, message), 0);
	cr_assert_leq(model_view_image_bytes(view), sizeof image);
	for (uint32_t i = 0; i < OBJECTS; i++) {
		struct model_plan plan;

		model_plan(view, i, &plan);
		cr_assert_leq(plan.slab_bytes, view->shape[0].slab_bytes);
		cr_assert_eq(plan.move_count, 0);
		for (uint32_t r = 0; r < plan.run_count; r++)
			memcpy(slab + plan.run[r].slab_off, shard + plan.run[r].file_off, plan.run[r].bytes);
		model_view_prepare(view, i, &plan, (const char *)slab, (char *)image);
		for (uint32_t role = MODEL_GATE; role <= MODEL_DOWN; role++) {
			cr_assert_eq(plan.part_off[role] % MODEL_PART_ALIGNMENT, 0);
			cr_assert_leq(plan.part_off[role] + view->shape[0].part[role].bytes + MODEL_TAIL_BYTES, plan.slab_bytes);
			expect_packed(&world.shape[0].part[role], &view->shape[0].part[role],
				      shard + world.object[i].piece[role].file_off, image + plan.part_off[role]);
		}
		for (uint32_t role = MODEL_GATE_SCALE; role <= MODEL_DOWN_SCALE; role++)
			cr_assert_arr_eq(image + plan.part_off[role], shard + world.object[i].piece[role].file_off,
					 world.shape[0].part[role].bytes);
	}
	(void)model_catalog_close(view);
}

/* One object in another format is enough: clients of a view read nothing else. */
Test(model_view, a_checkpoint_with_another_format_is_refused_by_name)
{
	char message[MODEL_MESSAGE_BYTES];
	struct model_catalog *view = NULL;
	struct world world;

	make_world(&world);
	world.shape[1] = world.shape[0];
	world.shape[1].part[MODEL_GATE].dtype = MODEL_BF16;
	world.object[1].shape = 1;
	world.catalog.shape_count = 2;
	cr_expect_eq(model_view_open(&view, &world.catalog, &view_rows16, message), -ENOTSUP);
	cr_expect_null(view, "output is untouched on failure");
	cr_expect_not_null(strstr(message, "tiny: layer 0 expert 1"), "%s", message);
}

/* ---- a view that lies about its sizes ---- */

static int shape_huge(const struct model_shape *raw, struct model_shape *ret_shape)
{
	*ret_shape = *raw;
	for (uint32_t role = 0; role < MODEL_ROLES; role++)
		ret_shape->part[role].bytes = MODEL_OBJECT_BYTES_MAX / 4;
	return 0;
}

Test(model_view, parts_that_add_up_to_more_than_an_object_may_have_are_refused)
{
	static const struct model_view huge = {.name = "huge", .version = 1, .shape = shape_huge};
	char message[MODEL_MESSAGE_BYTES];
	struct model_catalog *view = NULL;
	struct world world;

	make_world(&world);
	cr_expect_eq(model_view_open(&view, &world.catalog, &huge, message), -E2BIG);
	cr_expect_null(view);
}
