/* SPDX-License-Identifier: Apache-2.0 */
/* See explain_sample.h. */
#include "tools/ctl/explain_sample.h"

#include "tools/ctl/answer.h"
#include "tools/ctl/explain_vram.h"
#include "tools/ctl/fields.h"

#include <errno.h>
#include <stdio.h>

static void take_stats(struct fields *fields, const json_t *stats, struct explain_sample *sample)
{
	sample->uptime_s = fields_real(fields, stats, "uptime_s");
	sample->accesses = fields_number(fields, stats, "accesses");
	sample->misses = fields_number(fields, stats, "misses");
	sample->loads = fields_number(fields, stats, "loads");
	sample->bytes_read = fields_number(fields, stats, "bytes_read");
	sample->evictions = fields_number(fields, stats, "evictions");
	sample->resident_bytes = fields_number(fields, stats, "resident_bytes");
	sample->resident_objects = fields_number(fields, stats, "resident_objects");
	sample->budget_bytes = fields_number(fields, stats, "budget_bytes");
	sample->loads_in_flight = fields_number(fields, stats, "loads_in_flight");
	sample->loads_queued = fields_number(fields, stats, "loads_queued");
	sample->felt_wait_s = fields_real(fields, stats, "felt_wait_s");
	sample->service_s = fields_real(fields, stats, "service_s");
	explain_vram_take_stats(fields, stats, &sample->vram);
}

static void take_clients(struct fields *fields, const json_t *answer, struct explain_sample *sample)
{
	const json_t *client;
	size_t i;

	json_array_foreach (fields_array(fields, answer, "clients"), i, client) {
		if (sample->client_count == EXPLAIN_CLIENTS_MAX)
			break;
		sample->client[sample->client_count++] = (struct explain_client){
			.session = fields_number(fields, client, "session"),
			.accesses = fields_number(fields, client, "accesses"),
			.felt_wait_s = fields_real(fields, client, "felt_wait_s"),
		};
	}
}

static void take_drives(struct fields *fields, const json_t *answer, struct explain_sample *sample)
{
	const json_t *drive;
	size_t i;

	json_array_foreach (fields_array(fields, answer, "drives"), i, drive) {
		struct explain_drive *taken = &sample->drive[sample->drive_count];
		const json_t *name = json_object_get(drive, "name");

		if (sample->drive_count == EXPLAIN_DRIVES_MAX)
			break;
		sample->drive_count++;
		(void)snprintf(taken->name, sizeof taken->name, "%s",
			       json_is_string(name) ? json_string_value(name) : fields_string(fields, drive, "device"));
		(void)snprintf(taken->state, sizeof taken->state, "%s", fields_string(fields, drive, "state"));
		taken->bytes = fields_number(fields, drive, "bytes");
		taken->reads = fields_number(fields, drive, "reads");
		taken->in_flight = fields_number(fields, drive, "in_flight");
		taken->read_s = fields_real(fields, drive, "read_s");
	}
}

/* Those that memory was asked for, of which the curves are: what VRAM served is no part of them. */
static double lookups_of(struct fields *fields, const json_t *model)
{
	const json_t *layers = json_object_get(model, "layers"), *layer;
	double count = 0;
	size_t i;

	if (!json_is_array(layers))
		return (double)fields_number(fields, model, "accesses");
	json_array_foreach (layers, i, layer)
		count += (double)fields_number(fields, fields_object(fields, layer, "reuse"), "accesses");
	return count;
}

/* The mean over models that were looked up, by how often. */
static void take_layers(struct fields *fields, const json_t *answer, struct explain_sample *sample)
{
	double accesses = 0, now = 0, twice = 0;
	const json_t *model;
	size_t i;

	json_array_foreach (fields_array(fields, answer, "models"), i, model) {
		const json_t *share_now = json_object_get(model, "even_miss_share_now");
		const json_t *share_double = json_object_get(model, "even_miss_share_double");
		double count = lookups_of(fields, model);

		if (!json_is_number(share_now) || !json_is_number(share_double))
			continue;
		accesses += count;
		now += count * json_number_value(share_now);
		twice += count * json_number_value(share_double);
	}
	sample->curve_known = accesses > 0;
	sample->miss_share_now = accesses > 0 ? now / accesses : 0;
	sample->miss_share_double = accesses > 0 ? twice / accesses : 0;
}

static void take_status(struct fields *fields, const json_t *answer, struct explain_sample *sample)
{
	const json_t *model;
	size_t i;

	json_array_foreach (fields_array(fields, answer, "models"), i, model) {
		sample->all_bytes += fields_number(fields, model, "payload_bytes_total");
		sample->object_count += fields_number(fields, model, "objects");
	}
	explain_vram_take_status(fields, answer, &sample->vram);
}

int explain_sample_take(const struct verb_asker *asker, struct explain_sample *ret_sample, char message[CTL_MESSAGE_BYTES])
{
	static const struct {
		const char *request;
		void (*take)(struct fields *fields, const json_t *answer, struct explain_sample *sample);
	} questions[] = {
		{"{\"verb\":\"status\"}", take_status}, {"{\"verb\":\"layers\"}", take_layers},
		{"{\"verb\":\"drives\"}", take_drives}, {"{\"verb\":\"clients\"}", take_clients},
		{"{\"verb\":\"stats\"}", take_stats},
	};
	struct fields fields = {.missing = NULL};

	*ret_sample = (struct explain_sample){0};
	for (size_t i = 0; i < sizeof questions / sizeof questions[0]; i++) {
		json_t *answer = NULL;
		int r = asker->ask(asker->context, questions[i].request, &answer, message);

		if (r < 0)
			return r;
		answer_make_printable(answer);
		questions[i].take(&fields, answer, ret_sample);
		json_decref(answer);
	}
	if (fields.missing == NULL)
		return 0;
	(void)snprintf(message, CTL_MESSAGE_BYTES,
		       "an answer has no usable field \"%s\": cnrectl and the manager are of different releases", fields.missing);
	return -EBADMSG;
}
