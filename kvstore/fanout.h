/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the files of a namespace lie below the directory of a disk: names, the directories themselves, what is put aside,
 * and which fan-out directories a scan has to look at. All paths are relative to the one descriptor that a disk holds, so
 * that neither 256 directories a namespace stay open nor a moved mount point is followed. Plain calls, for the rare
 * things; called by the thread of the disk only, but for what is said to be otherwise.
 */
#ifndef KVSTORE_FANOUT_H
#define KVSTORE_FANOUT_H

#include "kvstore/disk.h"

#include <dirent.h>
#include <time.h>

#define FANOUT_FANS 256u                  /* directories by the first byte of a key */
#define FANOUT_KEY_DIGITS (2 * KV_KEY_BYTES)
#define FANOUT_PATH_BYTES 320u            /* <folder>/<2 digits>/<key>.tmp.<boot id>.<pid>.<n>, with its end */
#define FANOUT_QUARANTINED_MAX 64u        /* files put aside and kept for a person to look at; more are unlinked */
#define FANOUT_QUARANTINE "quarantine"

struct kv_folder {
	struct kv_folder *next;
	char name[KV_DISK_FOLDER_BYTES];
	int quarantine_count;             /* files there; -1: not counted yet */
	/* A round of a scan. */
	DIR *listing;                     /* the directory that is read just now, or NULL */
	uint32_t fan;                     /* the next one, FANOUT_FANS: the round ends */
	struct timespec seen[FANOUT_FANS]; /* when it was last changed as we last listed it; 0: never */
};

int fanout_name_is_good(const char *name);
void fanout_key_text(const unsigned char key[KV_KEY_BYTES], char ret_text[FANOUT_KEY_DIGITS + 1]);
/* Lower-case digits, and nothing behind them. 0 or -EINVAL. */
int fanout_key_of(const char *text, unsigned char ret_key[KV_KEY_BYTES]);
void fanout_path(const struct kv_folder *folder, const unsigned char key[KV_KEY_BYTES], char ret_path[FANOUT_PATH_BYTES]);

/* The directories that a block's file lies in. 0 or -errno; -ENOENT: the root itself is gone. */
int fanout_make(const struct kv_folder *folder, int root_fd, const unsigned char key[KV_KEY_BYTES]);

/* Puts the file aside if it is still the one that fd is. Its failure, as on a read-only drive, is nobody's. */
void fanout_quarantine(struct kv_folder *folder, int root_fd, const unsigned char key[KV_KEY_BYTES], int fd);

/*
 * The next name of the round that can be a block's, from directories that changed since they were last listed.
 * Returns:  1, 0 (the round is over; the next call begins another), or -errno of a directory that cannot be read, after
 *           which the next call goes on behind it.
 */
int fanout_next(struct kv_folder *folder, int root_fd, unsigned char ret_key[KV_KEY_BYTES]);
void fanout_end_round(struct kv_folder *folder);

#endif
