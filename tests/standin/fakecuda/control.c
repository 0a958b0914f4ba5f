/* SPDX-License-Identifier: Apache-2.0 */
/* What tests do to a world and ask of it, from any process that has it open. */
#include "tests/standin/fakecuda/fakecuda.h"
#include "tests/standin/fakecuda/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int fakecuda_world(const char *path)
{
	return world_open(path ? path : getenv("FAKECUDA_WORLD"));
}

static int is_meant(int wanted, int device)
{
	return wanted == FAKECUDA_EVERY_DEVICE || wanted == device;
}

static void set_hold(int device, int pid, struct world_hold hold)
{
	world_lock();
	for (int i = 0; i < DEVICES_MAX; i++) {
		if (!is_meant(device, i))
			continue;
		if (pid == FAKECUDA_EVERY_PROCESS)
			world->hold[i] = hold;
		for (int slot = 0; slot < PROCESSES_MAX; slot++)
			if (world->process[slot].is_used && pid && world->process[slot].pid == pid)
				world->process[slot].hold[i] = hold;
	}
	world_unlock();
	world_announce();
}

void fakecuda_hold(int device, int pid, uint32_t allow)
{
	set_hold(device, pid, (struct world_hold){.is_held = 1, .allowed = allow});
}

void fakecuda_release(int device, int pid)
{
	set_hold(device, pid, (struct world_hold){0});
}

void fakecuda_delay(uint64_t op_ns, uint64_t mib_ns)
{
	atomic_store(&world->op_ns, op_ns);
	atomic_store(&world->mib_ns, mib_ns);
}

static void set_lost(int device, int code)
{
	world_lock();
	for (int i = 0; i < world->device_count; i++)
		if (is_meant(device, i)) {
			world->device[i].generation += code && !world->device[i].lost_code;
			world->device[i].lost_code = code;
		}
	world_unlock();
	world_announce();
	(void)pthread_cond_broadcast(&process.changed);
}

void fakecuda_lose_device(int device, int code)
{
	set_lost(device, code);
}

void fakecuda_restore_device(int device)
{
	set_lost(device, 0);
}

void fakecuda_fail_context(int pid, int device, int code)
{
	world_lock();
	for (int slot = 0; slot < PROCESSES_MAX; slot++)
		for (int i = 0; i < DEVICES_MAX; i++)
			if (world->process[slot].is_used && world->process[slot].pid == pid && is_meant(device, i))
				world->process[slot].fail_code[i] = code;
	world_unlock();
	world_announce();
	(void)pthread_cond_broadcast(&process.changed);
}

uint64_t fakecuda_count(const char *name)
{
	uint64_t count = 0;
	int wanted = name ? rule_of(name) : -1;
	if (name && wanted < 0) {
		(void)fprintf(stderr, "fakecuda: no rule %s\n", name);
		abort();
	}
	world_lock();
	world_reap(); /* which may find some */
	world_unlock();
	for (int rule = 0; rule < RULE_COUNT; rule++)
		if (name ? rule == wanted : !rule_is_note(rule))
			count += atomic_load(&world->broken[rule]);
	return count;
}

void fakecuda_last(char *text, size_t bytes)
{
	uint64_t count = atomic_load(&world->said_count);
	(void)snprintf(text, bytes, "%.*s", SAID_BYTES - 1, count ? world->said[(count - 1) % SAID_MAX] : "");
}

void fakecuda_forget_reports(void)
{
	atomic_store(&world->said_count, 0);
	for (int rule = 0; rule < RULE_COUNT; rule++)
		atomic_store(&world->broken[rule], 0);
}

void fakecuda_usage(int device, struct fakecuda_usage *ret_usage)
{
	*ret_usage = (struct fakecuda_usage){.total_bytes = world->device[device].total_bytes};
	world_lock();
	world_reap();
	ret_usage->used_bytes = world_used_bytes(device);
	for (int i = 0; i < world->allocation_count; i++) {
		const struct world_allocation *is = &world->allocation[i];
		if (!is->state || is->device != device)
			continue;
		ret_usage->allocations++;
		ret_usage->exported += is->is_exported != 0;
		ret_usage->orphans += is->state == ALLOCATION_ORPHAN;
		ret_usage->opened += world_importers(is->id);
		for (int a = 0; a < world->access_count; a++)
			ret_usage->pending += world->access[a].id == is->id;
	}
	world_unlock();
}

int fakecuda_process(int pid, struct fakecuda_process *ret_process)
{
	int found = -1;
	world_lock();
	for (int slot = 0; slot < PROCESSES_MAX; slot++) {
		const struct world_process *is = &world->process[slot];
		if (is->pid != pid || (found >= 0 && !is->is_used))
			continue;
		found = slot;
		*ret_process = (struct fakecuda_process){.is_alive = is->is_used && world_is_alive(slot),
							 .pinned_bytes = is->pinned_bytes,
							 .pinned_peak_bytes = is->pinned_peak_bytes,
							 .staged_bytes = is->staged_bytes,
							 .staged_peak_bytes = is->staged_peak_bytes,
							 .queued = is->queued,
							 .executed = is->executed,
							 .streams = is->streams};
		for (int i = 0; i < DEVICES_MAX; i++)
			ret_process->contexts += is->contexts[i];
		for (int i = 0; i < IMPORTS_MAX; i++)
			ret_process->opened += world->import[i].id && world->import[i].slot == slot;
	}
	world_unlock();
	return found < 0 ? -1 : 0;
}
