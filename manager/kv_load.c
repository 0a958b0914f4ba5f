/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks that are in files only come into memory when somebody leases them. The read goes into memory that nobody has, is
 * compared with name and check by the disk's thread, and is READY after that (R23). A block whose file is gone, bad or of
 * another block is forgotten; who waits for it sees its generation move, computes, and publishes it again.
 */
#include "manager/kv_inner.h"

#include "base/clock.h"
#include "base/crash.h"
#include "base/log.h"
#include "shm/ledger.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct load {
	struct kv_disk_job job; /* first */
	struct kv_namespace *space;
	struct kv_block block;
	uint32_t index;
	uint64_t place;
};

static enum cnre_load_error error_of(int r)
{
	switch (r) {
	case -EBADMSG:
		return CNRE_LOAD_EBADMSG;
	case -ENOSPC:
		return CNRE_LOAD_ENOSPC;
	default:
		return CNRE_LOAD_EIO;
	}
}

static void fail(struct kv_namespace *space, uint32_t index, int r)
{
	space->tally.load_errors++;
	if (r != -ENOSPC) {
		/* What cannot be read must not stand in the way of who would compute it. The file is left: it may be
		 * another's, and good. */
		kv_set_on_disk(space, index, 0);
		kv_entry_forget(space, index);
	} /* else the file is good, and memory may be free for the next one who asks */
	kv_entry_set(space, index, CNRE_STATE_ABSENT, error_of(r), 1);
	if (r != -ENOSPC && cnre_log_allowed(&space->store->log_limit, cnre_clock_now_ns()))
		cnre_log(CNRE_LOG_WARNING, "kv: a block of %.64s cannot be read from its file: %s: it will be computed again; see cnrectl kv",
			 space->name, strerror(-r));
}

static void done(struct kv_disk_job *job)
{
	struct load *load = (struct load *)job;
	struct kv_namespace *space = load->space;

	space->store->loads--;
	space->note[load->index].doing &= ~(uint32_t)KV_DOING_LOAD;
	if (job->status == 0) {
		space->tally.loads++;
		CNRE_CRASH_POINT("kv-load-landed");
		kv_entry_ready(space, load->index, load->place);
	} else {
		kv_memory_give(space, load->place);
		fail(space, load->index, job->status);
	}
	free(load);
}

/* Crash note: killed at LOADING, a successor keeps the memory until the fence falls, and finds the file again (kv_adopt.c). */
int kv_load_start(struct kv_namespace *space, uint32_t index)
{
	struct load *load;
	uint64_t place;
	int r;

	if (space->store->loads == KV_LOADS_MAX)
		return 0;
	r = kv_memory_take(space, space->entry[index].bytes, index, &place);
	if (r == -EAGAIN)
		return 0;
	load = r < 0 ? NULL : calloc(1, sizeof *load);
	if (load == NULL) {
		if (r == 0)
			kv_memory_give(space, place);
		space->store->is_short = 1;
		fail(space, index, -ENOSPC);
		return 1;
	}
	load->space = space;
	load->index = index;
	load->place = place;
	kv_entry_tell(&space->entry[index], &load->block);
	load->job = (struct kv_disk_job){.kind = KV_DISK_READ,
					 .folder = space->folder,
					 .block = &load->block,
					 .memory = kv_address(space, place),
					 .done = done};
	space->note[index].doing |= KV_DOING_LOAD;
	space->store->loads++;
	kv_entry_loading(space, index, place);
	CNRE_CRASH_POINT("kv-load-started");
	kv_disk_submit(space->store->disk, &load->job);
	return 1;
}

static int is_wanted(const struct kv_session *client, uint32_t index)
{
	const struct kv_namespace *space = client->space;

	return client->session != NULL && index < space->entry_count && kv_state(&space->entry[index]) == CNRE_STATE_ABSENT &&
	       kv_is_indexed(&space->entry[index]) && kv_is_on_disk(&space->entry[index]) && space->folder != NULL &&
	       space->note[index].doing == 0 && CNRE_LEDGER_LEASES(cnre_ledger_scan(&client->ledger[index])) > 0;
}

int kv_load_serve(struct kv_session *client, uint32_t slot, const struct cnre_kv_request *request)
{
	uint32_t count = request->count < CNRE_KV_TOKENS_MAX ? request->count : CNRE_KV_TOKENS_MAX;

	for (uint32_t i = 0; i < count; i++)
		if (is_wanted(client, (uint32_t)request->token[i]) && !kv_load_start(client->space, (uint32_t)request->token[i]))
			return 0; /* the slot waits; those that were started are not ABSENT any more */
	cnre_kv_channel_finish(client->channel, slot, 0);
	return 1;
}
