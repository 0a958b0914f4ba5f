/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table from the answer that brought it to its end. The manager is trusted with what it writes, but sizes that do not fit
 * each other would be a crash in the engine: they are checked here once.
 */
#include "client/connection.h"
#include "client/vram.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- which structs are free ---- */

static struct cnre_vram_table *claim(struct cnre_vram *vram)
{
	struct cnre_vram_table *table = NULL;

	(void)pthread_mutex_lock(&vram->lock);
	for (uint32_t i = 0; i < CNRE_VRAM_TABLES_MAX && table == NULL; i++)
		if (!vram->table[i].is_claimed)
			table = &vram->table[i];
	if (table != NULL)
		table->is_claimed = 1;
	(void)pthread_mutex_unlock(&vram->lock);
	return table;
}

static void unclaim(struct cnre_vram *vram, struct cnre_vram_table *table)
{
	(void)pthread_mutex_lock(&vram->lock);
	table->is_claimed = 0;
	(void)pthread_mutex_unlock(&vram->lock);
}

/* ---- the exporter's pidfd ---- */

/*
 * A program that turns into a daemon closes every descriptor, and the number soon names something else. Before Linux 6.9 all
 * pidfds have one inode, so the kernel is also asked whether it is one at all.
 */
static int is_ours(const struct cnre_vram_table *table)
{
	struct stat status;

	return table->exporter >= 0 && fstat(table->exporter, &status) == 0 && status.st_dev == table->exporter_device &&
	       status.st_ino == table->exporter_inode && (syscall(SYS_pidfd_send_signal, table->exporter, 0, NULL, 0) == 0 || errno != EBADF);
}

static int keep_exporter(struct cnre_vram_table *table, int fd)
{
	struct stat status;
	int r = fstat(fd, &status) == 0 ? 0 : -errno;

	table->exporter_device = status.st_dev;
	table->exporter_inode = status.st_ino;
	table->exporter = r == 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
	if (r == 0 && table->exporter < 0)
		r = -errno;
	if (r < 0 || is_ours(table))
		return r;
	(void)close(table->exporter);
	table->exporter = -1;
	return -EBADMSG; /* no pidfd */
}

void cnre_vram_table_close_exporter(struct cnre_vram_table *table)
{
	if (is_ours(table))
		(void)close(table->exporter);
	table->exporter = -1;
}

/* A zombie is gone, too: poll says so, where a signal still reaches it. */
int cnre_vram_table_is_dead(struct cnre_vram_table *table)
{
	struct pollfd wanted = {.fd = table->exporter, .events = POLLIN};

	/* [VR17] relaxed: as [VR9]. */
	if (atomic_load_explicit(&table->is_dead, memory_order_relaxed) != 0)
		return 1;
	if (table->exporter < 0 || poll(&wanted, 1, 0) <= 0 || (wanted.revents & POLLIN) == 0 || !is_ours(table))
		return 0;
	/* [VR18] relaxed: as [VR9]. */
	atomic_store_explicit(&table->is_dead, 1, memory_order_relaxed);
	return 1;
}

/* ---- beginning ---- */

static int check_directory(const struct cnre *client, const struct cnre_vram_table *table)
{
	const struct cnre_segment *segment = table->segment;
	const struct cnre_vram_directory *directory = segment[0].base;

	if (directory->object_count != client->object_count || directory->device != table->device ||
	    segment[0].bytes < sizeof *directory + client->object_count * sizeof(struct cnre_entry) ||
	    segment[1].bytes < sizeof(struct cnre_vram_ledger) + client->object_count * sizeof(uint64_t) ||
	    memcmp(directory->uuid, gpu_import_uuid(table->import), sizeof directory->uuid) != 0)
		return -EBADMSG;
	return 0;
}

static int map(const struct cnre *client, struct cnre_vram_table *table, const int *fds)
{
	int r = cnre_segment_map(&table->segment[0], fds[CNRE_VRAM_FD_DIRECTORY], CNRE_SEGMENT_VRAM_DIRECTORY, sizeof(struct cnre_vram_directory), 0);

	if (r == 0)
		r = cnre_segment_map(&table->segment[1], fds[CNRE_VRAM_FD_LEDGER], CNRE_SEGMENT_VRAM_LEDGER, sizeof(struct cnre_vram_ledger), 1);
	if (r == 0)
		r = check_directory(client, table);
	if (r == 0)
		r = keep_exporter(table, fds[CNRE_VRAM_FD_EXPORTER]);
	if (r < 0)
		return r;
	table->directory = table->segment[0].base;
	table->ledger = table->segment[1].base;
	table->home = calloc(client->object_count, sizeof *table->home);
	return table->home == NULL && client->object_count > 0 ? -ENOMEM : 0;
}

static void unmap(struct cnre_vram_table *table)
{
	cnre_vram_table_close_exporter(table);
	for (unsigned i = 0; i < 2; i++)
		cnre_segment_close(&table->segment[i]);
	free((void *)table->home);
	table->home = NULL;
	table->directory = NULL;
	table->ledger = NULL;
}

int cnre_vram_table_make(struct cnre *client, const struct cnre_answer *answer, const struct cnre_vram_name *name, struct cnre_vram_table **ret_table)
{
	struct cnre_vram_table *table = claim(client->vram);
	int r;

	if (table == NULL)
		return -ENOSPC;
	table->ordinal = name->ordinal;
	table->device = name->device;
	table->epoch = name->epoch;
	table->import = name->import;
	r = map(client, table, answer->fds);
	if (r < 0) {
		unmap(table);
		unclaim(client->vram, table);
		return r;
	}
	/* [VR19] relaxed: nobody else uses it. */
	atomic_store_explicit(&table->is_dead, 0, memory_order_relaxed);
	/* [VR20] relaxed: as [VR19]. */
	atomic_store_explicit(&table->error, 0, memory_order_relaxed);
	/* [VR21] release, pairs with [VR2]: whoever still knows the number of the former one finds this one whole. */
	atomic_store_explicit(&table->uses, 1, memory_order_release);
	*ret_table = table;
	return 0;
}

/* ---- end ---- */

static uint64_t accesses_of(const struct cnre *client, const struct cnre_vram_table *table)
{
	uint64_t accesses = 0;

	for (uint32_t i = 0; i < client->object_count; i++)
		/* [VR22] relaxed: a count. */
		accesses += CNRE_LEDGER_ACCESSES(atomic_load_explicit(&table->ledger->word[i], memory_order_relaxed));
	return accesses;
}

void cnre_vram_table_end(struct cnre *client, struct cnre_vram_table *table)
{
	cnre_vram_arena_close_all(table);
	cnre_tally_add(&client->vram->retired, accesses_of(client, table));
	unmap(table);
	unclaim(client->vram, table);
}
