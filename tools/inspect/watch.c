/* SPDX-License-Identifier: Apache-2.0 */
/* See watch.h. */
#include "tools/inspect/watch.h"

#include "base/clock.h"
#include "tools/inspect/library.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TURN_MS 50

static int is_of_library(uint32_t kind)
{
	return kind == EVENT_MISS || kind == EVENT_JOIN || kind == EVENT_DONE || kind == EVENT_FIRST_USE;
}

/* Reads are anybody's. What a probe tells is of the manager or of a client of it; other managers' are not looked at. */
static int is_known(const struct inspect *inspect, const struct event *event)
{
	if (event->kind == EVENT_READ)
		return 1;
	if (is_of_library(event->kind))
		return subject_client_of(&inspect->subject, event->process) != NULL;
	return subject_is_manager(&inspect->subject, event->process);
}

static void take(void *context, const struct event *event)
{
	struct watch *watch = context;
	struct inspect *inspect = watch->inspect;

	/* In order: while something is kept, so is the rest; a manager that was restarted tells of a load, and then reads. */
	if (is_known(inspect, event) && watch->later_count == 0) {
		inspect->verb->take(inspect, event);
		return;
	}
	if (!is_known(inspect, event))
		inspect->wants_refresh = 1;
	if (watch->later_count < WATCH_LATER_MAX)
		watch->later[watch->later_count++] = *event;
	else
		inspect_note(inspect, "more than %u events came from processes that the manager had not named yet: some are not counted", WATCH_LATER_MAX);
}

static void take_later(struct watch *watch)
{
	for (uint32_t i = 0; i < watch->later_count; i++)
		if (is_known(watch->inspect, &watch->later[i]))
			watch->inspect->verb->take(watch->inspect, &watch->later[i]);
	watch->later_count = 0;
}

/* The manager may be away for a moment, or for good: then what was seen until then is reported. */
static void refresh(struct watch *watch)
{
	struct inspect *inspect = watch->inspect;
	char message[INSPECT_MESSAGE_BYTES];
	uint32_t managers = inspect->subject.manager_count;
	int r = subject_refresh(&inspect->subject, message);

	watch->asked_ns = cnre_clock_now_ns();
	watch->asked_next_ns = watch->asked_ns + (r < 0 ? WATCH_REFRESH_LATER_NS : WATCH_REFRESH_NS);
	inspect->wants_refresh = 0;
	if (r < 0)
		inspect_note(inspect, "the manager did not answer for a while: %.180s", message);
	for (uint32_t i = managers; i < inspect->subject.manager_count; i++) {
		inspect_note(inspect, "the manager was restarted, and is process %u now", inspect->subject.manager[i]);
		if (library_attach_manager(inspect, inspect->subject.manager[i], message) < 0)
			inspect_note(inspect, "%.200s", message);
	}
	if (r > 0 && library_attach_clients(inspect, message) < 0)
		inspect_note(inspect, "%.200s", message);
	if (r >= 0)
		take_later(watch);
}

int watch_open(struct watch *watch, struct inspect *inspect, const volatile sig_atomic_t *stop, char message[INSPECT_MESSAGE_BYTES])
{
	const struct programs_setup setup = {.preflight = &inspect->preflight, .take = take, .context = watch};
	int r;

	*watch = (struct watch){.inspect = inspect, .stop = stop};
	watch->later = calloc(WATCH_LATER_MAX, sizeof watch->later[0]);
	(void)snprintf(message, INSPECT_MESSAGE_BYTES, "out of memory");
	r = watch->later == NULL ? -ENOMEM : preflight_check(&inspect->preflight, message);
	if (r == 0)
		r = programs_open(&inspect->programs, &setup, message);
	if (r == 0)
		r = inspect->verb->open(inspect, message);
	if (r == 0)
		r = library_attach_manager(inspect, inspect->subject.manager[0], message);
	if (r == 0)
		r = library_attach_clients(inspect, message);
	if (r == 0)
		(void)subject_ask(&inspect->subject, "stats", &inspect->before, message);
	/* Reads last: their loads are known by then. */
	if (r == 0 && inspect->verb->wants_reads)
		r = programs_attach_reads(inspect->programs, message);
	inspect->started_ns = cnre_clock_now_ns();
	return r;
}

int watch_until(struct watch *watch, int64_t until_ns)
{
	struct inspect *inspect = watch->inspect;

	while (!*watch->stop && cnre_clock_now_ns() < until_ns) {
		int64_t now_ns = cnre_clock_now_ns(), left_ms = (until_ns - now_ns) / CNRE_NS_PER_MS + 1;

		(void)programs_poll(inspect->programs, left_ms < TURN_MS ? (int)left_ms : TURN_MS);
		now_ns = cnre_clock_now_ns();
		if (now_ns >= watch->asked_next_ns || (inspect->wants_refresh && now_ns - watch->asked_ns >= WATCH_REFRESH_SOON_NS))
			refresh(watch);
		if (inspect->verb->tick != NULL)
			inspect->verb->tick(inspect);
	}
	/* What has happened before this moment belongs to the report. */
	(void)programs_poll(inspect->programs, 0);
	refresh(watch);
	return *watch->stop;
}

void watch_close(struct watch *watch)
{
	struct inspect *inspect = watch->inspect;

	inspect->programs = programs_close(inspect->programs);
	if (inspect->state != NULL)
		inspect->verb->close(inspect);
	library_close(inspect);
	json_decref(inspect->before);
	inspect->before = NULL;
	free(watch->later);
	watch->later = NULL;
}
