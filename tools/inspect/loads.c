/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verb loads: a line for each load with its stages, as it ends. It is said when the expert was used for the first time, so
 * that a prefetch that came in time can be told from one that nobody wanted; or when nobody did for a second.
 */
#include "tools/inspect/loads.h"

#include "base/clock.h"
#include "tools/inspect/load_events.h"

#include <errno.h>
#include <stdlib.h>

static const struct inspect_probe probes[] = {
	{IN_MANAGER, PROGRAMS_ON_PROBE, "admit", EVENT_ADMIT, 0},
	{IN_MANAGER, PROGRAMS_ON_PROBE, "load_start", EVENT_LOAD_START, 0},
	{IN_MANAGER, PROGRAMS_ON_PROBE, "load_chunk", EVENT_LOAD_CHUNK, 0},
	{IN_MANAGER, PROGRAMS_ON_PROBE, "load_done", EVENT_LOAD_DONE, 0},
	{IN_MANAGER, PROGRAMS_ON_PROBE, "load_verify", EVENT_LOAD_VERIFY, 0},
	{IN_MANAGER, PROGRAMS_ON_PROBE, "publish", EVENT_PUBLISH, 0},
	{IN_MANAGER, PROGRAMS_ON_PROBE, "evict", EVENT_EVICT, 0},
	{IN_MANAGER, PROGRAMS_ON_PROBE, "reject", EVENT_REJECT, 0},
	{IN_LIBRARY, PROGRAMS_ON_FIRST_USE, "lease_taken", EVENT_FIRST_USE, 1},
	{.name = NULL},
};

static void say(const struct inspect *inspect, json_t *line)
{
	char *text = inspect->options.json ? json_dumps(line, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(15)) : NULL;

	if (text != NULL)
		(void)puts(text);
	else if (!inspect->options.json)
		loads_print_line(stdout, line);
	free(text);
	json_decref(line);
}

static void show(struct inspect *inspect, const struct load_entry *entry)
{
	struct loads *loads = inspect->state;

	loads->shown++;
	loads->failed += entry->status < 0;
	if (entry->kind == LOAD_DEMAND)
		histogram_add(&loads->queued, entry->queued_ns);
	if (entry->done_ns > entry->start_ns)
		histogram_add(&loads->disk, entry->done_ns - entry->start_ns);
	if (entry->publish_ns > entry->done_ns) {
		histogram_add(&loads->verify, entry->publish_ns - entry->done_ns);
		histogram_add(&loads->whole, entry->publish_ns - entry->start_ns);
	}
	say(inspect, loads_line(inspect, entry));
}

/* ---- what waits for its first use ---- */

static void show_pending(struct inspect *inspect, uint64_t before_ns)
{
	struct loads *loads = inspect->state;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < loads->pending_count; i++) {
		const struct load_entry *entry = load_table_find(&loads->table, loads->pending[i]);

		if (entry != NULL && entry->used_ns == 0 && entry->publish_ns >= before_ns)
			loads->pending[kept++] = loads->pending[i];
		else if (entry != NULL)
			show(inspect, entry);
	}
	loads->pending_count = kept;
}

static void add_pending(struct inspect *inspect, const struct load_entry *entry)
{
	struct loads *loads = inspect->state;

	if (loads->pending_count == LOADS_PENDING_MAX)
		show_pending(inspect, UINT64_MAX);
	loads->pending[loads->pending_count++] = entry->number;
}

/* Of whichever model it may be: the client's. */
static void note_use(struct inspect *inspect, const struct event *event)
{
	struct loads *loads = inspect->state;
	const struct subject_client *client = subject_client_of(&inspect->subject, event->process);
	const struct load_name name = {.model = client != NULL && client->model != SUBJECT_NO_MODEL ? client->model : 0,
				       .layer = (uint32_t)event->argument[2],
				       .expert = (uint32_t)event->argument[3]};
	struct load_entry *entry = load_table_last(&loads->table, &name);

	if (entry != NULL && entry->used_ns == 0)
		entry->used_ns = event->at_ns;
}

/* An admission is told just before its load begins. */
static void note_admission(struct loads *loads, struct load_entry *entry)
{
	if (loads->admitted.model == entry->name.model && loads->admitted.layer == entry->name.layer &&
	    loads->admitted.expert == entry->name.expert)
		entry->admit_ns = loads->admitted_ns;
	loads->admitted_ns = 0;
}

static void take_load(struct inspect *inspect, const struct event *event)
{
	struct loads *loads = inspect->state;
	struct load_entry *entry = load_events_take(&loads->table, event);

	if (entry == NULL)
		return;
	if (event->kind == EVENT_LOAD_START)
		note_admission(loads, entry);
	else if (event->kind == EVENT_LOAD_DONE && entry->status < 0)
		show(inspect, entry);
	else if (event->kind == EVENT_PUBLISH)
		add_pending(inspect, entry);
}

static void take(struct inspect *inspect, const struct event *event)
{
	struct loads *loads = inspect->state;
	const __u64 *argument = event->argument;

	switch (event->kind) {
	case EVENT_ADMIT:
		loads->admitted = (struct load_name){(uint32_t)argument[0], (uint32_t)argument[1], (uint32_t)argument[2]};
		loads->admitted_ns = event->at_ns;
		break;
	case EVENT_FIRST_USE:
		note_use(inspect, event);
		break;
	case EVENT_EVICT:
		loads->evicted++;
		break;
	case EVENT_REJECT:
		loads->refused++;
		say(inspect, loads_refusal(inspect, &(struct load_name){(uint32_t)argument[0], (uint32_t)argument[1], (uint32_t)argument[2]},
					   argument[3], event->at_ns));
		break;
	default:
		take_load(inspect, event);
		break;
	}
}

static void tick(struct inspect *inspect)
{
	show_pending(inspect, (uint64_t)cnre_clock_now_ns() - LOADS_LINGER_NS);
	(void)fflush(stdout);
}

static json_t *report(struct inspect *inspect)
{
	show_pending(inspect, UINT64_MAX);
	return loads_report(inspect);
}

static void close_loads(struct inspect *inspect)
{
	struct loads *loads = inspect->state;

	load_table_close(&loads->table);
	free(loads);
	inspect->state = NULL;
}

static int open_loads(struct inspect *inspect, char message[INSPECT_MESSAGE_BYTES])
{
	struct loads *loads = inspect->state = calloc(1, sizeof *loads);
	int r = loads == NULL ? -ENOMEM : load_table_open(&loads->table);

	if (r < 0)
		(void)snprintf(message, INSPECT_MESSAGE_BYTES, "out of memory");
	return r;
}

const struct inspect_verb inspect_loads = {
	.name = "loads",
	.summary = "a line for each load: queued, read, verified, published, first used",
	.probes = probes,
	.open = open_loads,
	.take = take,
	.tick = tick,
	.report = report,
	.print = loads_print,
	.close = close_loads,
};
