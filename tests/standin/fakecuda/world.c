/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/standin/fakecuda/world.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define WORLD_MAGIC 0x31647563656b6166ULL /* "fakecud1" */
enum { LOCK_BYTE = 0, SLOT_BYTE = 1 };

struct world *world;
int world_fd = -1;

static int lock_byte(int command, short type, off_t byte, struct flock *lock)
{
	*lock = (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
	int rc;
	do {
		rc = fcntl(world_fd, command, lock);
	} while (rc < 0 && errno == EINTR);
	return rc;
}

/* The kernel's lock is one of processes: two threads of this one would both have it. */
static pthread_mutex_t threads = PTHREAD_MUTEX_INITIALIZER;

void world_lock(void)
{
	struct flock lock;
	(void)pthread_mutex_lock(&threads);
	if (lock_byte(F_SETLKW, F_WRLCK, LOCK_BYTE, &lock)) {
		perror("fakecuda: lock of the world");
		abort();
	}
}

void world_unlock(void)
{
	struct flock lock;
	(void)lock_byte(F_SETLK, F_UNLCK, LOCK_BYTE, &lock);
	(void)pthread_mutex_unlock(&threads);
}

void world_announce(void)
{
	atomic_fetch_add(&world->change, 1);
	(void)syscall(SYS_futex, &world->change, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void world_wait(uint32_t seen, int64_t timeout_ns)
{
	struct timespec timeout = {.tv_sec = timeout_ns / 1000000000, .tv_nsec = timeout_ns % 1000000000};
	(void)syscall(SYS_futex, &world->change, FUTEX_WAIT, seen, &timeout, NULL, 0);
}

static int fill_new_world(void)
{
	int rc = settings_read(world);
	if (rc)
		return rc;
	if (getrandom(&world->id, sizeof world->id, 0) != sizeof world->id)
		return -EIO;
	world->next_id = 1;
	world->next_offset = WORLD_MEMORY_OFFSET;
	world->magic = WORLD_MAGIC;
	return 0;
}

int world_open(const char *path)
{
	if (world)
		return 0;
	world_fd = path && *path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666)
				 : memfd_create("fakecuda", MFD_CLOEXEC);
	if (world_fd < 0)
		return -errno;
	/* Sparse: what is not allocated costs nothing. */
	world_lock();
	struct stat status;
	int rc = fstat(world_fd, &status) ? -errno : 0;
	if (!rc && status.st_size == 0 && ftruncate(world_fd, WORLD_BYTES))
		rc = -errno;
	void *map = rc ? MAP_FAILED : mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE, MAP_SHARED, world_fd, 0);
	if (map == MAP_FAILED) {
		rc = rc ? rc : -errno;
	} else {
		world = map;
		rc = world->magic == WORLD_MAGIC ? 0 : world->magic ? -EINVAL : fill_new_world();
		if (rc) {
			(void)munmap(map, sizeof *world);
			world = NULL;
		}
	}
	world_unlock();
	if (rc) {
		(void)close(world_fd);
		world_fd = -1;
	}
	return rc;
}

static int own_slot = -1;

int world_slot_take(void)
{
	struct flock lock;
	for (int slot = 0; slot < PROCESSES_MAX; slot++) {
		if (world->process[slot].is_used || lock_byte(F_SETLK, F_WRLCK, SLOT_BYTE + slot, &lock))
			continue;
		/* One who failed for a while, by a pid that is used again, does not fail for its successor. */
		memset(&world->process[slot], 0, sizeof world->process[slot]);
		world->process[slot].is_used = 1;
		world->process[slot].pid = getpid();
		return own_slot = slot;
	}
	return -1;
}

int world_is_alive(int slot)
{
	struct flock lock;
	if (slot == own_slot)
		return 1;
	return !lock_byte(F_GETLK, F_WRLCK, SLOT_BYTE + slot, &lock) && lock.l_type != F_UNLCK;
}

uint64_t world_used_bytes(int device)
{
	uint64_t used = 0;
	for (int i = 0; i < world->allocation_count; i++)
		if (world->allocation[i].state && world->allocation[i].device == device)
			used += world->allocation[i].charged_bytes;
	for (int slot = 0; slot < PROCESSES_MAX; slot++)
		if (world->process[slot].is_used && world->process[slot].contexts[device])
			used += world->context_bytes;
	return used;
}

int world_allocation_new(int device, int slot, uint64_t bytes)
{
	const struct world_device *on = &world->device[device];
	uint64_t charged = (bytes + on->granule_bytes - 1) / on->granule_bytes * on->granule_bytes;
	uint64_t used = world_used_bytes(device);
	if (charged < bytes || used > on->total_bytes || charged > on->total_bytes - used)
		return -1;
	for (int i = 0; i < ALLOCATIONS_MAX; i++) {
		struct world_allocation *new = &world->allocation[i];
		if (new->state)
			continue;
		*new = (struct world_allocation){.id = world->next_id++,
						 .offset = world->next_offset,
						 .bytes = bytes,
						 .charged_bytes = charged,
						 .state = ALLOCATION_LIVE,
						 .device = device,
						 .owner = slot};
		world->next_offset += (bytes + 4095) / 4096 * 4096;
		if (i >= world->allocation_count)
			world->allocation_count = i + 1;
		return i;
	}
	return -2;
}

void world_allocation_drop(int index)
{
	struct world_allocation *gone = &world->allocation[index];
	for (int i = 0; i < world->access_count; i++)
		if (world->access[i].id == gone->id)
			world->access[i].id = 0;
	(void)fallocate(world_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)gone->offset,
			(off_t)(gone->bytes + 4095) / 4096 * 4096);
	gone->state = ALLOCATION_NONE;
	gone->id = 0;
}

struct world_import *world_import_find(uint64_t id, int slot)
{
	for (int i = 0; i < IMPORTS_MAX; i++)
		if (world->import[i].id == id && world->import[i].slot == slot)
			return &world->import[i];
	return NULL;
}

uint32_t world_importers(uint64_t id)
{
	uint32_t count = 0;
	for (int i = 0; i < IMPORTS_MAX; i++)
		count += world->import[i].id == id;
	return count;
}

void world_import_drop(struct world_import *import)
{
	struct world_allocation *of = &world->allocation[import->allocation];
	uint64_t id = import->id;
	import->id = 0;
	if (of->id == id && of->state != ALLOCATION_LIVE && !world_importers(id))
		world_allocation_drop(import->allocation);
}

static void reap_slot(int slot)
{
	struct world_process *gone = &world->process[slot];
	for (int i = 0; i < world->access_count; i++)
		if (world->access[i].slot == slot)
			world->access[i].id = 0;
	for (int i = 0; i < IMPORTS_MAX; i++)
		if (world->import[i].id && world->import[i].slot == slot) {
			rule_broken(RULE_LEFT_OPEN, "process %d ended with allocation %llu open", gone->pid,
				    (unsigned long long)world->import[i].id);
			world_import_drop(&world->import[i]);
		}
	for (int i = 0; i < world->allocation_count; i++) {
		struct world_allocation *of = &world->allocation[i];
		if (of->state != ALLOCATION_LIVE || of->owner != slot)
			continue;
		uint32_t importers = world_importers(of->id);
		if (!importers) {
			world_allocation_drop(i);
			continue;
		}
		of->state = ALLOCATION_ORPHAN;
		rule_broken(RULE_EXPORTER_GONE, "process %d ended, %u have its allocation %llu open", gone->pid,
			    importers, (unsigned long long)of->id);
	}
	gone->is_used = 0;
}

void world_reap(void)
{
	for (int slot = 0; slot < PROCESSES_MAX; slot++)
		if (world->process[slot].is_used && !world_is_alive(slot))
			reap_slot(slot);
}
