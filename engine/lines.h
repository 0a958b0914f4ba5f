/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of bounded length from a descriptor that brings bytes in pieces of any size. The bytes are a stranger's. */
#ifndef ENGINE_LINES_H
#define ENGINE_LINES_H

#include <stdbool.h>
#include <stddef.h>

struct lines {
	char *buffer;
	size_t first, end, room;          /* bytes not taken yet: [first, end) */
	size_t line_bytes_max;            /* without the newline */
	bool is_skipping;                 /* the rest of a line that was too long */
};

void lines_init(struct lines *lines, size_t line_bytes_max);
void lines_done(struct lines *lines);

/* Reads once. Bytes read, 0 at the end (a last line without a newline is then complete), or -errno, -ENOMEM. */
int lines_read(struct lines *lines, int fd);

/* 1 and the next line, good until the next call; 0: none is complete; -E2BIG, once a line: it was too long, and is gone. */
int lines_take(struct lines *lines, char **ret_line);

#endif
