/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names for what is read beside the checkpoint: which file an inode in the page cache is, whether a sector belongs to the
 * manager's files of KV prefixes, and which devices are below others, whose reads would count twice.
 */
#ifndef CNRE_TOOLS_INSPECT_KNOWN_FILES_H
#define CNRE_TOOLS_INSPECT_KNOWN_FILES_H

#include "tools/inspect/extent_map.h"

#include <stdint.h>

#define KNOWN_FILES_MAX 1024u             /* names that are kept */
#define KNOWN_KV_FILES_MAX 65536u
#define KNOWN_DEVICES_MAX 256u
#define KNOWN_KV_EVERY_NS 1000000000LL    /* the folder is listed again at most so often */

struct known_file {
	uint64_t device, inode;
	char path[256];
};

struct known_device {
	uint64_t device;
	int is_mounted;
};

struct known_files {
	uint32_t count, device_count;
	struct known_file *file;
	struct known_device device[KNOWN_DEVICES_MAX];
	char kv_directory[512];           /* "": none */
	int64_t kv_listed_ns;
	struct extent_map kv;
};

int known_files_open(struct known_files *files, const char *kv_directory); /* NULL: none. 0 or -ENOMEM */
void known_files_close(struct known_files *files);

/* The path of an inode that the process has open or mapped; "" if it is not found any more. Looked up once. */
const char *known_files_path(struct known_files *files, uint32_t process, uint64_t device, uint64_t inode);

/* 1: a file system is mounted from it; 0: it is under another device, or of nobody. */
int known_files_is_mounted(struct known_files *files, uint64_t device);

/* Whether a place is in the files of KV prefixes; lists them anew if it is in none. */
int known_files_is_kv(struct known_files *files, uint64_t device, uint64_t begin);

#endif
