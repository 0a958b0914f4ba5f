/* SPDX-License-Identifier: Apache-2.0 */
/* Rates from two looks; see top_rates.h. Who was not there at the first look counts from nothing. */
#include "tools/ctl/top_rates.h"

#include <stdlib.h>
#include <string.h>

struct pair {
	struct fields *fields;
	const json_t *before, *now; /* of one thing; before may be NULL */
	double seconds;
};

/* What a counter grew by; one that fell belongs to somebody else with the same number. */
static double grown(const struct pair *pair, const char *key)
{
	double now = fields_real(pair->fields, pair->now, key);
	double then = pair->before == NULL ? 0 : fields_real(pair->fields, pair->before, key);

	return now >= then ? now - then : now;
}

static json_t *rate(const struct pair *pair, const char *key)
{
	return json_real(grown(pair, key) / pair->seconds);
}

/* Null: nothing to divide by. */
static json_t *ratio(double part, double whole)
{
	return whole > 0 ? json_real(part / whole) : json_null();
}

static json_t *copy(const json_t *from, const char *key)
{
	json_t *value = json_object_get(from, key);

	return value == NULL ? json_null() : json_incref(value);
}

static const json_t *find(const json_t *list, const char *key, const json_t *value)
{
	const json_t *one;
	size_t i;

	json_array_foreach (list, i, one)
		if (json_equal(json_object_get(one, key), value))
			return one;
	return NULL;
}

static json_t *client_rates(const struct pair *pair)
{
	const json_t *now = pair->now;

	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "session", copy(now, "session"), "name",
			 copy(now, "name"), "pid", copy(now, "pid"), "state", copy(now, "state"), "leased", copy(now, "leased"),
			 "lookups_s", rate(pair, "accesses"), "hit_share",
			 ratio(grown(pair, "hits"), grown(pair, "accesses")), "waiting",
			 json_real(grown(pair, "felt_wait_s") / pair->seconds), "felt_p99_s", copy(now, "felt_p99_s"));
}

static json_t *layer_rates(const struct pair *pair, const json_t *model)
{
	const json_t *now = pair->now;

	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "model", copy(model, "name"), "layer", copy(now, "layer"),
			 "experts", copy(now, "experts"), "resident", copy(now, "resident"), "lookups_s",
			 rate(pair, "accesses"), "hit_share", ratio(grown(pair, "hits"), grown(pair, "accesses")), "waiting",
			 json_real(grown(pair, "felt_wait_s") / pair->seconds), "felt_p99_s", copy(now, "felt_p99_s"));
}

static json_t *drive_rates(const struct pair *pair)
{
	const json_t *now = pair->now, *name = json_object_get(now, "name");

	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", copy(now, json_is_string(name) ? "name" : "device"),
			 "state", copy(now, "state"), "bytes_s", rate(pair, "bytes"), "reads_s", rate(pair, "reads"), "read_s",
			 ratio(grown(pair, "read_s"), grown(pair, "reads")), "read_p99_s", copy(now, "read_p99_s"),
			 "in_flight", copy(now, "in_flight"));
}

/* ---- lists ---- */

struct sorted {
	double first, second;
	json_t *one;
};

static int compare(const void *a, const void *b)
{
	const struct sorted *one = a, *other = b;

	if (one->first != other->first)
		return one->first < other->first ? 1 : -1;
	return one->second == other->second ? 0 : one->second < other->second ? 1 : -1;
}

/* By what falls, and where that is alike, by another. Takes the list over. */
static json_t *sort(json_t *list, const char *first, const char *second)
{
	size_t count = json_array_size(list);
	struct sorted *sorted = calloc(count + 1, sizeof *sorted);
	json_t *result = sorted == NULL ? NULL : json_array();

	for (size_t i = 0; result != NULL && i < count; i++) {
		json_t *one = json_array_get(list, i);

		sorted[i] = (struct sorted){json_number_value(json_object_get(one, first)),
					    json_number_value(json_object_get(one, second)), one};
	}
	if (result != NULL)
		qsort(sorted, count, sizeof *sorted, compare);
	for (size_t i = 0; result != NULL && i < count; i++)
		(void)json_array_append(result, sorted[i].one);
	free(sorted);
	json_decref(list);
	return result;
}

static const json_t *list_of(struct fields *fields, const json_t *look, const char *verb, const char *key)
{
	return fields_array(fields, json_object_get(look, verb), key);
}

static json_t *clients(struct pair pair, const json_t *before, const json_t *now)
{
	const json_t *then = list_of(pair.fields, before, "clients", "clients");
	json_t *list = json_array();
	size_t i;

	json_array_foreach (list_of(pair.fields, now, "clients", "clients"), i, pair.now) {
		pair.before = find(then, "session", json_object_get(pair.now, "session"));
		(void)json_array_append_new(list, client_rates(&pair));
	}
	return sort(list, "lookups_s", "waiting");
}

static json_t *layers(struct pair pair, const json_t *before, const json_t *now)
{
	const json_t *then = list_of(pair.fields, before, "layers", "models"), *model;
	json_t *list = json_array();
	size_t i, k;

	json_array_foreach (list_of(pair.fields, now, "layers", "models"), i, model) {
		const json_t *layers_then = json_object_get(json_array_get(then, i), "layers"); /* models neither come nor go */

		json_array_foreach (fields_array(pair.fields, model, "layers"), k, pair.now) {
			pair.before = json_array_get(layers_then, k);
			(void)json_array_append_new(list, layer_rates(&pair, model));
		}
	}
	return sort(list, "waiting", "lookups_s");
}

static json_t *drives(struct pair pair, const json_t *before, const json_t *now)
{
	const json_t *then = list_of(pair.fields, before, "drives", "drives");
	json_t *list = json_array();
	size_t i;

	json_array_foreach (list_of(pair.fields, now, "drives", "drives"), i, pair.now) {
		pair.before = find(then, "device", json_object_get(pair.now, "device"));
		(void)json_array_append_new(list, drive_rates(&pair));
	}
	return sort(list, "bytes_s", "in_flight");
}

json_t *top_rates(struct fields *fields, const json_t *before, const json_t *now)
{
	struct pair stats = {.fields = fields, .before = json_object_get(before, "stats"), .now = json_object_get(now, "stats")};

	stats.seconds = fields_real(fields, stats.now, "uptime_s") - fields_real(fields, stats.before, "uptime_s");
	if (!(stats.seconds > 0))
		return NULL;
	return json_pack("{s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "seconds",
			 stats.seconds, "lookups_s", rate(&stats, "accesses"), "hit_share",
			 ratio(grown(&stats, "hits"), grown(&stats, "accesses")), "misses_s", rate(&stats, "misses"),
			 "felt_miss_s", ratio(grown(&stats, "felt_wait_s"), grown(&stats, "misses")), "loads_s",
			 rate(&stats, "loads"), "service_s", ratio(grown(&stats, "service_s"), grown(&stats, "loads")),
			 "bytes_s", rate(&stats, "bytes_read"), "evictions_s", rate(&stats, "evictions"), "resident_bytes",
			 copy(stats.now, "resident_bytes"), "budget_bytes", copy(stats.now, "budget_bytes"), "loads_in_flight",
			 copy(stats.now, "loads_in_flight"), "loads_queued", copy(stats.now, "loads_queued"), "clients",
			 clients(stats, before, now), "layers", layers(stats, before, now), "drives",
			 drives(stats, before, now));
}
