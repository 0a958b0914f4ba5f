/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all processes of a world share: its devices, who has allocated and opened what, and the accesses that no host has
 * synchronised with. Behind the state, in the same sparse file, lies the memory of the devices: allocations never reuse
 * an offset, so what was freed cannot be mistaken for what came after it.
 *
 * A process owns a slot, and a POSIX lock on a byte of the file for it: the kernel drops the lock with the process, which
 * is how the others notice its death, in whatever pid namespace it was. Hence the file is opened once a process.
 */
#ifndef CNRE_TESTS_STANDIN_FAKECUDA_WORLD_H
#define CNRE_TESTS_STANDIN_FAKECUDA_WORLD_H

#include "tests/standin/fakecuda/rules.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum {
	DEVICES_MAX = 8,
	PROCESSES_MAX = 64,
	ALLOCATIONS_MAX = 16384,
	IMPORTS_MAX = 4096,
	ACCESSES_MAX = 8192,
	FAILURES_MAX = 32,
	SAID_MAX = 32,
	SAID_BYTES = 240,
	UUID_BYTES = 16,
};
/* Where the memory of the devices begins; before it is the state. */
#define WORLD_MEMORY_OFFSET (1ULL << 30)
#define WORLD_BYTES (1LL << 43) /* what file systems allow */

struct world_device {
	uint8_t uuid[UUID_BYTES];
	int is_mig;
	uint64_t total_bytes, granule_bytes;
	int lost_code;       /* 0: it works */
	uint32_t generation; /* counts losses: contexts of an older one stay lost */
};

enum allocation_state { ALLOCATION_NONE, ALLOCATION_LIVE, ALLOCATION_ORPHAN, ALLOCATION_FREED_OPEN };
struct world_allocation {
	uint64_t id, offset, bytes, charged_bytes;
	int state, device, owner; /* owner: slot */
	int is_pool, is_exported;
};

struct world_import {
	uint64_t id; /* of the allocation; 0: entry is free */
	int allocation, slot;
	uint32_t count;
};

/* One access of a stream that no host has synchronised with. */
struct world_access {
	uint64_t id; /* of the allocation; 0: entry is free */
	uint64_t offset, bytes, seq;
	int slot, stream, is_write;
};

struct world_hold {
	int is_held;
	uint32_t allowed; /* operations that still pass */
};

struct world_process {
	int is_used;
	int pid;
	struct world_hold hold[DEVICES_MAX];
	int fail_code[DEVICES_MAX]; /* of its contexts, by fakecuda_fail_context() */
	uint32_t contexts[DEVICES_MAX], streams;
	uint64_t pinned_bytes, pinned_peak_bytes, staged_bytes, staged_peak_bytes, queued, executed;
};

struct world_failure {
	char function[48]; /* "": entry is free */
	int pid, code, repeats;
	uint32_t left; /* calls until it fails: 1 is the next */
};

struct world {
	uint64_t magic, id;
	int device_count;
	struct world_device device[DEVICES_MAX];
	struct world_hold hold[DEVICES_MAX];
	uint64_t context_bytes, pinned_limit_bytes;
	_Atomic uint64_t op_ns, mib_ns;
	_Atomic uint32_t change; /* futex: something was held, released, lost or made to fail */
	uint64_t next_id, next_offset;
	struct world_process process[PROCESSES_MAX];
	struct world_allocation allocation[ALLOCATIONS_MAX];
	int allocation_count; /* entries in use lie before it */
	struct world_import import[IMPORTS_MAX];
	struct world_access access[ACCESSES_MAX];
	int access_count; /* entries in use lie before it */
	struct world_failure failure[FAILURES_MAX];
	_Atomic uint64_t broken[RULE_COUNT];
	_Atomic uint64_t said_count;
	char said[SAID_MAX][SAID_BYTES];
};

extern struct world *world; /* NULL before world_open() */
extern int world_fd;

int world_open(const char *path); /* NULL: of this process alone. Twice is once. */
void world_lock(void);            /* taken after process.lock (process.h), if both are */
void world_unlock(void);
void world_announce(void); /* wakes whoever waits for a change */
void world_wait(uint32_t seen, int64_t timeout_ns);

/* All of these with the world locked. */
int world_slot_take(void); /* -1: none is free */
int world_is_alive(int slot);
void world_reap(void); /* gives back what dead processes had */
uint64_t world_used_bytes(int device);
int world_allocation_new(int device, int slot, uint64_t bytes); /* its index; -1 out of memory, -2 table full */
void world_allocation_drop(int index);
struct world_import *world_import_find(uint64_t id, int slot);
/* Counted, and not kept: a process may be killed between any two of its stores. */
uint32_t world_importers(uint64_t id);
void world_import_drop(struct world_import *import);

/* Fills the world of a new file from the environment; settings.c. 0, or -EINVAL and says what was wrong. */
int settings_read(struct world *into);
/* Devices that this process sees, by CUDA_VISIBLE_DEVICES: numbers in the world; how many. */
int settings_visible(const struct world *of, int *visible);

#endif
