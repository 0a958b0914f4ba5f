/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cnrectl stats: every counter (shm/counters.def), under a summary of what they say. Averages divide by what they are
 * averages of: felt wait by misses, service time by loads.
 */
#include "tools/ctl/verb.h"

#include "shm/counters.h"
#include "tools/ctl/format.h"

#include <string.h>

static void print_lookups(FILE *out, struct fields *fields, const json_t *stats)
{
	uint64_t accesses = fields_number(fields, stats, "accesses");
	uint64_t misses = fields_number(fields, stats, "misses");
	double felt_wait_s = fields_real(fields, stats, "felt_wait_s");
	char text[5][FORMAT_BYTES];

	fprintf(out, "lookups    %s: %s hits, %s misses, %s of them joined a read under way\n",
		format_count(accesses, text[0]), format_share(fields_number(fields, stats, "hits"), accesses, text[1]),
		format_count(misses, text[2]), format_count(fields_number(fields, stats, "joins"), text[3]));
	fprintf(out, "felt wait  %s", format_seconds(felt_wait_s, text[0]));
	fprintf(out, ": %s a miss, %s a lookup\n", format_average(felt_wait_s, misses, text[1]),
		format_average(felt_wait_s, accesses, text[2]));
}

static void print_loads(FILE *out, struct fields *fields, const json_t *stats)
{
	uint64_t loads = fields_number(fields, stats, "loads");
	char text[5][FORMAT_BYTES];

	fprintf(out, "loads      %s: %s read, %s a load; %s in flight, %s queued\n", format_count(loads, text[0]),
		format_bytes(fields_number(fields, stats, "bytes_read"), text[1]),
		format_average(fields_real(fields, stats, "service_s"), loads, text[2]),
		format_count(fields_number(fields, stats, "loads_in_flight"), text[3]),
		format_count(fields_number(fields, stats, "loads_queued"), text[4]));
}

static void print_memory(FILE *out, struct fields *fields, const json_t *stats)
{
	uint64_t resident_bytes = fields_number(fields, stats, "resident_bytes");
	uint64_t budget_bytes = fields_number(fields, stats, "budget_bytes");
	char text[5][FORMAT_BYTES];

	fprintf(out, "memory     %s of %s (%s), %s experts, %s evictions\n", format_bytes(resident_bytes, text[0]),
		format_bytes(budget_bytes, text[1]), format_share(resident_bytes, budget_bytes, text[2]),
		format_count(fields_number(fields, stats, "resident_objects"), text[3]),
		format_count(fields_number(fields, stats, "evictions"), text[4]));
}

static void print_prefetches(FILE *out, struct fields *fields, const json_t *stats)
{
	uint64_t issued = fields_number(fields, stats, "prefetches_issued");
	char text[6][FORMAT_BYTES];

	if (issued == 0)
		return;
	fprintf(out, "prefetch   %s: %s used, %s late, %s wasted, %s failed, %s not asked for yet\n", format_count(issued, text[0]),
		format_count(fields_number(fields, stats, "prefetches_used"), text[1]),
		format_count(fields_number(fields, stats, "prefetches_late"), text[2]),
		format_count(fields_number(fields, stats, "prefetches_wasted"), text[3]),
		format_count(fields_number(fields, stats, "prefetches_failed"), text[4]),
		format_count(fields_number(fields, stats, "prefetches_unused"), text[5]));
}

static void print_kv(FILE *out, struct fields *fields, const json_t *stats)
{
	uint64_t tokens = fields_number(fields, stats, "kv_hit_tokens");
	char text[2][FORMAT_BYTES];

	if (tokens > 0)
		fprintf(out, "kv         %s tokens found, %s of computing avoided\n", format_count(tokens, text[0]),
			format_seconds((double)fields_number(fields, stats, "kv_avoided_ns") / 1e9, text[1]));
}

static void print_attention(FILE *out, struct fields *fields, const json_t *stats)
{
	uint64_t failures = fields_number(fields, stats, "failures");
	uint64_t load_errors = fields_number(fields, stats, "load_errors");
	char text[2][FORMAT_BYTES];

	if (failures + load_errors > 0)
		fprintf(out,
			"FAILED     %s loads, %s lookups ended in an error: see the manager's log for file and offset\n",
			format_count(load_errors, text[0]), format_count(failures, text[1]));
}

static const char *format_value(const struct cnre_counter_description *counter, uint64_t value, char text[FORMAT_BYTES])
{
	if (strcmp(counter->unit, "bytes") == 0)
		return format_bytes(value, text);
	if (strcmp(counter->unit, "nanoseconds") == 0)
		return format_seconds((double)value / 1e9, text);
	return format_count(value, text);
}

static void print(FILE *out, struct fields *fields, const json_t *stats)
{
	char text[FORMAT_BYTES];

	print_lookups(out, fields, stats);
	print_loads(out, fields, stats);
	print_memory(out, fields, stats);
	print_prefetches(out, fields, stats);
	print_kv(out, fields, stats);
	print_attention(out, fields, stats);
	fputc('\n', out);
	for (size_t i = 0; i < cnre_counter_count; i++) {
		const struct cnre_counter_description *counter = &cnre_counter_table[i];

		fprintf(out, "%-20s %14s  %s\n", counter->name,
			format_value(counter, fields_number(fields, stats, counter->name), text), counter->sentence);
	}
}

const struct verb verb_stats = {
	.name = "stats",
	.arguments = "",
	.summary = "counters since the manager started, and what they mean",
	.request = verb_request_bare,
	.print = print,
};
