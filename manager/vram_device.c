/* SPDX-License-Identifier: Apache-2.0 */
/* The budget of a device, what it lacks, and its end; see vram.h. */
#include "manager/vram_inner.h"

#include "base/clock.h"
#include "base/log.h"
#include "manager/object.h"
#include "shm/word.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

void vram_device_open(struct vram *vram, uint32_t number, uint64_t budget_bytes)
{
	struct vram_device *device = &vram->device[number];

	device->vram = vram;
	device->number = number;
	device->budget_bytes = budget_bytes;
	device->arena_bytes_max = UINT64_MAX;
	extent_map_init(&device->room, CNRE_SEGMENT_BYTES_MAX); /* nothing is fenced, so any will do */
	for (uint32_t i = 0; i < MANAGER_MODELS_MAX; i++)
		device->table[i].segment.fd = -1;
}

/* What nobody has open is not filled: an engine on one GPU shall not find its experts on another. */
static uint64_t target_bytes(const struct vram_device *device)
{
	if (device->is_lost || !device->is_open)
		return 0;
	if (device->session_count == 0 && cnre_clock_now_ns() - device->abandoned_ns >= VRAM_ABANDON_NS)
		return 0;
	return device->budget_bytes;
}

void vram_device_apply(struct vram_device *device)
{
	uint64_t bytes = target_bytes(device);

	if (bytes > device->target_bytes)
		device->grow_ns = 0;
	device->target_bytes = bytes;
	device->relearn_ns = 0;
	device->arena_bytes_max = UINT64_MAX;
	if (!device->is_lost)
		tier_set_budget(device->vram->tier, device->number, bytes);
	if (device->charged_bytes > bytes) {
		device->trimming = 1;
		device->vram->closings = 1;
	}
	vram_count(device->vram);
}

void vram_device_short(struct vram_device *device, const char *why)
{
	device->is_short = why != NULL;
	if (why == NULL || strcmp(why, device->shortage) == 0)
		return;
	(void)snprintf(device->shortage, sizeof device->shortage, "%s", why);
	if (cnre_log_allowed(&device->vram->limit, cnre_clock_now_ns()))
		cnre_log(CNRE_LOG_WARNING, "vram: device %u: %s: %llu bytes of its budget of %llu are in use; end who has it, or cnrectl set vram SIZE",
			 device->number, why, (unsigned long long)device->charged_bytes, (unsigned long long)device->budget_bytes);
}

/* ---- loss ---- */

/*
 * Clients see the state first, and look for nothing more there; then every entry, in slices, and who sleeps on one is woken.
 * What was uploaded is in RAM or on a drive, so nobody loses an expert.
 */
void vram_device_lost(struct vram_device *device)
{
	struct gpu_device_status status;

	gpu_get_status(device->vram->gpu, device->number, &status);
	device->is_lost = 1;
	device->growth = VRAM_GROWS_NOT;
	device->target_bytes = device->charged_bytes = 0;
	device->trimming = device->is_short = 0;
	vram_tables_state(device, CNRE_VRAM_LOST);
	tier_lost(device->vram->tier, device->number);
	cnre_log(CNRE_LOG_ERROR,
		 "vram: device %u (%s) is lost: %s: its experts are served from RAM from now on; see dmesg, then restart the manager",
		 device->number, status.uuid_text, status.reason);
	vram_count(device->vram);
}

int vram_device_sweep(struct vram_device *device)
{
	struct manager *manager = device->vram->manager;
	uint32_t left = VRAM_SWEEP_PER_TURN;

	for (; device->is_open && device->sweep_model < manager->model_count; device->sweep_model++, device->sweep_object = 0) {
		struct cnre_vram_directory *directory = device->table[device->sweep_model].directory;

		for (; device->sweep_object < directory->object_count; device->sweep_object++) {
			struct cnre_entry *entry = &directory->entry[device->sweep_object];
			uint32_t word = object_word(entry);

			if (left-- == 0)
				return 1;
			if (cnre_word_state(word) != CNRE_STATE_ABSENT)
				object_settle(entry, cnre_word_generation(word) + 1, CNRE_LOAD_EIO, CNRE_STATE_ABSENT);
		}
	}
	return 0;
}

static void probed(struct gpu_job *job)
{
	struct vram_device *device = (struct vram_device *)((char *)job - offsetof(struct vram_device, probe_job));

	device->is_probing = 0; /* a call that fails shows in the state of the device */
}

/* A device is lost while nobody moves anything there, too; clients that only hit would be left with what they read. */
void vram_device_probe(struct vram_device *device, int64_t now_ns)
{
	if (device->session_count == 0 || device->is_probing || now_ns < device->probe_ns)
		return;
	device->is_probing = 1;
	device->probe_ns = now_ns + VRAM_PROBE_NS;
	device->probe_job = (struct gpu_job){.kind = GPU_JOB_MEASURE, .device = device->number, .done = probed};
	gpu_submit(device->vram->gpu, &device->probe_job);
}

/* ---- levels ---- */

void vram_count(struct vram *vram)
{
	struct cnre_counters *counters = vram->manager->counters;
	uint64_t budget_bytes = 0, bytes = 0;
	uint32_t serving = 0;

	for (uint32_t i = 0; i < vram->device_count; i++) {
		budget_bytes += vram->device[i].is_lost ? 0 : vram->device[i].budget_bytes;
		bytes += vram->device[i].charged_bytes;
		serving += !vram->device[i].is_lost;
	}
	cnre_counter_set(&counters->vram_budget_bytes, budget_bytes);
	cnre_counter_set(&counters->vram_bytes, bytes);
	/* [VD4] relaxed: a hint; who asks for a device gets an answer, and its directory says whether it serves. */
	atomic_store_explicit(&vram->manager->page->vram_devices, serving, memory_order_relaxed);
}

int vram_set_budget(struct manager *manager, uint64_t bytes)
{
	struct vram *vram = manager->vram;
	int trimming = 0;

	if (vram == NULL || vram->tier == NULL)
		return -ENOTSUP;
	for (uint32_t i = 0; i < vram->device_count; i++) {
		struct vram_device *device = &vram->device[i];

		device->budget_bytes = bytes;
		vram_device_apply(device);
		trimming |= device->trimming;
	}
	manager->state->vram_budget_plus_one = bytes + 1; /* outlives who was told */
	return trimming;
}
