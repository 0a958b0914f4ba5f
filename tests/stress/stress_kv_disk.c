/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk of KV blocks under load, for TSan: one thread submits and reaps, as the core of a manager does, another asks for
 * the status all the time, and the disk is closed with jobs waiting. What is read must be what was written.
 *
 * usage: stress_kv_disk [ROUNDS]
 */
#include "tests/support/kv_samples.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS 24u
#define BLOCK_BYTES 40000u

struct stress {
	struct kv_disk *disk;
	_Atomic int is_over;
	uint64_t asked;
};

static struct kv_block block[BLOCKS];
static struct kv_disk_job job[BLOCKS];
static void *memory[BLOCKS];
static uint32_t done_count;

static void count_done(struct kv_disk_job *one)
{
	(void)one;
	done_count++;
}

static void *ask_status(void *argument)
{
	struct stress *stress = argument;
	struct kv_disk_status status;

	while (!atomic_load_explicit(&stress->is_over, memory_order_acquire)) {
		kv_disk_get_status(stress->disk, &status);
		stress->asked += status.jobs_running <= KV_DISK_JOBS_MAX;
	}
	return NULL;
}

static void submit_all(struct kv_disk *disk, struct kv_folder *folder, enum kv_disk_kind kind)
{
	done_count = 0;
	for (uint32_t i = 0; i < BLOCKS; i++) {
		job[i] = (struct kv_disk_job){
			.kind = kind, .folder = folder, .block = &block[i], .memory = memory[i], .done = count_done};
		kv_disk_submit(disk, &job[i]);
	}
}

/* 0, or what is wrong. */
static const char *use(struct kv_disk *disk, struct kv_folder *folder, unsigned round)
{
	for (uint32_t i = 0; i < BLOCKS; i++)
		kv_sample_make(&block[i], memory[i], round * BLOCKS + i, BLOCK_BYTES + i % 2 * 960);
	submit_all(disk, folder, KV_DISK_WRITE);
	kv_sample_wait(disk, &done_count, BLOCKS);
	if (kv_sample_scan(disk, folder, NULL, 0) != (int)BLOCKS)
		return "a scan did not find what was written";
	for (uint32_t i = 0; i < BLOCKS; i++)
		memset(memory[i], 0, block[i].bytes);
	submit_all(disk, folder, KV_DISK_READ);
	kv_sample_wait(disk, &done_count, BLOCKS);
	for (uint32_t i = 0; i < BLOCKS; i++)
		if (job[i].status != 0 || !kv_sample_holds(memory[i], round * BLOCKS + i, block[i].bytes))
			return "a block was read wrongly";
	submit_all(disk, folder, KV_DISK_REMOVE); /* some of them are cancelled */
	return NULL;
}

static const char *run_round(const char *directory, unsigned round)
{
	struct stress stress = {.disk = kv_sample_open(directory, round % 2, round / 2 % 2)};
	struct kv_folder *folder;
	const char *wrong;
	pthread_t thread;

	if (stress.disk == NULL || kv_disk_folder(stress.disk, "f", &folder) < 0)
		return "no disk";
	if (pthread_create(&thread, NULL, ask_status, &stress) != 0)
		return "no thread";
	wrong = use(stress.disk, folder, round);
	atomic_store_explicit(&stress.is_over, 1, memory_order_release);
	(void)pthread_join(thread, NULL);
	if (kv_disk_close(stress.disk, -1) < 0 || (wrong == NULL && done_count != BLOCKS))
		return "a job was not given back";
	kv_sample_remove_tree(directory);
	return wrong;
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 40;
	char directory[] = "/var/tmp/cnre-kv-XXXXXX";
	const char *wrong = NULL;

	if (mkdtemp(directory) == NULL)
		return 1;
	for (uint32_t i = 0; i < BLOCKS; i++)
		memory[i] = kv_sample_memory(BLOCK_BYTES + 4096);
	for (unsigned round = 0; round < rounds && wrong == NULL; round++)
		wrong = run_round(directory, round);
	kv_sample_remove_tree(directory);
	for (uint32_t i = 0; i < BLOCKS; i++)
		free(memory[i]);
	if (wrong != NULL)
		(void)fprintf(stderr, "stress_kv_disk: %s\n", wrong);
	return wrong != NULL;
}
