/* SPDX-License-Identifier: Apache-2.0 */
/* See draw.h. */
#include "tools/top/draw.h"

#include "tools/ctl/format.h"
#include "tools/top/map.h"

#include <stdlib.h>
#include <string.h>

#define CLIENTS_ROWS 4 /* of a small screen; a larger one has more */
#define DRIVES_ROWS 3

static const char *rate_text(double value, char text[FORMAT_BYTES])
{
	(void)snprintf(text, FORMAT_BYTES, value >= 1e6 ? "%.1f M" : value >= 100 ? "%.0f" : "%.1f", value >= 1e6 ? value / 1e6 : value);
	return text;
}

static const char *share_text(double share, char text[FORMAT_BYTES])
{
	if (share < 0)
		return strcpy(text, "-");
	(void)snprintf(text, FORMAT_BYTES, "%.1f %%", share * 100);
	return text;
}

/* Only of managers that were to use GPUs. The row behind. */
static int draw_vram(struct grid *grid, int row, const struct picture_vram *vram)
{
	char text[5][FORMAT_BYTES];

	if (vram->is_there && !vram->is_on)
		grid_format(grid, row++, 0, GRID_BOLD, "vram     none: %s", vram->reason);
	if (vram->is_there && vram->is_on)
		grid_format(grid, row++, 0, GRID_PLAIN, "vram     %s of %s, %s experts; hits %s; %s uploads/s",
			    format_bytes(vram->used_bytes, text[0]), format_bytes(vram->budget_bytes, text[1]),
			    format_count(vram->experts, text[2]), share_text(vram->hit_share, text[3]),
			    rate_text(vram->uploads_s, text[4]));
	if (vram->lost_count > 0)
		grid_format(grid, row++, 0, GRID_ALERT, "vram     %u of %u GPUs lost: GPU %llu: %s", vram->lost_count,
			    vram->device_count, (unsigned long long)vram->lost_device, vram->reason);
	return row;
}

/* The row behind. */
static int draw_totals(struct grid *grid, const struct picture *picture, const struct ui *ui)
{
	char text[5][FORMAT_BYTES];

	grid_fill_row(grid, 0, GRID_TITLE);
	grid_format(grid, 0, 0, GRID_TITLE, "cnre-top  %.40s  policy %.16s  up %s%s", picture->model, picture->policy,
		    format_seconds(picture->uptime_s, text[0]), ui->is_frozen ? "  FROZEN" : "");
	grid_format(grid, 1, 0, GRID_PLAIN, "memory   %s of %s (%s), %s experts resident",
		    format_bytes(picture->resident_bytes, text[0]), format_bytes(picture->budget_bytes, text[1]),
		    format_share(picture->resident_bytes, picture->budget_bytes, text[2]),
		    format_count(picture->resident_objects, text[3]));
	grid_format(grid, 2, 0, GRID_PLAIN, "lookups  %s/s, hits %s; felt wait %.3f s a second", rate_text(picture->lookups_s, text[0]),
		    share_text(picture->hit_share, text[1]), picture->wait_s);
	grid_format(grid, 3, 0, GRID_PLAIN, "reads    %s/s, %.1f MB/s; %s out, %s queued", rate_text(picture->loads_s, text[0]),
		    picture->bytes_s / 1e6, format_count(picture->loads_in_flight, text[1]),
		    format_count(picture->loads_queued, text[2]));
	grid_format(grid, 4, 0, GRID_BOLD, "tokens   %s/s, passes %s/s", rate_text(picture->tokens_s, text[0]),
		    rate_text(picture->passes_s, text[1]));
	if (picture->interval_s <= 0)
		grid_text(grid, 4, 40, GRID_DIM, "(rates with the next sample)");
	return draw_vram(grid, 5, &picture->vram);
}

/* ---- clients ---- */

static int compare_numbers(double a, double b)
{
	return a < b ? 1 : a > b ? -1 : 0;
}

static int compare_clients(const struct picture_client *a, const struct picture_client *b, enum ui_sort sort)
{
	int r = 0;

	if (sort == UI_SORT_WAIT)
		r = compare_numbers(a->wait_s, b->wait_s);
	else if (sort == UI_SORT_LOOKUPS)
		r = compare_numbers(a->lookups_s, b->lookups_s);
	else if (sort == UI_SORT_LEASED)
		r = compare_numbers((double)a->leased, (double)b->leased);
	else
		r = strcmp(a->name, b->name);
	return r != 0 ? r : a->session < b->session ? -1 : a->session > b->session;
}

/* The first `rows` of the order; as many looks at all as there are rows. */
static uint32_t choose_clients(const struct picture *picture, enum ui_sort sort, uint32_t rows, uint32_t *ret_index)
{
	unsigned char taken[PICTURE_CLIENTS_MAX] = {0};
	uint32_t count = rows < picture->client_count ? rows : picture->client_count;

	for (uint32_t n = 0; n < count; n++) {
		uint32_t best = PICTURE_CLIENTS_MAX;

		for (uint32_t i = 0; i < picture->client_count; i++)
			if (!taken[i] && (best == PICTURE_CLIENTS_MAX ||
					  compare_clients(&picture->client[i], &picture->client[best], sort) < 0))
				best = i;
		taken[best] = 1;
		ret_index[n] = best;
	}
	return count;
}

/* The row behind it. */
static int draw_clients(struct grid *grid, int row, int rows, const struct picture *picture, const struct ui *ui)
{
	uint32_t index[TOP_ROWS_MAX], count = choose_clients(picture, ui->sort, (uint32_t)rows, index);
	char text[2][FORMAT_BYTES];

	grid_fill_row(grid, row, GRID_TITLE);
	grid_format(grid, row++, 0, GRID_TITLE, "CLIENTS %-5u by %-14s %8s %7s %11s %8s %9s", picture->client_count,
		    ui_sort_name(ui->sort), "PID", "LEASED", "LOOKUPS/S", "HITS", "WAIT S/S");
	for (uint32_t i = 0; i < count; i++) {
		const struct picture_client *client = &picture->client[index[i]];

		grid_format(grid, row++, 0, GRID_PLAIN, "%-31.31s %8llu %7llu %11s %8s %9.3f", client->name,
			    (unsigned long long)client->pid, (unsigned long long)client->leased,
			    rate_text(client->lookups_s, text[0]), share_text(client->hit_share, text[1]), client->wait_s);
	}
	return row;
}

static int draw_drives(struct grid *grid, int row, int rows, const struct picture *picture)
{
	char text[FORMAT_BYTES];

	grid_fill_row(grid, row, GRID_TITLE);
	grid_format(grid, row++, 0, GRID_TITLE, "DRIVES %-24u %12s %12s %6s  STATE", picture->drive_count, "MB/S", "A READ", "OUT");
	for (int i = 0; i < rows && i < (int)picture->drive_count; i++) {
		const struct picture_drive *drive = &picture->drive[i];
		int is_well = strcmp(drive->state, "ok") == 0 || strcmp(drive->state, "spare") == 0;

		grid_format(grid, row++, 0, is_well ? GRID_PLAIN : GRID_ALERT, "%-31.31s %12.1f %12s %6llu  %.15s", drive->name,
			    drive->bytes_s / 1e6, drive->read_s < 0 ? "-" : format_seconds(drive->read_s, text),
			    (unsigned long long)drive->in_flight, drive->state);
	}
	return row;
}

/* ---- the rest ---- */

static void draw_help(struct grid *grid, int row)
{
	static const char *const lines[] = {
		"up, down, k, j     another layer; page up, page down, home, end",
		"enter, z           into the layer, and out again",
		"s                  sort clients by wait, lookups, leased, name",
		"space, f           freeze what is shown, and go on",
		"m                  the next model",
		"h, ?               this, and away again",
		"q                  end",
		"",
		"In the map 0-9 are resident experts, 9 used most of all, 0 never, and",
		"A-J the same of those in VRAM, whether or not RAM has them too;",
		". is not resident and never used, - little used, ! hot and not resident,",
		"* on its way. Felt wait is of all threads: 2 s a second is two that wait.",
	};

	grid_fill_row(grid, row, GRID_TITLE);
	grid_text(grid, row, 0, GRID_TITLE, "KEYS");
	for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
		grid_text(grid, row + 1 + (int)i, 0, GRID_PLAIN, lines[i]);
}

void draw_screen(struct grid *grid, const struct picture *picture, const struct ui *ui, const char *note)
{
	int spare = grid->rows > 24 ? (grid->rows - 24) / 4 : 0, last = grid->rows - 1, row;

	row = draw_totals(grid, picture, ui);
	if (ui->shows_help) { /* in place of all the rest, so that it is in view as a whole */
		draw_help(grid, row);
	} else {
		row = draw_clients(grid, row, CLIENTS_ROWS + spare, picture, ui);
		row = draw_drives(grid, row, DRIVES_ROWS + spare, picture);
		map_draw(grid, row, last - 1, picture, ui);
	}
	grid_fill_row(grid, last, note != NULL ? GRID_ALERT : GRID_TITLE);
	for (int i = 0; i < grid->columns; i++)
		grid_put(grid, last, i, note != NULL ? GRID_ALERT : GRID_TITLE, ' ');
	grid_text(grid, last, 0, note != NULL ? GRID_ALERT : GRID_TITLE,
		  note != NULL ? note : "h help  s sort  arrows layer  enter zoom  space freeze  m model  q quit");
}
