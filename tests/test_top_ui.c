/* SPDX-License-Identifier: Apache-2.0 */
/* tools/top/ui.c and options.c: keys and words. */
#include "tools/top/options.h"
#include "tools/top/ui.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <limits.h>

Test(top_ui, the_cursor_stays_among_the_layers)
{
	struct ui ui = {.cursor = 0};

	ui_key(&ui, UI_KEY_UP, 3);
	cr_expect_eq(ui.cursor, 0);
	ui_key(&ui, UI_KEY_PAGE_DOWN, 3);
	cr_expect_eq(ui.cursor, 2);
	ui_key(&ui, 'j', 3);
	cr_expect_eq(ui.cursor, 2);
	ui_key(&ui, 'k', 3);
	cr_expect_eq(ui.cursor, 1);
	ui_key(&ui, UI_KEY_END, 30);
	cr_expect_eq(ui.cursor, 29);
	ui_fit(&ui, 5);
	cr_expect_eq(ui.cursor, 4);
	ui_key(&ui, UI_KEY_DOWN, 0);
	cr_expect_eq(ui.cursor, 0);
}

Test(top_ui, keys_sort_zoom_freeze_and_end)
{
	struct ui ui = {.sort = UI_SORT_WAIT};

	for (int i = 0; i < UI_SORTS; i++)
		ui_key(&ui, 's', 3);
	cr_expect_eq(ui.sort, UI_SORT_WAIT, "once round");
	ui_key(&ui, '\n', 3);
	ui_key(&ui, ' ', 3);
	ui_key(&ui, 'h', 3);
	cr_expect(ui.is_zoomed && ui.is_frozen && ui.shows_help);
	ui_key(&ui, 27, 3);
	cr_expect(!ui.is_zoomed && ui.is_frozen && !ui.shows_help);
	ui_key(&ui, ' ', 3);
	ui_key(&ui, 'm', 3);
	cr_expect(!ui.is_frozen && ui.next_model == 1 && !ui.wants_end);
	ui_key(&ui, 'q', 3);
	cr_expect(ui.wants_end);
}

Test(top_ui, keys_without_a_meaning_change_nothing)
{
	struct ui ui = {.cursor = 1};

	for (int key = -5; key < 600; key++)
		if (key < 0 || key > UI_KEY_END || (key >= 'A' && key <= 'Z'))
			ui_key(&ui, key, 3);
	ui_key(&ui, INT_MAX, 3);
	cr_expect(ui.cursor == 1 && ui.sort == UI_SORT_WAIT && !ui.is_zoomed && !ui.is_frozen && !ui.shows_help && !ui.wants_end);
}

static char message[TOP_MESSAGE_BYTES];

static int parse(struct top_options *options, const char *a, const char *b, const char *c, const char *d)
{
	const char *words[] = {"cnre-top", a, b, c, d, NULL};
	int count = 1;

	while (words[count] != NULL)
		count++;
	return top_options_parse(count, (char **)words, options, message);
}

Test(top_ui, options_have_defaults_and_bounds)
{
	struct top_options options = {.rows = 5};

	cr_assert_eq(parse(&options, NULL, NULL, NULL, NULL), 0);
	cr_expect(options.rows == 24 && options.columns == 80 && options.interval_s == 1 && !options.once);
	cr_assert_eq(parse(&options, "--once", "--size", "120x50", "--no-color"), 0);
	cr_expect(options.rows == 50 && options.columns == 120 && options.once && options.no_color);
	cr_assert_eq(parse(&options, "--interval=0.5", "--record", "f", NULL), 0);
	cr_expect_float_eq(options.interval_s, 0.5, 1e-9);
}

Test(top_ui, wrong_options_are_einval_and_leave_the_output)
{
	static const char *const wrong[][4] = {{"--interval", "0.1", NULL, NULL}, {"--interval", "x", NULL, NULL},
					       {"--size", "80", NULL, NULL},      {"--size", "8000x24", NULL, NULL},
					       {"--size", "80x24x", NULL, NULL},  {"word", NULL, NULL, NULL},
					       {"--nothing", NULL, NULL, NULL},   {"--play", NULL, NULL, NULL},
					       {"--play", "a", "--record", "b"},  {"--interval", "nan", NULL, NULL}};
	struct top_options options = {.rows = 5};

	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
		cr_expect_eq(parse(&options, wrong[i][0], wrong[i][1], wrong[i][2], wrong[i][3]), -EINVAL, "%zu", i);
	cr_expect_eq(options.rows, 5);
}
