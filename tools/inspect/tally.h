/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes that were read, by why, by whom and from where. Filled piece by piece of each read, from loads, files and processes that
 * the caller has looked up. Pure but for memory; every table has a bound, and what is beyond it is counted.
 */
#ifndef CNRE_TOOLS_INSPECT_TALLY_H
#define CNRE_TOOLS_INSPECT_TALLY_H

#include "tools/inspect/range_map.h"

#include <stdint.h>

#define TALLY_PROCESSES_MAX 4096u
#define TALLY_CLIENTS_MAX 4096u
#define TALLY_DRIVES_MAX 64u
#define TALLY_UNEXPLAINED_MAX 1024u
#define TALLY_NO_FILE UINT32_MAX
#define TALLY_PAGE_BYTES 4096u

enum tally_class {
	TALLY_LOAD,                       /* an expert, for a load that the manager has begun */
	TALLY_HEADER,                     /* of a shard */
	TALLY_OWN,                        /* the manager's own of a checkpoint: samples of copies, digests, tries of drives */
	TALLY_KV,                         /* the manager's files of KV prefixes */
	TALLY_DENSE,                      /* what of a checkpoint is no expert, by whoever computes with it */
	TALLY_AHEAD,                      /* beside what was asked for: the kernel reads ahead, and whole pages */
	TALLY_SELF,                       /* experts, by somebody who goes past the manager */
	TALLY_FILE,                       /* another file, which is known */
	TALLY_METADATA,                   /* a file system's own */
	TALLY_UNKNOWN,
	TALLY_CLASSES,
};

extern const char *const tally_class_name[TALLY_CLASSES];
int tally_is_attributed(enum tally_class class); /* to an expert, or to a known part of checkpoint or KV */

/* How far a process has read past dense bytes of a file: what follows at once may be the kernel's reading ahead. */
struct tally_chain {
	uint32_t file;
	uint64_t end, left;
};

struct tally_process {
	uint32_t process;
	char name[16];
	int is_kernel, is_exposed;        /* is_exposed: it was said aloud */
	uint64_t bytes[TALLY_CLASSES], cached_bytes, reads;
	uint32_t file;                    /* of the last TALLY_SELF */
	struct tally_chain chain;
};

struct tally_expert {
	uint64_t bytes;
	uint32_t loads;
};

struct tally_client {
	uint32_t session;
	uint64_t bytes, loads;
};

struct tally_drive {
	uint64_t device, bytes[TALLY_CLASSES];
};

struct tally_unexplained {
	uint32_t process;
	enum tally_class class;
	uint64_t device, inode, bytes;
};

struct tally {
	uint32_t process_count, client_count, drive_count, unexplained_count;
	struct tally_process *process;
	struct tally_client *client;
	struct tally_drive drive[TALLY_DRIVES_MAX];
	struct tally_unexplained *unexplained;
	uint64_t kind_bytes[3];           /* of loads: demand, prefetch, warm */
	uint64_t beyond;                  /* bytes that found no place in a table: of the totals only */
};

int tally_open(struct tally *tally); /* 0 or -ENOMEM */
void tally_close(struct tally *tally);

/* Its place; NULL: the table is full. */
struct tally_process *tally_process(struct tally *tally, uint32_t process, const char *name);
struct tally_client *tally_client(struct tally *tally, uint32_t session);

/* Counts a piece for a process and its drive; and as unexplained, if it is. */
void tally_add(struct tally *tally, struct tally_process *process, enum tally_class class, uint64_t device, uint64_t inode, uint64_t bytes);

struct tally_piece {
	uint32_t file;
	uint64_t file_off, bytes;
	enum range_kind kind;
	int is_cached;                    /* through the page cache */
	int is_before_dense;              /* in the same read, dense bytes or a header follow it */
};

/*
 * What a piece of a checkpoint is, read by anybody but the manager. ahead_bytes: how far the kernel may read beyond what it was
 * asked for.
 */
enum tally_class tally_judge(struct tally_chain *chain, const struct tally_piece *piece, uint64_t ahead_bytes);

#endif
