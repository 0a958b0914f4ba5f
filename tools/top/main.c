/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cnre-top: what a manager holds and does, live, from a recording, or once. This file owns standard output, standard error and
 * the exit status (0 done, 1 failed, 2 usage); everything else returns.
 */
#include "base/clock.h"
#include "tools/top/draw.h"
#include "tools/top/options.h"
#include "tools/top/record.h"
#include "tools/top/screen.h"
#include "tools/top/source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

#define PLAY_PAUSE_MAX_S 10.0 /* a longer one in a recording is cut */

struct top {
	struct top_options options;
	struct top_source source;
	struct top_record record;         /* written, or played; no file: neither */
	struct ui ui;
	struct picture *shown, *next;     /* shown: the latest; interval_s 0 before there were two */
	int has_picture;
	struct grid grid;
	char note[TOP_MESSAGE_BYTES];     /* empty: nothing went wrong */
};

/* 1: top->shown is the next sample; 0: there are no more; -errno with a message. */
static int step(struct top *top, char message[TOP_MESSAGE_BYTES])
{
	struct picture *before = top->shown;
	json_t *sample = NULL;
	int r;

	if (top->options.play != NULL)
		r = top_record_next(&top->record, &sample, message);
	else if ((r = top_source_take(&top->source, top->ui.next_model, &sample, message)) == 0)
		r = 1;
	if (r <= 0)
		return r;
	r = picture_fill(sample, top->has_picture ? before : NULL, top->next, message);
	if (r == 0 && top->options.play == NULL && top->record.file != NULL)
		r = top_record_put(&top->record, sample, message);
	json_decref(sample);
	if (r < 0)
		return r;
	top->shown = top->next;
	top->next = before;
	top->has_picture = 1;
	ui_fit(&top->ui, top->shown->layer_count);
	return 1;
}

static void draw(struct top *top, int rows, int columns)
{
	grid_clear(&top->grid, rows, columns);
	draw_screen(&top->grid, top->shown, &top->ui, top->note[0] != '\0' ? top->note : NULL);
}

/* ---- once ---- */

static void pause_s(double seconds)
{
	struct timespec left = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};

	while (nanosleep(&left, &left) < 0 && errno == EINTR)
		;
}

/* Two samples of a manager, for rates; of a recording the last two. */
static int show_once(struct top *top, char message[TOP_MESSAGE_BYTES])
{
	int r = step(top, message);

	if (r > 0 && top->options.play == NULL) {
		pause_s(top->options.interval_s);
		r = step(top, message);
	}
	while (r > 0 && top->options.play != NULL)
		r = step(top, message);
	if (r < 0)
		return r;
	if (!top->has_picture) {
		(void)snprintf(message, TOP_MESSAGE_BYTES, "%.300s: holds no sample", top->options.play);
		return -ENODATA;
	}
	draw(top, top->options.rows, top->options.columns);
	r = grid_print(&top->grid, stdout);
	if (r < 0)
		(void)snprintf(message, TOP_MESSAGE_BYTES, "standard output: %s", strerror(-r));
	return r;
}

/* ---- live ---- */

static void redraw(struct top *top)
{
	int rows, columns;

	screen_size(&rows, &columns);
	draw(top, rows, columns);
	screen_show(&top->grid);
}

/* Keys until it is time for a sample, or another model is wanted. */
static void follow_keys(struct top *top, int64_t deadline_ns)
{
	uint32_t model = top->ui.next_model;

	do {
		int64_t left_ms = cnre_clock_left_ns(deadline_ns) / CNRE_NS_PER_MS + 1;
		int key = screen_key(left_ms > 1000 ? 1000 : (int)left_ms);

		if (key != SCREEN_NO_KEY)
			ui_key(&top->ui, key, top->shown->layer_count);
		redraw(top);
	} while (!top->ui.wants_end && top->ui.next_model == model && cnre_clock_left_ns(deadline_ns) > 0);
}

static double pause_of(const struct top *top, int is_over)
{
	double pause = top->shown->interval_s;

	if (top->options.play == NULL)
		return top->options.interval_s;
	if (is_over || pause <= 0)
		return 1;
	return pause < PLAY_PAUSE_MAX_S ? pause : PLAY_PAUSE_MAX_S;
}

/* What is frozen is neither asked for nor recorded. */
static int is_due(const struct top *top, int is_over)
{
	return !is_over && !top->ui.is_frozen;
}

static int show_live(struct top *top, char message[TOP_MESSAGE_BYTES])
{
	int r = step(top, message), is_over = 0;

	if (r < 0)
		return r;
	if (screen_open(top->options.no_color) < 0) {
		(void)snprintf(message, TOP_MESSAGE_BYTES, "no terminal that is known (TERM): --once prints one screen");
		return -ENOTTY;
	}
	top->source.stop_fd = STDIN_FILENO; /* a manager that hangs does not keep anybody from ending this */
	while (!top->ui.wants_end) {
		is_over |= r == 0 && top->options.play != NULL;
		if (is_over)
			(void)snprintf(top->note, sizeof top->note, "the recording is over: q ends");
		redraw(top);
		follow_keys(top, cnre_clock_deadline_ns((int64_t)(pause_of(top, is_over) * 1e9)));
		if (top->ui.wants_end || !is_due(top, is_over))
			continue;
		top->note[0] = '\0';
		r = step(top, message);
		if (r < 0 && r != -EINTR)
			(void)snprintf(top->note, sizeof top->note, "%s", message);
		else if (top->record.is_full)
			(void)snprintf(top->note, sizeof top->note, "the recording is full: nothing more is written");
	}
	screen_close();
	return 0;
}

/* ---- life ---- */

static int open_record(struct top *top, char message[TOP_MESSAGE_BYTES])
{
	if (top->options.record != NULL)
		return top_record_create(&top->record, top->options.record, message);
	if (top->options.play != NULL)
		return top_record_open(&top->record, top->options.play, message);
	return 0;
}

static int run(struct top *top, char message[TOP_MESSAGE_BYTES])
{
	int r, closed;

	top->shown = calloc(1, sizeof *top->shown);
	top->next = calloc(1, sizeof *top->next);
	(void)snprintf(message, TOP_MESSAGE_BYTES, "out of memory");
	r = top->shown == NULL || top->next == NULL ? -ENOMEM : open_record(top, message);
	if (r == 0)
		r = top->options.once ? show_once(top, message) : show_live(top, message);
	closed = top_record_close(&top->record);
	if (r >= 0 && closed < 0) {
		(void)snprintf(message, TOP_MESSAGE_BYTES, "the recording: %s", strerror(-closed));
		r = closed;
	}
	free(top->shown);
	free(top->next);
	return r;
}

int main(int argc, char **argv)
{
	static struct top top = {.source.stop_fd = -1}; /* large */
	char message[TOP_MESSAGE_BYTES];

	if (top_options_parse(argc, argv, &top.options, message) < 0) {
		fprintf(stderr, "cnre-top: %s\n", message);
		return EXIT_USAGE;
	}
	if (top.options.help) {
		fputs(top_options_help(), stdout);
		return EXIT_DONE;
	}
	if (top.options.version) {
		printf("cnre-top %s\n", CNRE_VERSION);
		return EXIT_DONE;
	}
	top.source.model = top.options.model;
	search_fill(&top.source.places, top.options.socket);
	if (run(&top, message) < 0) {
		fprintf(stderr, "cnre-top: %s\n", message);
		return EXIT_FAILED;
	}
	return EXIT_DONE;
}
