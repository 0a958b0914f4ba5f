/* SPDX-License-Identifier: Apache-2.0 */
/* A temporary directory of small files for one test: checkpoints, good and bad. Calls never fail quietly: they exit(99). */
#ifndef CNRE_TESTS_SUPPORT_FOLDER_H
#define CNRE_TESTS_SUPPORT_FOLDER_H

#include <stddef.h>
#include <stdint.h>

struct folder {
	char path[64];
};

void folder_make(struct folder *folder);
void folder_remove(const struct folder *folder); /* with its files; there are no folders inside */
void folder_write(const struct folder *folder, const char *name, const void *bytes, size_t count);

/* A safetensors file: length, the header, then data_bytes of pattern (a hole where there are many). */
void folder_write_shard(const struct folder *folder, const char *name, const char *header, uint64_t data_bytes);
const char *folder_path(const struct folder *folder, const char *name, char *text, size_t text_bytes);

#endif
