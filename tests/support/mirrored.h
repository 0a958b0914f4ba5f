/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small checkpoint of three shards in a temporary directory, and folders beside it for copies: two layers of four int8
 * experts, a shard each, whose parts are larger than a page; the third shard is dense.
 */
#ifndef CNRE_TESTS_SUPPORT_MIRRORED_H
#define CNRE_TESTS_SUPPORT_MIRRORED_H

#include <stdint.h>

enum { MIRRORED_LAYERS = 2, MIRRORED_EXPERTS = 4, MIRRORED_WIDTH = 128 };

struct mirrored {
	char path[64];                    /* temporary; model/ and whatever a test makes */
	char model[80];                   /* path/model */
};

void mirrored_open(struct mirrored *mirrored);
void mirrored_close(const struct mirrored *mirrored);

/* Another checkpoint of the same names: payload differs by `seed`, the third dimension by `width`. */
void mirrored_write(const struct mirrored *mirrored, const char *folder, unsigned seed, unsigned width);

/* A folder below path, its name in text (160 bytes); the shards whose numbers are listed, ended by 0, are copied there. */
const char *mirrored_copy(const struct mirrored *mirrored, const char *folder, const int *shards, char *text);

/* path/folder/SHARD of a number from 1 to 3. */
const char *mirrored_shard(const struct mirrored *mirrored, const char *folder, int number, char *text);

/* Flips bits of every byte in a range of a file, and puts its times back. */
void mirrored_flip(const char *path, uint64_t off, uint64_t bytes);

/* Runs a shell command with %s for mirrored->path; exits where it fails. */
void mirrored_run(const struct mirrored *mirrored, const char *format);

#endif
