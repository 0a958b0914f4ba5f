/* SPDX-License-Identifier: Apache-2.0 */
/* The report of io as text; see io.h. */
#include "tools/ctl/format.h"
#include "tools/inspect/io.h"

#include <string.h>

static uint64_t number(const json_t *object, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(object, key));
}

static const char *word(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text == NULL ? "" : text;
}

static const char *bytes_of(const json_t *object, const char *key, char text[FORMAT_BYTES])
{
	return format_bytes(number(object, key), text);
}

static void print_totals(FILE *out, const json_t *report)
{
	static const struct {
		const char *key, *what;
	} lines[] = {
		{"loads", "experts, for loads"},
		{"headers", "headers of shards"},
		{"own", "the manager's own: samples of copies, digests, tries of drives"},
		{"kv", "files of KV prefixes"},
		{"dense", "dense weights, by whoever computes"},
		{"ahead", "beside all these: the kernel reads ahead, and whole pages"},
	};
	const json_t *by = json_object_get(report, "by");
	uint64_t all = number(report, "total_bytes");
	char a[FORMAT_BYTES], b[FORMAT_BYTES];

	fprintf(out, "read by the manager and its engines %s, attributed %s\n", bytes_of(report, "total_bytes", a),
		format_share(number(report, "attributed_bytes"), all, b));
	for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
		if (number(by, lines[i].key) > 0)
			fprintf(out, "  %12s  %s\n", bytes_of(by, lines[i].key, a), lines[i].what);
	fprintf(out, "  %12s  experts that engines read by themselves\n", bytes_of(report, "self_bytes", a));
	fprintf(out, "  %12s  unexplained\n", bytes_of(report, "unexplained_bytes", a));
	fprintf(out, "  %12s  of all this through the page cache\n", bytes_of(report, "cached_bytes", a));
}

static void print_processes(FILE *out, const json_t *report)
{
	const json_t *process;
	char a[FORMAT_BYTES], b[FORMAT_BYTES];
	size_t i;

	fprintf(out, "\n%8s  %-16s %-8s %12s %12s\n", "PID", "NAME", "ROLE", "BYTES", "CACHED");
	json_array_foreach (json_object_get(report, "processes"), i, process) {
		fprintf(out, "%8llu  %-16s %-8s %12s %12s", (unsigned long long)number(process, "pid"), word(process, "name"), word(process, "role"),
			bytes_of(process, "bytes", a), bytes_of(process, "cached_bytes", b));
		if (number(process, "self_bytes") > 0)
			fprintf(out, "  READS EXPERTS BY ITSELF: %s, last of %s", bytes_of(process, "self_bytes", a), word(process, "self_file"));
		fputc('\n', out);
	}
}

static void print_unexplained(FILE *out, const json_t *report)
{
	const json_t *list = json_object_get(report, "unexplained"), *line;
	char a[FORMAT_BYTES];
	size_t i;

	if (json_array_size(list) > 0)
		fprintf(out, "\nunexplained\n%8s  %-16s %-9s %-9s %12s  FILE\n", "PID", "NAME", "WHAT", "DEVICE", "BYTES");
	json_array_foreach (list, i, line)
		fprintf(out, "%8llu  %-16s %-9s %-9s %12s  %s\n", (unsigned long long)number(line, "pid"), word(line, "name"), word(line, "what"),
			word(line, "device"), bytes_of(line, "bytes", a), word(line, "file"));
}

static void print_clients(FILE *out, const json_t *report)
{
	const json_t *list = json_object_get(report, "clients"), *client;
	char a[FORMAT_BYTES];
	size_t i;

	if (json_array_size(list) > 0)
		fprintf(out, "\n%8s %8s %8s %12s  WHO BEGAN THE LOADS\n", "SESSION", "PID", "LOADS", "BYTES");
	json_array_foreach (list, i, client)
		fprintf(out, "%8llu %8llu %8llu %12s  %s\n", (unsigned long long)number(client, "session"),
			(unsigned long long)number(client, "pid"), (unsigned long long)number(client, "loads"), bytes_of(client, "bytes", a),
			word(client, "name"));
}

static void print_drives(FILE *out, const json_t *report)
{
	const json_t *drive;
	char a[FORMAT_BYTES], b[FORMAT_BYTES];
	size_t i;

	fprintf(out, "\n%-9s %12s %12s\n", "DEVICE", "BYTES", "FOR LOADS");
	json_array_foreach (json_object_get(report, "drives"), i, drive)
		fprintf(out, "%-9s %12s %12s\n", word(drive, "device"), bytes_of(drive, "bytes", a),
			bytes_of(json_object_get(drive, "by"), "loads", b));
}

static void print_experts(FILE *out, const json_t *report)
{
	const json_t *line;
	char a[FORMAT_BYTES];
	size_t i;

	fprintf(out, "\n%-20s %6s %12s\n", "MODEL", "LAYER", "BYTES");
	json_array_foreach (json_object_get(report, "layers"), i, line)
		fprintf(out, "%-20s %6llu %12s\n", word(line, "model"), (unsigned long long)number(line, "layer"), bytes_of(line, "bytes", a));
	fprintf(out, "\n%-20s %6s %6s %12s\n", "MODEL", "LAYER", "EXPERT", "BYTES");
	json_array_foreach (json_object_get(report, "experts"), i, line)
		fprintf(out, "%-20s %6llu %6llu %12s\n", word(line, "model"), (unsigned long long)number(line, "layer"),
			(unsigned long long)number(line, "expert"), bytes_of(line, "bytes", a));
}

void io_print(FILE *out, const json_t *report)
{
	inspect_print_head(out, report);
	print_totals(out, report);
	print_processes(out, report);
	print_unexplained(out, report);
	print_clients(out, report);
	print_drives(out, report);
	print_experts(out, report);
	inspect_print_notes(out, report);
}
