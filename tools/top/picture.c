/* SPDX-License-Identifier: Apache-2.0 */
/* See picture.h. */
#include "tools/top/picture.h"

#include "tools/ctl/fields.h"
#include "tools/top/picture_vram.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static double less(uint64_t now, uint64_t before)
{
	return now > before ? (double)(now - before) : 0;
}

static double less_s(double now, double before)
{
	return now > before ? now - before : 0;
}

static double share(double part, double whole)
{
	return whole > 0 ? fmin(part / whole, 1) : -1;
}

/* A string cut to its room; what moves a cursor is no letter for the grid either. */
static void take_text(struct fields *fields, const json_t *object, const char *key, char *text, size_t bytes)
{
	(void)snprintf(text, bytes, "%s", fields_string(fields, object, key));
}

static void take_totals(struct fields *fields, const json_t *stats, struct picture *picture)
{
	picture->uptime_s = fields_real(fields, stats, "uptime_s");
	picture->accesses = fields_number(fields, stats, "accesses");
	picture->hits = fields_number(fields, stats, "hits");
	picture->loads = fields_number(fields, stats, "loads");
	picture->bytes_read = fields_number(fields, stats, "bytes_read");
	picture->resident_bytes = fields_number(fields, stats, "resident_bytes");
	picture->budget_bytes = fields_number(fields, stats, "budget_bytes");
	picture->resident_objects = fields_number(fields, stats, "resident_objects");
	picture->loads_in_flight = fields_number(fields, stats, "loads_in_flight");
	picture->loads_queued = fields_number(fields, stats, "loads_queued");
	picture->felt_wait_s = fields_real(fields, stats, "felt_wait_s");
}

static void take_clients(struct fields *fields, const json_t *answer, struct picture *picture)
{
	const json_t *json;
	size_t i;

	json_array_foreach (fields_array(fields, answer, "clients"), i, json) {
		struct picture_client *client = &picture->client[picture->client_count];

		if (picture->client_count == PICTURE_CLIENTS_MAX)
			break;
		picture->client_count++;
		take_text(fields, json, "name", client->name, sizeof client->name);
		client->session = fields_number(fields, json, "session");
		client->pid = fields_number(fields, json, "pid");
		client->leased = fields_number(fields, json, "leased");
		client->accesses = fields_number(fields, json, "accesses");
		client->hits = fields_number(fields, json, "hits");
		client->felt_wait_s = fields_real(fields, json, "felt_wait_s");
	}
}

static void take_drives(struct fields *fields, const json_t *answer, struct picture *picture)
{
	const json_t *json;
	size_t i;

	json_array_foreach (fields_array(fields, answer, "drives"), i, json) {
		struct picture_drive *drive = &picture->drive[picture->drive_count];
		const char *name = json_is_string(json_object_get(json, "name")) ? "name" : "device";

		if (picture->drive_count == PICTURE_DRIVES_MAX)
			break;
		picture->drive_count++;
		take_text(fields, json, name, drive->name, sizeof drive->name);
		take_text(fields, json, "state", drive->state, sizeof drive->state);
		drive->bytes = fields_number(fields, json, "bytes");
		drive->reads = fields_number(fields, json, "reads");
		drive->in_flight = fields_number(fields, json, "in_flight");
		drive->read_total_s = fields_real(fields, json, "read_s");
	}
}

/* ---- experts ---- */

/* Of a digit to the base 36; -1: it is none. */
static int heat_of(char digit)
{
	int heat = digit >= '0' && digit <= '9' ? digit - '0' : digit >= 'a' && digit <= 'w' ? digit - 'a' + 10 : -1;

	return heat <= PICTURE_HEAT_MAX ? heat : -1;
}

/* The layer's two strings must have a character for every expert, and no others than are agreed. */
static int take_map(const json_t *json, struct picture_layer *layer, struct picture *picture)
{
	const char *state = json_string_value(json_object_get(json, "state"));
	const char *heat = json_string_value(json_object_get(json, "heat"));

	if (state == NULL && heat == NULL)
		return 0;
	if (state == NULL || heat == NULL || strlen(state) != layer->experts || strlen(heat) != layer->experts)
		return -EBADMSG;
	if (layer->experts > PICTURE_EXPERTS_MAX - picture->expert_count) {
		picture->truncated = 1;
		return 0;
	}
	layer->first = picture->expert_count;
	layer->has_map = 1;
	for (uint32_t i = 0; i < layer->experts; i++) {
		int digits = heat_of(heat[i]);

		if (digits < 0 || strchr(".lre", state[i]) == NULL)
			return -EBADMSG;
		picture->state[layer->first + i] = state[i];
		picture->heat[layer->first + i] = (unsigned char)digits;
		if (digits > picture->heat_most)
			picture->heat_most = digits;
	}
	picture->expert_count += layer->experts;
	return picture_vram_take_map(json_object_get(json, "vram"), layer, picture);
}

static int take_layer(struct fields *fields, const json_t *json, struct picture *picture)
{
	struct picture_layer *layer = &picture->layer[picture->layer_count];
	uint64_t number = fields_number(fields, json, "layer"), experts = fields_number(fields, json, "experts");
	uint64_t resident = fields_number(fields, json, "resident");

	if (number > UINT32_MAX || experts > UINT32_MAX || resident > experts)
		return -EBADMSG;
	layer->layer = (uint32_t)number;
	layer->experts = (uint32_t)experts;
	layer->resident = (uint32_t)resident;
	layer->visits = fields_number(fields, json, "visits");
	picture->layer_count++;
	return take_map(json, layer, picture);
}

static void take_experts(struct fields *fields, const json_t *answer, struct picture *picture)
{
	const json_t *json;
	size_t i;

	take_text(fields, answer, "model", picture->model, sizeof picture->model);
	take_text(fields, answer, "policy", picture->policy, sizeof picture->policy);
	picture->tokens = fields_number(fields, answer, "tokens");
	picture->truncated = fields_boolean(fields, answer, "truncated");
	json_array_foreach (fields_array(fields, answer, "layers"), i, json) {
		if (picture->layer_count == PICTURE_LAYERS_MAX)
			picture->truncated = 1;
		else if (take_layer(fields, json, picture) < 0 && fields->missing == NULL)
			fields->missing = "layers";
	}
}

/* ---- rates ---- */

static const struct picture_client *client_before(const struct picture *before, uint64_t session)
{
	static const struct picture_client none;

	for (uint32_t i = 0; i < before->client_count; i++)
		if (before->client[i].session == session)
			return &before->client[i];
	return &none;
}

static void rate_clients(struct picture *picture, const struct picture *before)
{
	for (uint32_t i = 0; i < picture->client_count; i++) {
		struct picture_client *client = &picture->client[i];
		const struct picture_client *then = client_before(before, client->session);
		double lookups = less(client->accesses, then->accesses);

		client->lookups_s = lookups / picture->interval_s;
		client->hit_share = share(less(client->hits, then->hits), lookups);
		client->wait_s = less_s(client->felt_wait_s, then->felt_wait_s) / picture->interval_s;
	}
}

static void rate_drives(struct picture *picture, const struct picture *before)
{
	for (uint32_t i = 0; i < picture->drive_count; i++) {
		struct picture_drive *drive = &picture->drive[i];
		const struct picture_drive *then = &before->drive[i];
		double reads;

		if (i >= before->drive_count || strcmp(drive->name, then->name) != 0)
			continue;
		reads = less(drive->reads, then->reads);
		drive->bytes_s = less(drive->bytes, then->bytes) / picture->interval_s;
		drive->read_s = reads > 0 ? less_s(drive->read_total_s, then->read_total_s) / reads : -1;
	}
}

/* Of the layer that was visited most: each layer once a pass. */
static double passes(const struct picture *picture, const struct picture *before)
{
	double most = 0;

	for (uint32_t i = 0; i < picture->layer_count && i < before->layer_count; i++)
		most = fmax(most, less(picture->layer[i].visits, before->layer[i].visits));
	return most;
}

static void rate(struct picture *picture, const struct picture *before)
{
	double lookups = less(picture->accesses, before->accesses);

	picture->interval_s = picture->uptime_s - before->uptime_s;
	picture->lookups_s = lookups / picture->interval_s;
	picture->hit_share = share(less(picture->hits, before->hits), lookups);
	picture->loads_s = less(picture->loads, before->loads) / picture->interval_s;
	picture->bytes_s = less(picture->bytes_read, before->bytes_read) / picture->interval_s;
	picture->wait_s = less_s(picture->felt_wait_s, before->felt_wait_s) / picture->interval_s;
	if (strcmp(picture->model, before->model) == 0) {
		picture->tokens_s = less(picture->tokens, before->tokens) / picture->interval_s;
		picture->passes_s = passes(picture, before) / picture->interval_s;
	}
	picture->vram.hit_share = share(less(picture->vram.hits, before->vram.hits), lookups);
	picture->vram.uploads_s = less(picture->vram.uploads, before->vram.uploads) / picture->interval_s;
	rate_clients(picture, before);
	rate_drives(picture, before);
}

static void have_no_rates(struct picture *picture)
{
	picture->hit_share = picture->vram.hit_share = -1;
	for (uint32_t i = 0; i < picture->client_count; i++)
		picture->client[i].hit_share = -1;
	for (uint32_t i = 0; i < picture->drive_count; i++)
		picture->drive[i].read_s = -1;
}

int picture_fill(const json_t *sample, const struct picture *before, struct picture *ret_picture, char message[TOP_MESSAGE_BYTES])
{
	struct fields fields = {.missing = NULL};

	memset(ret_picture, 0, sizeof *ret_picture);
	take_totals(&fields, fields_object(&fields, sample, "stats"), ret_picture);
	take_clients(&fields, fields_object(&fields, sample, "clients"), ret_picture);
	take_drives(&fields, fields_object(&fields, sample, "drives"), ret_picture);
	take_experts(&fields, fields_object(&fields, sample, "experts"), ret_picture);
	picture_vram_take(&fields, sample, &ret_picture->vram);
	ret_picture->has_vram_map &= !ret_picture->vram.is_there || ret_picture->vram.is_on;
	if (fields.missing != NULL || !isfinite(ret_picture->uptime_s)) {
		(void)snprintf(message, TOP_MESSAGE_BYTES,
			       "a sample has no usable field \"%s\": cnre-top and the manager are of different releases",
			       fields.missing != NULL ? fields.missing : "uptime_s");
		return -EBADMSG;
	}
	have_no_rates(ret_picture);
	if (before != NULL && ret_picture->uptime_s > before->uptime_s && ret_picture->loads >= before->loads)
		rate(ret_picture, before);
	return 0;
}

int picture_heat_level(const struct picture *picture, uint32_t expert)
{
	int heat = picture->heat[expert];

	return heat == 0 || picture->heat_most == 0 ? 0 : (heat * 9 + picture->heat_most - 1) / picture->heat_most;
}
