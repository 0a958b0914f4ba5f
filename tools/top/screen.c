/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See screen.h. Heat goes from dark blue over grey to yellow, which everybody can tell apart, whatever colours his eyes see,
 * and which gets brighter all the way, as a map without colours would. Where a terminal has 8 colours there are fewer steps, and
 * where it has none only bold; the digits are the same. What is in VRAM is underlined, and is a letter whatever is shown of that.
 */
#include "tools/top/screen.h"

#include "tools/top/ui.h"

#include <curses.h>
#include <errno.h>
#include <unistd.h>

static SCREEN *terminal;
static int has_palette; /* 0: no colours, 1: eight, 2: 256 */

static const short heat_256[10] = {17, 18, 24, 60, 66, 102, 144, 179, 220, 226};
static const short heat_8[10] = {COLOR_BLUE, COLOR_BLUE, COLOR_BLUE, COLOR_CYAN,   COLOR_CYAN,
				 COLOR_CYAN, COLOR_WHITE, COLOR_WHITE, COLOR_YELLOW, COLOR_YELLOW};

/* Pair of a level: light digits on the dark half, dark ones on the light half. */
static void open_palette(int no_color)
{
	has_palette = 0;
	if (no_color || !has_colors() || start_color() == ERR)
		return;
	has_palette = COLORS >= 256 ? 2 : 1;
	for (short i = 0; i < 10; i++)
		(void)init_pair((short)(i + 1), i < 5 ? COLOR_WHITE : COLOR_BLACK, has_palette == 2 ? heat_256[i] : heat_8[i]);
}

int screen_open(int no_color)
{
	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
		return -ENOTTY;
	terminal = newterm(NULL, stdout, stdin);
	if (terminal == NULL)
		return -ENOTTY;
	open_palette(no_color);
	(void)cbreak();
	(void)noecho();
	(void)keypad(stdscr, TRUE);
	(void)curs_set(0);
	return 0;
}

void screen_close(void)
{
	if (terminal == NULL)
		return;
	(void)endwin();
	delscreen(terminal);
	terminal = NULL;
}

void screen_size(int *ret_rows, int *ret_columns)
{
	getmaxyx(stdscr, *ret_rows, *ret_columns);
}

static attr_t look_of_heat(unsigned level)
{
	if (has_palette > 0)
		return (attr_t)COLOR_PAIR((int)level + 1);
	return level >= 5 ? A_BOLD : A_NORMAL;
}

static attr_t look_of(unsigned style)
{
	switch (style) {
	case GRID_PLAIN:
		return A_NORMAL;
	case GRID_TITLE:
		return A_REVERSE;
	case GRID_BOLD:
	case GRID_CURSOR:
		return A_BOLD;
	case GRID_DIM:
		return A_DIM;
	case GRID_ALERT:
		return A_BOLD | A_UNDERLINE;
	default:
		break;
	}
	if (style >= GRID_VRAM_0)
		return look_of_heat(style - GRID_VRAM_0) | A_UNDERLINE;
	return look_of_heat(style - GRID_HEAT_0);
}

void screen_show(const struct grid *grid)
{
	for (int row = 0; row < grid->rows; row++)
		for (int column = 0; column < grid->columns; column++) {
			const struct grid_cell *cell = &grid->cell[row * grid->columns + column];

			(void)mvaddch(row, column, (chtype)(unsigned char)cell->character | look_of(cell->style));
		}
	(void)refresh();
}

int screen_key(int timeout_ms)
{
	int key;

	timeout(timeout_ms);
	key = getch();
	switch (key) {
	case KEY_UP:
		return UI_KEY_UP;
	case KEY_DOWN:
		return UI_KEY_DOWN;
	case KEY_PPAGE:
		return UI_KEY_PAGE_UP;
	case KEY_NPAGE:
		return UI_KEY_PAGE_DOWN;
	case KEY_HOME:
		return UI_KEY_HOME;
	case KEY_END:
		return UI_KEY_END;
	case KEY_ENTER:
		return '\n';
	default:
		return key >= 0 && key < 256 ? key : SCREEN_NO_KEY;
	}
}
