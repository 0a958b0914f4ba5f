/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sample blocks whose every byte follows from a number, and single jobs of a disk done and waited for. Nothing asserts, so
 * children may use it.
 */
#ifndef CNRE_TESTS_KV_SAMPLES_H
#define CNRE_TESTS_KV_SAMPLES_H

#include "kvstore/disk.h"

/* A first block of a root of its own, and its payload, for which memory has room for bytes rounded up to 4096. */
void kv_sample_make(struct kv_block *block, void *memory, uint32_t number, uint64_t bytes);
int kv_sample_holds(const void *memory, uint32_t number, uint64_t bytes);
void *kv_sample_memory(uint64_t bytes);   /* zeros, aligned; free() it */

/* NULL when it does not open. */
struct kv_disk *kv_sample_open(const char *directory, int plain, int no_tmpfile);
/* Submits, and waits until its `done` was called; then the status. The job's done is set. */
int kv_sample_run(struct kv_disk *disk, struct kv_disk_job *job);
int kv_sample_do(struct kv_disk *disk, struct kv_folder *folder, enum kv_disk_kind kind, struct kv_block *block, void *memory);
void kv_sample_wait(struct kv_disk *disk, const uint32_t *counter, uint32_t wanted); /* until done functions counted so far */
/* A whole round: how many, or -errno. The first `room` of them are in found. */
int kv_sample_scan(struct kv_disk *disk, struct kv_folder *folder, struct kv_block *found, uint32_t room);

/* Files in the tree whose name has the text in it; and all of it goes. */
int kv_sample_count_files(const char *directory, const char *text);
void kv_sample_remove_tree(const char *directory);
void kv_sample_path(const char *directory, const char *folder, const struct kv_block *block, char *text, size_t text_bytes);

#endif
