/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks for tests; see kv_samples.h. */
#include "tests/support/kv_samples.h"

#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE 4096u
#define WALK_DESCRIPTORS 16
#define WAIT_SLICE_MS 1000

static uint64_t word_at(uint32_t number, uint64_t off)
{
	return (off / 8 + 1) * 0x9e3779b97f4a7c15ull ^ ((uint64_t)number << 32 | number);
}

void *kv_sample_memory(uint64_t bytes)
{
	uint64_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
	void *memory = aligned_alloc(PAGE, whole);

	if (memory == NULL)
		abort();
	return memset(memory, 0, whole);
}

static void fill(unsigned char *memory, uint32_t number, uint64_t bytes)
{
	for (uint64_t off = 0; off < bytes; off += 8) {
		uint64_t word = word_at(number, off);

		memcpy(memory + off, &word, bytes - off < 8 ? bytes - off : 8);
	}
}

int kv_sample_holds(const void *memory, uint32_t number, uint64_t bytes)
{
	for (uint64_t off = 0; off < bytes; off += 8) {
		uint64_t word = word_at(number, off);

		if (memcmp((const char *)memory + off, &word, bytes - off < 8 ? bytes - off : 8) != 0)
			return 0;
	}
	return 1;
}

void kv_sample_make(struct kv_block *block, void *memory, uint32_t number, uint64_t bytes)
{
	memset(block, 0, sizeof *block);
	memset(block->root, 7, sizeof block->root);
	memcpy(block->parent, block->root, sizeof block->parent);
	block->token_count = block->block_tokens = 16;
	for (uint32_t i = 0; i < block->token_count; i++)
		block->token[i] = (int32_t)(number * 16 + i);
	block->mark.first = block->token_count;
	block->bytes = bytes;
	block->compute_ns = 1000 + number;
	fill(memory, number, bytes);
	kv_check_payload(memory, bytes, block->check);
	if (kv_key_block(block->parent, block->token, block->token_count, &block->mark, block->key) < 0)
		abort();
}

/* ---- jobs ---- */

struct kv_disk *kv_sample_open(const char *directory, int plain, int no_tmpfile)
{
	struct kv_disk_setup setup = {.directory = directory, .plain = plain, .no_tmpfile = no_tmpfile};
	char message[KV_DISK_MESSAGE_BYTES];
	struct kv_disk *disk;

	return kv_disk_open(&disk, &setup, message) < 0 ? NULL : disk;
}

void kv_sample_wait(struct kv_disk *disk, const uint32_t *counter, uint32_t wanted)
{
	struct pollfd event = {.fd = kv_disk_event_fd(disk), .events = POLLIN};

	while (*counter < wanted) {
		(void)poll(&event, 1, WAIT_SLICE_MS);
		(void)kv_disk_reap(disk);
	}
}

struct waited {
	struct kv_disk_job job;
	uint32_t count;
};

static void is_done(struct kv_disk_job *job)
{
	((struct waited *)((char *)job - offsetof(struct waited, job)))->count = 1;
}

int kv_sample_run(struct kv_disk *disk, struct kv_disk_job *job)
{
	struct waited waited = {.job = *job};

	waited.job.done = is_done;
	kv_disk_submit(disk, &waited.job);
	kv_sample_wait(disk, &waited.count, 1);
	*job = waited.job;
	return job->status;
}

int kv_sample_do(struct kv_disk *disk, struct kv_folder *folder, enum kv_disk_kind kind, struct kv_block *block,
		 void *memory)
{
	struct kv_disk_job job = {.kind = kind, .folder = folder, .block = block, .memory = memory};

	return kv_sample_run(disk, &job);
}

int kv_sample_scan(struct kv_disk *disk, struct kv_folder *folder, struct kv_block *found, uint32_t room)
{
	struct kv_block *batch = calloc(KV_DISK_SCAN_BATCH, sizeof *batch);
	struct kv_disk_job job = {.kind = KV_DISK_SCAN, .folder = folder, .found = batch};
	uint32_t count = 0;
	int r;

	if (batch == NULL)
		abort();
	while ((r = kv_sample_run(disk, &job)) == 0 && job.found_count > 0)
		for (uint32_t i = 0; i < job.found_count; i++, count++)
			if (count < room)
				found[count] = batch[i];
	free(batch);
	return r < 0 ? r : (int)count;
}

/* ---- trees ---- */

static const char *counted_text;
static int counted;

static int count_one(const char *path, const struct stat *status, int type, struct FTW *place)
{
	(void)status;
	counted += type != FTW_D && type != FTW_DP && strstr(path + place->base, counted_text) != NULL;
	return 0;
}

int kv_sample_count_files(const char *directory, const char *text)
{
	counted = 0;
	counted_text = text;
	(void)nftw(directory, count_one, WALK_DESCRIPTORS, FTW_PHYS);
	return counted;
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *place)
{
	(void)status;
	(void)type;
	(void)place;
	(void)remove(path);
	return 0;
}

void kv_sample_remove_tree(const char *directory)
{
	(void)nftw(directory, remove_one, WALK_DESCRIPTORS, FTW_PHYS | FTW_DEPTH);
}

void kv_sample_path(const char *directory, const char *folder, const struct kv_block *block, char *text,
		    size_t text_bytes)
{
	char key[2 * KV_KEY_BYTES + 1];

	for (size_t i = 0; i < KV_KEY_BYTES; i++)
		(void)snprintf(key + 2 * i, 3, "%02x", block->key[i]);
	(void)snprintf(text, text_bytes, "%s/%s/%.2s/%s", directory, folder, key, key);
}
