/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of an export and of an import, each a job of the writer thread; see kv_transfer.h. */
#include "manager/kv_transfer.h"

#include "base/log.h"
#include "kvstore/prefix_file.h"
#include "manager/kv_access.h"
#include "manager/peer.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum kind { EXPORT, IMPORT };
enum state { RUNNING, DONE, FAILED };

struct link {                             /* a block to export, and whether it is still that one */
	uint32_t index;
	uint64_t id;
};

struct kv_transfer {
	struct worker_job job; /* first */
	struct kv_store *store;
	struct kv_namespace *space;
	enum kind kind;
	enum state state;
	int fd; /* -1: closed */
	int is_waiting; /* for a job, or for a copy */
	int status, has_block;
	struct link *link;
	uint32_t link_count, next;
	struct kv_prefix_writer writer;
	struct kv_prefix_reader reader;
	struct kv_block block;
	void *payload;
	uint64_t blocks, present, tokens, bytes;
	uint64_t bytes_max; /* of a payload */
	struct kv_copy *copy;
	char message[KV_PREFIX_MESSAGE_BYTES];
};

int kv_transfer_is_running(const struct kv_store *store)
{
	return store->transfer != NULL && (store->transfer->state == RUNNING || store->transfer->is_waiting);
}

int kv_transfer_is_at_work(const struct kv_store *store)
{
	return store->transfer != NULL && store->transfer->is_waiting;
}

static void end(struct kv_transfer *transfer, enum state state)
{
	transfer->state = state;
	if (transfer->fd >= 0)
		(void)close(transfer->fd);
	transfer->fd = -1;
	free(transfer->link);
	free(transfer->payload);
	transfer->link = NULL;
	transfer->payload = NULL;
	cnre_log(CNRE_LOG_NOTICE, "kv: %s of %llu blocks is %s%s%s", transfer->kind == EXPORT ? "an export" : "an import",
		 (unsigned long long)transfer->blocks, state == DONE ? "done" : "over: ", state == DONE ? "" : transfer->message, "");
}

static void fail(struct kv_transfer *transfer, int r, const char *why)
{
	if (transfer->message[0] == '\0')
		(void)snprintf(transfer->message, sizeof transfer->message, "%s: %s", why, strerror(-r));
	end(transfer, FAILED);
}

static void submit(struct kv_transfer *transfer, void (*run)(struct worker_job *), void (*done)(struct worker_job *))
{
	transfer->is_waiting = 1;
	transfer->job = (struct worker_job){.run = run, .done = done};
	worker_submit(transfer->store->manager->writer, &transfer->job);
}

static int begin(struct kv_store *store, enum kind kind, struct kv_namespace *space, int fd, struct kv_transfer **ret_transfer,
		 char message[KV_MESSAGE_BYTES])
{
	struct kv_transfer *transfer;

	if (kv_transfer_is_running(store)) {
		(void)snprintf(message, KV_MESSAGE_BYTES, "another export or import is under way: see cnrectl kv, and ask again");
		return -EBUSY;
	}
	transfer = calloc(1, sizeof *transfer);
	if (transfer == NULL) {
		(void)snprintf(message, KV_MESSAGE_BYTES, "out of memory");
		return -ENOMEM;
	}
	free(store->transfer);
	store->transfer = transfer;
	transfer->store = store;
	transfer->kind = kind;
	transfer->space = space;
	transfer->fd = fd;
	transfer->bytes_max = kv_pin_bytes_max(store);
	*ret_transfer = transfer;
	return 0;
}

/* ---- export ---- */

static int parse_key(const char *hex, unsigned char ret_key[KV_KEY_BYTES])
{
	if (hex == NULL || strlen(hex) != 2 * KV_KEY_BYTES || strspn(hex, "0123456789abcdefABCDEF") != 2 * KV_KEY_BYTES)
		return -EINVAL;
	for (uint32_t i = 0; i < KV_KEY_BYTES; i++) {
		unsigned byte;

		(void)sscanf(hex + 2 * i, "%2x", &byte);
		ret_key[i] = (unsigned char)byte;
	}
	return 0;
}

static uint32_t find_key(const struct kv_store *store, const unsigned char *key, struct kv_namespace **ret_space)
{
	for (uint32_t i = 0; i < CNRE_KV_NAMESPACES_MAX; i++) {
		uint32_t index = store->space[i] == NULL ? CNRE_KV_NONE : cnre_kv_index_lookup(store->space[i]->directory, key);

		if (index != CNRE_KV_NONE) {
			*ret_space = store->space[i];
			return index;
		}
	}
	return CNRE_KV_NONE;
}

/* From the leaf up; -ESTALE: the way to the root is broken. */
static int collect(struct kv_transfer *transfer, uint32_t leaf)
{
	const struct kv_namespace *space = transfer->space;
	uint32_t count = 1, at = leaf;

	while (space->entry[at].position > 0) {
		at = cnre_kv_index_lookup(space->directory, space->entry[at].parent);
		if (at == CNRE_KV_NONE || count++ > space->entry_count)
			return -ESTALE;
	}
	transfer->link = calloc(count, sizeof *transfer->link);
	if (transfer->link == NULL)
		return -ENOMEM;
	transfer->link_count = count;
	for (at = leaf; count-- > 0; at = cnre_kv_index_lookup(space->directory, space->entry[at].parent)) {
		transfer->link[count] = (struct link){.index = at, .id = space->entry[at].id};
		transfer->tokens += space->entry[at].token_count;
		transfer->bytes += space->entry[at].bytes;
	}
	return 0;
}

int kv_transfer_export(struct kv_store *store, const char *key_hex, int fd, char message[KV_MESSAGE_BYTES])
{
	unsigned char key[KV_KEY_BYTES];
	struct kv_namespace *space = NULL;
	struct kv_transfer *transfer;
	uint32_t leaf = parse_key(key_hex, key) < 0 ? CNRE_KV_NONE : find_key(store, key, &space);
	int r;

	if (leaf == CNRE_KV_NONE) {
		(void)snprintf(message, KV_MESSAGE_BYTES, "no block of that name: cnrectl kv shows the prefixes that saved most");
		return -ENOENT;
	}
	r = begin(store, EXPORT, space, fd, &transfer, message);
	if (r < 0)
		return r;
	r = collect(transfer, leaf);
	if (r == 0)
		r = kv_prefix_begin(&transfer->writer, fd);
	if (r == 0)
		return 0;
	(void)snprintf(message, KV_MESSAGE_BYTES, "the prefix cannot be exported: %s",
		       r == -EINVAL ? "the file must be a new regular one, open for writing" : strerror(-r));
	transfer->fd = -1; /* stays the caller's */
	fail(transfer, r, "export");
	return r;
}

static void add_block(struct worker_job *job)
{
	struct kv_transfer *transfer = (struct kv_transfer *)job;
	const struct cnre_kv_entry *entry = &transfer->space->entry[transfer->link[transfer->next].index];

	transfer->status = kv_prefix_add(&transfer->writer, &transfer->block, kv_address(transfer->space, kv_place(entry)));
}

static void block_added(struct worker_job *job)
{
	struct kv_transfer *transfer = (struct kv_transfer *)job;

	transfer->is_waiting = 0;
	transfer->space->note[transfer->link[transfer->next].index].doing &= ~(uint32_t)KV_DOING_EXPORT;
	transfer->next++;
	transfer->blocks++;
	if (transfer->status < 0)
		fail(transfer, transfer->status, "the file cannot be written");
}

static void finish_file(struct worker_job *job)
{
	struct kv_transfer *transfer = (struct kv_transfer *)job;

	transfer->status = kv_prefix_end(&transfer->writer, NULL);
	if (transfer->status == 0 && fsync(transfer->fd) < 0)
		transfer->status = -errno;
}

static void file_finished(struct worker_job *job)
{
	struct kv_transfer *transfer = (struct kv_transfer *)job;

	transfer->is_waiting = 0;
	if (transfer->status < 0)
		fail(transfer, transfer->status, "the file cannot be finished");
	else
		end(transfer, DONE);
}

static void export_more(struct kv_transfer *transfer)
{
	struct kv_namespace *space = transfer->space;
	const struct link *link;
	const struct cnre_kv_entry *entry;

	if (transfer->next == transfer->link_count) {
		submit(transfer, finish_file, file_finished);
		return;
	}
	link = &transfer->link[transfer->next];
	entry = &space->entry[link->index];
	if (!kv_is_indexed(entry) || entry->id != link->id) {
		fail(transfer, -ESTALE, "a block went meanwhile");
	} else if (kv_state(entry) == CNRE_STATE_READY && space->note[link->index].doing == 0) {
		space->note[link->index].doing |= KV_DOING_EXPORT;
		kv_entry_tell(entry, &transfer->block);
		submit(transfer, add_block, block_added);
	} else if (kv_state(entry) == CNRE_STATE_ABSENT && space->note[link->index].doing == 0) {
		(void)kv_load_start(space, link->index); /* and again, until it is there or is no more */
	}
}

/* ---- import ---- */

static int is_open(const struct kv_store *store, const char *full_name)
{
	for (uint32_t i = 0; i < CNRE_KV_NAMESPACES_MAX; i++)
		if (store->space[i] != NULL && strcmp(store->space[i]->name, full_name) == 0)
			return 1;
	return 0;
}

/* As cnrectl kv shows it, else what the asker would get as a client. It begins here if nobody has opened it yet. */
static int find_space(struct kv_store *store, const char *name, const struct peer *peer, struct kv_namespace **ret_space,
		      char message[KV_MESSAGE_BYTES])
{
	char full[CNRE_KV_NAME_BYTES];
	int r = 0;

	if (name != NULL && strlen(name) < sizeof full && (is_open(store, name) || kv_access_is_full(store->access, name)))
		(void)snprintf(full, sizeof full, "%s", name);
	else
		r = kv_access_resolve(store->access, name, peer->uid, peer->gid, peer->socket, full, sizeof full, message);
	if (r < 0)
		return r;
	r = kv_namespace_named(store, full, ret_space);
	if (r < 0)
		(void)snprintf(message, KV_MESSAGE_BYTES, "%.95s: %s", full,
			       r == -ENOSPC ? "too many KV namespaces" : "no memory for one more KV namespace");
	return r;
}

int kv_transfer_import(struct kv_store *store, const char *name, const struct peer *peer, int fd, char message[KV_MESSAGE_BYTES])
{
	struct kv_namespace *space;
	struct kv_transfer *transfer;
	int r = find_space(store, name, peer, &space, message);

	return r < 0 ? r : begin(store, IMPORT, space, fd, &transfer, message);
}

static void open_file(struct kv_transfer *transfer)
{
	transfer->status = kv_prefix_open(&transfer->reader, transfer->fd, transfer->message);
	if (transfer->status == 0 && transfer->reader.summary.payload_bytes_max > transfer->bytes_max) {
		(void)snprintf(transfer->message, sizeof transfer->message,
			       "its blocks are larger than a quarter of --kv-ram: raise it");
		transfer->status = -E2BIG;
	}
	if (transfer->status < 0)
		return;
	transfer->payload = malloc(transfer->reader.summary.payload_bytes_max);
	transfer->status = transfer->payload == NULL ? -ENOMEM : 0;
}

static void read_block(struct worker_job *job)
{
	struct kv_transfer *transfer = (struct kv_transfer *)job;

	if (transfer->payload == NULL)
		open_file(transfer);
	if (transfer->status < 0)
		return;
	transfer->status = kv_prefix_next(&transfer->reader, &transfer->block, transfer->message);
	transfer->has_block = transfer->status > 0;
	if (transfer->has_block)
		transfer->status = kv_prefix_read_payload(&transfer->reader, transfer->payload, transfer->message);
}

static void block_read(struct worker_job *job)
{
	struct kv_transfer *transfer = (struct kv_transfer *)job;

	transfer->is_waiting = 0;
	if (transfer->status < 0)
		fail(transfer, transfer->status, "the file cannot be read");
	else if (!transfer->has_block)
		end(transfer, DONE);
}

static void take_result(struct kv_transfer *transfer, int r)
{
	transfer->has_block = 0;
	if (r < 0) {
		fail(transfer, r, "a block cannot be stored");
		return;
	}
	transfer->blocks++;
	transfer->present += r == 1;
	transfer->tokens += transfer->block.token_count;
	transfer->bytes += transfer->block.bytes;
}

static void block_copied(struct kv_copy *copy, int result)
{
	struct kv_transfer *transfer = copy->owner;

	transfer->is_waiting = 0;
	transfer->copy = NULL;
	take_result(transfer, result);
}

static void copied(struct worker_job *job)
{
	kv_publish_settle((struct kv_copy *)job, 1);
}

static void import_more(struct kv_transfer *transfer)
{
	struct kv_copy what = {
		.job.done = copied, .from = transfer->payload, .from_fd = -1, .ended = block_copied, .owner = transfer, .block = transfer->block};
	int r;

	if (!transfer->has_block) {
		submit(transfer, read_block, block_read);
		return;
	}
	r = kv_publish_begin(transfer->space, &what, &transfer->copy);
	if (r == 0)
		transfer->is_waiting = 1;
	else if (r != -EAGAIN)
		take_result(transfer, r);
}

/* ---- both ---- */

void kv_transfer_turn(struct kv_store *store)
{
	struct kv_transfer *transfer = store->transfer;

	if (transfer == NULL || transfer->state != RUNNING || transfer->is_waiting)
		return;
	if (transfer->kind == EXPORT)
		export_more(transfer);
	else
		import_more(transfer);
}

void kv_transfer_close(struct kv_store *store)
{
	struct kv_transfer *transfer = store->transfer;

	if (transfer == NULL)
		return;
	if (transfer->state == RUNNING)
		fail(transfer, -ECANCELED, "the manager ends");
	free(transfer);
	store->transfer = NULL;
}

json_t *kv_transfer_report(const struct kv_store *store)
{
	static const char *const kinds[] = {"export", "import"}, *const states[] = {"running", "done", "failed"};
	const struct kv_transfer *transfer = store->transfer;

	if (transfer == NULL)
		return json_null();
	return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:s}", "kind", kinds[transfer->kind], "state", states[transfer->state],
			 "blocks", (json_int_t)transfer->blocks, "present", (json_int_t)transfer->present, "tokens",
			 (json_int_t)transfer->tokens, "bytes", (json_int_t)transfer->bytes, "error", transfer->message);
}
