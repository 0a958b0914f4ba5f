/* SPDX-License-Identifier: Apache-2.0 */
/* What keys change: nothing of it touches the manager. Pure. */
#ifndef CNRE_TOOLS_TOP_UI_H
#define CNRE_TOOLS_TOP_UI_H

#include <stdint.h>

enum ui_sort { UI_SORT_WAIT, UI_SORT_LOOKUPS, UI_SORT_LEASED, UI_SORT_NAME, UI_SORTS };

/* Keys that are no characters. */
enum ui_key { UI_KEY_UP = 256, UI_KEY_DOWN, UI_KEY_PAGE_UP, UI_KEY_PAGE_DOWN, UI_KEY_HOME, UI_KEY_END };
#define UI_PAGE 10u

struct ui {
	enum ui_sort sort;
	uint32_t cursor;                  /* index of a layer of the picture */
	int is_zoomed;                    /* into the layer at the cursor */
	int is_frozen, shows_help, wants_end;
	uint32_t next_model;              /* how often the next one was asked for */
};

/* layer_count: of the picture. Keys without a meaning are ignored. */
void ui_key(struct ui *ui, int key, uint32_t layer_count);
/* Another picture: the cursor stays within it. */
void ui_fit(struct ui *ui, uint32_t layer_count);
const char *ui_sort_name(enum ui_sort sort);

#endif
