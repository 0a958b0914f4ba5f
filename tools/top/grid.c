/* SPDX-License-Identifier: Apache-2.0 */
/* See grid.h. */
#include "tools/top/grid.h"

#include "tools/top/options.h"

#include <errno.h>
#include <stdarg.h>

#define TEXT_BYTES 512 /* of one call; more is cut */

static int within(int value, int most)
{
	return value < 0 ? 0 : value > most ? most : value;
}

void grid_clear(struct grid *grid, int rows, int columns)
{
	grid->rows = within(rows, TOP_ROWS_MAX);
	grid->columns = within(columns, TOP_COLUMNS_MAX);
	for (int i = 0; i < grid->rows * grid->columns; i++)
		grid->cell[i] = (struct grid_cell){' ', GRID_PLAIN};
}

void grid_put(struct grid *grid, int row, int column, enum grid_style style, char character)
{
	if (row < 0 || row >= grid->rows || column < 0 || column >= grid->columns)
		return;
	if (character < 0x20 || character > 0x7e)
		character = '?';
	grid->cell[row * grid->columns + column] = (struct grid_cell){character, (unsigned char)style};
}

int grid_text(struct grid *grid, int row, int column, enum grid_style style, const char *text)
{
	for (; *text != '\0'; text++)
		grid_put(grid, row, column++, style, *text);
	return column;
}

int grid_format(struct grid *grid, int row, int column, enum grid_style style, const char *format, ...)
{
	char text[TEXT_BYTES];
	va_list list;

	va_start(list, format);
	(void)vsnprintf(text, sizeof text, format, list);
	va_end(list);
	return grid_text(grid, row, column, style, text);
}

void grid_fill_row(struct grid *grid, int row, enum grid_style style)
{
	if (row < 0 || row >= grid->rows)
		return;
	for (int i = 0; i < grid->columns; i++)
		grid->cell[row * grid->columns + i].style = (unsigned char)style;
}

int grid_print(const struct grid *grid, FILE *out)
{
	for (int row = 0; row < grid->rows; row++) {
		const struct grid_cell *cell = &grid->cell[row * grid->columns];
		int end = grid->columns;

		while (end > 0 && cell[end - 1].character == ' ')
			end--;
		for (int i = 0; i < end; i++)
			(void)putc(cell[i].character, out);
		(void)putc('\n', out);
	}
	return fflush(out) == 0 && !ferror(out) ? 0 : errno > 0 ? -errno : -EIO;
}
