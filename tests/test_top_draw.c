/* SPDX-License-Identifier: Apache-2.0 */
/* tools/top/draw.c and map.c: what stands where on a screen of 80x24, and that no size and no name breaks it. */
#include "tools/top/draw.h"

#include "tests/support/top_sample.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct grid grid;
static char screen[GRID_CELLS_MAX + 256];

/* The grid as text, as --once prints it. */
static const char *draw(const struct picture *picture, const struct ui *ui, const char *note, int rows, int columns)
{
	FILE *out = fmemopen(screen, sizeof screen, "w");

	grid_clear(&grid, rows, columns);
	draw_screen(&grid, picture, ui, note);
	cr_assert_eq(grid_print(&grid, out), 0);
	(void)fclose(out);
	return screen;
}

/* Takes both references. */
static struct picture *picture_of(json_t *first, json_t *second)
{
	struct picture *before = calloc(1, sizeof *before), *picture = calloc(1, sizeof *picture);
	char message[TOP_MESSAGE_BYTES];

	cr_assert_eq(picture_fill(first, NULL, before, message), 0, "%s", message);
	cr_assert_eq(picture_fill(second, before, picture, message), 0, "%s", message);
	json_decref(first);
	json_decref(second);
	free(before);
	return picture;
}

static struct picture *picture_at(int n)
{
	return picture_of(top_sample_make(n - 1), top_sample_make(n));
}

static void expect(const char *text, const char *part)
{
	cr_expect_not_null(strstr(text, part), "no \"%s\" in:\n%s", part, text);
}

Test(top_draw, totals_clients_drives_and_the_map_fit_into_80x24)
{
	struct picture *picture = picture_at(4);
	struct ui ui = {.sort = UI_SORT_WAIT};
	const char *text = draw(picture, &ui, NULL, 24, 80);

	expect(text, "cnre-top  tiny  policy cost  up 4.5 s\n");
	expect(text, "memory   1.0 MiB of 2.0 MiB (50.0 %), 5 experts resident\n");
	expect(text, "lookups  100/s, hits 75.0 %; felt wait 1.000 s a second\n");
	expect(text, "reads    4.0/s, 2.0 MB/s; 1 out, 2 queued\n");
	expect(text, "tokens   30.0/s, passes 10.0/s");
	expect(text, "nvme0n1                                  2.0     250.0 ms      1  degraded\n");
	expect(text, ">   3    3/6    019--.\n");
	expect(text, "    4    2/6    *.!90.\n");
	expect(text, "\nh help");
	free(picture);
}

Test(top_draw, clients_stand_in_the_order_that_was_asked_for)
{
	struct picture *picture = picture_at(4);
	struct ui ui = {.sort = UI_SORT_WAIT};
	const char *text = draw(picture, &ui, NULL, 24, 80);

	cr_expect_lt(strstr(text, "\nbeta"), strstr(text, "\nalpha"), "it waits:\n%s", text);
	ui.sort = UI_SORT_NAME;
	text = draw(picture, &ui, NULL, 24, 80);
	cr_expect_lt(strstr(text, "\nalpha"), strstr(text, "\nbeta"), "%s", text);
	ui.sort = UI_SORT_LEASED;
	text = draw(picture, &ui, NULL, 24, 80);
	cr_expect_lt(strstr(text, "\nalpha"), strstr(text, "\nbeta"), "%s", text);
	free(picture);
}

Test(top_draw, styles_say_again_what_the_signs_say)
{
	struct picture *picture = picture_at(4);
	struct ui ui = {.sort = UI_SORT_WAIT};
	int found = 0;

	(void)draw(picture, &ui, NULL, 24, 80);
	for (int i = 0; i < grid.rows * grid.columns; i++) {
		const struct grid_cell *cell = &grid.cell[i];

		if (cell->style >= GRID_HEAT_0 && cell->style <= GRID_HEAT_9) {
			cr_expect_eq(cell->character - '0', cell->style - GRID_HEAT_0);
			found++;
		}
		if (cell->character == '!')
			cr_expect_eq(cell->style, GRID_ALERT);
	}
	cr_expect_eq(found, 5, "as many as are resident");
	free(picture);
}

Test(top_draw, a_layer_that_is_zoomed_into_shows_each_expert_and_the_hottest_that_are_missing)
{
	struct picture *picture = picture_at(4);
	struct ui ui = {.sort = UI_SORT_WAIT, .cursor = 1, .is_zoomed = 1};
	const char *text = draw(picture, &ui, NULL, 24, 80);

	expect(text, "LAYER 4: 2 of 6 experts resident\n");
	expect(text, "    0  *.!90.\n");
	expect(text, "hottest that are not resident: 2 0\n");
	free(picture);
}

Test(top_draw, neighbours_share_a_sign_where_there_are_more_experts_than_columns)
{
	struct picture *picture = calloc(1, sizeof *picture);
	struct ui ui = {.sort = UI_SORT_WAIT};

	picture->layer_count = 1;
	picture->layer[0] = (struct picture_layer){.layer = 7, .experts = 256, .resident = 128, .has_map = 1};
	picture->heat_most = 9;
	memset(picture->state, '.', 256);
	memset(picture->state, 'r', 128);
	memset(picture->heat, 1, 256);
	picture->heat[5] = 9;
	picture->state[200] = 'r'; /* one of four is not most of them */
	expect(draw(picture, &ui, NULL, 24, 80), "(each sign 4 of them)");
	expect(screen, ">   7  128/256  19111111111111111111111111111111--------------------------------\n");
	free(picture);
}

Test(top_draw, the_cursor_stays_in_view_of_more_layers_than_rows)
{
	struct picture *picture = calloc(1, sizeof *picture);
	struct ui ui = {.sort = UI_SORT_WAIT, .cursor = 90};

	picture->layer_count = 100;
	for (uint32_t i = 0; i < 100; i++)
		picture->layer[i] = (struct picture_layer){.layer = i, .experts = 4};
	expect(draw(picture, &ui, NULL, 24, 80), ">  90");
	free(picture);
}

Test(top_draw, help_a_note_and_a_frozen_screen_say_so)
{
	struct picture *picture = picture_at(4);
	struct ui ui = {.sort = UI_SORT_WAIT, .is_frozen = 1, .shows_help = 1};
	const char *text = draw(picture, &ui, "nobody listens", 24, 80);

	expect(text, "FROZEN");
	expect(text, "space, f           freeze");
	expect(text, "\nnobody listens\n");
	cr_expect_null(strstr(text, "h help"));
	free(picture);
}

Test(top_draw, names_move_no_cursor_and_no_size_is_too_small_or_too_large)
{
	struct picture *picture = picture_at(4);
	struct ui ui = {.sort = UI_SORT_WAIT};

	(void)snprintf(picture->client[0].name, sizeof picture->client[0].name, "a\033[2J\nb\xff");
	for (int rows = 0; rows < 40; rows++)
		for (int columns = 0; columns < 130; columns += 3)
			for (ui.is_zoomed = 0; ui.is_zoomed < 2; ui.is_zoomed++)
				(void)draw(picture, &ui, NULL, rows, columns);
	(void)draw(picture, &ui, NULL, 100000, 100000);
	cr_expect_eq(grid.rows * grid.columns, GRID_CELLS_MAX);
	expect(draw(picture, &(struct ui){.sort = UI_SORT_NAME}, NULL, 24, 80), "a?[2J?b?");
	free(picture);
}

/* ---- with GPUs ---- */

Test(top_draw, what_is_in_vram_is_a_letter_by_its_heat_and_both_tiers_are_counted)
{
	struct picture *picture = picture_of(top_sample_make_with_gpus(3, 0), top_sample_make_with_gpus(4, 0));
	struct ui ui = {.sort = UI_SORT_WAIT};
	const char *text = draw(picture, &ui, NULL, 24, 80);

	expect(text, "\nvram     1.5 MiB of 3.0 MiB, 4 experts; hits 30.0 %; 6.0 uploads/s\n");
	expect(text, "LAYER  RAM+VRAM  OF 6 EXPERTS\n");
	expect(text, ">   3    3+3    A1J--A\n");
	expect(text, "    4    2+1    F.!90.\n"); /* it is read, too, but is served */
	expect(text, "\nh help");
	for (int i = 0; i < grid.rows * grid.columns; i++)
		if (grid.cell[i].style >= GRID_VRAM_0 && grid.cell[i].style <= GRID_VRAM_9)
			cr_expect_eq(grid.cell[i].character - 'A', grid.cell[i].style - GRID_VRAM_0);
	ui.is_zoomed = 1;
	text = draw(picture, &ui, NULL, 24, 80);
	expect(text, "LAYER 3: 3 of 6 experts in RAM, 3 in VRAM\n");
	expect(text, "    0  A1J--A\n");
	free(picture);
}

Test(top_draw, no_letter_of_the_map_is_another_sign_of_it)
{
	struct picture *picture = picture_of(top_sample_make_with_gpus(3, 0), top_sample_make_with_gpus(4, 0));
	struct ui ui = {.sort = UI_SORT_WAIT};
	char signs[] = "0123456789.-!*>";

	for (int level = 0; level < 10; level++)
		cr_expect_null(strchr(signs, 'A' + level));
	ui.shows_help = 1;
	expect(draw(picture, &ui, NULL, 24, 80), "A-J the same of those in VRAM");
	expect(screen, "* on its way."); /* the last but none of the keys: all of them are in view */
	free(picture);
}

Test(top_draw, a_layer_in_vram_alone_has_nothing_hot_that_is_missing)
{
	struct picture *picture = picture_of(top_sample_make_with_gpus(3, 0), top_sample_make_with_gpus(4, 0));
	struct ui ui = {.sort = UI_SORT_WAIT, .cursor = 1, .is_zoomed = 1};

	expect(draw(picture, &ui, NULL, 24, 80), "hottest that are not resident: 2\n");
	free(picture);
}

Test(top_draw, neighbours_are_in_vram_if_half_of_them_are)
{
	struct picture *picture = calloc(1, sizeof *picture);
	struct ui ui = {.sort = UI_SORT_WAIT};

	picture->layer_count = picture->has_vram_map = 1;
	picture->layer[0] = (struct picture_layer){.layer = 7, .experts = 128, .in_vram = 3, .has_map = 1};
	picture->heat_most = 9;
	memset(picture->state, 'r', 4);
	memset(picture->state + 4, '.', 124);
	memset(picture->heat, 1, 128);
	picture->in_vram[0] = 1;                      /* of two, the other in RAM */
	picture->in_vram[5] = picture->in_vram[6] = 1; /* of two each, the other nowhere */
	expect(draw(picture, &ui, NULL, 24, 80), "OF 128 EXPERTS  (each sign 2 of them)");
	expect(screen, ">   7    0+3    B1BB----");
	free(picture);
}

Test(top_draw, a_gpu_that_is_lost_and_vram_that_is_none_are_said_in_words)
{
	struct picture *picture = picture_of(top_sample_make_with_gpus(3, 0), top_sample_make_with_gpus(4, 1));
	struct ui ui = {.sort = UI_SORT_WAIT};
	json_t *sample = top_sample_make(4), *layers = json_object_get(json_object_get(sample, "experts"), "layers");
	const char *text = draw(picture, &ui, NULL, 24, 80);

	expect(text, "\nvram     1.0 MiB of 2.0 MiB, 3 experts; hits 30.0 %; 6.0 uploads/s\n");
	expect(text, "\nvram     1 of 2 GPUs lost: GPU 1: a thread hangs\n");
	free(picture);
	(void)json_object_set_new(json_object_get(sample, "stats"), "vram_hits", json_integer(0));
	(void)json_object_set_new(json_object_get(sample, "stats"), "vram_uploads", json_integer(0));
	(void)json_object_set_new(json_array_get(layers, 0), "vram", json_string("......"));
	(void)json_object_set_new(sample, "vram", json_pack("{s:s, s:s, s:[]}", "state", "none", "reason", "no driver", "devices"));
	picture = picture_of(top_sample_make(3), sample);
	text = draw(picture, &ui, NULL, 24, 80);
	expect(text, "\nvram     none: no driver\n");
	cr_expect_null(strstr(text, "uploads/s"), "%s", text);
	expect(text, ">   3    3/6    019--.\n");
	free(picture);
}

Test(top_draw, a_manager_without_gpus_says_nothing_of_them)
{
	struct picture *picture = picture_at(4);
	struct ui ui = {.sort = UI_SORT_WAIT};

	cr_expect_null(strstr(draw(picture, &ui, NULL, 24, 80), "vram"));
	expect(screen, "LAYER  RESIDENT EXPERTS\n");
	free(picture);
}
