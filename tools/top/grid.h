/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A screen as an array of cells: everything is drawn here first, where tests see it, and then put on a terminal by screen.c or
 * printed as text. ASCII only. Drawing beyond an edge is cut.
 */
#ifndef CNRE_TOOLS_TOP_GRID_H
#define CNRE_TOOLS_TOP_GRID_H

#include <stdio.h>

#define GRID_CELLS_MAX (200 * 400)

/* What a cell means, not how it looks: that is the terminal's affair. The characters tell the same without any of it. */
enum grid_style {
	GRID_PLAIN,
	GRID_TITLE,
	GRID_BOLD,
	GRID_DIM,
	GRID_ALERT,                       /* should be looked at */
	GRID_CURSOR,
	GRID_HEAT_0,                      /* resident, by how much it is used: ten in a row */
	GRID_HEAT_9 = GRID_HEAT_0 + 9,
	GRID_VRAM_0,                      /* the same of what is in the memory of a GPU */
	GRID_VRAM_9 = GRID_VRAM_0 + 9,
	GRID_STYLES
};

struct grid_cell {
	char character;
	unsigned char style;
};

struct grid {
	int rows, columns;
	struct grid_cell cell[GRID_CELLS_MAX];
};

/* Blank cells. Sizes beyond the bounds are cut. */
void grid_clear(struct grid *grid, int rows, int columns);
void grid_put(struct grid *grid, int row, int column, enum grid_style style, char character);
/* Text from there on; what is not printable ASCII becomes '?'. The column behind it. */
int grid_text(struct grid *grid, int row, int column, enum grid_style style, const char *text);
__attribute__((format(printf, 5, 6))) int grid_format(struct grid *grid, int row, int column, enum grid_style style,
						       const char *format, ...);
/* The whole row in one style. */
void grid_fill_row(struct grid *grid, int row, enum grid_style style);

/* As lines of text without blanks at their ends. 0 or -errno. */
int grid_print(const struct grid *grid, FILE *out);

#endif
