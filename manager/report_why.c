/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cnrectl why: all that is known of one expert: its entry, who holds it, how its last load went, and what the policy thinks
 * of it beside the one that would have to go. Facts only; cnrectl says them in words.
 */
#include "base/clock.h"
#include "manager/control_inner.h"
#include "manager/feed.h"
#include "manager/loader.h"
#include "manager/report.h"
#include "manager/residency.h"
#include "manager/session.h"
#include "manager/vram.h"
#include "policy/policy.h"
#include "shm/ledger.h"
#include "shm/word.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

#define HOLDERS_MAX 64u  /* told; more are counted */
#define RANK_MAX 4096u   /* of those that would go before it */

static json_t *number(uint64_t value)
{
	return json_integer((json_int_t)value);
}

static uint32_t own_word(const _Atomic uint32_t *word)
{
	/* [D21] relaxed: this process is the only writer, and its own last store is what is told. */
	return atomic_load_explicit(word, memory_order_relaxed);
}

static double service_s(const struct cnre_entry *entry)
{
	/* [D22] relaxed: as [D21]. */
	return (double)atomic_load_explicit(&entry->service_ns, memory_order_relaxed) / 1e9;
}

/* 0, or the answer says what is wrong. */
static int find_object(const struct served_model *model, const json_t *request, struct answer *answer, uint32_t *ret_object)
{
	const json_t *layer_json = json_object_get(request, "layer"), *expert_json = json_object_get(request, "expert");
	json_int_t layer = json_integer_value(layer_json), expert = json_integer_value(expert_json);
	const struct model_catalog *catalog = model->catalog;

	if (!json_is_integer(layer_json) || layer < 0 || layer >= catalog->layer_count || !json_is_integer(expert_json) ||
	    expert < 0 || expert >= catalog->layer[layer].expert_count) {
		answer->status = -ENOENT;
		(void)snprintf(answer->message, sizeof answer->message,
			       "no such expert: the model has %u layers with up to %u experts; cnrectl layers lists them",
			       catalog->layer_count, catalog->expert_count);
		return -ENOENT;
	}
	*ret_object = catalog->layer[layer].first_object + (uint32_t)expert;
	return 0;
}

/* Who holds it, and how many do. */
static json_t *report_holders(const struct manager *manager, const struct served_model *model, uint32_t object,
			      uint32_t *ret_count)
{
	json_t *list = json_array();

	*ret_count = 0;
	for (uint32_t i = 0; i < manager->sessions->active_count; i++) {
		const struct session *session = manager->sessions->active[i];
		uint32_t leases;

		if (session->model != model)
			continue;
		leases = CNRE_LEDGER_LEASES(cnre_ledger_scan(&session->ledger->word[object]));
		if (leases == 0 || (*ret_count)++ >= HOLDERS_MAX)
			continue;
		(void)json_array_append_new(list, json_pack("{s:I, s:s, s:i, s:I}", "session", (json_int_t)session->number, "name",
							    session->name, "pid", (int)session->peer.pid, "leases",
							    (json_int_t)leases));
	}
	return list;
}

/* Null: none ended since this manager started. */
static json_t *report_last_load(const struct manager *manager, const struct cnre_entry *entry, uint32_t owner)
{
	struct loader_drive_status drive;
	struct residency_load load;
	char device[32];

	if (residency_last_load(manager, owner, &load) < 0)
		return json_null();
	loader_get_drive(manager->loader, load.drive, &drive);
	(void)snprintf(device, sizeof device, "%u:%u", major(drive.device), minor(drive.device));
	return json_pack(
		"{s:s, s:f, s:f, s:I, s:I, s:o}", "drive", device, "ended_s_ago",
		(double)(cnre_clock_now_ns() - load.ended_ns) / 1e9, "service_s", service_s(entry), "read_bytes",
		(json_int_t)own_word(&entry->read_bytes), "failed_attempts",
		(json_int_t)load.attempts, "error", load.status < 0 ? json_string(strerror(-load.status)) : json_null());
}

/* Of all residents, those that would go before this one; null: more than anybody counts. */
static json_t *report_rank(struct manager *manager, uint32_t owner)
{
	struct policy *policy = residency_policy(manager);
	uint32_t rank = 0, other;

	policy_seek(policy, POLICY_NONE);
	while ((other = policy_next(policy)) != owner) {
		if (other == POLICY_NONE || ++rank > RANK_MAX)
			return json_null();
	}
	return number(rank);
}

/* The first that would have to go for it; null: there is none. */
static json_t *report_rival(struct manager *manager, uint32_t owner)
{
	struct policy *policy = residency_policy(manager);
	const struct model_catalog *catalog;
	uint32_t rival, object, layer, i = 0;

	policy_seek(policy, owner);
	rival = policy_next(policy);
	if (rival == POLICY_NONE)
		return json_null();
	while (i + 1 < manager->model_count && manager->model[i + 1].first_owner <= rival)
		i++;
	catalog = manager->model[i].catalog;
	object = rival - manager->model[i].first_owner;
	layer = catalog->object[object].layer;
	return json_pack("{s:o, s:I, s:I, s:f, s:I}", "model", report_text(catalog->name), "layer", (json_int_t)layer, "expert",
			 (json_int_t)(object - catalog->layer[layer].first_object), "worth", policy_worth(policy, rival), "uses",
			 (json_int_t)feed_uses(manager)[rival]);
}

static json_t *report_view_of_policy(struct manager *manager, uint32_t owner)
{
	const struct policy *policy = residency_policy(manager);
	struct policy_fact fact[POLICY_FACTS_MAX];
	uint32_t count = policy_describe(policy, owner, fact);
	int is_resident = policy_is_resident(policy, owner);
	json_t *facts = json_object();

	for (uint32_t i = 0; i < count; i++)
		(void)json_object_set_new(facts, fact[i].name, json_real(fact[i].value));
	return json_pack("{s:s, s:f, s:b, s:o, s:o, s:o}", "name", policy_name(policy), "worth", policy_worth(policy, owner),
			 "must_replace", !is_resident && policy_must_replace(policy, owner), "facts", facts, "goes_after",
			 is_resident ? report_rank(manager, owner) : json_null(), "rival",
			 is_resident ? json_null() : report_rival(manager, owner));
}

static const char *error_name(uint32_t error)
{
	static const char *const names[CNRE_LOAD_ERRORS] = {[CNRE_LOAD_OK] = NULL,
							    [CNRE_LOAD_EIO] = "unreadable on every replica",
							    [CNRE_LOAD_EBADMSG] = "its bytes were not what they had been",
							    [CNRE_LOAD_ENOSPC] = "no room could be had",
							    [CNRE_LOAD_ETIMEDOUT] = "the drive did not answer in time"};

	return error < CNRE_LOAD_ERRORS ? names[error] : NULL;
}

static json_t *report_object(struct manager *manager, const struct served_model *model, uint32_t object)
{
	static const char *const states[] = {[CNRE_STATE_ABSENT] = "absent", [CNRE_STATE_LOADING] = "loading",
					     [CNRE_STATE_READY] = "ready", [CNRE_STATE_EVICTING] = "evicting"};
	const struct model_catalog *catalog = model->catalog;
	const struct model_shape *shape = &catalog->shape[catalog->object[object].shape];
	const struct cnre_entry *entry = &model->directory->entry[object];
	uint32_t word = own_word(&entry->state), holders, owner = model->first_owner + object;
	const char *error = error_name(cnre_word_error(word));
	json_t *list = report_holders(manager, model, object, &holders);

	return json_pack("{s:o, s:s, s:o, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "model", report_text(catalog->name),
			 "state", states[cnre_word_state(word) & 3], "error", error == NULL ? json_null() : json_string(error),
			 "queued", residency_is_queued(manager, owner), "slab_bytes", (json_int_t)shape->slab_bytes,
			 "payload_bytes", (json_int_t)shape->payload_bytes, "uses", (json_int_t)feed_uses(manager)[owner], "loads",
			 (json_int_t)own_word(&entry->load_sequence), "lost",
			 (json_int_t)cnre_word_generation(word), "holder_count", (json_int_t)holders, "holders", list, "last_load",
			 report_last_load(manager, entry, owner), "policy", report_view_of_policy(manager, owner), "vram", vram_report_object(manager, owner));
}

void control_why(struct manager *manager, const json_t *request, struct answer *answer)
{
	const struct served_model *model = control_find_model(manager, request, answer);
	uint32_t object, layer;

	if (model == NULL || find_object(model, request, answer, &object) < 0)
		return;
	layer = model->catalog->object[object].layer;
	answer->json = report_object(manager, model, object);
	(void)json_object_set_new(answer->json, "layer", number(layer));
	(void)json_object_set_new(answer->json, "expert", number(object - model->catalog->layer[layer].first_object));
	(void)json_object_set_new(answer->json, "budget_bytes", number(residency_budget_bytes(manager)));
	(void)json_object_set_new(answer->json, "resident_bytes", number(cnre_counter_get(&manager->counters->resident_bytes)));
}
