/* SPDX-License-Identifier: Apache-2.0 */
/* What `cnrectl kv` shows; the keys are stable (doc/man/cnrectl.1). */
#include "manager/kv_transfer.h"

#include "base/clock.h"
#include "base/fingerprint.h"
#include "manager/kv_access.h"
#include "manager/peer.h"
#include "manager/report.h"
#include "manager/settings.h"
#include "shm/ledger.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#define PREFIXES_MAX 16u /* of each namespace, the most used */

static json_t *number(uint64_t value)
{
	return json_integer((json_int_t)value);
}

/* ---- the prefixes that saved most: a prefix is named by the block it ends with ---- */

struct top {
	uint32_t index[PREFIXES_MAX];
	uint32_t count;
};

static uint64_t avoided_ns(const struct kv_namespace *space, uint32_t index)
{
	const struct cnre_kv_entry *entry = &space->entry[index];

	return entry->compute_ns / entry->token_count * space->note[index].used_tokens;
}

static void keep(struct top *top, const struct kv_namespace *space, uint32_t index)
{
	uint32_t at = top->count < PREFIXES_MAX ? top->count++ : PREFIXES_MAX - 1;

	while (at > 0 && avoided_ns(space, top->index[at - 1]) < avoided_ns(space, index)) {
		top->index[at] = top->index[at - 1];
		at--;
	}
	top->index[at] = index;
}

/* Used more often than any of its children: then it is where conversations part. */
static int is_end(const struct kv_namespace *space, uint32_t index)
{
	uint32_t child = CNRE_KV_NONE;

	while ((child = cnre_kv_index_child(space->directory, space->entry[index].key, child)) != CNRE_KV_NONE)
		if (space->note[child].uses >= space->note[index].uses)
			return 0;
	return 1;
}

/* Sums from the first block on. */
static json_t *describe_prefix(const struct kv_namespace *space, uint32_t index)
{
	const struct cnre_kv_entry *end = &space->entry[index];
	uint64_t bytes = 0, saved_ns = 0;
	char text[2 * KV_KEY_BYTES + 1];
	uint32_t uses = space->note[index].uses, at = index;

	for (uint32_t i = 0; i < space->entry_count && at != CNRE_KV_NONE; i++) {
		bytes += space->entry[at].bytes;
		saved_ns += avoided_ns(space, at);
		at = cnre_kv_index_lookup(space->directory, space->entry[at].parent);
	}
	return json_pack("{s:s, s:I, s:I, s:I, s:f}", "key", cnre_fingerprint_hex(end->key, KV_KEY_BYTES, text), "tokens",
			 (json_int_t)(end->position + end->token_count), "bytes", (json_int_t)bytes, "uses",
			 (json_int_t)uses, "time_avoided_s", (double)saved_ns / 1e9);
}

static json_t *report_prefixes(const struct kv_namespace *space)
{
	struct top top = {.count = 0};
	json_t *list = json_array();

	for (uint32_t i = 0; i < space->entry_count; i++) {
		if (!kv_is_indexed(&space->entry[i]) || !is_end(space, i))
			continue;
		if (top.count < PREFIXES_MAX || avoided_ns(space, i) > avoided_ns(space, top.index[PREFIXES_MAX - 1]))
			keep(&top, space, i);
	}
	for (uint32_t i = 0; i < top.count; i++)
		(void)json_array_append_new(list, describe_prefix(space, top.index[i])); /* a missing one is only not shown */
	return list;
}

/* ---- namespaces ---- */

/* Of the first KV_REPORT_WORDS words of ledgers, where there are more. */
static uint64_t count_pinned(const struct kv_namespace *space)
{
	uint64_t count = 0, words_left = KV_REPORT_WORDS;

	for (uint32_t i = 0; i < space->entry_count && words_left > space->session_count; i++) {
		if (kv_state(&space->entry[i]) == (enum cnre_state)CNRE_KV_STATE_FREE)
			continue;
		count += kv_is_leased(space, i) != 0;
		words_left -= space->session_count;
	}
	return count;
}

static uint64_t count_indexed(const struct kv_namespace *space)
{
	uint64_t count = 0;

	for (uint32_t i = 0; i < space->entry_count; i++)
		count += kv_is_indexed(&space->entry[i]) != 0;
	return count;
}

static json_t *report_namespace(const struct kv_namespace *space)
{
	const struct kv_tally *tally = &space->tally;
	json_t *object = json_pack("{s:s, s:I, s:f, s:o, s:b}", "name", space->name, "clients", (json_int_t)space->session_count,
				   "time_avoided_s", (double)tally->avoided_ns / 1e9, "prefixes", report_prefixes(space),
				   "scanned", space->folder == NULL || space->scan.is_whole);
	const struct {
		const char *name;
		uint64_t value;
	} numbers[] = {
		{"blocks", count_indexed(space)},
		{"blocks_max", space->entry_count},
		{"resident_blocks", space->resident_blocks},
		{"resident_bytes", space->resident_bytes},
		{"pool_bytes", space->pool_bytes},
		{"disk_blocks", space->disk_blocks},
		{"disk_bytes", space->disk_bytes},
		{"pinned_blocks", count_pinned(space)},
		{"forgotten_blocks", space->doomed_count},
		{"matches", tally->matches},
		{"hit_tokens", tally->hit_tokens},
		{"published", tally->published},
		{"present", tally->present},
		{"publish_failed", tally->publish_failed},
		{"evictions", tally->evictions},
		{"loads", tally->loads},
		{"load_errors", tally->load_errors},
		{"saves", tally->saves},
		{"save_errors", tally->save_errors},
		{"invalidated", tally->invalidated},
		{"breaches", tally->breaches},
	};

	for (size_t i = 0; object != NULL && i < sizeof numbers / sizeof numbers[0]; i++)
		(void)json_object_set_new(object, numbers[i].name, number(numbers[i].value));
	return object;
}

uint64_t kv_file_bytes(const struct manager *manager)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; manager->kv != NULL && i < CNRE_KV_NAMESPACES_MAX; i++)
		bytes += manager->kv->space[i] == NULL ? 0 : manager->kv->space[i]->disk_bytes;
	return bytes;
}

static json_t *report_disk(const struct kv_store *store)
{
	struct kv_disk_status status;
	uint64_t files = 0;

	if (store->disk == NULL)
		return json_null();
	kv_disk_get_status(store->disk, &status);
	for (uint32_t i = 0; i < CNRE_KV_NAMESPACES_MAX; i++)
		files += store->space[i] == NULL ? 0 : store->space[i]->disk_blocks;
	return json_pack("{s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "directory",
			 report_text(store->manager->settings->kv_dir), "io", status.uring ? "io_uring" : "plain", "files",
			 (json_int_t)files, "bytes", (json_int_t)kv_file_bytes(store->manager), "limit_bytes", (json_int_t)store->disk_limit_bytes,
			 "written", (json_int_t)status.blocks_written, "read", (json_int_t)status.blocks_read, "present",
			 (json_int_t)status.present_already, "syscalls", (json_int_t)status.syscalls, "errors",
			 (json_int_t)(status.write_errors + status.read_errors), "quarantined",
			 (json_int_t)status.quarantined, "waiting", (json_int_t)status.jobs_waiting, "running",
			 (json_int_t)status.jobs_running, "last_error", report_text(status.last_error));
}

static int may_see(const struct kv_namespace *space, const struct peer *peer)
{
	return peer_may_administer(peer) ||
	       kv_access_may_see(space->store->access, space->name, peer->uid, peer->gid, peer->socket);
}

json_t *kv_report(const struct manager *manager, const struct peer *peer)
{
	const struct kv_store *store = manager->kv;
	json_t *spaces, *report;

	if (store == NULL)
		return json_pack("{s:b}", "enabled", 0);
	spaces = json_array();
	for (uint32_t i = 0; i < CNRE_KV_NAMESPACES_MAX; i++)
		if (store->space[i] != NULL && may_see(store->space[i], peer))
			(void)json_array_append_new(spaces, report_namespace(store->space[i]));
	report = json_pack("{s:b, s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "enabled", 1, "budget_bytes",
			   (json_int_t)store->budget_bytes, "pool_bytes", (json_int_t)kv_memory_bytes(store),
			   "resident_bytes", (json_int_t)cnre_counter_get(&manager->counters->kv_resident_bytes),
			   "staging_bytes", (json_int_t)store->staging_bytes, "disk", report_disk(store), "transfer", kv_transfer_report(store), "namespaces", spaces);
	return report;
}

/* ---- for status ---- */

json_t *kv_report_short(const struct manager *manager)
{
	const struct kv_store *store = manager->kv;

	if (store == NULL)
		return json_pack("{s:b}", "enabled", 0);
	return json_pack("{s:b, s:I, s:I, s:I, s:o}", "enabled", 1, "budget_bytes", (json_int_t)store->budget_bytes,
			 "resident_bytes", (json_int_t)cnre_counter_get(&manager->counters->kv_resident_bytes), "namespaces",
			 (json_int_t)store->space_count, "disk", report_disk(store));
}

static int is_saving_late(const struct kv_store *store)
{
	for (uint32_t i = 0; i < CNRE_KV_NAMESPACES_MAX; i++)
		if (store->space[i] != NULL && store->space[i]->folder != NULL && store->space[i]->save_due_ns != CNRE_NEVER)
			return 1;
	return 0;
}

static int has_no_folder(const struct kv_store *store)
{
	for (uint32_t i = 0; i < CNRE_KV_NAMESPACES_MAX; i++)
		if (store->space[i] != NULL && store->space[i]->folder == NULL)
			return 1;
	return 0;
}

void kv_report_degraded(const struct manager *manager, void (*add)(struct json_t *list, const char *what, const char *advice),
			struct json_t *list)
{
	const struct kv_store *store = manager->kv;
	struct kv_disk_status status;
	char what[KV_MESSAGE_BYTES + 64];

	if (store == NULL || store->disk == NULL)
		return;
	kv_disk_get_status(store->disk, &status);
	if (status.oldest_ns > 0 && cnre_clock_now_ns() - status.oldest_ns > KV_DISK_SLOW_NS)
		add(list, "the drive of --kv-dir does not answer: prefixes in files must wait for it",
		    "check the drive, its cable or its network; what is in memory is served");
	if (is_saving_late(store)) {
		(void)snprintf(what, sizeof what, "KV blocks cannot be saved: %s", status.last_error);
		add(list, what, "check space and permissions of --kv-dir; they stay in memory, and are tried again every 30 s");
	}
	if (has_no_folder(store))
		add(list, "a KV namespace has no folder: its prefixes are kept in memory only",
		    "check permissions of --kv-dir, and restart the manager");
	if (status.quarantined > 0) {
		(void)snprintf(what, sizeof what, "%llu files of KV blocks were damaged", (unsigned long long)status.quarantined);
		add(list, what, "check the drive of --kv-dir; they lie in folders `quarantine` there, and may be removed");
	}
}
