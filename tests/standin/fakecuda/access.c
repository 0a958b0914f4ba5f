/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The accesses that no host has synchronised with, of all processes. Once a host has (an event, a stream, a host
 * function), it may have told anybody, so the access is ordered with all that anybody queues from then on.
 */
#include "tests/standin/fakecuda/process.h"

#define WRITES(is_write) ((is_write) ? "writes" : "reads")

static struct world_access *new_access(void)
{
	for (int i = 0; i < world->access_count; i++)
		if (!world->access[i].id)
			return &world->access[i];
	return world->access_count < ACCESSES_MAX ? &world->access[world->access_count++] : NULL;
}

static void trim(void)
{
	while (world->access_count && !world->access[world->access_count - 1].id)
		world->access_count--;
}

static int overlaps(const struct world_access *one, const struct piece *piece)
{
	return one->id == piece->id && one->offset < piece->offset + piece->bytes &&
	       piece->offset < one->offset + one->bytes;
}

static int is_ordered(const struct world_access *one, const struct op *op)
{
	return one->slot == process.slot && op->after.seq[one->stream] >= one->seq;
}

void access_begin(const struct piece *piece, int is_write, int stream, const struct op *op)
{
	world_lock();
	for (int i = 0; i < world->access_count; i++) {
		struct world_access *one = &world->access[i];
		if (!overlaps(one, piece) || (!is_write && !one->is_write) || is_ordered(one, op))
			continue;
		if (one->slot != process.slot && !world_is_alive(one->slot)) {
			one->id = 0;
			continue;
		}
		rule_broken(RULE_UNSYNCHRONISED,
			    "stream %d %s bytes %llu+%llu of allocation %llu, stream %d of process %d %s %llu+%llu",
			    stream, WRITES(is_write), (unsigned long long)piece->offset,
			    (unsigned long long)piece->bytes, (unsigned long long)piece->id, one->stream,
			    world->process[one->slot].pid, WRITES(one->is_write), (unsigned long long)one->offset,
			    (unsigned long long)one->bytes);
		break; /* one of them is enough to say */
	}
	struct world_access *new = new_access();
	if (new)
		*new = (struct world_access){.id = piece->id,
					     .offset = piece->offset,
					     .bytes = piece->bytes,
					     .seq = op->seq,
					     .slot = process.slot,
					     .stream = stream,
					     .is_write = is_write};
	else
		rule_broken(RULE_TABLE_FULL, "%d accesses without a synchronisation", ACCESSES_MAX);
	world_unlock();
}

void access_observe(int stream, uint64_t seq)
{
	if (process.stream[stream].observed >= seq)
		return;
	process.stream[stream].observed = seq;
	world_lock();
	for (int i = 0; i < world->access_count; i++) {
		struct world_access *one = &world->access[i];
		if (one->slot == process.slot && one->stream == stream && one->seq <= seq)
			one->id = 0;
	}
	trim();
	world_unlock();
}

int access_is_pending(uint64_t id, int own)
{
	int pid = 0;
	world_lock();
	for (int i = 0; i < world->access_count && !pid; i++) {
		const struct world_access *one = &world->access[i];
		if (one->id == id && (one->slot == process.slot) == !!own && world_is_alive(one->slot))
			pid = world->process[one->slot].pid;
	}
	world_unlock();
	return pid;
}

void access_forget(uint64_t id)
{
	world_lock();
	for (int i = 0; i < world->access_count; i++)
		if (world->access[i].id == id && world->access[i].slot == process.slot)
			world->access[i].id = 0;
	trim();
	world_unlock();
}
