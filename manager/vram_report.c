/* SPDX-License-Identifier: Apache-2.0 */
/* What people see of VRAM: status, what is degraded, one expert, and metrics; see vram.h. */
#include "manager/vram_inner.h"

#include "base/clock.h"
#include "manager/metrics_snapshot.h"
#include "manager/object.h"
#include "manager/report.h"
#include "manager/settings.h"
#include "shm/ledger.h"
#include "shm/word.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define HOLDERS_MAX 16u /* clients told, that keep an arena which is to go */

static uint64_t used_bytes(const struct vram_device *device)
{
	return device->room.used_bytes;
}

static uint32_t arenas(const struct vram_device *device)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < CNRE_VRAM_ARENAS_MAX; i++)
		count += device->arena[i].state != VRAM_ARENA_NONE;
	return count;
}

static const char *state_of(const struct vram_device *device)
{
	if (device->is_lost)
		return "lost";
	if (device->trimming)
		return "shrinking";
	return device->is_open ? "serving" : "unused";
}

/* Clients that have the device open, those that ended and are waited for too. */
static json_t *report_clients(const struct vram_device *device)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < device->vram->manager->sessions->active_count && json_array_size(list) < HOLDERS_MAX; i++) {
		const struct session *session = device->vram->manager->sessions->active[i];

		if (session->vram[device->number] != NULL)
			(void)json_array_append_new(list, json_pack("{s:I, s:s, s:i}", "session", (json_int_t)session->number, "name",
								    session->name, "pid", (int)session->peer.pid));
	}
	return list;
}

static uint32_t leaving(const struct vram_device *device)
{
	uint32_t count = 0;

	for (const struct vram_session *client = device->vram->leaving; client != NULL; client = client->next_leaving)
		count += client->table->device == device;
	return count;
}

static json_t *report_device(const struct vram_device *device)
{
	struct gpu_device_status status;
	struct tier_device seen;
	json_t *json;

	gpu_get_status(device->vram->gpu, device->number, &status);
	tier_get_device(device->vram->tier, device->number, &seen);
	json = json_pack("{s:I, s:s, s:o, s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:I}", "device", (json_int_t)device->number,
			 "uuid", status.uuid_text, "name", report_text(status.name), "state", state_of(device), "reason",
			 device->is_lost ? report_text(status.reason) : device->is_short ? report_text(device->shortage) : json_null(),
			 "total_bytes", (json_int_t)status.total_bytes, "free_bytes", (json_int_t)status.free_bytes, "granularity",
			 (json_int_t)status.granularity, "budget_bytes", (json_int_t)device->budget_bytes, "charged_bytes",
			 (json_int_t)device->charged_bytes, "used_bytes", (json_int_t)(device->is_lost ? 0 : used_bytes(device)), "experts",
			 (json_int_t)seen.object_count, "arenas", (json_int_t)arenas(device), "clients", report_clients(device),
			 "clients_ending", (json_int_t)leaving(device));
	(void)json_object_update_new(
		json, json_pack("{s:I, s:I, s:f, s:I, s:I, s:I}", "uploads", (json_int_t)device->uploads, "upload_bytes",
				(json_int_t)device->upload_bytes, "upload_s", (double)status.upload_ns / 1e9, "upload_errors",
				(json_int_t)device->failures, "evictions", (json_int_t)device->evictions, "evictions_refused",
				(json_int_t)device->refused));
	return json;
}

json_t *vram_report(struct manager *manager)
{
	static const char *const trusts[] = {"owner", "group", "all"};
	const struct vram *vram = manager->vram;
	json_t *list = json_array();

	for (uint32_t i = 0; vram != NULL && vram->tier != NULL && i < vram->device_count; i++)
		(void)json_array_append_new(list, report_device(&vram->device[i]));
	if (vram == NULL)
		return json_pack("{s:s, s:s, s:o}", "state", "off", "reason", "no --vram", "devices", list);
	return json_pack("{s:s, s:o, s:s, s:I, s:I, s:I, s:I, s:o}", "state", vram->tier == NULL ? "none" : "on", "reason",
			 vram->fault[0] == '\0' ? json_null() : report_text(vram->fault), "trust", trusts[vram->trust], "reserve_bytes",
			 (json_int_t)vram->reserve_bytes, "staging_bytes", (json_int_t)vram->staging_bytes, "budget_bytes",
			 (json_int_t)cnre_counter_get(&manager->counters->vram_budget_bytes), "charged_bytes",
			 (json_int_t)cnre_counter_get(&manager->counters->vram_bytes), "devices", list);
}

/* ---- what is not as it should be ---- */

static void add_device(const struct vram_device *device, void (*add)(json_t *list, const char *what, const char *advice), json_t *list)
{
	struct gpu_device_status status;
	char what[2 * GPU_MESSAGE_BYTES];

	gpu_get_status(device->vram->gpu, device->number, &status);
	if (device->is_lost) {
		(void)snprintf(what, sizeof what, "GPU %s is lost, its experts are served from RAM: %s", status.uuid_text, status.reason);
		add(list, what, "see dmesg and nvidia-smi, then restart the manager");
		return;
	}
	if (device->is_short) {
		(void)snprintf(what, sizeof what, "GPU %s holds %llu of %llu MiB of experts: %s", status.uuid_text,
			       (unsigned long long)(device->charged_bytes >> 20), (unsigned long long)(device->budget_bytes >> 20), device->shortage);
		add(list, what, "end who has it (nvidia-smi), or set what is to be had: cnrectl set vram SIZE; it is tried again by itself");
	}
	if (device->trimming) {
		(void)snprintf(what, sizeof what, "GPU %s: %llu MiB are still in use beyond the budget, by %u clients or ended ones", status.uuid_text,
			       (unsigned long long)((device->charged_bytes - device->target_bytes) >> 20),
			       device->session_count + leaving(device));
		add(list, what, "it goes when they release their experts and next use the GPU, or end: see clients in cnrectl status --json");
	}
	if (cnre_clock_left_ns(device->hold_ns) > 0) {
		(void)snprintf(what, sizeof what, "GPU %s: uploads fail, %llu so far: what they were for is served from RAM", status.uuid_text,
			       (unsigned long long)device->failures);
		add(list, what, "see the log and dmesg; it is tried again once a second");
	}
}

void vram_report_degraded(const struct manager *manager, void (*add)(json_t *list, const char *what, const char *advice), json_t *list)
{
	const struct vram *vram = manager->vram;

	if (vram == NULL)
		return;
	if (vram->is_fault)
		add(list, vram->fault, "experts are served from RAM; put it right and restart the manager, or leave --vram out");
	for (uint32_t i = 0; i < vram->device_count && vram->tier != NULL; i++)
		add_device(&vram->device[i], add, list);
}

/* ---- one expert ---- */

static json_t *report_holders(const struct vram_table *table, uint32_t object)
{
	json_t *list = json_array();

	for (const struct vram_session *client = table->sessions; client != NULL && json_array_size(list) < HOLDERS_MAX; client = client->next) {
		uint32_t leases = CNRE_LEDGER_LEASES(cnre_ledger_scan(&client->ledger->word[object]));

		if (client->holds && leases > 0)
			(void)json_array_append_new(list, json_pack("{s:o, s:I}", "session",
								    client->session == NULL ? json_null() : json_integer(client->session->number),
								    "leases", (json_int_t)leases));
	}
	return list;
}

json_t *vram_report_object(struct manager *manager, uint32_t owner)
{
	static const char *const states[] = {[CNRE_STATE_ABSENT] = "absent", [CNRE_STATE_LOADING] = "uploading",
					     [CNRE_STATE_READY] = "ready", [CNRE_STATE_EVICTING] = "evicting"};
	struct policy_fact fact[TIER_FACTS_MAX];
	int number = vram_device_of(manager, owner);
	json_t *facts, *holders = NULL;
	const char *state = "absent";
	uint32_t count;

	if (manager->vram == NULL || manager->vram->tier == NULL)
		return json_null();
	count = tier_describe(manager->vram->tier, owner, fact);
	facts = json_object();
	for (uint32_t i = 0; i < count; i++)
		(void)json_object_set_new(facts, fact[i].name, json_real(fact[i].value));
	if (number >= 0) {
		struct vram_device *device = &manager->vram->device[number];
		const struct vram_table *table = vram_table_of(device, owner);

		state = states[cnre_word_state(object_word(vram_entry_of(device, owner))) & 3];
		holders = report_holders(table, owner - table->model->first_owner);
	}
	return json_pack("{s:s, s:o, s:o, s:o}", "state", state, "device", number < 0 ? json_null() : json_integer(number), "holders",
			 holders == NULL ? json_array() : holders, "facts", facts);
}

/* ---- metrics ---- */

void vram_collect(struct manager *manager, struct metrics_snapshot *snapshot)
{
	const struct vram *vram = manager->vram;

	snapshot->vram_count = vram == NULL || vram->tier == NULL ? 0 : vram->device_count;
	for (uint32_t i = 0; i < snapshot->vram_count; i++) {
		const struct vram_device *device = &vram->device[i];
		struct metrics_vram *to = &snapshot->vram[i];
		struct gpu_device_status status;
		struct tier_device seen;

		gpu_get_status(vram->gpu, i, &status);
		tier_get_device(vram->tier, i, &seen);
		*to = (struct metrics_vram){
			.total_bytes = status.total_bytes,
			.free_bytes = status.free_bytes,
			.budget_bytes = device->budget_bytes,
			.charged_bytes = device->charged_bytes,
			.used_bytes = device->is_lost ? 0 : used_bytes(device),
			.experts = seen.object_count,
			.clients = device->session_count,
			.uploads = device->uploads,
			.upload_bytes = device->upload_bytes,
			.upload_ns = status.upload_ns,
			.upload_errors = device->failures,
			.evictions = device->evictions,
			.refused = device->refused,
			.serves = !device->is_lost,
		};
		(void)snprintf(to->uuid, sizeof to->uuid, "%s", status.uuid_text);
	}
}
