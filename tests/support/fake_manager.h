/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A manager's socket with a thread behind it that answers every question alike, well or badly: for tests of programs
 * that ask. It uses the structs of shm/wire.h but none of its functions, so it can also send what they never would.
 */
#ifndef CNRE_TESTS_SUPPORT_FAKE_MANAGER_H
#define CNRE_TESTS_SUPPORT_FAKE_MANAGER_H

#include <pthread.h>
#include <stdint.h>

enum fake_behaviour {
	FAKE_ANSWERS,
	FAKE_REFUSES,             /* status, with text as the manager's words */
	FAKE_IS_SILENT,
	FAKE_HANGS_UP,
	FAKE_CHANGES_ID,
	FAKE_SENDS_NO_TEXT,       /* success without a descriptor */
	FAKE_SENDS_PIPE,          /* a descriptor that would block for ever */
	FAKE_PROMISES_MORE,       /* text_bytes beyond the memfd's end */
	FAKE_PROMISES_TOO_MUCH,   /* text_bytes beyond every bound */
	FAKE_IS_NEWER,            /* another layout version */
	FAKE_SENDS_GARBAGE,
};

struct fake_manager {
	enum fake_behaviour behaviour;
	const char *text;
	int32_t status;
	char directory[64];       /* mkdtemp, mode 0700 */
	char path[96];            /* directory/managerd.sock */
	char asked[4096];         /* text of the last question; read after fake_manager_stop */
	int question_count;       /* likewise */
	int file_count;           /* descriptors that came with questions; likewise */
	uint64_t file_inode;      /* of the last one */
	int listener;
	int stop_pipe[2];
	pthread_t thread;
};

/* Fill behaviour, text and status, then start; path may be set to listen elsewhere. 0 or -1. */
int fake_manager_start(struct fake_manager *manager);
/* Ends the thread and removes the socket and, if it made one, the directory. */
void fake_manager_stop(struct fake_manager *manager);

#endif
