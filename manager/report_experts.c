/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cnrectl experts: which experts are resident and how often each was used. Of all layers as a map, two characters an expert,
 * which costs the core thread some 70 ns each (1.4 ms for 19,200, half of it adding up the history); of one layer expert by
 * expert. Both are bounded, and say where the bound was reached.
 */
#include "base/clock.h"
#include "manager/control_inner.h"
#include "manager/feed.h"
#include "manager/report.h"
#include "manager/residency.h"
#include "manager/session.h"
#include "manager/vram.h"
#include "policy/policy.h"
#include "shm/ledger.h"
#include "shm/word.h"

#include <errno.h>
#include <stdlib.h>

#define MAP_EXPERTS_MAX 131072u   /* in one answer: layers beyond have no map */
#define LAYER_EXPERTS_MAX 4096u   /* of one layer, told one by one */
#define LEASE_WORDS_MAX 65536u    /* looked at for one answer; where there would be more, nobody looks */
#define NO_LAYER UINT32_MAX

/* How many binary digits the number has, in base 36: '0' never used, '1' once, '2' up to 3 times, … */
static char heat_of(uint32_t uses)
{
	uint32_t digits = 0;

	for (; uses > 0; uses >>= 1)
		digits++;
	return (char)(digits < 10 ? '0' + digits : 'a' + digits - 10);
}

/* A digit is the device that has it; 'A' the tenth, and so on; '.': none. */
static char device_char(int device)
{
	return (char)(device < 0 ? '.' : device < 10 ? '0' + device : 'A' + device - 10);
}

static char state_of(const struct served_model *model, uint32_t object)
{
	static const char names[] = {[CNRE_STATE_ABSENT] = '.', [CNRE_STATE_LOADING] = 'l', [CNRE_STATE_READY] = 'r',
				     [CNRE_STATE_EVICTING] = 'e'};

	/* [D20] relaxed: this process is the only writer, and its own last store is what is told. */
	uint32_t word = atomic_load_explicit(&model->directory->entry[object].state, memory_order_relaxed);

	return names[cnre_word_state(word) & 3];
}

/* Adds "state", "heat" and, with GPUs, "vram" to the layer; nothing where there is no memory. uses: of the model's objects. */
static void add_map(const struct manager *manager, const struct served_model *model, uint32_t layer, const uint32_t *uses, json_t *json)
{
	const struct model_catalog *catalog = model->catalog;
	uint32_t first = catalog->layer[layer].first_object, count = catalog->layer[layer].expert_count;
	char *state = malloc(3 * (size_t)count), *heat = state == NULL ? NULL : state + count, *vram = state == NULL ? NULL : heat + count;

	if (state == NULL)
		return;
	for (uint32_t i = 0; i < count; i++) {
		state[i] = state_of(model, first + i);
		heat[i] = heat_of(uses[first + i]);
		vram[i] = device_char(vram_device_of(manager, model->first_owner + first + i));
	}
	(void)json_object_set_new(json, "state", json_stringn(state, count));
	(void)json_object_set_new(json, "heat", json_stringn(heat, count));
	if (manager->vram != NULL)
		(void)json_object_set_new(json, "vram", json_stringn(vram, count));
	free(state);
}

static json_t *report_map(struct manager *manager, const struct served_model *model, int *ret_truncated)
{
	const struct model_catalog *catalog = model->catalog;
	const uint32_t *uses = feed_uses(manager) + model->first_owner; /* adds all up at each call, so once */
	json_t *list = json_array();
	uint32_t told = 0;

	*ret_truncated = 0;
	for (uint32_t layer = 0; layer < catalog->layer_count; layer++) {
		uint32_t count = catalog->layer[layer].expert_count;
		struct policy_layer seen;
		json_t *json;

		if (count == 0)
			continue;
		policy_get_layer(residency_policy(manager), model->first_layer + layer, &seen);
		json = json_pack("{s:I, s:I, s:I, s:I}", "layer", (json_int_t)layer, "experts", (json_int_t)count, "resident",
				 (json_int_t)seen.resident, "visits", (json_int_t)seen.visits);
		if (count <= MAP_EXPERTS_MAX - told) {
			told += count;
			add_map(manager, model, layer, uses, json);
		} else {
			*ret_truncated = 1;
		}
		(void)json_array_append_new(list, json);
	}
	return list;
}

static json_t *leases_of(const struct manager *manager, const struct served_model *model, uint32_t object, uint32_t words)
{
	const struct session_table *sessions = manager->sessions;

	return words > LEASE_WORDS_MAX ? json_null() : json_boolean(session_any_lease(sessions, model, object));
}

static json_t *report_expert(struct manager *manager, const struct served_model *model, uint32_t object, uint32_t uses,
			     uint32_t words)
{
	const struct model_catalog *catalog = model->catalog;
	const char state[2] = {state_of(model, object), '\0'};
	uint32_t owner = model->first_owner + object;
	int device = vram_device_of(manager, owner);

	return json_pack("{s:I, s:s, s:I, s:f, s:I, s:o, s:o}", "expert",
			 (json_int_t)(object - catalog->layer[catalog->object[object].layer].first_object), "state", state, "uses",
			 (json_int_t)uses, "worth", policy_worth(residency_policy(manager), owner), "bytes",
			 (json_int_t)catalog->shape[catalog->object[object].shape].slab_bytes, "leased",
			 leases_of(manager, model, object, words), "device",
			 device < 0 ? json_null() : json_integer(device));
}

static json_t *report_layer(struct manager *manager, const struct served_model *model, uint32_t layer, int *ret_truncated)
{
	uint32_t first = model->catalog->layer[layer].first_object, count = model->catalog->layer[layer].expert_count;
	uint32_t told = count < LAYER_EXPERTS_MAX ? count : LAYER_EXPERTS_MAX;
	const uint32_t *uses = feed_uses(manager) + model->first_owner;
	json_t *list = json_array();

	*ret_truncated = told < count;
	for (uint32_t i = 0; i < told; i++)
		(void)json_array_append_new(list, report_expert(manager, model, first + i, uses[first + i],
								told * manager->sessions->active_count));
	return list;
}

/* 0, or the answer says what is wrong. NO_LAYER: none is named. */
static int find_layer(const struct served_model *model, const json_t *request, struct answer *answer, uint32_t *ret_layer)
{
	const json_t *layer = json_object_get(request, "layer");
	json_int_t number = json_integer_value(layer);

	*ret_layer = NO_LAYER;
	if (layer == NULL)
		return 0;
	if (!json_is_integer(layer) || number < 0 || number >= model->catalog->layer_count ||
	    model->catalog->layer[number].expert_count == 0) {
		answer->status = -ENOENT;
		(void)snprintf(answer->message, sizeof answer->message,
			       "no such layer of experts: the model has %u layers; cnrectl layers lists those with experts",
			       model->catalog->layer_count);
		return -ENOENT;
	}
	*ret_layer = (uint32_t)number;
	return 0;
}

void control_experts(struct manager *manager, const json_t *request, struct answer *answer)
{
	const struct served_model *model = control_find_model(manager, request, answer);
	int truncated;
	uint32_t layer;
	json_t *list;

	if (model == NULL || find_layer(model, request, answer, &layer) < 0)
		return;
	list = layer == NO_LAYER ? report_map(manager, model, &truncated) : report_layer(manager, model, layer, &truncated);
	answer->json = json_pack("{s:o, s:s, s:I, s:b, s:f}", "model", report_text(model->catalog->name), "policy",
				 residency_policy_name(manager), "tokens", (json_int_t)feed_tokens(manager), "truncated", truncated,
				 "uptime_s", (double)(cnre_clock_now_ns() - manager->started_ns) / 1e9);
	if (layer != NO_LAYER)
		(void)json_object_set_new(answer->json, "layer", json_integer(layer));
	(void)json_object_set_new(answer->json, layer == NO_LAYER ? "layers" : "experts", list);
}
