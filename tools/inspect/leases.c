/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verb leases: who has held an expert for long, and from where in its code. The programs in the kernel keep the leases; here
 * they are only looked at. What was taken before this began is not
 * among them, nor what a client still waits for: the manager's own count of leases says how many these are.
 */
#include "base/clock.h"
#include "tools/ctl/format.h"
#include "tools/inspect/inspect.h"
#include "tools/inspect/symbols.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Attached in this order, while the client runs: a lease whose end would not be seen would be held for ever. */
static const struct inspect_probe probes[] = {
	{IN_LIBRARY, PROGRAMS_ON_LEASE_RELEASED, "lease_released", EVENT_KINDS, 0},
	{IN_LIBRARY, PROGRAMS_ON_LEASE_TAKEN, "lease_taken", EVENT_KINDS, 0},
	{.name = NULL},
};

struct holder {
	struct event_lease_key key;
	struct event_lease lease;
};

struct leases {
	struct symbols *symbols;
	struct holder *holder;            /* [EVENT_LEASES_MAX] */
	uint32_t count;
};

static int add(void *context, const struct event_lease_key *key, const struct event_lease *lease)
{
	struct inspect *inspect = context;
	struct leases *leases = inspect->state;

	const struct subject_client *client = subject_client_of(&inspect->subject, key->process);

	/* Clients of other managers use the same library, and who has died holds nothing any more. */
	if (client == NULL || !client->is_attached)
		return 0;
	if (leases->count == EVENT_LEASES_MAX)
		return -E2BIG;
	leases->holder[leases->count++] = (struct holder){.key = *key, .lease = *lease};
	return 0;
}

/* Longest first; then those that a changing map has told twice stand side by side. */
static int compare(const void *a, const void *b)
{
	const struct holder *left = a, *right = b;

	if (left->lease.since_ns != right->lease.since_ns)
		return left->lease.since_ns > right->lease.since_ns ? 1 : -1;
	return memcmp(&left->key, &right->key, sizeof left->key);
}

static json_t *stack_of(struct inspect *inspect, const struct holder *holder)
{
	struct leases *leases = inspect->state;
	uint64_t address[EVENT_STACK_DEPTH];
	uint32_t depth = programs_stack(inspect->programs, holder->lease.stack, address), i;
	json_t *list = json_array();
	char text[SYMBOLS_TEXT_BYTES];

	/* Without frame pointers the kernel takes for a caller what happens to lie there: most often no code. */
	for (i = 0; i < depth && symbols_name(leases->symbols, holder->key.process, address[i], text) == 0; i++) {
		inspect_make_printable(text);
		(void)json_array_append_new(list, json_string(text));
	}
	if (i < depth || depth <= 2)
		inspect_note(inspect, "stacks end early where code was compiled without frame pointers: -fno-omit-frame-pointer in engine "
				      "and library shows the rest");
	return list;
}

static json_t *line_of(struct inspect *inspect, const struct holder *holder, int64_t now_ns)
{
	const struct subject_client *client = subject_client_of(&inspect->subject, holder->key.process);
	const char *model = client->model < inspect->subject.model_count ? inspect->subject.model[client->model] : "?";

	return json_pack("{s:I, s:s, s:I, s:I, s:s, s:I, s:I, s:I, s:f, s:o}", "session", (json_int_t)holder->lease.session, "name", client->name,
			 "pid", (json_int_t)holder->key.process, "thread", (json_int_t)holder->lease.thread, "model", model, "layer",
			 (json_int_t)holder->lease.layer, "expert", (json_int_t)holder->lease.expert, "holders", (json_int_t)holder->lease.holders,
			 "age_s", (double)(now_ns - (int64_t)holder->lease.since_ns) / 1e9, "stack", stack_of(inspect, holder));
}

static json_t *report(struct inspect *inspect)
{
	struct leases *leases = inspect->state;
	int64_t now_ns = cnre_clock_now_ns(), threshold_ns = (int64_t)(inspect->options.threshold * 1e9);
	json_t *list = json_array(), *json;
	uint64_t said = 0;
	uint32_t older = 0, out = 0;

	leases->count = 0;
	(void)programs_leases(inspect->programs, add, inspect);
	if (leases->count > 1)
		qsort(leases->holder, leases->count, sizeof leases->holder[0], compare);
	for (uint32_t i = 0; i < leases->count; i++) {
		const struct holder *holder = &leases->holder[i];

		if (i > 0 && memcmp(&holder->key, &holder[-1].key, sizeof holder->key) == 0)
			continue;
		out++;
		if (now_ns - (int64_t)holder->lease.since_ns < threshold_ns)
			continue;
		if (older++ < inspect->options.top)
			(void)json_array_append_new(list, line_of(inspect, holder, now_ns));
	}
	for (uint32_t i = 0; i < inspect->subject.client_count; i++)
		said += inspect->subject.client[i].is_attached ? inspect->subject.client[i].leased : 0;
	json = inspect_report_new(inspect);
	(void)json_object_set_new(json, "threshold_s", json_real(inspect->options.threshold));
	(void)json_object_set_new(json, "seen", json_integer(out));
	(void)json_object_set_new(json, "older", json_integer(older));
	(void)json_object_set_new(json, "leased", json_integer((json_int_t)said));
	(void)json_object_set_new(json, "not_seen", json_integer((json_int_t)(said > out ? said - out : 0)));
	(void)json_object_set_new(json, "leases", list);
	return json;
}

static void print(FILE *out, const json_t *json)
{
	const json_t *lease, *frame;
	char age[FORMAT_BYTES];
	size_t i, k;

	inspect_print_head(out, json);
	fprintf(out, "%lld leases are out, %lld of them for longer than %s; %lld more are waited for, or were taken before this began\n",
		(long long)json_integer_value(json_object_get(json, "seen")), (long long)json_integer_value(json_object_get(json, "older")),
		format_seconds(json_number_value(json_object_get(json, "threshold_s")), age),
		(long long)json_integer_value(json_object_get(json, "not_seen")));
	if (json_array_size(json_object_get(json, "leases")) > 0)
		fprintf(out, "\n%10s %8s %8s %8s  %-16s %-16s EXPERT\n", "AGE", "SESSION", "PID", "THREAD", "NAME", "MODEL");
	json_array_foreach (json_object_get(json, "leases"), i, lease) {
		fprintf(out, "%10s %8lld %8lld %8lld  %-16s %-16s %lld/%lld", format_seconds(json_number_value(json_object_get(lease, "age_s")), age),
			(long long)json_integer_value(json_object_get(lease, "session")), (long long)json_integer_value(json_object_get(lease, "pid")),
			(long long)json_integer_value(json_object_get(lease, "thread")), json_string_value(json_object_get(lease, "name")),
			json_string_value(json_object_get(lease, "model")), (long long)json_integer_value(json_object_get(lease, "layer")),
			(long long)json_integer_value(json_object_get(lease, "expert")));
		if (json_integer_value(json_object_get(lease, "holders")) > 1)
			fprintf(out, ", %lld leases", (long long)json_integer_value(json_object_get(lease, "holders")));
		fputc('\n', out);
		json_array_foreach (json_object_get(lease, "stack"), k, frame)
			fprintf(out, "%12s%s\n", "", json_string_value(frame));
	}
	inspect_print_notes(out, json);
}

static void take(struct inspect *inspect, const struct event *event)
{
	(void)inspect;
	(void)event;
}

static void close_leases(struct inspect *inspect)
{
	struct leases *leases = inspect->state;

	symbols_close(leases->symbols);
	free(leases->holder);
	free(leases);
	inspect->state = NULL;
}

static int open_leases(struct inspect *inspect, char message[INSPECT_MESSAGE_BYTES])
{
	struct leases *leases = inspect->state = calloc(1, sizeof *leases);

	(void)snprintf(message, INSPECT_MESSAGE_BYTES, "out of memory");
	if (leases == NULL)
		return -ENOMEM;
	leases->holder = calloc(EVENT_LEASES_MAX, sizeof leases->holder[0]);
	return leases->holder == NULL ? -ENOMEM : symbols_open(&leases->symbols);
}

const struct inspect_verb inspect_leases = {
	.name = "leases",
	.summary = "who holds experts for longer than --threshold, and from where",
	.probes = probes,
	.open = open_leases,
	.take = take,
	.report = report,
	.print = print,
	.close = close_leases,
};
