/* SPDX-License-Identifier: Apache-2.0 */
/* See map.h. */
#include "tools/top/map.h"

#define MARGIN 16      /* columns before the experts of a layer */
#define ZOOM_MARGIN 7
#define HOTTEST 8      /* of those that are not resident, named where a layer is zoomed into */

static int is_resident(const struct picture *picture, uint32_t expert)
{
	return picture->in_vram[expert] || picture->state[expert] == 'r';
}

/* One cell stands for experts first..first+count-1 of a layer: for the hottest of them, and in a tier if most are. */
static void draw_cell(struct grid *grid, int row, int column, const struct picture *picture, uint32_t first, uint32_t count)
{
	uint32_t resident = 0, arriving = 0, in_vram = 0;
	int level = 0;

	for (uint32_t i = first; i < first + count; i++) {
		int one = picture_heat_level(picture, i);

		level = one > level ? one : level;
		resident += (uint32_t)is_resident(picture, i);
		in_vram += picture->in_vram[i];
		arriving += picture->state[i] == 'l' && !picture->in_vram[i];
	}
	if (arriving > 0)
		grid_put(grid, row, column, GRID_BOLD, '*');
	else if (2 * in_vram >= count)
		grid_put(grid, row, column, (enum grid_style)(GRID_VRAM_0 + level), (char)('A' + level));
	else if (2 * resident >= count)
		grid_put(grid, row, column, (enum grid_style)(GRID_HEAT_0 + level), (char)('0' + level));
	else if (level > MAP_HOT)
		grid_put(grid, row, column, GRID_ALERT, '!');
	else
		grid_put(grid, row, column, GRID_DIM, level > 0 ? '-' : '.');
}

static uint32_t most_experts(const struct picture *picture)
{
	uint32_t most = 0;

	for (uint32_t i = 0; i < picture->layer_count; i++)
		most = picture->layer[i].experts > most ? picture->layer[i].experts : most;
	return most;
}

static void draw_layer(struct grid *grid, int row, const struct picture *picture, const struct picture_layer *layer,
		       uint32_t group, int is_current)
{
	uint32_t experts = layer->experts;

	grid_format(grid, row, 0, is_current ? GRID_CURSOR : GRID_PLAIN, picture->has_vram_map ? "%c%4u %4u+%-4u" : "%c%4u %4u/%-4u",
		    is_current ? '>' : ' ', layer->layer, layer->resident, picture->has_vram_map ? layer->in_vram : experts);
	if (!layer->has_map) {
		grid_text(grid, row, MARGIN, GRID_DIM, "too many experts for one answer");
		return;
	}
	for (uint32_t i = 0; i < experts; i += group)
		draw_cell(grid, row, MARGIN + (int)(i / group), picture, layer->first + i,
			  experts - i < group ? experts - i : group);
}

static void draw_all(struct grid *grid, int first_row, int last_row, const struct picture *picture, const struct ui *ui)
{
	uint32_t columns = grid->columns > MARGIN ? (uint32_t)(grid->columns - MARGIN) : 1, experts = most_experts(picture);
	uint32_t group = experts > columns ? (experts + columns - 1) / columns : 1;
	uint32_t rows = last_row > first_row ? (uint32_t)(last_row - first_row) : 0, first = 0;
	int column;

	grid_fill_row(grid, first_row, GRID_TITLE);
	if (picture->has_vram_map)
		column = grid_format(grid, first_row, 0, GRID_TITLE, "LAYER  RAM+VRAM  OF %u EXPERTS", experts);
	else
		column = grid_text(grid, first_row, 0, GRID_TITLE, "LAYER  RESIDENT EXPERTS");
	if (group > 1)
		grid_format(grid, first_row, column + 2, GRID_TITLE, "(each sign %u of them)", group);
	if (ui->cursor >= rows)
		first = ui->cursor - rows + 1;
	for (uint32_t i = 0; i < rows && first + i < picture->layer_count; i++)
		draw_layer(grid, first_row + 1 + (int)i, picture, &picture->layer[first + i], group, first + i == ui->cursor);
}

/* ---- one layer ---- */

/* The hottest that are not resident, hottest first. */
static uint32_t find_hottest(const struct picture *picture, const struct picture_layer *layer, uint32_t ret_expert[HOTTEST])
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < layer->experts; i++) {
		uint32_t at = count;

		if (is_resident(picture, layer->first + i) || picture->heat[layer->first + i] == 0)
			continue;
		while (at > 0 && picture->heat[layer->first + ret_expert[at - 1]] < picture->heat[layer->first + i])
			at--;
		if (at == HOTTEST)
			continue;
		count += count < HOTTEST;
		for (uint32_t j = count - 1; j > at; j--)
			ret_expert[j] = ret_expert[j - 1];
		ret_expert[at] = i;
	}
	return count;
}

static void draw_hottest(struct grid *grid, int row, const struct picture *picture, const struct picture_layer *layer)
{
	uint32_t hottest[HOTTEST], count = find_hottest(picture, layer, hottest);
	int column = grid_text(grid, row, 0, GRID_PLAIN, count > 0 ? "hottest that are not resident:" : "all that were used are resident");

	for (uint32_t i = 0; i < count; i++)
		column = grid_format(grid, row, column, GRID_PLAIN, " %u", hottest[i]);
}

static void draw_one(struct grid *grid, int first_row, int last_row, const struct picture *picture,
		     const struct picture_layer *layer)
{
	uint32_t columns = grid->columns > ZOOM_MARGIN + 10 ? (uint32_t)(grid->columns - ZOOM_MARGIN) / 10 * 10 : 10;
	int row = first_row + 1;

	grid_fill_row(grid, first_row, GRID_TITLE);
	if (picture->has_vram_map)
		grid_format(grid, first_row, 0, GRID_TITLE, "LAYER %u: %u of %u experts in RAM, %u in VRAM", layer->layer,
			    layer->resident, layer->experts, layer->in_vram);
	else
		grid_format(grid, first_row, 0, GRID_TITLE, "LAYER %u: %u of %u experts resident", layer->layer, layer->resident,
			    layer->experts);
	for (uint32_t i = 0; layer->has_map && i < layer->experts && row < last_row; i++) {
		if (i % columns == 0 && i > 0)
			row++;
		if (row >= last_row)
			break;
		if (i % columns == 0)
			grid_format(grid, row, 0, GRID_DIM, "%5u", i);
		draw_cell(grid, row, ZOOM_MARGIN + (int)(i % columns), picture, layer->first + i, 1);
	}
	if (layer->has_map)
		draw_hottest(grid, last_row, picture, layer);
}

void map_draw(struct grid *grid, int first_row, int last_row, const struct picture *picture, const struct ui *ui)
{
	if (last_row <= first_row)
		return;
	if (ui->is_zoomed && ui->cursor < picture->layer_count)
		draw_one(grid, first_row, last_row, picture, &picture->layer[ui->cursor]);
	else
		draw_all(grid, first_row, last_row, picture, ui);
}
