/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks and their files: what is new is saved behind everybody's back, what other managers saved is found, what is too
 * much is removed. Nothing here is waited for by a client. A block that cannot be saved stays in memory as long as it is
 * worth it, and is tried again.
 */
#include "manager/kv_inner.h"

#include "base/clock.h"
#include "base/crash.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct file_job {
	struct kv_disk_job job; /* first */
	struct kv_namespace *space;
	struct kv_block block;
	uint32_t index;
};

static struct file_job *new_job(struct kv_namespace *space, uint32_t index, enum kv_disk_kind kind,
				void (*done)(struct kv_disk_job *))
{
	struct file_job *file = calloc(1, sizeof *file);

	if (file == NULL)
		return NULL;
	file->space = space;
	file->index = index;
	kv_entry_tell(&space->entry[index], &file->block);
	file->job = (struct kv_disk_job){.kind = kind, .folder = space->folder, .block = &file->block, .done = done};
	return file;
}

/* ---- saving ---- */

static void saved(struct kv_disk_job *job)
{
	struct file_job *file = (struct file_job *)job;
	struct kv_namespace *space = file->space;
	struct kv_note *note = &space->note[file->index];

	space->saves--;
	note->doing &= ~(uint32_t)KV_DOING_SAVE;
	if (job->status == 0) {
		CNRE_CRASH_POINT("kv-saved");
		space->tally.saves++;
		kv_set_on_disk(space, file->index, 1);
	} else {
		space->tally.save_errors++;
		note->save_after_ns = cnre_clock_now_ns() + KV_SAVE_RETRY_NS;
		if (space->save_due_ns > note->save_after_ns)
			space->save_due_ns = note->save_after_ns;
		if (cnre_log_allowed(&space->store->log_limit, cnre_clock_now_ns()))
			cnre_log(CNRE_LOG_WARNING,
				 "kv: a block of %.64s cannot be saved: %s: it stays in memory and is tried again; see --kv-dir",
				 space->name, strerror(-job->status));
	}
	free(file);
}

/* Crash note: killed before on_disk is set, a successor saves again, and the file is there already. */
static int save(struct kv_namespace *space, uint32_t index)
{
	struct file_job *file = new_job(space, index, KV_DISK_WRITE, saved);

	if (file == NULL)
		return 0;
	file->job.memory = kv_address(space, kv_place(&space->entry[index]));
	space->note[index].doing |= KV_DOING_SAVE;
	space->saves++;
	kv_disk_submit(space->store->disk, &file->job);
	return 1;
}

/*
 * What was forgotten takes its file with it. Written before that is gone, a new block's file would go, too; or, worse, the
 * old one would be taken for it.
 */
static int must_wait(struct kv_namespace *space, uint32_t index, int64_t now_ns)
{
	struct kv_note *note = &space->note[index];

	if (note->save_after_ns <= now_ns && kv_entry_is_going(space, space->entry[index].key))
		note->save_after_ns = now_ns + KV_TRIM_EVERY_NS;
	if (note->save_after_ns <= now_ns)
		return 0;
	if (space->save_due_ns > note->save_after_ns)
		space->save_due_ns = note->save_after_ns; /* each has its own time, and this round may have come too early */
	return 1;
}

static int is_unsaved(const struct kv_namespace *space, uint32_t index)
{
	const struct cnre_kv_entry *entry = &space->entry[index];

	return kv_is_indexed(entry) && kv_state(entry) == CNRE_STATE_READY && !kv_is_on_disk(entry) &&
	       space->note[index].doing == 0;
}

void kv_files_new(struct kv_namespace *space)
{
	space->may_save = space->folder != NULL ? space->entry_count : 0;
}

/* Round the entries, once for each time that something was new. */
static void save_some(struct kv_namespace *space, int64_t now_ns)
{
	uint32_t looks = space->may_save < KV_INDEX_PER_TURN ? space->may_save : KV_INDEX_PER_TURN;

	if (now_ns >= space->save_due_ns) {
		space->save_due_ns = CNRE_NEVER;
		kv_files_new(space);
	}
	for (; looks > 0 && space->saves < KV_SAVES_MAX; looks--, space->may_save--) {
		uint32_t index = space->save_cursor++ % space->entry_count;

		if (is_unsaved(space, index) && !must_wait(space, index, now_ns) && !save(space, index))
			return;
	}
}

int kv_files_are_due(const struct kv_store *store)
{
	for (uint32_t i = 0; i < CNRE_KV_NAMESPACES_MAX; i++)
		if (store->space[i] != NULL && (store->space[i]->saves > 0 || store->space[i]->may_save > 0 ||
						store->space[i]->doomed_files > 0))
			return 1;
	return 0;
}

/* ---- removing ---- */

static void removed(struct kv_disk_job *job)
{
	struct file_job *file = (struct file_job *)job;
	struct kv_namespace *space = file->space;

	space->store->removes--;
	space->note[file->index].doing &= ~(uint32_t)KV_DOING_REMOVE;
	if (job->status < 0 && job->status != -ENOENT && cnre_log_allowed(&space->store->log_limit, cnre_clock_now_ns()))
		cnre_log(CNRE_LOG_WARNING, "kv: a file of %.64s cannot be removed: %s: it will be found again", space->name,
			 strerror(-job->status));
	kv_set_on_disk(space, file->index, 0);
	/* In memory still, where there was no room for its file: it is not written again at once. */
	space->note[file->index].save_after_ns = cnre_clock_now_ns() + KV_HALF_LIFE_NS;
	if (space->doomed_files > 0)
		space->store->trim_due_ns = 0; /* the next one, now */
	free(file);
}

void kv_files_remove(struct kv_namespace *space, uint32_t index)
{
	struct file_job *file;

	if (space->folder == NULL) { /* this manager was started without the folder: the file is not its own to remove */
		kv_set_on_disk(space, index, 0);
		return;
	}
	if (space->store->removes == KV_REMOVES_MAX)
		return; /* the next sweep */
	file = new_job(space, index, KV_DISK_REMOVE, removed);
	if (file == NULL)
		return;
	space->note[index].doing |= KV_DOING_REMOVE;
	space->store->removes++;
	kv_disk_submit(space->store->disk, &file->job);
}

static uint64_t disk_bytes(const struct kv_store *store)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < CNRE_KV_NAMESPACES_MAX; i++)
		bytes += store->space[i] == NULL ? 0 : store->space[i]->disk_bytes;
	return bytes;
}

/* Above --kv-disk the namespace that has most gives the file that is worth least; what is in memory stays there. */
static void remove_some(struct kv_namespace *space)
{
	struct kv_store *store = space->store;
	uint32_t index;

	if (store->disk_limit_bytes == 0 || store->removes > 0 || disk_bytes(store) <= store->disk_limit_bytes)
		return;
	for (uint32_t i = 0; i < CNRE_KV_NAMESPACES_MAX; i++)
		if (store->space[i] != NULL && store->space[i]->disk_bytes > space->disk_bytes)
			return;
	index = kv_evict_choose(space, 1);
	if (index != CNRE_KV_NONE && kv_state(&space->entry[index]) == CNRE_STATE_READY)
		kv_files_remove(space, index);
	else if (index != CNRE_KV_NONE)
		kv_entry_forget(space, index);
}

/* ---- finding ---- */

/*
 * Crash note: on_disk comes last. A successor forgets what is ABSENT and says that it has no file, and finds it again; the
 * other way round it would take the file for its own to remove, or an entry that is FREE for one with a file.
 */
static void found_one(struct kv_namespace *space, const struct kv_block *block)
{
	uint32_t index = cnre_kv_index_lookup(space->directory, block->key);

	if (index != CNRE_KV_NONE) {
		if (space->entry[index].bytes == block->bytes && space->note[index].doing == 0)
			kv_set_on_disk(space, index, 1);
		return;
	}
	if (kv_entry_is_going(space, block->key))
		return; /* forgotten, and about to be removed */
	if (kv_room(block->bytes) > kv_pin_bytes_max(space->store))
		return; /* of a manager with more memory */
	index = kv_entry_take(space);
	if (index == CNRE_KV_NONE)
		return; /* the index is full: the file stays for a manager with less in it */
	kv_entry_fill(space, index, block);
	CNRE_CRASH_POINT("kv-found-filled");
	kv_entry_set(space, index, CNRE_STATE_ABSENT, CNRE_LOAD_OK, 0);
	CNRE_CRASH_POINT("kv-found-absent");
	cnre_kv_index_insert(space->directory, index);
	CNRE_CRASH_POINT("kv-found-indexed");
	kv_set_on_disk(space, index, 1);
	kv_use_add(&space->note[index].use, KV_USE_OF_FOUND, cnre_clock_now_ns());
}

static void scan(struct kv_namespace *space);

static void scanned(struct kv_disk_job *job)
{
	struct kv_scan *round = (struct kv_scan *)job;

	round->is_under_way = 0;
	for (uint32_t i = 0; job->status == 0 && i < job->found_count; i++)
		found_one(round->space, &round->found[i]);
	if (job->status == 0 && job->found_count > 0) {
		scan(round->space);
		return;
	}
	round->is_whole = 1;
	round->next_ns = cnre_clock_now_ns() + KV_RESCAN_NS;
}

static void scan(struct kv_namespace *space)
{
	struct kv_scan *round = &space->scan;

	round->space = space;
	round->is_under_way = 1;
	round->job = (struct kv_disk_job){
		.kind = KV_DISK_SCAN, .folder = space->folder, .found = round->found, .done = scanned};
	kv_disk_submit(space->store->disk, &round->job);
}

void kv_files_pump(struct kv_namespace *space, int64_t now_ns)
{
	if (space->folder == NULL)
		return;
	save_some(space, now_ns);
	remove_some(space);
	if (!space->scan.is_under_way && now_ns >= space->scan.next_ns && space->doomed_files == 0)
		scan(space);
}
