/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the policy wants in VRAM, and uploads. An object comes from its slab in RAM, which is pinned meanwhile: RAM is what is
 * promoted, whether it was hit or read, so a warm pool fills VRAM without one read of a drive. A pin takes the place of a load
 * (R15), so uploads never take the last one but where there is only one, and then only while nobody waits.
 *
 * Crash note: killed during uploads, RAM is as it was: a slab that is read needs no repair, and pins are this process's only.
 */
#include "manager/vram_inner.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "manager/object.h"
#include "manager/probe.h"
#include "shm/word.h"

#include <errno.h>

/* ---- for the policy ---- */

int vram_is_in_ram(const struct manager *manager, uint32_t owner)
{
	const struct served_model *model = vram_model_of(manager, owner);

	return cnre_word_state(object_word(&model->directory->entry[owner - model->first_owner])) == CNRE_STATE_READY;
}

int vram_can_upload(void *context, uint32_t owner)
{
	struct vram *vram = context;
	const struct served_model *model = vram_model_of(vram->manager, owner);

	/* What is damaged, and stays in RAM because somebody holds it, would live on in its copy. */
	return vram->wanted[model->number] && vram_is_in_ram(vram->manager, owner) && !residency_is_suspect(vram->manager, owner);
}

int vram_can_leave(void *context, uint32_t owner)
{
	struct vram *vram = context;
	struct vram_device *device = &vram->device[tier_device_of(vram->tier, owner)];
	struct vram_table *table = vram_table_of(device, owner);

	if (cnre_word_state(object_word(vram_entry_of(device, owner))) != CNRE_STATE_READY)
		return 0;
	if (!vram_any_lease(table, owner - table->model->first_owner))
		return 1;
	device->is_blocked = 1;
	return 0;
}

/* ---- one upload ---- */

static void publish(struct vram_device *device, const struct vram_upload *upload)
{
	struct cnre_entry *entry = vram_entry_of(device, upload->owner);
	struct cnre_counters *counters = device->vram->manager->counters;
	uint64_t bytes = upload->job.bytes;

	object_settle(entry, cnre_word_generation(object_word(entry)), CNRE_LOAD_OK, CNRE_STATE_READY);
	probe_migrate(device->vram->manager, upload->owner, PROBE_TIER_RAM, PROBE_TIER_VRAM, bytes);
	device->uploads++;
	device->upload_bytes += bytes;
	cnre_counter_add(&counters->vram_uploads, 1);
	cnre_counter_add(&counters->vram_upload_bytes, bytes);
	cnre_counter_add(&counters->migration_bytes, bytes);
}

/* Nothing is there, and the next upload to the device has time: what failed once may fail again. */
static void fail(struct vram_device *device, uint32_t owner, int status)
{
	struct cnre_entry *entry = vram_entry_of(device, owner);

	vram_arena_give(device, object_place(entry));
	tier_removed(device->vram->tier, owner);
	object_settle(entry, cnre_word_generation(object_word(entry)) + 1, CNRE_LOAD_EIO, CNRE_STATE_ABSENT);
	device->failures++;
	device->hold_ns = cnre_clock_deadline_ns(VRAM_HOLD_NS);
	if (cnre_log_allowed(&device->vram->limit, cnre_clock_now_ns()))
		cnre_log(CNRE_LOG_ERROR, "vram: device %u: an upload failed (%d): the expert is served from RAM", device->number, status);
}

static void uploaded(struct gpu_job *job)
{
	struct vram_upload *upload = (struct vram_upload *)job;
	struct vram_device *device = &upload->vram->device[upload->device];

	residency_unpin(upload->vram->manager, &upload->pin);
	upload->is_busy = 0;
	upload->vram->uploads_active--;
	if (device->is_lost)
		return; /* its entries are told by the sweep */
	if (job->status < 0)
		fail(device, upload->owner, job->status);
	else
		publish(device, upload);
}

static struct vram_upload *free_upload(struct vram *vram)
{
	for (uint32_t i = 0; i < VRAM_UPLOADS_MAX; i++)
		if (!vram->upload[i].is_busy)
			return &vram->upload[i];
	return NULL;
}

/* There was room in all, but not in one piece, or the driver gave less: until it is tried again, who comes replaces somebody. */
static void learn_no_room(struct vram_device *device)
{
	struct tier_device seen;

	tier_get_device(device->vram->tier, device->number, &seen);
	tier_set_budget(device->vram->tier, device->number, seen.used_bytes);
	device->relearn_ns = cnre_clock_deadline_ns(VRAM_RELEARN_NS);
}

static void begin_upload(struct vram_device *device, uint32_t owner)
{
	struct vram *vram = device->vram;
	struct vram_upload *upload = free_upload(vram);
	uint32_t arena;
	uint64_t off;

	CNRE_CHECK(upload != NULL); /* asked before */
	if (residency_pin(vram->manager, owner, &upload->pin) < 0)
		return;
	if (vram_arena_take(device, owner, &arena, &off) < 0) {
		residency_unpin(vram->manager, &upload->pin);
		if (!vram_arena_grow(device))
			learn_no_room(device);
		return;
	}
	upload->is_busy = 1;
	upload->owner = owner;
	upload->device = device->number;
	vram->uploads_active++;
	object_mark_loading(vram_entry_of(device, owner), cnre_place_pack(arena, off), 0);
	tier_added(vram->tier, owner, device->number);
	upload->job = (struct gpu_job){
		.kind = GPU_JOB_UPLOAD,
		.device = device->number,
		.address = device->arena[arena].address + off,
		.bytes = vram_place_bytes(vram->manager, owner),
		.source = upload->pin.slab,
		.done = uploaded,
	};
	gpu_submit(vram->gpu, &upload->job);
}

/* ---- what the policy says ---- */

static void make(struct vram *vram, const struct tier_move *move)
{
	struct vram_device *device = &vram->device[move->device];

	/* Before anybody goes for it: who was to come is a candidate again at its next use. */
	if (device->is_lost || (move->object != POLICY_NONE && cnre_clock_left_ns(device->hold_ns) > 0))
		return;
	for (uint32_t i = 0; i < move->victim_count; i++)
		if (vram_evict(device, move->victim[i]) < 0)
			return; /* leased meanwhile */
	if (move->object != POLICY_NONE)
		begin_upload(device, move->object);
}

/* Places of loads are the clients' first. */
static int may_upload(const struct vram *vram)
{
	const struct manager *manager = vram->manager;
	uint32_t most = (manager->loads_max + 1) / 2, free = residency_loads_free(manager);

	if (vram->uploads_active >= VRAM_UPLOADS_MAX || vram->uploads_active >= most)
		return 0;
	return free > 1 || (manager->loads_max == 1 && free == 1 && residency_queued(manager) == 0);
}

/* Room for one more of any size, or it is on its way. 1: the latter, and the candidates can wait for it. */
static int prepare_room(struct vram *vram)
{
	int grows = 0;

	for (uint32_t i = 0; i < vram->device_count; i++) {
		struct vram_device *device = &vram->device[i];
		uint64_t room_bytes = 0;

		for (uint32_t a = 0; a < CNRE_VRAM_ARENAS_MAX && device->target_bytes > 0; a++)
			if (device->arena[a].state == VRAM_ARENA_LIVE)
				room_bytes += device->arena[a].bytes - device->room.segment[a].used_bytes;
		if (device->target_bytes > 0 && room_bytes < vram->manager->window_bytes)
			grows |= vram_arena_grow(device);
	}
	return grows;
}

int vram_place_turn(struct vram *vram)
{
	struct tier_move move;

	if (!vram->heard || !may_upload(vram) || prepare_room(vram))
		return 0;
	tier_pass(vram->tier);
	for (uint32_t i = 0; i < VRAM_MOVES_PER_TURN; i++) {
		if (!may_upload(vram))
			return 0; /* one that ends is a reason for another turn */
		if (!tier_next(vram->tier, &move)) {
			vram->heard = 0;
			return 0;
		}
		make(vram, &move);
	}
	return 1;
}

/* ---- what clients did ---- */

void vram_visit(struct manager *manager, const struct served_model *model, uint32_t layer, uint32_t token_count)
{
	if (manager->vram != NULL && manager->vram->tier != NULL)
		tier_visit(manager->vram->tier, model->first_layer + layer, token_count);
}

/*
 * Tokens are what the bytes that may move are counted by. An engine need not say when one ends; of one that never has, as many
 * lookups as a token of the model makes are one. That is each client's own: what one says ends nobody else's moves.
 */
static void guess_token(struct vram *vram, const struct session *session)
{
	const struct model_catalog *catalog = session->model->catalog;

	if (session->tells_tokens || ++vram->unspent_accesses < (uint64_t)catalog->layer_count * catalog->top_k)
		return;
	vram->unspent_accesses = 0;
	tier_tokens(vram->tier, 1);
}

/*
 * What is not in RAM cannot be uploaded, and the policy forgets it until it is used again, which may be after it left RAM again:
 * a pool smaller than VRAM would fill VRAM with its own size and no more. So a miss is told when its bytes are there.
 */
void vram_access(struct session *session, uint32_t owner, int was_in_vram)
{
	struct manager *manager = session->manager;
	struct vram *vram = manager->vram;

	if (vram == NULL || vram->tier == NULL)
		return;
	guess_token(vram, session);
	if (!was_in_vram && !vram_is_in_ram(manager, owner)) {
		vram->missed[owner] += vram->missed[owner] < UINT8_MAX;
		return;
	}
	tier_access(vram->tier, owner);
	vram->heard = 1;
}

void vram_arrived(struct manager *manager, uint32_t owner)
{
	struct vram *vram = manager->vram;

	if (vram == NULL || vram->tier == NULL || vram->missed[owner] == 0)
		return;
	for (; vram->missed[owner] > 0; vram->missed[owner]--)
		tier_access(vram->tier, owner);
	vram->heard = 1;
}

void vram_tokens(struct session *session, uint32_t token_count)
{
	struct vram *vram = session->manager->vram;

	if (vram == NULL || vram->tier == NULL || token_count == 0)
		return;
	session->tells_tokens = 1;
	tier_tokens(vram->tier, token_count);
	vram->heard = 1;
}

int vram_device_of(const struct manager *manager, uint32_t owner)
{
	const struct vram *vram = manager->vram;
	uint32_t number = vram == NULL || vram->tier == NULL ? TIER_NO_DEVICE : tier_device_of(vram->tier, owner);

	return number == TIER_NO_DEVICE ? -1 : (int)number;
}
