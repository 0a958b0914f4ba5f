/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The heat map: a row a layer, a character for one expert or for a few neighbours; or one layer expert by expert. A digit
 * is an expert in RAM, 0 never used to 9 used most, and A to J the same in the memory of a GPU, whether or not RAM has it too;
 * what is in neither is '.', '-' little used, '!' hot; '*' is on its way into RAM.
 */
#ifndef CNRE_TOOLS_TOP_MAP_H
#define CNRE_TOOLS_TOP_MAP_H

#include "tools/top/grid.h"
#include "tools/top/picture.h"
#include "tools/top/ui.h"

#define MAP_HOT 6 /* of 9: what is not resident and hotter than that should be looked at */

/* Rows first_row..last_row of the grid. */
void map_draw(struct grid *grid, int first_row, int last_row, const struct picture *picture, const struct ui *ui);

#endif
