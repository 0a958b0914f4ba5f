/* SPDX-License-Identifier: Apache-2.0 */
/* cnrectl layers: capacities, misses, what a miss costs, and what one slot more would bring, layer by layer. */
#include "tools/ctl/verb.h"

#include "tools/ctl/format.h"

#include <inttypes.h>

static const char *us_of(const json_t *layer, const char *key, char text[FORMAT_BYTES])
{
	const json_t *value = json_object_get(layer, key);

	return json_is_number(value) ? format_seconds(json_number_value(value) / 1e6, text) : "-";
}

static void print_layer(FILE *out, struct fields *fields, const json_t *layer)
{
	const json_t *capacity = json_object_get(layer, "capacity");
	char slots[FORMAT_BYTES] = "-", share[4][FORMAT_BYTES], us[2][FORMAT_BYTES], accesses[FORMAT_BYTES];

	if (json_is_integer(capacity))
		(void)snprintf(slots, sizeof slots, "%lld", (long long)json_integer_value(capacity));
	fprintf(out, "%5" PRIu64 " %8" PRIu64 " %8s %7" PRIu64 " %13s %9s %11s %11s %9s %9s %10s\n",
		fields_number(fields, layer, "layer"), fields_number(fields, layer, "resident"), slots,
		fields_number(fields, layer, "experts"),
		format_count(fields_number(fields, layer, "accesses"), accesses),
		format_share(fields_number(fields, layer, "misses"), fields_number(fields, layer, "accesses"), share[0]),
		us_of(layer, "felt_miss_us", us[0]), us_of(layer, "next_slot_us", us[1]),
		format_share_of(layer, "miss_share_half", share[1]), format_share_of(layer, "miss_share_now", share[2]),
		format_share_of(layer, "miss_share_double", share[3]));
}

/* The end of the bucket in which the middle of all reuses lies: half of them were behind no more other experts. */
static const char *median_of(const json_t *reuse, char text[FORMAT_BYTES])
{
	const json_t *buckets = json_object_get(reuse, "buckets"), *bucket;
	json_int_t all = 0, seen = 0;
	size_t i;

	json_array_foreach (buckets, i, bucket)
		all += json_integer_value(bucket);
	json_array_foreach (buckets, i, bucket) {
		seen += json_integer_value(bucket);
		if (all > 0 && 2 * seen >= all)
			break;
	}
	if (all == 0 || i >= 32)
		return "-";
	(void)snprintf(text, FORMAT_BYTES, "%lu", (1ul << i) - 1);
	return text;
}

static void print_traffic(FILE *out, struct fields *fields, const json_t *layer)
{
	const json_t *prefetches = fields_object(fields, layer, "prefetches");
	char count[4][FORMAT_BYTES], bytes[FORMAT_BYTES], time[4][FORMAT_BYTES], outcome[64], reuse[FORMAT_BYTES];

	(void)snprintf(outcome, sizeof outcome, "%" PRIu64 "/%" PRIu64 "/%" PRIu64, fields_number(fields, prefetches, "used"),
		       fields_number(fields, prefetches, "late"), fields_number(fields, prefetches, "wasted"));
	fprintf(out, "%5" PRIu64 " %11s %9s %11s %9s %10s %10s %10s %10s %10s %14s %6s\n", fields_number(fields, layer, "layer"),
		format_count(fields_number(fields, layer, "misses"), count[0]),
		format_count(fields_number(fields, layer, "joins"), count[1]),
		format_count(fields_number(fields, layer, "loads"), count[2]),
		format_count(fields_number(fields, layer, "evictions"), count[3]),
		format_bytes(fields_number(fields, layer, "bytes_read"), bytes), format_seconds_of(layer, "felt_p50_s", time[0]),
		format_seconds_of(layer, "felt_p99_s", time[1]), format_seconds_of(layer, "service_p50_s", time[2]),
		format_seconds_of(layer, "service_p99_s", time[3]), outcome, median_of(fields_object(fields, layer, "reuse"), reuse));
}

static void print(FILE *out, struct fields *fields, const json_t *answer)
{
	const json_t *models = fields_array(fields, answer, "models"), *model, *layer;
	size_t i, j;

	fprintf(out, "policy %s, %s pool\n", fields_string(fields, answer, "policy"), fields_string(fields, answer, "pool"));
	json_array_foreach (models, i, model) {
		fprintf(out, "\n%s\n%5s %8s %8s %7s %13s %9s %11s %11s %9s %9s %10s\n", fields_string(fields, model, "name"),
			"LAYER", "RESIDENT", "CAPACITY", "EXPERTS", "LOOKUPS", "MISSED", "FELT/MISS", "NEXT SLOT", "AT HALF",
			"AT NOW", "AT DOUBLE");
		json_array_foreach (fields_array(fields, model, "layers"), j, layer)
			print_layer(out, fields, layer);
		fprintf(out, "\n%5s %11s %9s %11s %9s %10s %10s %10s %10s %10s %14s %6s\n", "LAYER", "MISSES", "JOINS", "LOADS",
			"EVICTED", "READ", "FELT P50", "FELT P99", "LOAD P50", "LOAD P99", "PREFETCH U/L/W", "REUSE");
		json_array_foreach (fields_array(fields, model, "layers"), j, layer)
			print_traffic(out, fields, layer);
	}
	fprintf(out, "\nFELT/MISS: wait per physical miss. NEXT SLOT: wait that one more slot would save in 1,000 lookups, and "
		     "AT HALF, NOW, DOUBLE: misses with that many slots, if the layer were LRU.\n"
		     "FELT: wait of visits that missed. PREFETCH: used, late and wasted ones. REUSE: half of the uses came back behind "
		     "no more other experts of the layer.\n");
}

const struct verb verb_layers = {
	.name = "layers",
	.arguments = "",
	.summary = "layer by layer: capacity, misses, and what one slot more would save",
	.request = verb_request_bare,
	.print = print,
};
