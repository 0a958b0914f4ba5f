/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the manager counts itself, for whoever may not look into the kernel: no byte of it is attributed, and no wait has a cause,
 * but it needs no privilege beyond the manager's socket.
 */
#include "tools/ctl/format.h"
#include "tools/inspect/inspect.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int inspect_counters(const struct inspect *inspect, json_t **ret_report, char message[INSPECT_MESSAGE_BYTES])
{
	static const char *const verbs[] = {"stats", "clients", "drives"};
	json_t *report = json_pack("{s:s, s:s, s:I}", "verb", inspect->verb->name, "source", "counters", "manager",
				   (json_int_t)inspect->subject.manager[0]);
	int r = report == NULL ? -ENOMEM : 0;

	for (size_t i = 0; r == 0 && i < sizeof verbs / sizeof verbs[0]; i++) {
		json_t *answer = NULL;

		r = subject_ask(&inspect->subject, verbs[i], &answer, message);
		if (r == 0)
			(void)json_object_set_new(report, verbs[i], answer);
	}
	if (r < 0)
		json_decref(report);
	else
		*ret_report = report;
	return r;
}

static uint64_t number(const json_t *object, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(object, key));
}

static const char *word(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text == NULL ? "-" : text;
}

static void print_io(FILE *out, const json_t *report)
{
	const json_t *drive;
	char a[FORMAT_BYTES];
	size_t i;

	fprintf(out, "read by the manager's loads %s\n%-9s %-20s %12s %9s\n", format_bytes(number(json_object_get(report, "stats"), "bytes_read"), a),
		"DEVICE", "NAME", "BYTES", "READS");
	json_array_foreach (json_object_get(json_object_get(report, "drives"), "drives"), i, drive)
		fprintf(out, "%-9s %-20s %12s %9llu\n", word(drive, "device"), word(drive, "name"), format_bytes(number(drive, "bytes"), a),
			(unsigned long long)number(drive, "reads"));
}

static void print_waits(FILE *out, const json_t *report)
{
	const json_t *stats = json_object_get(report, "stats"), *client;
	double felt_s = (double)number(stats, "felt_wait_ns") / 1e9;
	char a[FORMAT_BYTES], b[FORMAT_BYTES];
	size_t i;

	fprintf(out, "felt wait %s in all, %s a miss\n%8s %8s %10s %9s  NAME\n", format_seconds(felt_s, a),
		format_average(felt_s, number(stats, "misses"), b), "SESSION", "PID", "FELT", "MISSES");
	json_array_foreach (json_object_get(json_object_get(report, "clients"), "clients"), i, client)
		fprintf(out, "%8llu %8llu %10s %9llu  %s\n", (unsigned long long)number(client, "session"),
			(unsigned long long)number(client, "pid"), format_seconds(json_number_value(json_object_get(client, "felt_wait_s")), a),
			(unsigned long long)number(client, "misses"), word(client, "name"));
}

static void print_loads(FILE *out, const json_t *report)
{
	const json_t *stats = json_object_get(report, "stats");
	double service_s = (double)number(stats, "service_ns") / 1e9;
	char a[FORMAT_BYTES], b[FORMAT_BYTES];

	fprintf(out, "%llu loads of %s, %s each; %llu in flight, %llu queued; %llu errors; %llu evictions\n",
		(unsigned long long)number(stats, "loads"), format_bytes(number(stats, "bytes_loaded"), a),
		format_average(service_s, number(stats, "loads"), b), (unsigned long long)number(stats, "loads_in_flight"),
		(unsigned long long)number(stats, "loads_queued"), (unsigned long long)number(stats, "load_errors"),
		(unsigned long long)number(stats, "evictions"));
}

static void print_leases(FILE *out, const json_t *report)
{
	const json_t *client;
	size_t i;

	fprintf(out, "%8s %8s %8s  NAME\n", "SESSION", "PID", "LEASED");
	json_array_foreach (json_object_get(json_object_get(report, "clients"), "clients"), i, client)
		fprintf(out, "%8llu %8llu %8llu  %s\n", (unsigned long long)number(client, "session"), (unsigned long long)number(client, "pid"),
			(unsigned long long)number(client, "leased"), word(client, "name"));
}

void inspect_print_counters(FILE *out, const char *verb, const json_t *report)
{
	fprintf(out, "manager %llu, by its own counters since it started\n", (unsigned long long)number(report, "manager"));
	if (strcmp(verb, "io") == 0)
		print_io(out, report);
	else if (strcmp(verb, "waits") == 0)
		print_waits(out, report);
	else if (strcmp(verb, "loads") == 0)
		print_loads(out, report);
	else
		print_leases(out, report);
}
