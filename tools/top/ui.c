/* SPDX-License-Identifier: Apache-2.0 */
/* See ui.h. */
#include "tools/top/ui.h"

#define ESCAPE 27

const char *ui_sort_name(enum ui_sort sort)
{
	static const char *const names[UI_SORTS] = {[UI_SORT_WAIT] = "wait",
						    [UI_SORT_LOOKUPS] = "lookups",
						    [UI_SORT_LEASED] = "leased",
						    [UI_SORT_NAME] = "name"};

	return names[sort];
}

void ui_fit(struct ui *ui, uint32_t layer_count)
{
	if (ui->cursor >= layer_count)
		ui->cursor = layer_count > 0 ? layer_count - 1 : 0;
}

static void move(struct ui *ui, int key, uint32_t layer_count)
{
	switch (key) {
	case UI_KEY_UP:
		ui->cursor -= ui->cursor > 0;
		break;
	case UI_KEY_DOWN:
		ui->cursor++;
		break;
	case UI_KEY_PAGE_UP:
		ui->cursor -= ui->cursor < UI_PAGE ? ui->cursor : UI_PAGE;
		break;
	case UI_KEY_PAGE_DOWN:
		ui->cursor += UI_PAGE;
		break;
	case UI_KEY_HOME:
		ui->cursor = 0;
		break;
	case UI_KEY_END:
		ui->cursor = UINT32_MAX;
		break;
	default:
		break;
	}
	ui_fit(ui, layer_count);
}

void ui_key(struct ui *ui, int key, uint32_t layer_count)
{
	switch (key) {
	case 'q':
		ui->wants_end = 1;
		break;
	case 'h':
	case '?':
		ui->shows_help = !ui->shows_help;
		break;
	case ' ':
	case 'f':
		ui->is_frozen = !ui->is_frozen;
		break;
	case 's':
		ui->sort = (enum ui_sort)((ui->sort + 1) % UI_SORTS);
		break;
	case 'm':
		ui->next_model++;
		break;
	case '\n':
	case '\r':
	case 'z':
		ui->is_zoomed = !ui->is_zoomed;
		break;
	case ESCAPE:
		ui->is_zoomed = ui->shows_help = 0;
		break;
	case 'k':
		move(ui, UI_KEY_UP, layer_count);
		break;
	case 'j':
		move(ui, UI_KEY_DOWN, layer_count);
		break;
	default:
		move(ui, key, layer_count);
	}
}
