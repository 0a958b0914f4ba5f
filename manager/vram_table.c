/* SPDX-License-Identifier: Apache-2.0 */
/* The directories of a device: one a model, which show the same arenas; see shm/vram.h. */
#include "manager/vram_inner.h"

#include "base/check.h"
#include "base/size.h"

#include <errno.h>
#include <string.h>

const struct served_model *vram_model_of(const struct manager *manager, uint32_t owner)
{
	uint32_t i = manager->model_count - 1;

	CNRE_CHECK(owner < manager->owner_count);
	while (manager->model[i].first_owner > owner)
		i--;
	return &manager->model[i];
}

struct vram_table *vram_table_of(struct vram_device *device, uint32_t owner)
{
	return &device->table[vram_model_of(device->vram->manager, owner)->number];
}

struct cnre_entry *vram_entry_of(struct vram_device *device, uint32_t owner)
{
	struct vram_table *table = vram_table_of(device, owner);

	return &table->directory->entry[owner - table->model->first_owner];
}

/* The object as it lies in its slab: then offsets of parts are the same in RAM and VRAM, and an upload is one copy. */
uint64_t vram_place_bytes(const struct manager *manager, uint32_t owner)
{
	const struct served_model *model = vram_model_of(manager, owner);

	return model->catalog->shape[model->catalog->object[owner - model->first_owner].shape].slab_bytes;
}

static int open_table(struct vram_table *table)
{
	struct vram_device *device = table->device;
	uint32_t objects = table->model->catalog->object_count;
	uint64_t bytes = cnre_size_align_up(sizeof(struct cnre_vram_directory) + (uint64_t)objects * sizeof(struct cnre_entry),
					    CNRE_PAGE_BYTES);
	struct gpu_device_status status;
	struct cnre_vram_directory *directory;
	int r = cnre_segment_create(&table->segment, "cnre-vram-directory", bytes, CNRE_BACKING_4K, -1, 0);

	if (r < 0)
		return r;
	gpu_get_status(device->vram->gpu, device->number, &status);
	directory = table->segment.base;
	cnre_segment_fill_header(&directory->header, CNRE_SEGMENT_VRAM_DIRECTORY, bytes);
	memcpy(directory->uuid, status.uuid, sizeof directory->uuid);
	memcpy(directory->token, gpu_token(), sizeof directory->token);
	directory->object_count = objects;
	directory->device = device->number;
	/* [VD1] relaxed: no client has it yet. */
	atomic_store_explicit(&directory->state, CNRE_VRAM_SERVING, memory_order_relaxed);
	/* Fresh pages are zero: no arena, and every entry is ABSENT, generation 0. */
	cnre_segment_publish(&directory->header);
	table->directory = directory;
	return 0;
}

int vram_tables_open(struct vram_device *device)
{
	struct manager *manager = device->vram->manager;

	for (uint32_t i = 0; i < manager->model_count; i++) {
		int r;

		device->table[i].device = device;
		device->table[i].model = &manager->model[i];
		r = open_table(&device->table[i]);
		if (r < 0) {
			vram_tables_close(device);
			return r;
		}
	}
	device->is_open = 1;
	return 0;
}

void vram_tables_close(struct vram_device *device)
{
	for (uint32_t i = 0; i < MANAGER_MODELS_MAX; i++) {
		cnre_segment_close(&device->table[i].segment);
		device->table[i].directory = NULL;
	}
	device->is_open = 0;
}

void vram_tables_state(struct vram_device *device, enum cnre_vram_state state)
{
	for (uint32_t i = 0; i < device->vram->manager->model_count && device->is_open; i++)
		/* [VD2] relaxed: a state; what an entry holds is behind its own word. */
		atomic_store_explicit(&device->table[i].directory->state, state, memory_order_relaxed);
}

void vram_tables_store_state(struct vram_device *device, uint32_t arena, enum cnre_arena_state state)
{
	for (uint32_t i = 0; i < device->vram->manager->model_count; i++)
		/* [VD3] relaxed: a wish; a client opens only under a lease of an entry, whose READY ([D2]) carries what the arena
		 * is, and it is freed when no entry lies there and no bit is set (cnre_vram_is_open). */
		atomic_store_explicit(&device->table[i].directory->arena[arena].state, state, memory_order_relaxed);
}

void vram_tables_show(struct vram_device *device, uint32_t arena)
{
	const struct vram_arena *from = &device->arena[arena];

	for (uint32_t i = 0; i < device->vram->manager->model_count; i++) {
		struct cnre_vram_arena *to = &device->table[i].directory->arena[arena];

		to->id = from->id;
		to->bytes = from->bytes;
		to->local = from->address;
		memcpy(to->handle, from->handle, sizeof to->handle);
	}
	vram_tables_store_state(device, arena, CNRE_ARENA_LIVE);
}
