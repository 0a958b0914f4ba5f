/* SPDX-License-Identifier: Apache-2.0 */
/* A picture on a grid: totals, clients, drives, the map, keys. Readable at 80x24. Pure. */
#ifndef CNRE_TOOLS_TOP_DRAW_H
#define CNRE_TOOLS_TOP_DRAW_H

#include "tools/top/grid.h"
#include "tools/top/picture.h"
#include "tools/top/ui.h"

/* note: what went wrong, NULL: nothing. The grid has been cleared to its size. */
void draw_screen(struct grid *grid, const struct picture *picture, const struct ui *ui, const char *note);

#endif
