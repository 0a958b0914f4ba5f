/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which table of a device is the one now: found, asked for, dropped, closed. A table is counted: by its device while it is the
 * current one, by each lease, and by each thread that looks at it. Structs are never freed before detach, so who comes too
 * late finds a count of 0 and nothing else.
 */
#include "client/vram.h"

#include "base/clock.h"
#include "client/connection.h"

#include <string.h>

/* ---- uses ---- */

/* 1 counted, 0 nobody uses it. */
static int ref(struct cnre_vram_table *table)
{
	/* [VR4] relaxed: a first guess for the exchange. */
	uint32_t uses = atomic_load_explicit(&table->uses, memory_order_relaxed);

	while (uses != 0)
		/* [VR2] acq_rel, pairs with [VR3] and [VR21]: its former uses are over, and it is not closed before ours is. */
		if (atomic_compare_exchange_weak_explicit(&table->uses, &uses, uses + 1, memory_order_acq_rel, memory_order_relaxed))
			return 1;
	return 0;
}

struct cnre_vram_table *cnre_vram_table_ref(struct cnre *client, uint32_t number)
{
	struct cnre_vram_table *table = &client->vram->table[number];

	return ref(table) ? table : NULL;
}

void cnre_vram_table_unref(struct cnre *client, struct cnre_vram_table *table, uint32_t uses)
{
	/* [VR3] acq_rel, pairs with [VR2] and [VR3]: the last one sees what the others did. */
	if (atomic_fetch_sub_explicit(&table->uses, uses, memory_order_acq_rel) == uses)
		cnre_vram_table_end(client, table);
}

struct cnre_vram_table *cnre_vram_table_find(struct cnre *client, uint32_t ordinal)
{
	struct cnre_vram_device *device = &client->vram->device[ordinal];

	for (;;) {
		/* [VR1] acquire, pairs with [VR5]: its mappings. */
		uint32_t current = atomic_load_explicit(&device->current, memory_order_acquire);
		struct cnre_vram_table *table;

		if (current == 0)
			return NULL;
		table = &client->vram->table[current - 1];
		if (!ref(table))
			continue; /* dropped since: another is current, or none */
		/* [VR6] acquire, pairs with [VR5]: while it is this device's we cannot have counted another one's. */
		if (atomic_load_explicit(&device->current, memory_order_acquire) == current)
			return table;
		cnre_vram_table_unref(client, table, 1);
	}
}

/* Device's lock held. */
static void set_current(struct cnre_vram_device *device, uint32_t current)
{
	/* [VR5] release, pairs with [VR1] and [VR6]: the table is complete. */
	atomic_store_explicit(&device->current, current, memory_order_release);
}

static void drop_locked(struct cnre *client, struct cnre_vram_device *device)
{
	/* [VR7] relaxed: written under the device's lock, which this thread holds. */
	uint32_t current = atomic_load_explicit(&device->current, memory_order_relaxed);

	if (current == 0)
		return;
	set_current(device, 0);
	cnre_vram_table_unref(client, &client->vram->table[current - 1], 1);
}

void cnre_vram_table_drop(struct cnre *client, uint32_t ordinal)
{
	struct cnre_vram_device *device = &client->vram->device[ordinal];

	(void)pthread_mutex_lock(&device->lock);
	drop_locked(client, device);
	(void)pthread_mutex_unlock(&device->lock);
}

/* ---- whether it is any good ---- */

int cnre_vram_table_is_lost(const struct cnre_vram_table *table)
{
	/* [VR8] relaxed: a state of the manager's; what an entry holds is behind its own word. */
	return atomic_load_explicit(&table->directory->state, memory_order_relaxed) == CNRE_VRAM_LOST;
}

int cnre_vram_table_is_current(const struct cnre *client, const struct cnre_vram_table *table)
{
	/* [VR9] relaxed: a flag; the table stays as it is while it is used. */
	return table->epoch == cnre_client_epoch(client) && atomic_load_explicit(&table->is_dead, memory_order_relaxed) == 0;
}

/* ---- asking for one ---- */

static void remember(struct cnre *client, struct cnre_vram_device *device, int error, uint32_t epoch)
{
	if (error == -EACCES)
		/* [VR10] relaxed: for cnre_model. */
		atomic_store_explicit(&client->vram->refused, (uint64_t)epoch + 1, memory_order_relaxed);
	/* [VR11] relaxed: a hint of when to ask again; written under the device's lock. */
	atomic_store_explicit(&device->error, error, memory_order_relaxed);
	/* [VR12] relaxed: as [VR11]. */
	atomic_store_explicit(&device->error_epoch, epoch, memory_order_relaxed);
	/* [VR13] relaxed: as [VR11]. */
	atomic_store_explicit(&device->ask_again_ns, cnre_clock_now_ns() + CNRE_VRAM_ASK_AGAIN_NS, memory_order_relaxed);
}

/* Why nobody is asked now, or 0. The three words need not belong together: the worst is a question too many. */
static int remembered(const struct cnre *client, const struct cnre_vram_device *device, int is_patient)
{
	/* [VR14] relaxed: as [VR11]. */
	int error = atomic_load_explicit(&device->error, memory_order_relaxed);

	if (error == -ENXIO)
		return error; /* devices of a process are always the same */
	if (error == 0 || (error == -ETIMEDOUT && is_patient))
		return 0;
	/* [VR15] relaxed: as [VR11]. */
	if (atomic_load_explicit(&device->error_epoch, memory_order_relaxed) != cnre_client_epoch(client))
		return 0;
	/* [VR16] relaxed: as [VR11]. */
	return cnre_clock_now_ns() < atomic_load_explicit(&device->ask_again_ns, memory_order_relaxed) ? error : 0;
}

/* Connection's lock held. The answer belongs to the incarnation that was there before and after it. */
static int ask_open(struct cnre *client, struct cnre_vram_device *device, uint32_t ordinal, int64_t deadline_ns, struct cnre_vram_table **ret_table)
{
	struct cnre_wire_vram_open ask = {0};
	struct cnre_wire_vram_opened opened;
	struct cnre_answer answer;
	uint32_t epoch = cnre_client_epoch(client);
	int r;

	memcpy(ask.uuid, gpu_import_uuid(device->import), sizeof ask.uuid);
	r = cnre_connection_ask(client, &ask, sizeof ask, CNRE_WIRE_VRAM_OPEN, CNRE_WIRE_VRAM_OPENED, sizeof opened, deadline_ns, &answer);
	if (r < 0)
		return r;
	memcpy(&opened, answer.message, sizeof opened);
	r = opened.status > 0 ? -EBADMSG : opened.status;
	if (r == 0 && (answer.fd_count != CNRE_VRAM_FD_COUNT || opened.device >= CNRE_VRAM_DEVICES_MAX))
		r = -EBADMSG;
	if (r == 0 && cnre_client_epoch(client) != epoch)
		r = -EAGAIN;
	if (r == 0)
		r = cnre_vram_table_make(client, &answer, &(struct cnre_vram_name){ordinal, opened.device, epoch, device->import}, ret_table);
	cnre_connection_close_fds(&answer);
	return r;
}

/* -EAGAIN: descriptors of an earlier answer were unread (R27), or a successor has come meanwhile. */
static int ask_again(struct cnre *client, struct cnre_vram_device *device, uint32_t ordinal, int64_t deadline_ns, struct cnre_vram_table **ret_table)
{
	int r = cnre_connection_lock(client, deadline_ns);

	if (r < 0)
		return r;
	r = -EAGAIN;
	for (int i = 0; i < CNRE_VRAM_OPEN_TRIES_MAX && r == -EAGAIN; i++)
		r = ask_open(client, device, ordinal, deadline_ns, ret_table);
	cnre_connection_unlock(client);
	return r == -EAGAIN ? -EBADMSG : r;
}

int cnre_vram_device_open(struct cnre_vram_device *device, uint32_t ordinal)
{
	char message[GPU_MESSAGE_BYTES];
	int r = 0;

	(void)pthread_mutex_lock(&device->import_lock);
	if (device->import == NULL)
		r = gpu_import_load(message);
	if (device->import == NULL && r == 0)
		r = gpu_import_open(&device->import, (int)ordinal, message);
	(void)pthread_mutex_unlock(&device->import_lock);
	return r;
}

/* Device's lock held. */
static int open_locked(struct cnre *client, uint32_t ordinal, int64_t deadline_ns, struct cnre_vram_table **ret_table)
{
	struct cnre_vram_device *device = &client->vram->device[ordinal];
	struct cnre_vram_table *table;
	uint32_t epoch = cnre_client_epoch(client);
	int r = cnre_vram_device_open(device, ordinal);

	if (r == 0)
		r = ask_again(client, device, ordinal, deadline_ns, &table);
	remember(client, device, r, epoch);
	if (r < 0)
		return r;
	(void)ref(table); /* it has one already, which is the device's */
	set_current(device, table->number + 1);
	*ret_table = table;
	return 0;
}

static int lock_device(struct cnre_vram_device *device, int is_patient, int64_t deadline_ns)
{
	const struct timespec end = {.tv_sec = deadline_ns / CNRE_NS_PER_S, .tv_nsec = deadline_ns % CNRE_NS_PER_S};

	if (!is_patient)
		return pthread_mutex_trylock(&device->lock) == 0 ? 0 : -EAGAIN;
	if (deadline_ns == CNRE_NEVER)
		return -pthread_mutex_lock(&device->lock);
	return -pthread_mutex_clocklock(&device->lock, CLOCK_MONOTONIC, &end);
}

/* Another thread may have been first; what is of a former incarnation goes. */
static struct cnre_vram_table *find_good(struct cnre *client, uint32_t ordinal)
{
	struct cnre_vram_table *table = cnre_vram_table_find(client, ordinal);

	if (table == NULL || cnre_vram_table_is_current(client, table))
		return table;
	cnre_vram_table_unref(client, table, 1);
	return NULL;
}

/* Of a dead exporter nothing should stay open for want of a successor's table: the driver keeps its memory as long. */
static void drop_stale(struct cnre *client, struct cnre_vram_device *device, uint32_t ordinal)
{
	struct cnre_vram_table *table;

	/* [VR23] relaxed: a look; under the lock it is looked at again. */
	if (atomic_load_explicit(&device->current, memory_order_relaxed) == 0 || pthread_mutex_trylock(&device->lock) != 0)
		return;
	table = find_good(client, ordinal);
	if (table == NULL)
		drop_locked(client, device);
	else
		cnre_vram_table_unref(client, table, 1);
	(void)pthread_mutex_unlock(&device->lock);
}

static int open_new(struct cnre *client, uint32_t ordinal, int is_patient, int64_t deadline_ns, struct cnre_vram_table **ret_table)
{
	struct cnre_vram_device *device = &client->vram->device[ordinal];
	struct cnre_vram_table *table;
	int r = lock_device(device, is_patient, deadline_ns);

	if (r < 0)
		return r;
	table = find_good(client, ordinal);
	if (table != NULL) {
		*ret_table = table;
	} else {
		drop_locked(client, device);
		r = open_locked(client, ordinal, deadline_ns, ret_table);
	}
	(void)pthread_mutex_unlock(&device->lock);
	return r;
}

int cnre_vram_table_get(struct cnre *client, uint32_t ordinal, int is_patient, int64_t deadline_ns, struct cnre_vram_table **ret_table)
{
	struct cnre_vram_device *device = &client->vram->device[ordinal];
	struct cnre_vram_table *table = find_good(client, ordinal);
	int r = 0;

	if (table == NULL) {
		drop_stale(client, device, ordinal);
		r = remembered(client, device, is_patient);
		if (r == 0 && !cnre_vram_is_served(client))
			r = -ENODEV;
		if (r == 0)
			r = open_new(client, ordinal, is_patient, deadline_ns, &table);
		if (r < 0)
			return r;
	}
	if (cnre_vram_table_is_lost(table)) {
		cnre_vram_table_unref(client, table, 1);
		return -ENODEV;
	}
	*ret_table = table;
	return 0;
}
