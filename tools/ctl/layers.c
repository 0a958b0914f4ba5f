/* SPDX-License-Identifier: Apache-2.0 */
/* cnrectl layers: capacities, misses, what a miss costs, and what one slot more would bring, layer by layer. */
#include "tools/ctl/verb.h"

#include "tools/ctl/format.h"

#include <inttypes.h>

/* "12.3 %", or "-" where nothing was seen. */
static const char *share_of(const json_t *layer, const char *key, char text[FORMAT_BYTES])
{
	const json_t *value = json_object_get(layer, key);

	if (!json_is_number(value))
		return "-";
	(void)snprintf(text, FORMAT_BYTES, "%.1f %%", json_number_value(value) * 100);
	return text;
}

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
		share_of(layer, "miss_share_half", share[1]), share_of(layer, "miss_share_now", share[2]),
		share_of(layer, "miss_share_double", share[3]));
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
	}
	fprintf(out, "\nFELT/MISS: wait per physical miss. NEXT SLOT: wait that one more slot would save in 1,000 lookups, and "
		     "AT HALF, NOW, DOUBLE: misses with that many slots, if the layer were LRU.\n");
}

const struct verb verb_layers = {
	.name = "layers",
	.arguments = "",
	.summary = "layer by layer: capacity, misses, and what one slot more would save",
	.request = verb_request_bare,
	.print = print,
};
