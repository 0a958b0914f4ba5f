/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verb waits: how long threads of clients waited for experts, by layer, and for what. The end of a wait and the stages of the
 * load it was for are told by two processes at once, so a wait is looked at a moment after it ended.
 */
#include "tools/inspect/waits.h"

#include "base/clock.h"
#include "tools/inspect/load_events.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct inspect_probe probes[] = {
	{IN_MANAGER, PROGRAMS_ON_PROBE, "load_start", EVENT_LOAD_START, 0},
	{IN_MANAGER, PROGRAMS_ON_PROBE, "load_done", EVENT_LOAD_DONE, 0},
	{IN_MANAGER, PROGRAMS_ON_PROBE, "publish", EVENT_PUBLISH, 0},
	{IN_LIBRARY, PROGRAMS_ON_PROBE, "acquire_miss", EVENT_MISS, 0},
	{IN_LIBRARY, PROGRAMS_ON_PROBE, "acquire_join", EVENT_JOIN, 1},
	{IN_LIBRARY, PROGRAMS_ON_PROBE, "acquire_done", EVENT_DONE, 0},
	{.name = NULL},
};

/* ---- waits that go on ---- */

static void begin_wait(struct waits *waits, const struct event *event)
{
	struct waits_open *open;

	for (uint32_t i = 0; i < waits->open_count; i++)
		if (waits->open[i].thread == event->thread) {
			waits->open[i].begin_ns = event->at_ns; /* its end was lost */
			return;
		}
	if (waits->open_count == WAITS_OPEN_MAX)
		return;
	open = &waits->open[waits->open_count++];
	*open = (struct waits_open){.process = event->process,
				    .thread = event->thread,
				    .session = (uint32_t)event->argument[0],
				    .layer = (uint32_t)event->argument[2],
				    .expert = (uint32_t)event->argument[3],
				    .begin_ns = event->at_ns};
}

/* When it began; 0: that was not seen. */
static uint64_t end_wait(struct waits *waits, uint32_t thread)
{
	for (uint32_t i = 0; i < waits->open_count; i++)
		if (waits->open[i].thread == thread) {
			uint64_t begin_ns = waits->open[i].begin_ns;

			waits->open[i] = waits->open[--waits->open_count];
			return begin_ns;
		}
	return 0;
}

/* ---- waits that are over ---- */

static uint32_t model_of(const struct inspect *inspect, uint32_t session)
{
	const struct subject_client *client = subject_session(&inspect->subject, session);

	if (client != NULL && client->model != SUBJECT_NO_MODEL)
		return client->model;
	return inspect->subject.model_count == 1 ? 0 : SUBJECT_NO_MODEL;
}

static struct waits_layer *layer_of(struct waits *waits, uint32_t model, uint32_t layer)
{
	struct waits_layer *found;

	for (uint32_t i = 0; i < waits->layer_count; i++)
		if (waits->layer[i].model == model && waits->layer[i].layer == layer)
			return &waits->layer[i];
	if (waits->layer_count == WAITS_LAYERS_MAX)
		return NULL;
	found = &waits->layer[waits->layer_count++];
	found->model = model;
	found->layer = layer;
	return found;
}

static void count_wait(struct inspect *inspect, const struct waits_ended *ended)
{
	struct waits *waits = inspect->state;
	const struct load_name name = {.model = model_of(inspect, ended->session), .layer = ended->layer, .expert = ended->expert};
	const struct cause_wait wait = {.begin_ns = ended->begin_ns, .end_ns = ended->begin_ns + ended->waited_ns};
	struct waits_layer *layer = layer_of(waits, name.model, name.layer);
	uint64_t ns[CAUSES];

	causes_split(&wait, load_table_stages(&waits->loads, &name, wait.end_ns), ns);
	histogram_add(&waits->all, ended->waited_ns);
	if (layer != NULL)
		histogram_add(&layer->all, ended->waited_ns);
	for (uint32_t i = 0; i < CAUSES; i++) {
		if (ns[i] == 0)
			continue;
		histogram_add(&waits->cause[i], ns[i]);
		if (layer != NULL)
			layer->cause_ns[i] += ns[i];
	}
	waits->failed += ended->status < 0;
}

static void count_ended(struct inspect *inspect, uint64_t before_ns)
{
	struct waits *waits = inspect->state;
	uint32_t done = 0;

	while (done < waits->ended_count && waits->ended[done].end_ns < before_ns)
		count_wait(inspect, &waits->ended[done++]);
	waits->ended_count -= done;
	memmove(waits->ended, waits->ended + done, waits->ended_count * sizeof waits->ended[0]);
}

static void add_ended(struct inspect *inspect, const struct event *event)
{
	struct waits *waits = inspect->state;
	uint64_t begin_ns = end_wait(waits, event->thread);

	/* From its begin on: between its end and the probe the thread may lose the processor for as long as the wait was. */
	if (begin_ns == 0 || begin_ns + event->argument[4] > event->at_ns)
		begin_ns = event->at_ns - event->argument[4];
	if (waits->ended_count == WAITS_ENDED_MAX)
		count_ended(inspect, UINT64_MAX);
	waits->ended[waits->ended_count++] = (struct waits_ended){.session = (uint32_t)event->argument[0],
								  .layer = (uint32_t)event->argument[2],
								  .expert = (uint32_t)event->argument[3],
								  .waited_ns = event->argument[4],
								  .begin_ns = begin_ns,
								  .end_ns = event->at_ns,
								  .status = (int32_t)event->argument[5]};
}

static void take(struct inspect *inspect, const struct event *event)
{
	struct waits *waits = inspect->state;

	switch (event->kind) {
	case EVENT_MISS:
		begin_wait(waits, event);
		break;
	case EVENT_JOIN:
		waits->joins++;
		break;
	case EVENT_DONE:
		add_ended(inspect, event);
		break;
	default:
		(void)load_events_take(&waits->loads, event);
		break;
	}
}

static void tick(struct inspect *inspect)
{
	count_ended(inspect, (uint64_t)cnre_clock_now_ns() - WAITS_SETTLE_NS);
}

static json_t *report(struct inspect *inspect)
{
	count_ended(inspect, UINT64_MAX);
	return waits_report(inspect);
}

static void close_waits(struct inspect *inspect)
{
	struct waits *waits = inspect->state;

	load_table_close(&waits->loads);
	free(waits);
	inspect->state = NULL;
}

static int open_waits(struct inspect *inspect, char message[INSPECT_MESSAGE_BYTES])
{
	struct waits *waits = inspect->state = calloc(1, sizeof *waits);
	int r = waits == NULL ? -ENOMEM : load_table_open(&waits->loads);

	if (r < 0)
		(void)snprintf(message, INSPECT_MESSAGE_BYTES, "out of memory");
	return r;
}

const struct inspect_verb inspect_waits = {
	.name = "waits",
	.summary = "how long clients waited, by layer and cause: queue, disk, verify, scheduler",
	.probes = probes,
	.open = open_waits,
	.take = take,
	.tick = tick,
	.report = report,
	.print = waits_print,
	.close = close_waits,
};
